// The functions of cuDNN and cuBLAS that the trainer calls.
//
// They are looked up when a run first wants them instead of being linked: cuDNN and cuBLAS are
// hundreds of megabytes that every start of every workload would load, and a program that needs
// them would not start at all on a machine that lacks them. So a build needs their headers alone.
#pragma once

#include <cublas_v2.h>
#include <cudnn.h>

#include <memory>
#include <string>

#include "lenet/trainer.hpp"

namespace lenet {

// cuDNN's functions for single layers, and not its graphs: each call names its algorithm, so that
// one that always gives the same bits can be asked for, where a graph takes what a heuristic finds
// or compiles it when it runs. cuDNN 9 calls the former deprecated and has them all.
#define LENET_CUDNN_FUNCTIONS(each)                     \
  each(cudnnGetErrorString);                            \
  each(cudnnCreate);                                    \
  each(cudnnDestroy);                                   \
  each(cudnnSetStream);                                 \
  each(cudnnCreateTensorDescriptor);                    \
  each(cudnnSetTensor4dDescriptor);                     \
  each(cudnnDestroyTensorDescriptor);                   \
  each(cudnnCreateFilterDescriptor);                    \
  each(cudnnSetFilter4dDescriptor);                     \
  each(cudnnDestroyFilterDescriptor);                   \
  each(cudnnCreateConvolutionDescriptor);               \
  each(cudnnSetConvolution2dDescriptor);                \
  each(cudnnSetConvolutionMathType);                    \
  each(cudnnDestroyConvolutionDescriptor);              \
  each(cudnnCreatePoolingDescriptor);                   \
  each(cudnnSetPooling2dDescriptor);                    \
  each(cudnnDestroyPoolingDescriptor);                  \
  each(cudnnCreateActivationDescriptor);                \
  each(cudnnSetActivationDescriptor);                   \
  each(cudnnDestroyActivationDescriptor);               \
  each(cudnnGetConvolutionForwardWorkspaceSize);        \
  each(cudnnGetConvolutionBackwardDataWorkspaceSize);   \
  each(cudnnGetConvolutionBackwardFilterWorkspaceSize); \
  each(cudnnConvolutionForward);                        \
  each(cudnnConvolutionBackwardData);                   \
  each(cudnnConvolutionBackwardFilter);                 \
  each(cudnnConvolutionBackwardBias);                   \
  each(cudnnAddTensor);                                 \
  each(cudnnPoolingForward);                            \
  each(cudnnPoolingBackward);                           \
  each(cudnnActivationForward);                         \
  each(cudnnActivationBackward);                        \
  each(cudnnSoftmaxForward)

#define LENET_CUBLAS_FUNCTIONS(each) \
  each(cublasGetStatusString);       \
  each(cublasCreate_v2);             \
  each(cublasDestroy_v2);            \
  each(cublasSetStream_v2);          \
  each(cublasSetWorkspace_v2);       \
  each(cublasSetMathMode);           \
  each(cublasSetAtomicsMode);        \
  each(cublasSgemm_v2)

struct CudnnApi {
#define LENET_MEMBER(name) decltype(&::name) name = nullptr
  LENET_CUDNN_FUNCTIONS(LENET_MEMBER);
  LENET_CUBLAS_FUNCTIONS(LENET_MEMBER);
#undef LENET_MEMBER
};

// The functions of the libraries that are installed, of the major versions that this was compiled
// for; null where there are none, and then `why` says what is missing. Opens them once.
// Thread safety: any.
const CudnnApi* load_cudnn(std::string* why);

// As make_cudnn_trainer(stream, ...), by these functions, which outlive the trainer. Throws
// unsupported where a library does not start, device where another call fails.
std::unique_ptr<Trainer> make_cudnn_trainer(const CudnnApi& api, holdfast::Stream& stream,
                                            const Shape& shape, const Descent& descent,
                                            const Digits& digits);

}  // namespace lenet
