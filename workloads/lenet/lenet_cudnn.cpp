// The network by cuDNN, its fully connected layers by cuBLAS. Bits are the same from run to run:
// algorithms are named, of those that cuDNN says are deterministic; no TensorFloat-32; no atomics;
// one stream and one workspace for each library.
#include <algorithm>
#include <type_traits>

#include "holdfast/error.hpp"
#include "lenet/cudnn_api.hpp"
#include "lenet/device_trainer.hpp"
#include "lenet/lenet_cudnn_kernels.hpp"

namespace lenet {
namespace {

using holdfast::DeviceBuffer;
using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;
using passes::Placement;

constexpr cudnnConvolutionFwdAlgo_t kForward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
// Of these two ALGO_0 adds with atomics.
constexpr cudnnConvolutionBwdDataAlgo_t kBackwardData = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
constexpr cudnnConvolutionBwdFilterAlgo_t kBackwardFilter = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
// What cuBLAS asks for on Hopper; fixed, since its size decides how sums are split.
constexpr std::size_t kCublasWorkspace = std::size_t{32} << 20;
constexpr float kOne = 1, kZero = 0;

enum Part : unsigned {  // of Placement
  conv1_weights,
  conv1_bias,
  conv2_weights,
  conv2_bias,
  dense1_weights,
  dense1_bias,
  dense2_weights,
  dense2_bias
};

// A handle or descriptor of cuDNN or cuBLAS.
template <class T, class Status>
class Owned {
 public:
  Owned() = default;
  Owned(T value, Status (*destroy)(T)) : value_(value), destroy_(destroy) {}
  ~Owned() {
    if (destroy_) destroy_(value_);  // a failure has nobody to be told to
  }
  Owned(Owned&& other) noexcept { *this = std::move(other); }
  Owned& operator=(Owned&& other) noexcept {
    std::swap(value_, other.value_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  T get() const { return value_; }

 private:
  T value_{};
  Status (*destroy_)(T) = nullptr;
};
template <class T>
using Descriptor = Owned<T, cudnnStatus_t>;

// Of each digit of a batch: planes of side x side numbers, and the loss's gradient by them.
struct Blob {
  Descriptor<cudnnTensorDescriptor_t> shape;
  DeviceBuffer<float> value, gradient;
};

struct Convolution {
  Descriptor<cudnnFilterDescriptor_t> filter;
  Descriptor<cudnnTensorDescriptor_t> bias_shape;
  Part weights, bias;
  Blob *in, *out, *pooled;
};

struct Dense {
  Descriptor<cudnnTensorDescriptor_t> bias_shape;
  Part weights, bias;
  int inputs, outputs;
  Blob *in, *out;
};

// Both libraries, checked: an error names the call.
class Libraries {
 public:
  Libraries(const CudnnApi& api, holdfast::Stream& stream) : api_(api) {
    cudnnHandle_t cudnn = nullptr;
    start("cudnnCreate", api.cudnnCreate(&cudnn));
    cudnn_ = {cudnn, api.cudnnDestroy};
    cublasHandle_t cublas = nullptr;
    start("cublasCreate", api.cublasCreate_v2(&cublas));
    cublas_ = {cublas, api.cublasDestroy_v2};
    const auto native = static_cast<cudaStream_t>(stream.native());
    check("cudnnSetStream", api.cudnnSetStream(cudnn, native));
    check("cublasSetStream", api.cublasSetStream_v2(cublas, native));
    // Behind the stream, which would set it back.
    workspace_ = DeviceBuffer<std::uint8_t>(kCublasWorkspace);
    check("cublasSetWorkspace",
          api.cublasSetWorkspace_v2(cublas, workspace_.data(), workspace_.bytes()));
    check("cublasSetMathMode", api.cublasSetMathMode(cublas, CUBLAS_DEFAULT_MATH));
    check("cublasSetAtomicsMode", api.cublasSetAtomicsMode(cublas, CUBLAS_ATOMICS_NOT_ALLOWED));
  }

  const CudnnApi& api() const { return api_; }
  cudnnHandle_t cudnn() const { return cudnn_.get(); }
  cublasHandle_t cublas() const { return cublas_.get(); }

  void check(const char* call, cudnnStatus_t status) const {
    if (status != CUDNN_STATUS_SUCCESS) throw Error(Errc::device, said(call, status));
  }
  void check(const char* call, cublasStatus_t status) const {
    if (status != CUBLAS_STATUS_SUCCESS) throw Error(Errc::device, said(call, status));
  }

 private:
  template <class Status>
  void start(const char* call, Status status) const {
    if (status == Status{}) return;
    throw Error(Errc::unsupported, concat(said(call, status),
                                          ": this machine's driver or GPU is none that the library "
                                          "takes; use the own kernels"));
  }
  std::string said(const char* call, cudnnStatus_t status) const {
    return concat(call, ": ", api_.cudnnGetErrorString(status), " (", static_cast<int>(status),
                  ")");
  }
  std::string said(const char* call, cublasStatus_t status) const {
    return concat(call, ": ", api_.cublasGetStatusString(status), " (", static_cast<int>(status),
                  ")");
  }

  const CudnnApi& api_;
  Owned<cudnnHandle_t, cudnnStatus_t> cudnn_;
  DeviceBuffer<std::uint8_t> workspace_;
  Owned<cublasHandle_t, cublasStatus_t> cublas_;
};

// Calls a function of cuDNN or cuBLAS, with its handle.
#define LENET_CUDNN(name, ...) \
  libraries_.check(#name, libraries_.api().name(libraries_.cudnn(), __VA_ARGS__))
// One that takes none.
#define LENET_DESCRIBE(name, ...) libraries_.check(#name, libraries_.api().name(__VA_ARGS__))

class CudnnTrainer : public DeviceTrainer {
 public:
  CudnnTrainer(const CudnnApi& api, holdfast::Stream& stream, const Shape& shape,
               const Descent& descent, const Digits& digits);
  // What is queued uses the buffers; what it met, the stream's owner will hear.
  ~CudnnTrainer() override {
    try {
      stream_.synchronize();
    } catch (const Error&) {
    }
  }

  void train(const std::vector<std::uint32_t>& digits, const std::vector<float>& rates) override {
    begin(digits);
    const std::uint32_t* places = places_.data();
    for (const float rate : rates) {
      forward(places, descent_.batch);
      backward();
      places += descent_.batch;
      passes::descend(stream_, placement_, rows(), rate);
    }
  }

  std::vector<float> gradient(const std::vector<std::uint32_t>& digits) override {
    begin(digits);
    forward(places_.data(), descent_.batch);
    backward();
    const std::vector<float> row = read(gradient_, gradient_.size());
    std::vector<float> packed;
    for (unsigned part = 0; part < Placement::kParts; ++part) {
      const auto from = row.begin() + placement_.place[part];
      packed.insert(packed.end(), from,
                    from + (placement_.first[part + 1] - placement_.first[part]));
    }
    return packed;
  }

 private:
  // Takes over parameters, too, that others may have stored.
  void begin(const std::vector<std::uint32_t>& digits) override {
    DeviceTrainer::begin(digits);
    passes::spread(stream_, placement_, rows());
  }

  passes::Rows rows() const { return {parameters_.data(), aligned_.data(), gradient_.data()}; }
  const float* weight(Part part) const { return aligned_.data() + placement_.place[part]; }
  float* d_weight(Part part) const { return gradient_.data() + placement_.place[part]; }

  template <class T, class Create>
  Descriptor<T> make(const char* call, Create create, cudnnStatus_t (*destroy)(T)) const {
    T made = nullptr;
    libraries_.check(call, create(&made));
    return {made, destroy};
  }
  Descriptor<cudnnTensorDescriptor_t> tensor(std::uint32_t count, std::uint32_t planes,
                                             unsigned side) const;
  Blob blob(std::uint32_t planes, unsigned side) const;
  Convolution convolution(std::uint32_t inputs, std::uint32_t outputs, Part weights, Blob& in,
                          Blob& out, Blob& pooled) const;
  std::size_t workspace_bytes(const Convolution& layer) const;

  void forward(const std::uint32_t* places, unsigned count) override;
  void backward();
  void convolve(const Convolution& layer);
  void convolve_back(const Convolution& layer, bool by_input);
  void connect(const Dense& layer);
  void connect_back(const Dense& layer);

  const Libraries libraries_;
  const Placement placement_;
  DeviceBuffer<float> aligned_, gradient_;  // as Placement has it
  Descriptor<cudnnConvolutionDescriptor_t> window_;
  Descriptor<cudnnPoolingDescriptor_t> pooling_;
  Descriptor<cudnnActivationDescriptor_t> relu_;
  // Of the batch at hand. The images have no gradient; maps are before pooling, with the bias.
  Blob images_, maps1_, pooled1_, maps2_, pooled2_, hidden_, logits_;
  DeviceBuffer<float> probabilities_;
  Convolution convolution1_, convolution2_;
  Dense dense1_, dense2_;
  DeviceBuffer<std::uint8_t> workspace_;  // of convolutions, which are one after the other
};

CudnnTrainer::CudnnTrainer(const CudnnApi& api, holdfast::Stream& stream, const Shape& shape,
                           const Descent& descent, const Digits& digits)
    : DeviceTrainer(stream, shape, descent, digits),
      libraries_(api, stream),
      placement_(Placement::of(shape)),
      aligned_(placement_.length),
      gradient_(placement_.length),
      window_(make("cudnnCreateConvolutionDescriptor", api.cudnnCreateConvolutionDescriptor,
                   api.cudnnDestroyConvolutionDescriptor)),
      pooling_(make("cudnnCreatePoolingDescriptor", api.cudnnCreatePoolingDescriptor,
                    api.cudnnDestroyPoolingDescriptor)),
      relu_(make("cudnnCreateActivationDescriptor", api.cudnnCreateActivationDescriptor,
                 api.cudnnDestroyActivationDescriptor)),
      images_(blob(1, kSide)),
      maps1_(blob(shape.channels1, 2 * kPooled1)),
      pooled1_(blob(shape.channels1, kPooled1)),
      maps2_(blob(shape.channels2, 2 * kPooled2)),
      pooled2_(blob(shape.channels2, kPooled2)),
      hidden_(blob(shape.hidden, 1)),
      logits_(blob(kClasses, 1)),
      probabilities_(logits_.value.size()),
      convolution1_(convolution(1, shape.channels1, conv1_weights, images_, maps1_, pooled1_)),
      convolution2_(
          convolution(shape.channels1, shape.channels2, conv2_weights, pooled1_, maps2_, pooled2_)),
      dense1_{tensor(1, shape.hidden, 1),
              dense1_weights,
              dense1_bias,
              static_cast<int>(shape.features()),
              static_cast<int>(shape.hidden),
              &pooled2_,
              &hidden_},
      dense2_{tensor(1, kClasses, 1),
              dense2_weights,
              dense2_bias,
              static_cast<int>(shape.hidden),
              kClasses,
              &hidden_,
              &logits_} {
  LENET_DESCRIBE(cudnnSetConvolution2dDescriptor, window_.get(), 0, 0, 1, 1, 1, 1,
                 CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
  LENET_DESCRIBE(cudnnSetConvolutionMathType, window_.get(), CUDNN_FMA_MATH);
  LENET_DESCRIBE(cudnnSetPooling2dDescriptor, pooling_.get(), CUDNN_POOLING_MAX_DETERMINISTIC,
                 CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2);
  LENET_DESCRIBE(cudnnSetActivationDescriptor, relu_.get(), CUDNN_ACTIVATION_RELU,
                 CUDNN_PROPAGATE_NAN, 0.0);
  workspace_ = DeviceBuffer<std::uint8_t>(
      std::max(workspace_bytes(convolution1_), workspace_bytes(convolution2_)));
}

Descriptor<cudnnTensorDescriptor_t> CudnnTrainer::tensor(std::uint32_t count, std::uint32_t planes,
                                                         unsigned side) const {
  auto made = make("cudnnCreateTensorDescriptor", libraries_.api().cudnnCreateTensorDescriptor,
                   libraries_.api().cudnnDestroyTensorDescriptor);
  LENET_DESCRIBE(cudnnSetTensor4dDescriptor, made.get(), CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT,
                 static_cast<int>(count), static_cast<int>(planes), static_cast<int>(side),
                 static_cast<int>(side));
  return made;
}

Blob CudnnTrainer::blob(std::uint32_t planes, unsigned side) const {
  const std::size_t count = std::size_t{descent_.batch} * planes * side * side;
  return {tensor(descent_.batch, planes, side), DeviceBuffer<float>(count),
          DeviceBuffer<float>(side == kSide ? 0 : count)};
}

Convolution CudnnTrainer::convolution(std::uint32_t inputs, std::uint32_t outputs, Part weights,
                                      Blob& in, Blob& out, Blob& pooled) const {
  auto filter = make("cudnnCreateFilterDescriptor", libraries_.api().cudnnCreateFilterDescriptor,
                     libraries_.api().cudnnDestroyFilterDescriptor);
  LENET_DESCRIBE(cudnnSetFilter4dDescriptor, filter.get(), CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW,
                 static_cast<int>(outputs), static_cast<int>(inputs), static_cast<int>(kTaps),
                 static_cast<int>(kTaps));
  return {std::move(filter),
          tensor(1, outputs, 1),
          weights,
          static_cast<Part>(weights + 1),
          &in,
          &out,
          &pooled};
}

std::size_t CudnnTrainer::workspace_bytes(const Convolution& layer) const {
  std::size_t forward = 0, by_input = 0, by_filter = 0;
  const auto in = layer.in->shape.get(), out = layer.out->shape.get();
  LENET_CUDNN(cudnnGetConvolutionForwardWorkspaceSize, in, layer.filter.get(), window_.get(), out,
              kForward, &forward);
  LENET_CUDNN(cudnnGetConvolutionBackwardFilterWorkspaceSize, in, out, window_.get(),
              layer.filter.get(), kBackwardFilter, &by_filter);
  if (layer.in != &images_) {
    LENET_CUDNN(cudnnGetConvolutionBackwardDataWorkspaceSize, layer.filter.get(), out,
                window_.get(), in, kBackwardData, &by_input);
  }
  return std::max({forward, by_input, by_filter});
}

// A convolution, its bias and its pooling.
void CudnnTrainer::convolve(const Convolution& layer) {
  LENET_CUDNN(cudnnConvolutionForward, &kOne, layer.in->shape.get(), layer.in->value.data(),
              layer.filter.get(), weight(layer.weights), window_.get(), kForward, workspace_.data(),
              workspace_.bytes(), &kZero, layer.out->shape.get(), layer.out->value.data());
  LENET_CUDNN(cudnnAddTensor, &kOne, layer.bias_shape.get(), weight(layer.bias), &kOne,
              layer.out->shape.get(), layer.out->value.data());
  LENET_CUDNN(cudnnPoolingForward, pooling_.get(), &kOne, layer.out->shape.get(),
              layer.out->value.data(), &kZero, layer.pooled->shape.get(),
              layer.pooled->value.data());
}

void CudnnTrainer::convolve_back(const Convolution& layer, bool by_input) {
  const Blob &in = *layer.in, &out = *layer.out, &pooled = *layer.pooled;
  LENET_CUDNN(cudnnPoolingBackward, pooling_.get(), &kOne, pooled.shape.get(), pooled.value.data(),
              pooled.shape.get(), pooled.gradient.data(), out.shape.get(), out.value.data(), &kZero,
              out.shape.get(), out.gradient.data());
  LENET_CUDNN(cudnnConvolutionBackwardBias, &kOne, out.shape.get(), out.gradient.data(), &kZero,
              layer.bias_shape.get(), d_weight(layer.bias));
  LENET_CUDNN(cudnnConvolutionBackwardFilter, &kOne, in.shape.get(), in.value.data(),
              out.shape.get(), out.gradient.data(), window_.get(), kBackwardFilter,
              workspace_.data(), workspace_.bytes(), &kZero, layer.filter.get(),
              d_weight(layer.weights));
  if (!by_input) return;
  LENET_CUDNN(cudnnConvolutionBackwardData, &kOne, layer.filter.get(), weight(layer.weights),
              out.shape.get(), out.gradient.data(), window_.get(), kBackwardData, workspace_.data(),
              workspace_.bytes(), &kZero, in.shape.get(), in.gradient.data());
}

// cuBLAS has matrices by columns: to it, each of ours is its transpose.
//
// out = in weights: [batch][outputs] of [batch][inputs] and [inputs][outputs].
void CudnnTrainer::connect(const Dense& layer) {
  const int batch = static_cast<int>(descent_.batch);
  libraries_.check("cublasSgemm", libraries_.api().cublasSgemm_v2(
                                      libraries_.cublas(), CUBLAS_OP_N, CUBLAS_OP_N, layer.outputs,
                                      batch, layer.inputs, &kOne, weight(layer.weights),
                                      layer.outputs, layer.in->value.data(), layer.inputs, &kZero,
                                      layer.out->value.data(), layer.outputs));
  LENET_CUDNN(cudnnAddTensor, &kOne, layer.bias_shape.get(), weight(layer.bias), &kOne,
              layer.out->shape.get(), layer.out->value.data());
}

// d_weights = in^T d_out, d_in = d_out weights^T.
void CudnnTrainer::connect_back(const Dense& layer) {
  const int batch = static_cast<int>(descent_.batch);
  const auto sgemm = libraries_.api().cublasSgemm_v2;
  LENET_CUDNN(cudnnConvolutionBackwardBias, &kOne, layer.out->shape.get(),
              layer.out->gradient.data(), &kZero, layer.bias_shape.get(), d_weight(layer.bias));
  libraries_.check(
      "cublasSgemm",
      sgemm(libraries_.cublas(), CUBLAS_OP_N, CUBLAS_OP_T, layer.outputs, layer.inputs, batch,
            &kOne, layer.out->gradient.data(), layer.outputs, layer.in->value.data(), layer.inputs,
            &kZero, d_weight(layer.weights), layer.outputs));
  libraries_.check("cublasSgemm", sgemm(libraries_.cublas(), CUBLAS_OP_T, CUBLAS_OP_N, layer.inputs,
                                        batch, layer.outputs, &kOne, weight(layer.weights),
                                        layer.outputs, layer.out->gradient.data(), layer.outputs,
                                        &kZero, layer.in->gradient.data(), layer.inputs));
}

// Down to the logits' gradient. A batch of fewer digits is filled up with blanks, which nobody
// looks at.
void CudnnTrainer::forward(const std::uint32_t* places, unsigned count) {
  const passes::Batch batch{places, count, descent_.batch};
  passes::gather(stream_, batch, pixels_.data(), images_.value.data());
  convolve(convolution1_);
  convolve(convolution2_);
  connect(dense1_);
  LENET_CUDNN(cudnnActivationForward, relu_.get(), &kOne, hidden_.shape.get(), hidden_.value.data(),
              &kZero, hidden_.shape.get(), hidden_.value.data());
  connect(dense2_);
  LENET_CUDNN(cudnnSoftmaxForward, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &kOne,
              logits_.shape.get(), logits_.value.data(), &kZero, logits_.shape.get(),
              probabilities_.data());
  passes::judge(stream_, batch, labels_.data(), logits_.value.data(), probabilities_.data(),
                logits_.gradient.data(), classes_.data());
}

// From there to the gradient of every parameter. REQUIRES: a whole batch went forward.
void CudnnTrainer::backward() {
  connect_back(dense2_);
  // In place: a ReLU's output is above 0 where its input is.
  LENET_CUDNN(cudnnActivationBackward, relu_.get(), &kOne, hidden_.shape.get(),
              hidden_.value.data(), hidden_.shape.get(), hidden_.gradient.data(),
              hidden_.shape.get(), hidden_.value.data(), &kZero, hidden_.shape.get(),
              hidden_.gradient.data());
  connect_back(dense1_);
  convolve_back(convolution2_, true);
  convolve_back(convolution1_, false);
}

#undef LENET_CUDNN
#undef LENET_DESCRIBE

}  // namespace

std::unique_ptr<Trainer> make_cudnn_trainer(const CudnnApi& api, holdfast::Stream& stream,
                                            const Shape& shape, const Descent& descent,
                                            const Digits& digits) {
  return std::make_unique<CudnnTrainer>(api, stream, shape, descent, digits);
}

}  // namespace lenet
