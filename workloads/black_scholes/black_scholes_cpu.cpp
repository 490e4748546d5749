// Mode cpu: the same scenarios with OpenMP.
#include "black_scholes/black_scholes.hpp"
#include "black_scholes/formula.hpp"

namespace black_scholes {

void price_on_cpu(int threads, const Book& book, Scenario scenario, std::uint64_t number) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::uint64_t i = 0; i < book.count; ++i) price_option(book, scenario, number, i);
}

}  // namespace black_scholes
