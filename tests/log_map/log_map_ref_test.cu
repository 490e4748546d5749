#include "log_map/log_map_ref_test.hpp"

#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

constexpr unsigned kThreads = 64;

__global__ void look(LogMapRef ref, std::uint32_t words, Looking how, const std::uint64_t* keys,
                     std::byte* rows, std::uint8_t* found, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::uint64_t key = i < count ? keys[i] : LogMapRef::kReservedKey;
  const std::byte* const value = how == Looking::by_warp ? ref.find_by_warp(key) : ref.find(key);
  if (i >= count) return;
  found[i] = value != nullptr;
  if (ref.contains(key) != (value != nullptr)) found[i] = 2;
  if (value == nullptr) return;
  const auto* const from = reinterpret_cast<const std::uint32_t*>(value);
  auto* const to = reinterpret_cast<std::uint32_t*>(rows) + i * words;
  for (std::uint32_t word = 0; word < words; ++word) to[word] = from[word];
}

}  // namespace

void look_up(Stream& stream, const LogMapRef& ref, Looking how, const std::uint64_t* keys,
             std::byte* rows, std::uint8_t* found, std::size_t count) {
  launch(stream, blocks_for(count, kThreads), kThreads, look, ref, ref.value_bytes() / 4, how, keys,
         rows, found, count);
}

}  // namespace holdfast::test
