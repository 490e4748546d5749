// Marks arithmetic that kernels and the OpenMP loops of mode cpu have in common.
#pragma once

#if defined(__CUDACC__)
#define CHECKPOINTING_HOST_DEVICE __host__ __device__
#else
#define CHECKPOINTING_HOST_DEVICE
#endif
