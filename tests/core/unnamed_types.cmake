# cmake -DCOMPILER=... -DINCLUDE=... -DBACKEND=... -P unnamed_types.cmake: what the compiler says of
# each CASE of unnamed_types.cpp.
set(no_name "no name on the medium: add.*kTypeName = .*specialise.*TypeName")
set(too_long "over 23 characters: shorten it")
set(expected "${no_name}" "${no_name}" "${no_name}" "${no_name}" "${no_name}" "${no_name}"
             "is empty: give it one" "${too_long}" "${too_long}" "may be called .*struct.*name it"
             "${too_long}" "own objects.*choose another")

foreach(case RANGE 12)
  execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -DCASE=${case} -D${BACKEND}=1
                          -I${INCLUDE} ${CMAKE_CURRENT_LIST_DIR}/unnamed_types.cpp
                  RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(case EQUAL 0)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "case 0 is right, and does not compile:\n${said}")
    endif()
    continue()
  endif()
  math(EXPR index "${case} - 1")
  list(GET expected ${index} words)
  if(status EQUAL 0)
    message(SEND_ERROR "case ${case} compiles")
  elseif(NOT said MATCHES "${words}")
    message(SEND_ERROR "case ${case}: the compiler does not say '${words}':\n${said}")
  endif()
endforeach()
