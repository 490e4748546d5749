// Reading the records of a log over the link, in order, and in pieces: kernels deal with one while
// the next is copied.
#pragma once

#include <cstdint>
#include <string>

#include "kv_store/log/batch.hpp"
#include "kv_store/log/survey.hpp"

namespace holdfast::kv::log {

// What an index holds; in device memory while it is added up.
struct Census {
  unsigned long long pairs;
  unsigned long long tombstones;
  unsigned long long digest;
  unsigned long long slots;  // that are not empty
  unsigned long long wrong;  // that are not as their records, or cannot be found
};

struct Loaded {
  Census census{};
  std::string wrong;  // what is damaged; empty: nothing is
};

// Fills an index, which is empty, from what the survey found, and says what it has then. Waits for
// the stream. Wrong, naming the run: a piece or a snapshot is not as its sum says, there are more
// keys than the index has slots for, or the pairs are not those that the last run left. (No error
// is thrown: files of kernels cannot catch those of others, as the checker compiles them.)
template <class Form>
Loaded load_index(Stream& stream, const Form& index, const Survey& survey, const Record* records,
                  const SnapshotWord* snapshots);

// Compares all that the log holds with its index. Returns what is wrong, or nothing. REQUIRES: the
// survey went by no snapshots.
template <class Form>
std::string audit_log(Stream& stream, const Form& index, const Survey& survey,
                      const Record* records, std::uint32_t segments);

// Makes the headers at these positions none. Waits for the stream.
void drop_headers(Stream& stream, const Medium& medium,
                  const std::vector<std::uint32_t>& positions);

}  // namespace holdfast::kv::log
