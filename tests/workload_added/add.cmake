# cmake -DSOURCE=... -DSCRATCH=... -DGENERATOR=... -DCOMPILER=... -DINTERCEPT=... -P add.cmake
#
# Configures a source tree whose one workload is the folder `added`, and prints what the registries of
# that tree list. They are compiled with what the folder defines, and with nothing of the library:
# building that would take minutes.
file(REMOVE_RECURSE ${SCRATCH})
file(MAKE_DIRECTORY ${SCRATCH}/source/workloads)
foreach(part CMakeLists.txt cmake examples include src tools workloads/CMakeLists.txt
             workloads/common)
  file(CREATE_LINK ${SOURCE}/${part} ${SCRATCH}/source/${part} SYMBOLIC)
endforeach()
file(CREATE_LINK ${CMAKE_CURRENT_LIST_DIR}/added ${SCRATCH}/source/workloads/added SYMBOLIC)
execute_process(
  COMMAND
    ${CMAKE_COMMAND} -S ${SCRATCH}/source -B ${SCRATCH}/build -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DHOLDFAST_INTERCEPT=${INTERCEPT} -DHOLDFAST_TESTS=OFF
    -DHOLDFAST_BENCHMARKS=OFF -DHOLDFAST_INSTALL=OFF OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

set(sources ${SCRATCH}/build/workloads/registry.cpp ${CMAKE_CURRENT_LIST_DIR}/added/added_workload.cpp)
set(expected "workload added\n")
set(flags)
if(INTERCEPT)
  list(APPEND sources ${SCRATCH}/build/workloads/check_registry.cpp -xc++
       ${CMAKE_CURRENT_LIST_DIR}/added/added_check.cu)
  string(APPEND expected "check program added\n")
  set(flags -DHOLDFAST_INTERCEPT=1)
endif()
execute_process(
  COMMAND ${COMPILER} -std=c++20 -DHOLDFAST_BACKEND_CPU=1 ${flags} -I${SOURCE}/include
          -I${SOURCE}/workloads/common -o ${SCRATCH}/list ${CMAKE_CURRENT_LIST_DIR}/list.cpp ${sources}
          COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${SCRATCH}/list OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
if(NOT listed STREQUAL expected)
  message(FATAL_ERROR "the registries list:\n${listed}\nand should list:\n${expected}")
endif()
