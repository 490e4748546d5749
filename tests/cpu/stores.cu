#include "cpu/stores.hpp"

namespace holdfast::test {

__global__ void count_every_turn(Counted* __restrict__ head, std::uint64_t* __restrict__ records,
                                 unsigned n) {
  for (unsigned i = 0; i < n; ++i) {
    records[i] = 10 + i;
    head->count = i + 1;
  }
}

__global__ void count_beside_floats(std::uint32_t* count, float* records, unsigned n) {
  for (unsigned i = 0; i < n; ++i) {
    records[i] = 1.0f;
    *count += 1;
  }
}

__global__ void same_every_turn(std::uint64_t* place, std::uint64_t* records, unsigned n) {
  for (unsigned i = 0; i < n; ++i) {
    *place = 7;
    records[i] = i;
  }
}

__global__ void overwritten(std::uint64_t* place, std::uint64_t* other) {
  *place = 1;
  *place = 2;
  *other = 3;
  *place = 4;
}

__global__ void written_back(std::uint64_t* place) {
  const std::uint64_t value = *place;
  *place = value;
}

__global__ void written_again(std::uint64_t* place, std::uint64_t* other) {
  *place = 7;
  *other = 3;
  *place = 7;
}

__global__ void overwritten_if(std::uint64_t* place, unsigned yes) {
  *place = 1;
  if (yes != 0) *place = 2;
}

__global__ void both_branches(std::uint64_t* place, std::uint64_t* other, unsigned yes) {
  if (yes != 0) {
    *other = 5;
    *place = 9;
  } else {
    *other = 6;
    *place = 9;
  }
}

__global__ void either_value(std::uint64_t* place, unsigned yes) {
  if (yes != 0) {
    *place = 1;
  } else {
    *place = 2;
  }
}

__global__ void only_if(std::uint64_t* place, std::uint64_t value, unsigned yes) {
  std::uint64_t now = *place;
  if (yes != 0) {
    now += value;
    *place = now;
  }
}

__global__ void neighbours(std::uint16_t* row) {
  row[0] = 1;
  row[1] = 2;
  row[2] = 3;
  row[3] = 4;
}

__global__ void bytes_in_turn(std::uint8_t* row) {
  for (unsigned i = 0; i < 8; ++i) row[i] = static_cast<std::uint8_t>(i + 1);
}

__global__ void cleared_in_turn(std::uint32_t* row, unsigned n) {
  for (unsigned i = 0; i < n; ++i) row[i] = 0;
}

__global__ void copied_in_turn(std::uint64_t* __restrict__ to,
                               const std::uint64_t* __restrict__ from, unsigned n) {
  for (unsigned i = 0; i < n; ++i) to[i] = from[i];
}

__global__ void small_struct(Small* to, unsigned a, unsigned b) { *to = Small{a, b}; }

__global__ void cleared_then_stored(Wide* to) {
  *to = Wide{};
  to->words[0] = 4;
}

__global__ void one_vector(uint4* to) { *to = make_uint4(1, 2, 3, 4); }

}  // namespace holdfast::test
