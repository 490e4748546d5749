# holdfast_kernels(TARGET FILE...): adds kernel files (.cu) to a target.
#
# With the CUDA backend nvcc compiles them. With the CPU backend the C++ compiler compiles the same
# files against holdfast/cpu/simt.hpp. In the intercepted flavour they are compiled with
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
set(HOLDFAST_FAITHFUL_STORES
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
function(holdfast_kernels target)
  foreach(file IN LISTS ARGN)
    if(HOLDFAST_BACKEND STREQUAL "cpu")
      set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES LANGUAGE CXX)
      if(HOLDFAST_INTERCEPT)
        set_source_files_properties(
          ${file} TARGET_DIRECTORY ${target}
          PROPERTIES COMPILE_OPTIONS
                     "-g;-fsanitize=thread;-fno-builtin;-fno-weak;-D__GXX_TYPEINFO_EQUALITY_INLINE=1;-w;${HOLDFAST_FAITHFUL_STORES};--param=tsan-distinguish-volatile=1;--param=tsan-instrument-func-entry-exit=0;-include;${PROJECT_SOURCE_DIR}/include/holdfast/cpu/intercept.hpp"
        )
      endif()
    endif()
    target_sources(${target} PRIVATE ${file})
  endforeach()
endfunction()

# holdfast_warnings(TARGET): the warnings that all of our code is compiled with. They are errors in
# our presets (HOLDFAST_WERROR), not in a user's build: a newer compiler may warn of more.
function(holdfast_warnings target)
  target_compile_options(
    ${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-unknown-pragmas>
                      $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
  if(HOLDFAST_WERROR)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
                                             $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  endif()
  if(HOLDFAST_SANITIZE)
    # Under the sanitizers g++ takes parts of std::regex for uninitialized.
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
  endif()
endfunction()
