# holdfast_check_test(NAME COMMAND EXECUTABLE PROGRAM WORD [ARGS WORD...] [SEED N]
#                     [MAX_STATES N] [MAX_SECONDS S] [SCHEDULES N])
#
# Adds a test that checks PROGRAM with EXECUTABLE, a target or a file that calls
# holdfast::check::command_line(). It passes where the verdict is `passed`, and is skipped where it
# is `no failure found`, since not all was explored: so it says nothing that was not shown. With a
# budget (MAX_STATES, MAX_SECONDS or SCHEDULES) it passes there, too: that much is what was asked
# for. It fails where the program failed, is racy, or the verdict is void.
function(holdfast_check_test name)
  cmake_parse_arguments(arg "" "COMMAND;PROGRAM;SEED;MAX_STATES;MAX_SECONDS;SCHEDULES" "ARGS"
                        ${ARGN})
  if(NOT arg_COMMAND OR NOT arg_PROGRAM OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "holdfast_check_test(${name}): give COMMAND and PROGRAM, and nothing that "
                        "it does not know: '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  set(words ${arg_PROGRAM} ${arg_ARGS})
  if(DEFINED arg_SEED)
    list(APPEND words --seed ${arg_SEED})
  endif()
  set(budget)
  foreach(part MAX_STATES MAX_SECONDS SCHEDULES)
    if(DEFINED arg_${part})
      string(TOLOWER ${part} option)
      string(REPLACE _ - option ${option})
      list(APPEND budget --${option} ${arg_${part}})
    endif()
  endforeach()
  if(NOT budget)
    add_test(NAME ${name} COMMAND ${arg_COMMAND} ${words})
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 3)
    return()
  endif()
  set(command ${arg_COMMAND})
  if(TARGET ${arg_COMMAND})
    set(command $<TARGET_FILE:${arg_COMMAND}>)
  endif()
  add_test(NAME ${name}
           COMMAND ${CMAKE_COMMAND} -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/HoldfastCheckRun.cmake --
                   ${command} ${words} ${budget})
endfunction()
