#include "cudnn_stand_in.hpp"

#include <algorithm>
#include <cmath>

// What cuDNN's and cuBLAS's handles and descriptors point to.
struct cudnnContext {};
struct cublasContext {
  bool has_workspace;
};
struct cudnnTensorStruct {
  int n, c, h, w;
  std::size_t size() const { return std::size_t(n) * c * h * w; }
  std::size_t at(int i, int j, int y, int x) const {
    return ((std::size_t(i) * c + j) * h + y) * w + x;
  }
  bool operator==(const cudnnTensorStruct&) const = default;
};
struct cudnnFilterStruct {
  int k, c, h, w;
};
struct cudnnConvolutionStruct {
  cudnnMathType_t math;
  bool correlates;  // without padding, strides or dilation
};
struct cudnnPoolingStruct {
  bool two_by_two;
};
struct cudnnActivationStruct {
  bool relu;
};

namespace lenet::stand_in {
namespace {

int living = 0;
std::string failing;

// The stand-in computes at once: what is queued before comes first.
bool fails(const char* function) {
  holdfast::backend::synchronize();
  return failing == function;
}
#define MAY_FAIL(name) \
  if (fails(#name)) return CUDNN_STATUS_EXECUTION_FAILED
#define MAY_FAIL_CUBLAS(name) \
  if (fails(#name)) return CUBLAS_STATUS_EXECUTION_FAILED
#define REFUSE_UNLESS(condition) \
  if (!(condition)) return CUDNN_STATUS_BAD_PARAM

float number(const void* scalar) { return *static_cast<const float*>(scalar); }
const float* floats(const void* data) { return static_cast<const float*>(data); }

// out = alpha * result + beta * out
void blend(const void* alpha, const void* beta, const std::vector<double>& result, void* out) {
  auto* const to = static_cast<float*>(out);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double before = number(beta) == 0 ? 0 : number(beta) * double{to[i]};
    to[i] = static_cast<float>(number(alpha) * result[i] + before);
  }
}

template <class T>
cudnnStatus_t create(T** made) {
  *made = new T{};
  ++living;
  return CUDNN_STATUS_SUCCESS;
}
template <class T>
cudnnStatus_t destroy(T* made) {
  delete made;
  --living;
  return CUDNN_STATUS_SUCCESS;
}

bool fits(const cudnnTensorStruct& in, const cudnnFilterStruct& filter,
          const cudnnConvolutionStruct& window, const cudnnTensorStruct& out) {
  return window.correlates && window.math == CUDNN_FMA_MATH && in.n == out.n && in.c == filter.c &&
         out.c == filter.k && out.h == in.h - filter.h + 1 && out.w == in.w - filter.w + 1;
}

// Calls visit(place in, place in the filter, place out) for every product of a convolution.
template <class Visit>
void for_products(const cudnnTensorStruct& in, const cudnnFilterStruct& filter,
                  const cudnnTensorStruct& out, Visit visit) {
  for (int n = 0; n < out.n; ++n)
    for (int k = 0; k < out.c; ++k)
      for (int y = 0; y < out.h; ++y)
        for (int x = 0; x < out.w; ++x)
          for (int c = 0; c < in.c; ++c)
            for (int v = 0; v < filter.h; ++v)
              for (int u = 0; u < filter.w; ++u)
                visit(in.at(n, c, y + v, x + u),
                      ((std::size_t(k) * filter.c + c) * filter.h + v) * filter.w + u,
                      out.at(n, k, y, x));
}

constexpr std::size_t kWorkspace = 4096;  // that convolutions ask for

void set_convolutions(CudnnApi& api) {
  api.cudnnGetConvolutionForwardWorkspaceSize = [](auto, auto in, auto filter, auto window,
                                                   auto out, auto algorithm, std::size_t* bytes) {
    MAY_FAIL(cudnnGetConvolutionForwardWorkspaceSize);
    REFUSE_UNLESS(fits(*in, *filter, *window, *out));
    REFUSE_UNLESS(algorithm != CUDNN_CONVOLUTION_FWD_ALGO_COUNT);
    *bytes = kWorkspace;
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnGetConvolutionBackwardDataWorkspaceSize =
      [](auto, auto filter, auto out, auto window, auto in, auto algorithm, std::size_t* bytes) {
        MAY_FAIL(cudnnGetConvolutionBackwardDataWorkspaceSize);
        REFUSE_UNLESS(fits(*in, *filter, *window, *out));
        REFUSE_UNLESS(algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
        *bytes = kWorkspace;
        return CUDNN_STATUS_SUCCESS;
      };
  api.cudnnGetConvolutionBackwardFilterWorkspaceSize =
      [](auto, auto in, auto out, auto window, auto filter, auto algorithm, std::size_t* bytes) {
        MAY_FAIL(cudnnGetConvolutionBackwardFilterWorkspaceSize);
        REFUSE_UNLESS(fits(*in, *filter, *window, *out));
        REFUSE_UNLESS(algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
        *bytes = kWorkspace;
        return CUDNN_STATUS_SUCCESS;
      };
  api.cudnnConvolutionForward = [](auto, auto alpha, auto in, auto x, auto filter, auto w,
                                   auto window, auto, auto, auto bytes, auto beta, auto out,
                                   auto y) {
    MAY_FAIL(cudnnConvolutionForward);
    REFUSE_UNLESS(fits(*in, *filter, *window, *out) && bytes >= kWorkspace);
    std::vector<double> sums(out->size());
    for_products(*in, *filter, *out, [&](auto from, auto weight, auto to) {
      sums[to] += double{floats(x)[from]} * floats(w)[weight];
    });
    blend(alpha, beta, sums, y);
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnConvolutionBackwardData = [](auto, auto alpha, auto filter, auto w, auto out, auto dy,
                                        auto window, auto algorithm, auto, auto bytes, auto beta,
                                        auto in, auto dx) {
    MAY_FAIL(cudnnConvolutionBackwardData);
    REFUSE_UNLESS(fits(*in, *filter, *window, *out) && bytes >= kWorkspace);
    REFUSE_UNLESS(algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
    std::vector<double> sums(in->size());
    for_products(*in, *filter, *out, [&](auto from, auto weight, auto to) {
      sums[from] += double{floats(dy)[to]} * floats(w)[weight];
    });
    blend(alpha, beta, sums, dx);
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnConvolutionBackwardFilter = [](auto, auto alpha, auto in, auto x, auto out, auto dy,
                                          auto window, auto algorithm, auto, auto bytes, auto beta,
                                          auto filter, auto dw) {
    MAY_FAIL(cudnnConvolutionBackwardFilter);
    REFUSE_UNLESS(fits(*in, *filter, *window, *out) && bytes >= kWorkspace);
    REFUSE_UNLESS(algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
    std::vector<double> sums(std::size_t(filter->k) * filter->c * filter->h * filter->w);
    for_products(*in, *filter, *out, [&](auto from, auto weight, auto to) {
      sums[weight] += double{floats(x)[from]} * floats(dy)[to];
    });
    blend(alpha, beta, sums, dw);
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnConvolutionBackwardBias = [](auto, auto alpha, auto out, auto dy, auto beta, auto bias,
                                        auto db) {
    MAY_FAIL(cudnnConvolutionBackwardBias);
    REFUSE_UNLESS((*bias == cudnnTensorStruct{1, out->c, 1, 1}));
    std::vector<double> sums(out->c);
    for (std::size_t i = 0; i < out->size(); ++i) {
      sums[i / (std::size_t(out->h) * out->w) % out->c] += floats(dy)[i];
    }
    blend(alpha, beta, sums, db);
    return CUDNN_STATUS_SUCCESS;
  };
}

bool halves(const cudnnPoolingStruct& pooling, const cudnnTensorStruct& in,
            const cudnnTensorStruct& out) {
  return pooling.two_by_two && in == cudnnTensorStruct{out.n, out.c, 2 * out.h, 2 * out.w};
}

// The place of the largest of a window's four: of equal ones the last, as the documentation does
// not say which.
std::size_t largest(const cudnnTensorStruct& in, const float* x, int n, int c, int row,
                    int column) {
  std::size_t best = in.at(n, c, 2 * row, 2 * column);
  for (const auto& [v, u] : {std::pair{0, 1}, {1, 0}, {1, 1}}) {
    const std::size_t place = in.at(n, c, 2 * row + v, 2 * column + u);
    if (x[place] >= x[best]) best = place;
  }
  return best;
}

void set_layers(CudnnApi& api) {
  api.cudnnAddTensor = [](auto, auto alpha, auto from, auto a, auto beta, auto to, auto c) {
    MAY_FAIL(cudnnAddTensor);
    REFUSE_UNLESS((*from == cudnnTensorStruct{1, to->c, 1, 1}));
    std::vector<double> added(to->size());
    for (std::size_t i = 0; i < added.size(); ++i) {
      added[i] = floats(a)[i / (std::size_t(to->h) * to->w) % to->c];
    }
    blend(alpha, beta, added, c);
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnPoolingForward = [](auto, auto pooling, auto alpha, auto in, auto x, auto beta, auto out,
                               auto y) {
    MAY_FAIL(cudnnPoolingForward);
    REFUSE_UNLESS(halves(*pooling, *in, *out));
    std::vector<double> values(out->size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int column = int(i % out->w), row = int(i / out->w % out->h);
      const int c = int(i / out->w / out->h % out->c), n = int(i / out->w / out->h / out->c);
      values[i] = floats(x)[largest(*in, floats(x), n, c, row, column)];
    }
    blend(alpha, beta, values, y);
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnPoolingBackward = [](auto, auto pooling, auto alpha, auto out, auto, auto d_out, auto dy,
                                auto in, auto x, auto beta, auto d_in, auto dx) {
    MAY_FAIL(cudnnPoolingBackward);
    REFUSE_UNLESS(halves(*pooling, *in, *out) && *out == *d_out && *in == *d_in);
    std::vector<double> values(in->size());
    for (std::size_t i = 0; i < out->size(); ++i) {
      const int column = int(i % out->w), row = int(i / out->w % out->h);
      const int c = int(i / out->w / out->h % out->c), n = int(i / out->w / out->h / out->c);
      values[largest(*in, floats(x), n, c, row, column)] = floats(dy)[i];
    }
    blend(alpha, beta, values, dx);
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnActivationForward = [](auto, auto kind, auto alpha, auto in, auto x, auto beta, auto out,
                                  auto y) {
    MAY_FAIL(cudnnActivationForward);
    REFUSE_UNLESS(kind->relu && *in == *out);
    std::vector<double> values(floats(x), floats(x) + in->size());
    for (double& value : values) value = std::max(value, 0.0);
    blend(alpha, beta, values, y);
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnActivationBackward = [](auto, auto kind, auto alpha, auto out, auto, auto d_out, auto dy,
                                   auto in, auto x, auto beta, auto d_in, auto dx) {
    MAY_FAIL(cudnnActivationBackward);
    REFUSE_UNLESS(kind->relu && *in == *out && *in == *d_in && *out == *d_out);
    std::vector<double> values(in->size());
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = floats(x)[i] > 0 ? floats(dy)[i] : 0;
    blend(alpha, beta, values, dx);
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnSoftmaxForward = [](auto, auto, auto mode, auto alpha, auto in, auto x, auto beta,
                               auto out, auto y) {
    MAY_FAIL(cudnnSoftmaxForward);
    REFUSE_UNLESS(mode == CUDNN_SOFTMAX_MODE_INSTANCE && *in == *out);
    const std::size_t classes = in->size() / in->n;
    std::vector<double> values(in->size());
    for (std::size_t first = 0; first < values.size(); first += classes) {
      const float* const own = floats(x) + first;
      double sum = 0;
      for (std::size_t c = 0; c < classes; ++c) {
        sum += values[first + c] = std::exp(double{own[c]} - *std::max_element(own, own + classes));
      }
      for (std::size_t c = 0; c < classes; ++c) values[first + c] /= sum;
    }
    blend(alpha, beta, values, y);
    return CUDNN_STATUS_SUCCESS;
  };
}

void set_descriptors(CudnnApi& api) {
  api.cudnnGetErrorString = [](auto) { return "the stand-in was told to fail"; };
#define STAND_IN_MAKES(what)              \
  api.cudnnCreate##what = [](auto made) { \
    MAY_FAIL(cudnnCreate##what);          \
    return create(made);                  \
  };                                      \
  api.cudnnDestroy##what = [](auto made) { return destroy(made); }
  STAND_IN_MAKES(TensorDescriptor);
  STAND_IN_MAKES(FilterDescriptor);
  STAND_IN_MAKES(ConvolutionDescriptor);
  STAND_IN_MAKES(PoolingDescriptor);
  STAND_IN_MAKES(ActivationDescriptor);
  STAND_IN_MAKES();
#undef STAND_IN_MAKES
  api.cudnnSetStream = [](auto, auto) {
    MAY_FAIL(cudnnSetStream);
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnSetTensor4dDescriptor = [](auto tensor, auto format, auto type, int n, int c, int h,
                                      int w) {
    MAY_FAIL(cudnnSetTensor4dDescriptor);
    REFUSE_UNLESS(format == CUDNN_TENSOR_NCHW && type == CUDNN_DATA_FLOAT);
    *tensor = {n, c, h, w};
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnSetFilter4dDescriptor = [](auto filter, auto type, auto format, int k, int c, int h,
                                      int w) {
    MAY_FAIL(cudnnSetFilter4dDescriptor);
    REFUSE_UNLESS(format == CUDNN_TENSOR_NCHW && type == CUDNN_DATA_FLOAT);
    *filter = {k, c, h, w};
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnSetConvolution2dDescriptor = [](auto window, int pad_h, int pad_w, int stride_h,
                                           int stride_w, int dilation_h, int dilation_w, auto mode,
                                           auto) {
    MAY_FAIL(cudnnSetConvolution2dDescriptor);
    window->correlates = mode == CUDNN_CROSS_CORRELATION && pad_h == 0 && pad_w == 0 &&
                         stride_h == 1 && stride_w == 1 && dilation_h == 1 && dilation_w == 1;
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnSetConvolutionMathType = [](auto window, auto math) {
    MAY_FAIL(cudnnSetConvolutionMathType);
    window->math = math;
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnSetPooling2dDescriptor = [](auto pooling, auto mode, auto, int h, int w, int pad_h,
                                       int pad_w, int stride_h, int stride_w) {
    MAY_FAIL(cudnnSetPooling2dDescriptor);
    pooling->two_by_two = mode == CUDNN_POOLING_MAX_DETERMINISTIC && h == 2 && w == 2 &&
                          pad_h == 0 && pad_w == 0 && stride_h == 2 && stride_w == 2;
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnSetActivationDescriptor = [](auto kind, auto mode, auto, auto) {
    MAY_FAIL(cudnnSetActivationDescriptor);
    kind->relu = mode == CUDNN_ACTIVATION_RELU;
    return CUDNN_STATUS_SUCCESS;
  };
}

void set_cublas(CudnnApi& api) {
  api.cublasGetStatusString = [](auto) { return "the stand-in was told to fail"; };
  api.cublasCreate_v2 = [](auto made) {
    MAY_FAIL_CUBLAS(cublasCreate_v2);
    create(made);
    return CUBLAS_STATUS_SUCCESS;
  };
  api.cublasDestroy_v2 = [](auto made) {
    destroy(made);
    return CUBLAS_STATUS_SUCCESS;
  };
  api.cublasSetStream_v2 = [](auto handle, auto) {
    MAY_FAIL_CUBLAS(cublasSetStream_v2);
    handle->has_workspace = false;
    return CUBLAS_STATUS_SUCCESS;
  };
  api.cublasSetWorkspace_v2 = [](auto handle, auto data, auto bytes) {
    MAY_FAIL_CUBLAS(cublasSetWorkspace_v2);
    handle->has_workspace = data != nullptr && bytes > 0;
    return CUBLAS_STATUS_SUCCESS;
  };
  api.cublasSetMathMode = [](auto, auto mode) {
    MAY_FAIL_CUBLAS(cublasSetMathMode);
    return mode == CUBLAS_DEFAULT_MATH ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  };
  api.cublasSetAtomicsMode = [](auto, auto mode) {
    MAY_FAIL_CUBLAS(cublasSetAtomicsMode);
    return mode == CUBLAS_ATOMICS_NOT_ALLOWED ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  };
  api.cublasSgemm_v2 = [](auto handle, auto op_a, auto op_b, int m, int n, int k, auto alpha,
                          auto a, int lda, auto b, int ldb, auto beta, auto c, int ldc) {
    MAY_FAIL_CUBLAS(cublasSgemm_v2);
    if (!handle->has_workspace || lda < (op_a == CUBLAS_OP_N ? m : k) ||
        ldb < (op_b == CUBLAS_OP_N ? k : n) || ldc != m) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    const auto at = [](const float* matrix, auto op, int ld, int row, int column) {
      return op == CUBLAS_OP_N ? matrix[std::size_t(column) * ld + row]
                               : matrix[std::size_t(row) * ld + column];
    };
    std::vector<double> sums(std::size_t(m) * n);
    for (int row = 0; row < m; ++row)
      for (int column = 0; column < n; ++column)
        for (int i = 0; i < k; ++i)
          sums[std::size_t(column) * m + row] +=
              double{at(a, op_a, lda, row, i)} * at(b, op_b, ldb, i, column);
    blend(alpha, beta, sums, c);
    return CUBLAS_STATUS_SUCCESS;
  };
}

}  // namespace

const CudnnApi& api() {
  static const CudnnApi made = [] {
    CudnnApi api;
    set_descriptors(api);
    set_convolutions(api);
    set_layers(api);
    set_cublas(api);
    return api;
  }();
  return made;
}

std::vector<std::string> functions() {
  std::vector<std::string> names;
#define STAND_IN_NAME(name) names.push_back(#name)
  LENET_CUDNN_FUNCTIONS(STAND_IN_NAME);
  LENET_CUBLAS_FUNCTIONS(STAND_IN_NAME);
#undef STAND_IN_NAME
  return names;
}

void fail(const std::string& function) { failing = function; }
int alive() { return living; }

}  // namespace lenet::stand_in
