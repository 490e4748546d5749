// Digests of a workload's durable state (XXH3, 128 bits): two runs whose digests are alike ended
// with the same state, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace workload {

struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
  // 32 hexadecimal digits.
  std::string text() const;
};

Digest digest_of(const void* data, std::size_t bytes);
template <class T>
Digest digest_of(const std::vector<T>& values) {
  return digest_of(values.data(), values.size() * sizeof(T));
}

// Of parts, as if they were one piece of memory. Thread safety: one thread.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(const Digester&) = delete;
  Digester& operator=(const Digester&) = delete;

  void add(const void* data, std::size_t bytes);
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.data(), values.size() * sizeof(T));
  }
  Digest finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Of pairs of numbers in whatever order: their digests' sum, and how many there are.
class PairDigester {
 public:
  void add(std::uint64_t first, std::uint64_t second);
  Digest finish() const;

 private:
  Digest sum_;
  std::uint64_t count_ = 0;
};

}  // namespace workload
