#include "deposits.hpp"

#include <cstdint>
#include <string>

#include "holdfast/kernel.hpp"
#include "holdfast/region.hpp"

namespace bank {
namespace {

using holdfast::Region;
using holdfast::check::History;
using holdfast::check::Offer;
using holdfast::check::Program;
using holdfast::check::Session;
using holdfast::check::Sizes;

constexpr unsigned kAccounts = 3;

// A deposit counts once its entry is booked: the balance has to be durable before that.
__global__ void deposit(std::uint64_t* balance, std::uint32_t* booked) {
  balance[threadIdx.x] += 10;
  holdfast::persist();
  booked[threadIdx.x] = 1;
  holdfast::persist();
}

__global__ void deposit_unordered(std::uint64_t* balance, std::uint32_t* booked) {
  balance[threadIdx.x] += 10;
  booked[threadIdx.x] = 1;
  holdfast::persist();
}

using Kernel = void (*)(std::uint64_t*, std::uint32_t*);

std::string verify(Region& region, const History& history) {
  const auto balance = region.find<std::uint64_t>("balance");
  const auto booked = region.find<std::uint32_t>("booked");
  for (unsigned i = 0; i < kAccounts; ++i) {
    if (booked[i] == 1 && balance[i] != 10) return "a deposit is booked that is not there";
    if (history.acknowledged == 1 && booked[i] != 1) return "a deposit is lost";
  }
  return "";
}

Program program(const std::string& name, Kernel kernel) {
  Program made;
  made.name = name;
  made.set_up = [](Region& region) {
    region.allocate<std::uint64_t>("balance", kAccounts);
    region.allocate<std::uint32_t>("booked", kAccounts);
  };
  made.run = [=](Region& region, Session& session) {
    holdfast::Stream stream;
    session.start();
    holdfast::launch(stream, dim3(1), dim3(kAccounts), kernel,
                     region.find<std::uint64_t>("balance").data(),
                     region.find<std::uint32_t>("booked").data());
    stream.synchronize();
    session.acknowledge();
  };
  made.recover = [](Region&) {};
  made.verify = [](Region& region, const History& history, std::uint64_t) {
    return verify(region, history);
  };
  return made;
}

Offer offer(const std::string& name, const std::string& summary, bool correct, Kernel kernel) {
  return {.name = name, .summary = summary, .correct = correct, .make = [=](const Sizes&) {
            return program(name, kernel);
          }};
}

}  // namespace

std::vector<Offer> offers() {
  return {offer("deposits", "deposits, each booked once it is durable", true, deposit),
          offer("deposits_unordered", "booked before it is durable", false, deposit_unordered)};
}

}  // namespace bank
