// What a history says of itself to this process and to others: it is what its other functions say,
// while work is under way, too; and nobody who asks can hurt it.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "faulty_engine.hpp"
#include "history/engine.hpp"
#include "support/scratch.hpp"
#include "support/still_fork.hpp"

namespace holdfast {
namespace {

using history::Engine;
using history::Step;
using test::error_of;
using test::Fault;
using test::Faults;

constexpr std::uint64_t kUnit = 64 << 10;

// What a socket sends until its end; nothing if nobody listens.
std::string answer_at(const std::string& path) {
  const core::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(fd.get(), to, sizeof address) != 0) return {};
  std::string text;
  char part[4096];
  for (ssize_t got; (got = ::recv(fd.get(), part, sizeof part, 0)) > 0;) text.append(part, got);
  return text;
}

class HistorySnapshotTest : public test::Scratch {
 protected:
  HistoryOptions options(std::uint64_t gpu, std::uint64_t host) const {
    HistoryOptions options;
    options.gpu_bytes = gpu * kUnit;
    options.host_bytes = host * kUnit;
    options.disk = arenas() + "/history";
    return options;
  }
  std::unique_ptr<Engine> open(const HistoryOptions& options) {
    return test::open_engine(options, faults_);
  }
  void save(Engine& engine, Step step) {
    engine.protect("field", {field_.data(), kUnit, BufferMemory::device});
    engine.save(step, stream_, false);
  }

  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  Stream stream_;
  DeviceBuffer<std::byte> field_{kUnit};
};

TEST_F(HistorySnapshotTest, ItSaysWhatTheOtherFunctionsSay) {
  const auto engine = open(options(2, 3));
  for (Step step = 10; step < 16; ++step) save(*engine, step);
  engine->flush();
  engine->hint(std::vector<Step>{12, 99, 12, 15});
  const HistorySnapshot seen = engine->snapshot();
  EXPECT_EQ(seen.phase, "open");
  EXPECT_EQ(seen.pid, static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(seen.hints, (std::vector<Step>{12, 99, 12, 15}));
  EXPECT_FALSE(seen.prefetching);
  EXPECT_TRUE(seen.transfers.empty());
  EXPECT_TRUE(seen.callers.empty());
  ASSERT_EQ(seen.tiers.size(), 3u);
  EXPECT_EQ(seen.tiers[0].capacity, 2 * kUnit);
  EXPECT_EQ(seen.tiers[1].capacity, 3 * kUnit);
  EXPECT_EQ(seen.tiers[2].capacity, 0u);
  EXPECT_EQ(seen.tiers[2].path, arenas() + "/history");
  EXPECT_EQ(seen.tiers[2].used, 6 * kUnit);
  std::vector<Step> steps;
  std::uint64_t held[kTierKinds] = {};
  for (const auto& checkpoint : seen.checkpoints) {
    steps.push_back(checkpoint.step);
    EXPECT_EQ(checkpoint.bytes, kUnit);
    EXPECT_FALSE(checkpoint.discarded);
    EXPECT_GE(seen.unix_ns, checkpoint.saved_unix_ns);
    for (const Tier tier : {Tier::gpu, Tier::host, Tier::disk}) {
      const bool there = std::any_of(checkpoint.copies.begin(), checkpoint.copies.end(),
                                     [&](const auto& copy) { return copy.tier == tier; });
      EXPECT_EQ(there, engine->is_in(checkpoint.step, tier)) << checkpoint.step;
      if (there) ++held[index_of(tier)];
    }
    EXPECT_STREQ(checkpoint.copies.back().state, "written alone");  // nothing is below the disk
  }
  EXPECT_EQ(steps, engine->steps());
  for (const auto& tier : seen.tiers) {
    EXPECT_EQ(tier.checkpoints, held[index_of(tier.tier)]);
    EXPECT_EQ(tier.checkpoints, engine->stats().held_in[index_of(tier.tier)].checkpoints);
  }
}

// The disk is held up, so that a save waits for ever: until it is healed.
TEST_F(HistorySnapshotTest, ItSaysWhoWaitsForWhatAndWhatIsUnderWay) {
  struct Gate : history::Folder {
    // Everything passes but renames, which wait.
    Gate(std::unique_ptr<history::Folder> inner_of, std::atomic<bool>& open_of)
        : inner(std::move(inner_of)), is_open(open_of) {}
    Opened open(const std::string& name) override { return inner->open(name); }
    Opened create(const std::string& name) override { return inner->create(name); }
    int look_for(const std::string& name) override { return inner->look_for(name); }
    int rename(const std::string& from, const std::string& to) override {
      while (!is_open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return inner->rename(from, to);
    }
    int unlink(const std::string& name) override { return inner->unlink(name); }
    int sync() override { return inner->sync(); }
    int list(std::vector<std::string>& names) override { return inner->list(names); }
    void lock(const std::string& name) override { inner->lock(name); }
    const std::string& path() const override { return inner->path(); }
    std::unique_ptr<history::Folder> inner;
    std::atomic<bool>& is_open;
  };
  std::atomic<bool> is_open{true};
  const HistoryOptions with = options(0, 1);
  std::filesystem::create_directory(with.disk);
  Engine engine(
      with, history::open_folder_store(
                std::make_unique<Gate>(history::open_folder(with.disk), is_open), {}, {4096, 1}));
  is_open = false;
  save(engine, 3);
  std::thread other([&] { save(engine, 4); });
  HistorySnapshot seen;
  do {  // no clock says when it waits, so this does
    seen = engine.snapshot();
  } while (seen.callers.empty() || seen.callers[0].waits_for.empty() || seen.transfers.empty() ||
           seen.transfers[0].moved < kUnit);
  EXPECT_STREQ(seen.callers[0].call, "save");
  EXPECT_EQ(seen.callers[0].step, 4u);
  EXPECT_EQ(seen.callers[0].waits_for, "room in host");
  ASSERT_EQ(seen.transfers.size(), 1u);
  EXPECT_STREQ(seen.transfers[0].kind, "flush");
  EXPECT_EQ(seen.transfers[0].step, 3u);
  EXPECT_STREQ(seen.transfers[0].from, "host");
  EXPECT_STREQ(seen.transfers[0].to, "disk");
  EXPECT_EQ(seen.transfers[0].bytes, kUnit);
  // So does another process hear it, while the program waits.
  const std::string text = answer_at(with.disk + "/history.socket");
  EXPECT_NE(text.find(R"("callers":[{"call":"save","step":4,"waits_for":"room in host")"),
            std::string::npos)
      << text;
  is_open = true;
  other.join();
  engine.flush();
  EXPECT_TRUE(engine.snapshot().callers.empty());
}

TEST_F(HistorySnapshotTest, TheSocketIsThereAsLongAsTheHistoryIsOpen) {
  const std::string socket = arenas() + "/history/history.socket";
  auto engine = open(options(0, 1));
  EXPECT_TRUE(answer_at(socket).starts_with(R"({"holdfast_history_status":1,"pid":)"));
  engine->close();
  EXPECT_FALSE(std::filesystem::exists(socket));
  EXPECT_EQ(error_of([&] { engine->snapshot(); }), Errc::closed);
  engine.reset();
  // What a killed process left is replaced.
  const pid_t child = test::fork_when_still();
  if (child == 0) {
    const core::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket.c_str(), sizeof address.sun_path - 1);
    const auto* const at = reinterpret_cast<const sockaddr*>(&address);
    const bool made = ::bind(fd.get(), at, sizeof address) == 0 && ::listen(fd.get(), 1) == 0;
    ::_exit(made ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(answer_at(socket), "");
  engine = open(options(0, 1));
  EXPECT_NE(answer_at(socket), "");
}

TEST_F(HistorySnapshotTest, ASocketWhereTheProgramWantsIt) {
  HistoryOptions with = options(0, 4);
  with.disk = "";
  with.status = folder() + "/a name of a folder that is far longer than the 107 bytes which an " +
                "address of a socket has room for, and longer still/seen";
  std::filesystem::create_directories(std::filesystem::path(with.status).parent_path());
  const History history = History::open(with);
  EXPECT_EQ(error_of([&] { History::open(with); }), Errc::in_use);
  with.status = folder() + "/mine";
  std::ofstream(with.status) << "data";
  EXPECT_EQ(error_of([&] { History::open(with); }), Errc::already_exists);
  with.status = folder() + "/nowhere/seen";
  EXPECT_EQ(error_of([&] { History::open(with); }), Errc::not_found);
  with.status = folder() + "/" + std::string(120, 'x');
  EXPECT_EQ(error_of([&] { History::open(with); }), Errc::invalid_argument);
}

// Beside a file that stands in its place a history has no socket, and is a history.
TEST_F(HistorySnapshotTest, AFolderWhereNoSocketCanBeMadeHasAHistory) {
  const HistoryOptions with = options(0, 1);
  open(with)->close();
  std::ofstream(with.disk + "/history.socket") << "data";
  const auto engine = open(with);
  save(*engine, 1);
  engine->close();
  EXPECT_EQ(std::filesystem::file_size(with.disk + "/history.socket"), 4u);
}

TEST_F(HistorySnapshotTest, WhoAsksAndDoesNotReadHoldsUpNobody) {
  const HistoryOptions with = options(0, 2);
  const auto engine = open(with);
  std::vector<core::UniqueFd> askers;
  for (int i = 0; i < 20; ++i) {
    askers.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (with.disk + "/history.socket").c_str(),
                 sizeof address.sun_path - 1);
    static_cast<void>(
        ::connect(askers.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address));
  }
  for (Step step = 0; step < 20; ++step) save(*engine, step);
  engine->close();
}

TEST_F(HistorySnapshotTest, ItIsWholeWhileEverythingMoves) {
  const auto engine = open(options(2, 3));
  std::atomic<bool> done{false};
  std::thread looker([&] {
    while (!done) {
      for (const auto& checkpoint : engine->snapshot().checkpoints) {
        EXPECT_LT(checkpoint.step, 60u);
        EXPECT_LE(checkpoint.copies.size(), 3u);
      }
      const std::string text = answer_at(arenas() + "/history/history.socket");
      EXPECT_TRUE(text.ends_with("]}\n")) << text;
    }
  });
  for (Step step = 0; step < 60; ++step) save(*engine, step);
  engine->prefetch_start();
  for (Step step = 60; step-- > 0;) {
    engine->hint(std::vector<Step>{step});
    engine->restore(step, stream_, false);
  }
  done = true;
  looker.join();
}

}  // namespace
}  // namespace holdfast
