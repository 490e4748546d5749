// Finds cuDNN and cuBLAS, where this build knows their headers (HOLDFAST_CUDNN).
#include "holdfast/error.hpp"
#include "lenet/trainer.hpp"

#if HOLDFAST_CUDNN
#include <dlfcn.h>

#include "lenet/cudnn_api.hpp"
#endif

namespace lenet {

#if HOLDFAST_CUDNN
namespace {

using holdfast::detail::concat;

struct Loaded {
  CudnnApi api;
  std::string why;  // not
};

// By the loader's own rules, and then in the folder that CMake found it in.
void* open_library(const std::string& name, const char* folder, std::string& why) {
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr && *folder != '\0') {
    library = ::dlopen(concat(folder, "/", name).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    why = concat(name, " was not found (", ::dlerror(),
                 "): install it, or name its folder in LD_LIBRARY_PATH");
  }
  return library;
}

template <class Function>
void look_up(void* library, const char* name, Function& function, std::string& why) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr && why.empty()) {
    why = concat("the library that was found has no ", name, ": install cuDNN ", CUDNN_MAJOR,
                 " and cuBLAS ", CUBLAS_VER_MAJOR);
  }
}

Loaded load() {
  Loaded loaded;
  void* const cudnn =
      open_library(concat("libcudnn.so.", CUDNN_MAJOR), HOLDFAST_CUDNN_FOLDER, loaded.why);
  if (cudnn == nullptr) return loaded;
  void* const cublas =
      open_library(concat("libcublas.so.", CUBLAS_VER_MAJOR), HOLDFAST_CUBLAS_FOLDER, loaded.why);
  if (cublas == nullptr) return loaded;
#define LENET_LOOK_UP_CUDNN(name) look_up(cudnn, #name, loaded.api.name, loaded.why)
#define LENET_LOOK_UP_CUBLAS(name) look_up(cublas, #name, loaded.api.name, loaded.why)
  LENET_CUDNN_FUNCTIONS(LENET_LOOK_UP_CUDNN);
  LENET_CUBLAS_FUNCTIONS(LENET_LOOK_UP_CUBLAS);
  return loaded;
}

}  // namespace

const CudnnApi* load_cudnn(std::string* why) {
  static const Loaded loaded = load();
  if (loaded.why.empty()) return &loaded.api;
  if (why) *why = loaded.why;
  return nullptr;
}

bool cudnn_usable(std::string* why) { return load_cudnn(why) != nullptr; }

std::unique_ptr<Trainer> make_cudnn_trainer(holdfast::Stream& stream, const Shape& shape,
                                            const Descent& descent, const Digits& digits) {
  std::string why;
  const CudnnApi* const api = load_cudnn(&why);
  if (api == nullptr) throw holdfast::Error(holdfast::Errc::unsupported, why);
  return make_cudnn_trainer(*api, stream, shape, descent, digits);
}

#else

namespace {
constexpr const char* kAbsent =
    "this is a build without cuDNN: build for the CUDA backend on a machine that has cudnn.h and "
    "cublas_v2.h (CMake says whether it found them), or use the own kernels";
}

bool cudnn_usable(std::string* why) {
  if (why) *why = kAbsent;
  return false;
}

std::unique_ptr<Trainer> make_cudnn_trainer(holdfast::Stream&, const Shape&, const Descent&,
                                            const Digits&) {
  throw holdfast::Error(holdfast::Errc::unsupported, kAbsent);
}

#endif

}  // namespace lenet
