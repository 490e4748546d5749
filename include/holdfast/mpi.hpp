// The ranks of an MPI communicator. All of it is in this header, so that the library itself does
// not need MPI: include it where <mpi.h> is found, and link MPI.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/ranks.hpp"

namespace holdfast {

// Calls MPI on the thread that calls it: MPI_THREAD_SINGLE is enough where that is the program's
// only thread, MPI_THREAD_FUNNELED where it is the one that started MPI. A rank that is late or
// dead is not known by name: MPI says of a collective only that it is not done.
class MpiRanks : public RankGroup {
 public:
  // Duplicates the communicator. Collective. Throws rank_lost if not all ranks came within
  // `timeout`; io for what MPI says; invalid_argument (no communicator, MPI not started).
  explicit MpiRanks(MPI_Comm communicator,
                    std::chrono::milliseconds timeout = std::chrono::milliseconds(60'000)) {
    int started = 0, ended = 0;
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (started == 0 || ended != 0 || communicator == MPI_COMM_NULL) {
      throw Error(Errc::invalid_argument,
                  "a group of MPI's ranks is made between MPI_Init() and MPI_Finalize(), of a "
                  "communicator that is not MPI_COMM_NULL");
    }
    check(MPI_Comm_rank(communicator, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(communicator, &size_), "MPI_Comm_size");
    auto copy = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Comm_idup(communicator, copy.get(), &request), "MPI_Comm_idup");
    await(request, timeout, copy);
    communicator_ = *copy;
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
  }
  // Gives the communicator back, unless a rank was lost or MPI has ended: that may wait for the
  // others.
  ~MpiRanks() override {
    int ended = 0;
    MPI_Finalized(&ended);
    if (ended == 0 && lost_.empty() && communicator_ != MPI_COMM_NULL) {
      MPI_Comm_free(&communicator_);
    }
  }
  MpiRanks(const MpiRanks&) = delete;
  MpiRanks& operator=(const MpiRanks&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::vector<Bytes> all_gather(std::span<const std::byte> mine,
                                std::chrono::milliseconds timeout) override {
    if (!lost_.empty()) throw Error(Errc::rank_lost, lost_);
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const auto left = [&] {
      return std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
    };
    // What MPI may still write to once nobody waits any more.
    struct Buffers {
      std::uint64_t size = 0;
      std::vector<std::uint64_t> sizes;
      std::vector<int> counts, offsets;
      Bytes mine, all;
    };
    const auto buffers = std::make_shared<Buffers>();
    buffers->size = mine.size();
    buffers->mine.assign(mine.begin(), mine.end());
    buffers->sizes.resize(static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgather(&buffers->size, 1, MPI_UINT64_T, buffers->sizes.data(), 1, MPI_UINT64_T,
                         communicator_, &request),
          "MPI_Iallgather");
    await(request, timeout, buffers);
    std::uint64_t total = 0;
    for (const std::uint64_t size : buffers->sizes) {
      buffers->offsets.push_back(static_cast<int>(total));
      buffers->counts.push_back(static_cast<int>(size));
      if (size > kMost || (total += size) > kMost) {  // on every rank alike
        throw Error(Errc::invalid_argument, "all_gather: MPI moves 2 GiB at once at most");
      }
    }
    buffers->all.resize(total);
    check(MPI_Iallgatherv(buffers->mine.data(), static_cast<int>(mine.size()), MPI_BYTE,
                          buffers->all.data(), buffers->counts.data(), buffers->offsets.data(),
                          MPI_BYTE, communicator_, &request),
          "MPI_Iallgatherv");
    await(request, left(), buffers);
    std::vector<Bytes> result;
    auto at = buffers->all.begin();
    for (const int count : buffers->counts) {
      result.emplace_back(at, at + count);
      at += count;
    }
    return result;
  }

 private:
  static constexpr std::uint64_t kMost = std::numeric_limits<int>::max();

  void check(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    lost_ = detail::concat(call, ": ", text, ": end the other ranks, and start all of them again");
    throw Error(Errc::io, lost_);
  }

  // `used`: what the request writes to. It is kept for good if the request does not end.
  void await(MPI_Request& request, std::chrono::milliseconds timeout,
             const std::shared_ptr<void>& used) {
    const auto begin = std::chrono::steady_clock::now();
    std::chrono::microseconds nap{1};
    for (;;) {
      int done = 0;
      const int code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      const auto passed = std::chrono::steady_clock::now() - begin;
      if (code == MPI_SUCCESS && done != 0) return;
      if (code != MPI_SUCCESS || passed >= timeout) {
        static_cast<void>(new std::shared_ptr<void>(used));
        if (code != MPI_SUCCESS) check(code, "MPI_Test");
        lost_ = detail::concat("not all of the ", size_, " ranks came within ", timeout.count(),
                               " ms: end the other ranks, and start all of them again");
        throw Error(Errc::rank_lost, lost_);
      }
      // What comes soon is not slept away; what does not is not waited for in a busy loop.
      if (passed < std::chrono::microseconds(50)) continue;
      std::this_thread::sleep_for(nap);
      nap = std::min(2 * nap, std::chrono::microseconds(500));
    }
  }

  int rank_ = 0, size_ = 1;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::string lost_;
};

inline std::shared_ptr<RankGroup> mpi_ranks(
    MPI_Comm communicator, std::chrono::milliseconds timeout = std::chrono::milliseconds(60'000)) {
  return std::make_shared<MpiRanks>(communicator, timeout);
}

}  // namespace holdfast
