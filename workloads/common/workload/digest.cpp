#include "workload/digest.hpp"

#include <cstdio>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace workload {
namespace {

Digest digest(const XXH128_hash_t& hash) { return {hash.high64, hash.low64}; }

}  // namespace

struct Digester::State {
  XXH3_state_t xxh;
};

std::string Digest::text() const {
  char digits[33];
  std::snprintf(digits, sizeof(digits), "%016llx%016llx", static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return digits;
}

Digest digest_of(const void* data, std::size_t bytes) { return digest(XXH3_128bits(data, bytes)); }

Digester::Digester() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Digester::~Digester() = default;

void Digester::add(const void* data, std::size_t bytes) {
  if (bytes != 0) XXH3_128bits_update(&state_->xxh, data, bytes);
}

Digest Digester::finish() const { return digest(XXH3_128bits_digest(&state_->xxh)); }

void PairDigester::add(std::uint64_t first, std::uint64_t second) {
  const std::uint64_t pair[] = {first, second};
  const Digest one = digest_of(pair, sizeof(pair));
  sum_.low += one.low;
  sum_.high += one.high + (sum_.low < one.low);
  ++count_;
}

Digest PairDigester::finish() const {
  const std::uint64_t all[] = {sum_.high, sum_.low, count_};
  return digest_of(all, sizeof(all));
}

}  // namespace workload
