# Whether PROGRAM has a test of the pattern TEST: one that went would not be missed otherwise.
execute_process(COMMAND ${PROGRAM} --gtest_list_tests --gtest_filter=${TEST} OUTPUT_VARIABLE tests
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT tests MATCHES "\n  ")
  message(FATAL_ERROR "${PROGRAM} has no test ${TEST}: mend ONLY of its holdfast_test()")
endif()
