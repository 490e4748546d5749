// The kernel that interprets a fuzzer's case, and its host's side.
#include "check/fuzz/fuzz_case.hpp"
#include "holdfast/kernel.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::test {
namespace {

constexpr unsigned kSharedWords = 16;

struct Thread {
  const FuzzOp* ops;
  std::uint32_t count;
};

template <class T>
__device__ void access(const FuzzOp& op, T* address, std::uint64_t& reg) {
  const T value = static_cast<T>(op.value + (op.adds ? reg : 0));
  switch (op.code) {
    case Code::load:
      reg = *address;
      break;
    case Code::store:
      *address = value;
      break;
    case Code::clear_and_add:
      *address = 0;
      *address += value;
      break;
    case Code::load_volatile:
      reg = *static_cast<const volatile T*>(address);
      break;
    case Code::store_volatile:
      *static_cast<volatile T*>(address) = value;
      break;
    case Code::atomic_add:
      reg = atomicAdd(address, value);
      break;
    case Code::atomic_or:
      reg = atomicOr(address, value);
      break;
    case Code::exchange:
      reg = atomicExch(address, value);
      break;
    case Code::acquire:
      reg = op.scope == Scope::block    ? pacq<Scope::block>(address)
            : op.scope == Scope::device ? pacq<Scope::device>(address)
                                        : pacq<Scope::system>(address);
      break;
    case Code::release:
      if (op.scope == Scope::block) {
        prel<Scope::block>(address, value);
      } else if (op.scope == Scope::device) {
        prel<Scope::device>(address, value);
      } else {
        prel<Scope::system>(address, value);
      }
      break;
    default:
      break;
  }
}

__device__ void synchronise(const FuzzOp& op, std::uint64_t& reg) {
  switch (op.code) {
    case Code::ofence:
      ofence();
      break;
    case Code::persist:
      persist();
      break;
    case Code::fence_block:
      __threadfence_block();
      break;
    case Code::fence_device:
      __threadfence();
      break;
    case Code::fence_system:
      __threadfence_system();
      break;
    case Code::barrier:
      __syncthreads();
      break;
    case Code::barrier_or:
      reg = static_cast<std::uint64_t>(__syncthreads_or(reg != 0));
      break;
    case Code::ballot:
      reg = __ballot_sync((1u << blockDim.x) - 1, reg != 0);
      break;
    default:
      break;
  }
}

__global__ void interpret(const Thread* threads, unsigned char* persistent, unsigned char* device,
                          bool shares) {
  __shared__ unsigned long long shared[kSharedWords];
  if (shares) {
    if (threadIdx.x == 0) {
      for (unsigned i = 0; i < kSharedWords; ++i) shared[i] = 0;
    }
    __syncthreads();
  }
  std::uint64_t regs[kRegisters] = {};
  const Thread me = threads[blockIdx.x * blockDim.x + threadIdx.x];
  for (std::uint32_t i = 0; i < me.count; ++i) {
    const FuzzOp& op = me.ops[i];
    std::uint64_t& reg = regs[op.reg];
    unsigned char* const space = op.space == Space::persistent ? persistent
                                 : op.space == Space::device
                                     ? device
                                     : reinterpret_cast<unsigned char*>(shared);
    void* const address = space + op.place * 4;
    if (op.code == Code::skip_unless) {
      if (reg != op.value) i += op.count;
    } else if (op.code == Code::store_wide) {
      *static_cast<ulonglong2*>(address) = make_ulonglong2(op.value, op.value + 1);
    } else if (op.code == Code::copy_to_itself) {
      const void* const from = op.value == ~std::uint64_t{0} ? nullptr : address;
      *static_cast<ulonglong2*>(address) = *static_cast<const ulonglong2*>(from);
    } else if (op.code >= Code::ofence) {
      synchronise(op, reg);
    } else if (op.size == 4) {
      access(op, static_cast<unsigned*>(address), reg);
    } else {
      access(op, static_cast<unsigned long long*>(address), reg);
    }
  }
}

// The host's steps. Device memory is new in each run, as after a crash.
void execute(const FuzzCase& fuzz, const std::vector<FuzzStep>& steps, Region& region,
             check::Session* session) {
  auto* const words = region.find<std::uint64_t>(kFuzzObject).data();
  DeviceBuffer<std::uint64_t> device(fuzz.device_words);
  std::vector<std::vector<Thread>> threads;
  for (const FuzzKernel& kernel : fuzz.kernels) {
    auto& of_kernel = threads.emplace_back();
    for (const auto& code : kernel.code) {
      of_kernel.push_back({code.data(), static_cast<std::uint32_t>(code.size())});
    }
  }
  Stream stream;
  for (const FuzzStep& step : steps) {
    switch (step.kind) {
      case FuzzStep::Kind::launch: {
        const FuzzKernel& kernel = fuzz.kernels[step.kernel];
        launch(stream, dim3(kernel.blocks), dim3(kernel.threads), interpret,
               threads[step.kernel].data(), reinterpret_cast<unsigned char*>(words),
               reinterpret_cast<unsigned char*>(device.data()), kernel.shares);
        break;
      }
      case FuzzStep::Kind::synchronize:
        stream.synchronize();
        break;
      case FuzzStep::Kind::start:
        if (session != nullptr) session->start();
        break;
      case FuzzStep::Kind::acknowledge:
        if (session != nullptr) session->acknowledge();
        break;
      case FuzzStep::Kind::copy_in:
        copy_async(stream, device.data() + step.to, words + step.place, step.count * 8u);
        break;
      case FuzzStep::Kind::copy_out: {
        std::uint64_t value = 0;
        copy_async(stream, &value, device.data() + step.place, sizeof value);
        stream.synchronize();
        if (value != step.value) return;
        break;
      }
      case FuzzStep::Kind::only_if:
        stream.synchronize();
        if (words[step.place] != step.value) return;
        break;
      case FuzzStep::Kind::store:
        words[step.place] = step.value;
        break;
    }
  }
  stream.synchronize();
}

std::string verify(const FuzzCase& fuzz, Region& region, const check::History& history,
                   std::uint64_t item, const std::function<std::string(const Observation&)>& told) {
  const auto* const bytes =
      reinterpret_cast<const unsigned char*>(region.find<std::uint64_t>(kFuzzObject).data());
  Observation seen{item, history.started, history.acknowledged};
  for (const FuzzRead& read : fuzz.items[item]) {
    const void* const at = bytes + read.place * 4;
    const std::uint64_t value = read.size == 4 ? *static_cast<const std::uint32_t*>(at)
                                               : *static_cast<const std::uint64_t*>(at);
    seen.push_back(value);
    if (read.ends && value == read.value) break;
  }
  return told(seen);
}

}  // namespace

check::Program make_program(std::shared_ptr<const FuzzCase> fuzz,
                            std::function<std::string(const Observation&)> observe) {
  check::Program program;
  program.name = "fuzz";
  program.region_bytes = 1u << 17;
  program.items = fuzz->items.size();
  program.set_up = [fuzz](Region& region) {
    region.allocate<std::uint64_t>(kFuzzObject, fuzz->words);
  };
  program.run = [fuzz](Region& region, check::Session& session) {
    execute(*fuzz, fuzz->run, region, &session);
  };
  program.recover = [fuzz](Region& region) { execute(*fuzz, fuzz->recover, region, nullptr); };
  program.verify = [fuzz, observe = std::move(observe)](
                       Region& region, const check::History& history, std::uint64_t item) {
    return verify(*fuzz, region, history, item, observe);
  };
  return program;
}

}  // namespace holdfast::test
