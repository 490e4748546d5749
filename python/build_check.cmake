# Builds the crash-state checker into ${OUTPUT}, or leaves there a file that says why there is none.
#
# A tree of its own, because a build tree is either of the intercepted flavour or not.
set(mode "$ENV{HOLDFAST_BUILD_CHECK}")
if(mode STREQUAL "")
  set(mode auto)
endif()
if(NOT mode MATCHES "^(auto|0|1)$")
  message(FATAL_ERROR "HOLDFAST_BUILD_CHECK is '${mode}': use auto, 0 or 1")
endif()
file(MAKE_DIRECTORY ${OUTPUT})
set(why_file ${OUTPUT}/_check_missing.txt)

# Says why there is no checker: for the log, and for `holdfast check`.
function(leave_out reason)
  file(REMOVE_RECURSE ${OUTPUT}/bin ${OUTPUT}/litmus)
  file(WRITE ${why_file} "${reason}\n")
  message("holdfast: the crash-state checker was left out: ${reason}")
endfunction()

if(mode STREQUAL "0")
  set(why "$ENV{HOLDFAST_WHY_LEFT_OUT}")
  if(why STREQUAL "")
    set(why "HOLDFAST_BUILD_CHECK was 0")
  endif()
  leave_out("${why}")
  return()
endif()
execute_process(
  COMMAND
    ${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -G Ninja -DCMAKE_BUILD_TYPE=${BUILD_TYPE}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DHOLDFAST_INTERCEPT=ON -DHOLDFAST_TESTS=OFF
    -DHOLDFAST_BENCHMARKS=OFF -DHOLDFAST_WERROR=${WERROR}
  RESULT_VARIABLE failed)
if(NOT failed)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} --target holdfast-check
                  RESULT_VARIABLE failed)
endif()
if(failed)
  if(mode STREQUAL "1")
    message(FATAL_ERROR "the crash-state checker did not build: see the output above")
  endif()
  leave_out("it did not build; HOLDFAST_BUILD_CHECK=1 pip install -v . shows why")
  return()
endif()
file(COPY ${BUILD}/tools/check/holdfast-check DESTINATION ${OUTPUT}/bin)
file(REMOVE_RECURSE ${OUTPUT}/litmus)
file(COPY ${SOURCE}/litmus/ DESTINATION ${OUTPUT}/litmus FILES_MATCHING PATTERN "*.litmus")
file(REMOVE ${why_file})
message("holdfast: the crash-state checker was built")
