# Builds the CUDA module into ${OUTPUT}, or leaves there a file that says why there is none.
#
# A tree of its own, because a build tree is configured for one backend.
set(mode "$ENV{HOLDFAST_BUILD_CUDA}")
if(mode STREQUAL "")
  set(mode auto)
endif()
file(MAKE_DIRECTORY ${OUTPUT})
set(why_file ${OUTPUT}/_cuda_missing.txt)

# Says why there is no CUDA module: for the log, and for `holdfast doctor`.
function(leave_out reason)
  file(GLOB stale ${OUTPUT}/_cuda.*)
  if(stale)
    file(REMOVE ${stale} ${OUTPUT}/bin/holdfast-run-cuda)
  endif()
  file(WRITE ${why_file} "${reason}\n")
  message("holdfast: the CUDA backend was left out: ${reason}")
endfunction()

if(mode STREQUAL "0")
  leave_out("HOLDFAST_BUILD_CUDA is 0")
  return()
elseif(NOT mode MATCHES "^(auto|1)$")
  message(FATAL_ERROR "HOLDFAST_BUILD_CUDA is '${mode}': use auto, 0 or 1")
endif()

find_program(NVCC nvcc HINTS "$ENV{CUDACXX}" "$ENV{CUDA_PATH}/bin" /usr/local/cuda/bin)
if(DEFINED ENV{CUDACXX} AND EXISTS "$ENV{CUDACXX}")
  set(NVCC "$ENV{CUDACXX}")
endif()
if(NOT NVCC)
  if(mode STREQUAL "1")
    message(FATAL_ERROR "HOLDFAST_BUILD_CUDA is 1 and there is no nvcc: put it on PATH")
  endif()
  leave_out("there was no nvcc when the package was built")
  return()
endif()

set(configure
    ${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -G Ninja -DCMAKE_BUILD_TYPE=${BUILD_TYPE}
    -DHOLDFAST_BACKEND=cuda -DHOLDFAST_PYTHON=ON -DHOLDFAST_TESTS=OFF -DHOLDFAST_BENCHMARKS=OFF
    -DCMAKE_CUDA_COMPILER=${NVCC} -DPython_EXECUTABLE=${PYTHON} -Dnanobind_DIR=${NANOBIND})
if(DEFINED ENV{HOLDFAST_CUDA_ARCHITECTURES})
  list(APPEND configure "-DCMAKE_CUDA_ARCHITECTURES=$ENV{HOLDFAST_CUDA_ARCHITECTURES}")
endif()
execute_process(COMMAND ${configure} RESULT_VARIABLE failed)
if(NOT failed)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} --target _cuda holdfast-run
                  RESULT_VARIABLE failed)
endif()
if(failed)
  if(mode STREQUAL "1")
    message(FATAL_ERROR "the CUDA backend did not build: see the output above")
  endif()
  leave_out("it did not build with ${NVCC}; HOLDFAST_BUILD_CUDA=1 pip install -v . shows why")
  return()
endif()

file(GLOB module ${BUILD}/python/_cuda.*.so)
file(COPY ${module} DESTINATION ${OUTPUT})
file(MAKE_DIRECTORY ${OUTPUT}/bin)
file(COPY_FILE ${BUILD}/tools/run/holdfast-run ${OUTPUT}/bin/holdfast-run-cuda)
file(REMOVE ${why_file})
message("holdfast: the CUDA backend was built with ${NVCC}")
