#include "ranks.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/error.hpp"

namespace score {

namespace {

struct Shared {
  std::atomic<std::uint32_t> arrived{0}, round{0};
  std::atomic<bool> ended{false}, printing{false}, said{false};
};

class SharedRanks final : public Ranks {
 public:
  SharedRanks(unsigned rank_is, unsigned count_is, Shared* shared) : shared_(shared) {
    rank = rank_is;
    count = count_is;
  }
  void barrier() override {
    if (count == 1) return;
    const std::uint32_t round = shared_->round;
    if (++shared_->arrived == count) {
      shared_->arrived = 0;
      ++shared_->round;
      return;
    }
    while (shared_->round == round) {
      look();
      std::this_thread::yield();
    }
  }
  bool any(bool mine) override {
    if (mine) shared_->said = true;
    barrier();
    const bool said = shared_->said;
    barrier();  // nobody says the next thing before all have read this
    shared_->said = false;
    barrier();
    return said;
  }
  void in_turn(const std::function<void()>& body) override {
    while (shared_->printing.exchange(true)) {
      look();
      std::this_thread::yield();
    }
    body();
    shared_->printing = false;
  }

 private:
  void look() const {
    if (shared_->ended) throw holdfast::Error(holdfast::Errc::io, "another rank has failed");
  }
  Shared* shared_;
};

}  // namespace

int run_ranks(unsigned count, unsigned gpus, const std::function<int(Ranks&)>& body) {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* shared = new (memory) Shared;
  if (count == 1) {
    SharedRanks alone(0, 1, shared);
    return body(alone);
  }
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (unsigned rank = 0; rank < count; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) {
      shared->ended = true;
      std::perror("fork");
      break;
    }
    if (child == 0) {
      // Before CUDA is first called.
      ::setenv("CUDA_VISIBLE_DEVICES", std::to_string(rank % gpus).c_str(), 1);
      SharedRanks ranks(rank, count, shared);
      const int status = body(ranks);
      std::fflush(nullptr);
      ::_exit(status);
    }
    children.push_back(child);
  }
  int result = children.size() < count ? 1 : 0;
  for (std::size_t left = children.size(); left > 0; --left) {
    int status = 0;
    if (::wait(&status) < 0) break;
    const int own = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    if (own == 0) continue;
    shared->ended = true;
    if (result == 0) result = own;
  }
  ::munmap(memory, sizeof(Shared));
  return result;
}

}  // namespace score
