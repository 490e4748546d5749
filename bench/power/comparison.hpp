// One comparison: all systems carry out the same batches in turn, and what each holds afterwards is
// compared with the oracle before its time counts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "system.hpp"

namespace power {

struct Plan {
  Shape shape;
  std::string folder;                              // on the disk
  std::vector<unsigned> batches_per_commit{1, 8};  // of ours
  unsigned warm = 3;                               // turns of each that are not measured
  unsigned repeat = 5;                             // turns that are; 1 or more
  double seconds = 60;                             // no turn is begun later, but for the first
  unsigned threads = 16;
  bool rocksdb = false;
};

struct Result {
  Promise promise;
  std::string io;
  unsigned cpu_threads = 1;
  std::uint64_t batches = 0;          // in all, which is what it takes to open again
  std::vector<Turn> turns;            // measured
  std::vector<double> plain_seconds;  // of the same bytes in one stream, turn by turn; none: none
  std::vector<double> system_bytes;   // that the kernel counted, turn by turn
  Recovered recovered;
};

// `on_result` is called as soon as a system was found to be right. Throws what a system throws, and
// std::runtime_error where one is wrong.
void compare_systems(const Plan& plan, const std::function<void(const Result&)>& on_result);

// Throws std::invalid_argument: says what cannot be measured.
void check_shape(const Shape& shape);

// A folder that is gone afterwards, with what is in it.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& parent);  // throws std::runtime_error
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace power
