// Ranks that are threads of one process, each with a history of its own.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/ranks.hpp"

namespace holdfast::test {

class ThreadRanks : public RankGroup {
 public:
  struct Shared {
    explicit Shared(int size) : given(static_cast<std::size_t>(size)) {}
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Bytes> given, taken;
    std::size_t come = 0, round = 0;
  };
  ThreadRanks(std::shared_ptr<Shared> shared, int rank, std::string node)
      : shared_(std::move(shared)), rank_(rank), node_(std::move(node)) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(shared_->given.size()); }
  std::string node() const override { return node_.empty() ? RankGroup::node() : node_; }
  std::vector<Bytes> all_gather(std::span<const std::byte> mine,
                                std::chrono::milliseconds timeout) override {
    std::unique_lock lock(shared_->mutex);
    Shared& all = *shared_;
    const std::size_t round = all.round;
    all.given[static_cast<std::size_t>(rank_)].assign(mine.begin(), mine.end());
    if (++all.come == all.given.size()) {
      all.taken = all.given;
      all.come = 0;
      ++all.round;
      all.changed.notify_all();
    } else if (!all.changed.wait_for(lock, timeout, [&] { return all.round != round; })) {
      throw Error(Errc::rank_lost, "not all threads came");
    }
    return all.taken;
  }

 private:
  const std::shared_ptr<Shared> shared_;
  const int rank_;
  const std::string node_;
};

// Runs `body` for each rank, and fails the test if one throws. `nodes`: by rank; empty: one node.
inline void run_ranks(int size, const std::function<void(std::shared_ptr<RankGroup>)>& body,
                      const std::vector<std::string>& nodes = {}) {
  const auto shared = std::make_shared<ThreadRanks::Shared>(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    const std::string node = nodes.empty() ? "" : nodes[static_cast<std::size_t>(rank)];
    threads.emplace_back([&, rank, node] {
      try {
        body(std::make_shared<ThreadRanks>(shared, rank, node));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace holdfast::test
