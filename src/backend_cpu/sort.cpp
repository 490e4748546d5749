#include "holdfast/sort.hpp"

#include <array>
#include <exception>
#include <memory>

#include "backend_cpu/host_events.hpp"
#include "core/guard.hpp"

namespace holdfast {

struct PairSorter::Impl {
  struct Pair {
    std::uint32_t key;
    std::uint32_t value;
  };
  std::size_t max_count = 0;
  // Never zeroed: pages that no sort touches take no memory.
  std::unique_ptr<Pair[]> pairs;
  std::unique_ptr<Pair[]> other;
};

namespace {

constexpr unsigned kDigitBits = 11;
constexpr std::size_t kDigits = 1u << kDigitBits;

// One stable pass of a counting sort over a digit.
template <class Pair>
void sort_by_digit(const Pair* from, Pair* to, std::size_t count, unsigned shift,
                   std::uint32_t mask) {
  std::array<std::size_t, kDigits> start{};
  for (std::size_t i = 0; i < count; ++i) ++start[(from[i].key & mask) >> shift & (kDigits - 1)];
  std::size_t sum = 0;
  for (std::size_t& slot : start) {
    const std::size_t size = slot;
    slot = sum;
    sum += size;
  }
  for (std::size_t i = 0; i < count; ++i) {
    to[start[(from[i].key & mask) >> shift & (kDigits - 1)]++] = from[i];
  }
}

}  // namespace

PairSorter::PairSorter(std::size_t max_count) try : impl_(std::make_unique<Impl>()) {
  detail::check_sorter(max_count);
  impl_->max_count = max_count;
  impl_->pairs = std::make_unique_for_overwrite<Impl::Pair[]>(max_count);
  impl_->other = std::make_unique_for_overwrite<Impl::Pair[]>(max_count);
} catch (const std::exception&) {
  core::fail("a PairSorter");
}

PairSorter::~PairSorter() = default;
PairSorter::PairSorter(PairSorter&&) noexcept = default;
PairSorter& PairSorter::operator=(PairSorter&&) noexcept = default;

void PairSorter::sort(Stream& stream, const std::uint32_t* keys_in, std::uint32_t* keys_out,
                      const std::uint32_t* values_in, std::uint32_t* values_out, std::size_t count,
                      unsigned bits) {
  detail::check_sort(count, bits, impl_->max_count);
  const void* const pc = __builtin_return_address(0);
  const auto work = [impl = impl_.get(), keys_in, keys_out, values_in, values_out, count, bits] {
    const std::uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
    for (std::size_t i = 0; i < count; ++i) impl->pairs[i] = {keys_in[i], values_in[i]};
    for (unsigned shift = 0; shift < bits; shift += kDigitBits) {
      sort_by_digit(impl->pairs.get(), impl->other.get(), count, shift, mask);
      impl->pairs.swap(impl->other);
    }
    for (std::size_t i = 0; i < count; ++i) {
      keys_out[i] = impl->pairs[i].key;
      values_out[i] = impl->pairs[i].value;
    }
  };
  stream.enqueue([=] {
    const std::size_t bytes = count * sizeof(std::uint32_t);
    cpu::copy_observed({{keys_in, bytes}, {values_in, bytes}},
                       {{keys_out, bytes}, {values_out, bytes}}, pc, work);
  });
}

}  // namespace holdfast
