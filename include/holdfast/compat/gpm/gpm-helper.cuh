// The name by which applications of the artifact include it, and what they take from it beside
// libGPM: PMDK's libpmem (Debian: libpmem-dev) for what their hosts map themselves.
#pragma once

#include <cstdio>
#include <cstdlib>

#if __has_include(<libpmem.h>)
#include <libpmem.h>
#endif

#include "libgpm.cuh"

#if defined(__CUDACC__)
// Ends the program where a call of CUDA's failed, as the artifact's does.
#define checkForCudaErrors(answer)                                                      \
  do {                                                                                  \
    const cudaError_t met = (answer);                                                   \
    if (met != cudaSuccess) {                                                           \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(met)); \
      std::exit(static_cast<int>(met));                                                 \
    }                                                                                   \
  } while (false)
#endif
