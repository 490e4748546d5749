# holdfast_kernels(TARGET FILE...): adds kernel files (.cu) to a target that links holdfast::holdfast
# or holdfast::check, before or after this call.
#
# With the CUDA backend nvcc compiles them. With the CPU backend the C++ compiler compiles the same
# files against holdfast/cpu/simt.hpp. In a target that links holdfast::check, and in all of a tree
# that was configured with HOLDFAST_INTERCEPT, they are compiled in the intercepted flavour: with
# -fsanitize=thread, whose hooks the CPU backend supplies in place of the sanitizer's runtime;
# docs/architecture.md says why each flag is there. Of those that surprise: -fno-weak gives each
# kernel file inline functions of its own, which the linker would otherwise merge with copies in
# host files that have no hooks (and libstdc++, told so by it, would call a comparison of types that
# only other platforms' libraries have); -w silences its remark on every inline variable (the other
# flavours compile the same files with all warnings); -g tells source lines from an event's pc, and
# unlike -g1 the names of inlined functions, too.
#
# The hooks are put in after many of the optimiser's passes, and a kernel is to be recorded as it is
# written, store by store: what a pass deletes, merges or moves out of a loop is a crash that is never
# explored. So every pass before the hooks that does such a thing to a store is off; tests/cpu/stores.cu
# has a kernel for each kind. Passes behind the hooks may stay: no store passes the call of a hook.
set(faithful_stores
    -fno-strict-aliasing # nothing is known of two pointers by their types
    -fno-tree-loop-im # moves stores out of loops
    -fno-tree-dse # deletes stores that are overwritten, and trims wide ones
    -fno-tree-fre -fno-tree-pre -fno-tree-dominator-opts # delete stores of what is there already
    -fno-tree-sink -fno-tree-tail-merge # make one store of two branches' equal ones
    -fno-tree-cselim # makes one store of two branches' different ones, where one follows at once
    -fno-code-hoisting
    -fno-store-merging # joins neighbours
    -fno-ipa-icf # makes one function of two equal ones
    -fno-tree-loop-distribute-patterns -fno-tree-loop-distribution -fno-tree-vectorize
    -fno-tree-slp-vectorize -fno-tree-loop-if-convert)
set(intercept_options
    -g -fsanitize=thread -fno-builtin -fno-weak -D__GXX_TYPEINFO_EQUALITY_INLINE=1 -w
    ${faithful_stores}
    --param=tsan-distinguish-volatile=1 --param=tsan-instrument-func-entry-exit=0
    -include holdfast/cpu/intercept.hpp)
# A target is of the flavour of what it links; two flavours in one program are refused.
set_property(
  GLOBAL PROPERTY HOLDFAST_KERNEL_OPTIONS
                  "$<$<BOOL:$<TARGET_PROPERTY:HOLDFAST_INTERCEPT>>:${intercept_options}>")

function(holdfast_kernels target)
  get_property(backend GLOBAL PROPERTY HOLDFAST_BACKEND)
  get_property(options GLOBAL PROPERTY HOLDFAST_KERNEL_OPTIONS)
  foreach(file IN LISTS ARGN)
    if(backend STREQUAL "cpu")
      set_source_files_properties(${file} TARGET_DIRECTORY ${target}
                                  PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "${options}")
    endif()
    target_sources(${target} PRIVATE ${file})
  endforeach()
  if(backend STREQUAL "cuda")
    get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
    if(NOT "CUDA" IN_LIST languages)
      message(FATAL_ERROR "holdfast_kernels(${target}): this Holdfast is of the CUDA backend: name "
                          "CUDA among the languages of project()")
    endif()
    set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
    set_property(GLOBAL APPEND PROPERTY HOLDFAST_KERNEL_TARGETS ${target})
  endif()
endfunction()

# holdfast_flavour(TARGET plain|intercepted): of a library of Holdfast itself.
function(holdfast_flavour target flavour)
  set(intercepted OFF)
  if(flavour STREQUAL "intercepted")
    set(intercepted ON)
    target_compile_definitions(${target} PUBLIC HOLDFAST_INTERCEPT=1)
  endif()
  set_target_properties(
    ${target}
    PROPERTIES HOLDFAST_INTERCEPT ${intercepted} INTERFACE_HOLDFAST_INTERCEPT ${intercepted}
               COMPATIBLE_INTERFACE_BOOL HOLDFAST_INTERCEPT)
endfunction()

# CMake 3.25 does not know that nvcc takes C++20. In the cache, since whoever adds Holdfast as a
# subproject has to know it, too.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20" CACHE INTERNAL "")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20" CACHE INTERNAL "")
endif()
