find_package(GTest REQUIRED)
include(GoogleTest)

# holdfast_test(NAME FILE... [OPTIMISED] [RESOURCE_LOCK WHAT] [ONLY TEST...]): a test program; .cu files
# are kernels. Tests that name the same resource do not run at once. ONLY: of its tests those of these
# names are run (patterns of --gtest_filter), and there has to be one of each.
#
# Most of what there is to compile is tests' host files, in every preset. They are compiled to be
# compiled soon: without optimisation, and without the checks of undefined behaviour that the library's
# own files have, which take three quarters of the time of such a file. OPTIMISED: they are not, since
# what they compute takes longer than that.
set(test_host_options -O0)
if(HOLDFAST_SANITIZE)
  list(APPEND test_host_options -fno-sanitize=undefined)
endif()

# A third of that time goes into headers that all of them read: g++ reads those once. Not where kernels
# are intercepted, so that a header that a file does not name itself is missed somewhere.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT HOLDFAST_INTERCEPT)
  add_executable(test_headers EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/support/no_test.cpp)
  target_link_libraries(test_headers PRIVATE holdfast GTest::gtest)
  target_compile_options(test_headers PRIVATE ${test_host_options})
  holdfast_warnings(test_headers)
  target_precompile_headers(
    test_headers
    PRIVATE <gtest/gtest.h>
            <algorithm>
            <atomic>
            <chrono>
            <cstring>
            <filesystem>
            <fstream>
            <functional>
            <map>
            <memory>
            <random>
            <set>
            <string>
            <thread>
            <vector>)
endif()
function(holdfast_test name)
  cmake_parse_arguments(arg "OPTIMISED" "RESOURCE_LOCK" "ONLY" ${ARGN})
  set(kernels ${arg_UNPARSED_ARGUMENTS})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  set(hosts ${arg_UNPARSED_ARGUMENTS})
  list(FILTER hosts EXCLUDE REGEX "\\.cu$")
  if(NOT arg_OPTIMISED)
    set_source_files_properties(${hosts} PROPERTIES COMPILE_OPTIONS "${test_host_options}")
  endif()
  add_executable(${name} ${hosts})
  if(TARGET test_headers AND NOT arg_OPTIMISED)
    target_precompile_headers(${name} REUSE_FROM test_headers)
  endif()
  if(kernels)
    holdfast_kernels(${name} ${kernels})
    set_source_files_properties(${kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE holdfast GTest::gtest GTest::gtest_main)
  holdfast_warnings(${name})
  list(JOIN arg_ONLY ":" only)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_FILTER "${only}"
                       PROPERTIES TIMEOUT 300 RESOURCE_LOCK "${arg_RESOURCE_LOCK}")
  foreach(test ${arg_ONLY})
    add_test(NAME ${name}.has.${test} COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:${name}> -DTEST=${test}
                                              -P ${PROJECT_SOURCE_DIR}/cmake/HasTest.cmake)
  endforeach()
endfunction()
