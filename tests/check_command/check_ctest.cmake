# cmake -DCHECK=... -DSCRATCH=... -P check_ctest.cmake: what ctest makes of checks.
file(REMOVE_RECURSE ${SCRATCH})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/ctest -B ${SCRATCH}
                        -DCHECK=${CHECK} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_CTEST_COMMAND} --test-dir ${SCRATCH} OUTPUT_VARIABLE said)
foreach(expected "all_explored [.]+ +Passed" "not_all [.]+[*]+Skipped" "within_budget [.]+ +Passed"
                 "fails [.]+[*]+Failed" "fails_within_budget [.]+[*]+Failed" "racy [.]+[*]+Failed")
  if(NOT said MATCHES "${expected}")
    message(FATAL_ERROR "ctest does not say '${expected}':\n${said}")
  endif()
endforeach()
