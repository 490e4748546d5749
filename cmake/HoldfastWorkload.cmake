# holdfast_workload(NAME [CHECKED_ONLY] SOURCES FILE... KERNELS FILE... [CHECK FILE...]
#                   [TESTS FILE...])
#
# Of a folder of workloads/:
#   NAME_workload  the library: SOURCES, with OpenMP, and KERNELS. It defines
#                  std::vector<workload::Info> NAME::workloads(), if it is not CHECKED_ONLY.
#   NAME_check     CHECK, kernel files, where the tree has the checker. It defines
#                  std::vector<holdfast::check::Offer> NAME::check_programs().
#   NAME_test      TESTS, where tests are built.
# The registries call what it defines (workloads/CMakeLists.txt).
function(holdfast_workload name)
  cmake_parse_arguments(arg "CHECKED_ONLY" "" "SOURCES;KERNELS;CHECK;TESTS" ${ARGN})
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder)
  if(NOT name STREQUAL folder)
    message(FATAL_ERROR "holdfast_workload(${name}): its folder is '${folder}': give that name")
  endif()
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_KERNELS)
    message(FATAL_ERROR "holdfast_workload(${name}): give KERNELS, and nothing that it does not "
                        "know: '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  add_library(${name}_workload STATIC ${arg_SOURCES})
  holdfast_kernels(${name}_workload ${arg_KERNELS})
  target_link_libraries(${name}_workload PUBLIC workload holdfast PRIVATE OpenMP::OpenMP_CXX)
  holdfast_warnings(${name}_workload)
  if(NOT arg_CHECKED_ONLY)
    set_property(GLOBAL APPEND PROPERTY HOLDFAST_WORKLOAD_NAMES ${name})
  endif()
  if(arg_CHECK AND HOLDFAST_INTERCEPT)
    add_library(${name}_check STATIC)
    holdfast_kernels(${name}_check ${arg_CHECK})
    target_link_libraries(${name}_check PUBLIC workload_checking PRIVATE ${name}_workload)
    holdfast_warnings(${name}_check)
    set_property(GLOBAL APPEND PROPERTY HOLDFAST_CHECKED_NAMES ${name})
  endif()
  if(arg_TESTS)
    holdfast_workload_test(${name} ${name}_test ${arg_TESTS})
  endif()
endfunction()

# holdfast_workload_test(NAME TEST FILE...): a test program of a workload. Not of the intercepted
# flavour, which is there for what its hooks are for.
function(holdfast_workload_test name test)
  if(HOLDFAST_TESTS AND NOT HOLDFAST_INTERCEPT)
    holdfast_test(${test} ${ARGN})
    target_link_libraries(${test} PRIVATE ${name}_workload workload_checks)
  endif()
endfunction()

# holdfast_workload_registry(FILE HEADER TYPE FUNCTION RESULT NAME...): writes a source file that defines
# RESULT, which HEADER declares: what NAME::FUNCTION() of each returns, vectors of TYPE, in one.
function(holdfast_workload_registry file header type function result)
  set(declarations)
  set(calls)
  foreach(name IN LISTS ARGN)
    string(APPEND declarations "namespace ${name} {\nstd::vector<${type}> ${function}();\n}\n")
    list(APPEND calls "${name}::${function}()")
  endforeach()
  list(JOIN calls ", " calls)
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/workload_registry.cpp.in ${file} @ONLY)
endfunction()
