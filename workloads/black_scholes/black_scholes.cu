#include "black_scholes/black_scholes.hpp"

#include "black_scholes/formula.hpp"
#include "holdfast/kernel.hpp"

namespace black_scholes {
namespace {

constexpr unsigned kThreads = 256;

__global__ void price_all(Book book, Scenario scenario, std::uint64_t number) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < book.count) price_option(book, scenario, number, i);
}

}  // namespace

void price(holdfast::Stream& stream, const Book& book, Scenario scenario, std::uint64_t number) {
  holdfast::launch(stream, holdfast::blocks_for(book.count, kThreads), kThreads, price_all, book,
                   scenario, number);
}

}  // namespace black_scholes
