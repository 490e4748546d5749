find_package(GTest REQUIRED)
include(GoogleTest)

# holdfast_test(NAME FILE... [RESOURCE_LOCK WHAT]): a test program; .cu files are kernels. Tests that
# name the same resource do not run at once.
function(holdfast_test name)
  cmake_parse_arguments(arg "" "RESOURCE_LOCK" "" ${ARGN})
  set(kernels ${arg_UNPARSED_ARGUMENTS})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  set(hosts ${arg_UNPARSED_ARGUMENTS})
  list(FILTER hosts EXCLUDE REGEX "\\.cu$")
  add_executable(${name} ${hosts})
  if(kernels)
    holdfast_kernels(${name} ${kernels})
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE holdfast GTest::gtest GTest::gtest_main)
  holdfast_warnings(${name})
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 300 RESOURCE_LOCK
                                                                  "${arg_RESOURCE_LOCK}")
endfunction()
