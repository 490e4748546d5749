// Saves and restores beside plain copies of the same bytes, in turns.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "../bench.hpp"
#include "../plain_file.hpp"
#include "costs.hpp"
#include "holdfast/history.hpp"
#include "lender.hpp"
#include "peer.hpp"

namespace score {

namespace {

using holdfast::DeviceBuffer;
using holdfast::History;
using holdfast::HistoryOptions;
using holdfast::PinnedBuffer;
using holdfast::Stream;
using holdfast::Tier;

constexpr std::uint64_t kSteps = 16, kInARow = kSteps / 2;
constexpr std::chrono::milliseconds kPause{10};  // the paper's interval

// Blocking times of a history's call and of the plain copy beside it.
class Pairs {
 public:
  Pairs(const char* path, std::uint64_t bytes) : path_(path), bytes_(bytes) {}

  void add(const std::function<void()>& ours, const std::function<void()>& plain,
           std::chrono::microseconds pause = {}) {
    const auto timed = [&](const std::function<void()>& call) {
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
      return bench::seconds(call);
    };
    const bool first = ours_.size() % 2 == 0;  // neither is always the first
    if (first) ours_.push_back(timed(ours));
    plain_.push_back(timed(plain));
    if (!first) ours_.push_back(timed(ours));
  }
  void print() const {
    std::vector<double> ratios(ours_.size());
    std::transform(plain_.begin(), plain_.end(), ours_.begin(), ratios.begin(), std::divides<>());
    const auto rate = [&](const std::vector<double>& seconds) {
      return static_cast<double>(bytes_) / bench::median(seconds) / 1e9;
    };
    bench::Line("score_copy")
        .text("path", path_)
        .count("bytes", bytes_)
        .count("calls", ours_.size())
        .number("median_us", 1e6 * bench::median(ours_))
        .number("plain_us", 1e6 * bench::median(plain_))
        .number("more_us", 1e6 * (bench::median(ours_) - bench::median(plain_)))
        .number("gb_per_s", rate(ours_))
        .number("plain_gb_per_s", rate(plain_))
        .number("speed_ratio", bench::median(ratios))
        .print();
  }

 private:
  const char* path_;
  const std::uint64_t bytes_;
  std::vector<double> ours_, plain_;
};

class Copies {
 public:
  explicit Copies(std::uint64_t bytes)
      : bytes_(bytes), array_(bytes), other_(bytes), pinned_(bytes) {
    holdfast::fill_async(stream_, array_.data(), 0x5a, bytes_);
    stream_.synchronize();
  }

  // Flushes run beside the saves, as they do in a program.
  void gpu_tier() {
    History history =
        History::open({.gpu_bytes = (kSteps + 1) * bytes_, .host_bytes = (kSteps + 1) * bytes_});
    const auto plain = [&] { copy(other_.data(), array_.data()); };
    saves(history, "save, GPU tier", plain);
    history.flush();
    restores(history, "restore, GPU tier", plain);
  }
  // As in a shot, whose program computes in between: the host and the device have then rested.
  void gpu_tier_behind_pauses(std::chrono::microseconds pause) {
    History history =
        History::open({.gpu_bytes = (kSteps + 1) * bytes_, .host_bytes = (kSteps + 1) * bytes_});
    pause_ = pause;
    const auto plain = [&] { copy(other_.data(), array_.data()); };
    saves(history, "save, GPU tier, behind a pause", plain);
    history.flush();
    restores(history, "restore, GPU tier, behind a pause", plain);
    pause_ = {};
  }
  void host_tier() {
    History history = History::open({.host_bytes = (kSteps + 1) * bytes_});
    saves(history, "save, host tier", [&] { copy(pinned_.data(), array_.data()); });
    restores(history, "restore, host tier", [&] { copy(array_.data(), pinned_.data()); });
  }
  // A partner's memory in a region, which is pinned: straight from the arrays; and as flushes
  // behind a cache, of several in a row, beside as many copies to memory of the host.
  void partner_tier(const std::string& folder) {
    in_folder_of(folder, [&](const std::string& path) {
      HistoryOptions options;
      options.partner_bytes = (kSteps + 1) * bytes_ + (1 << 20);
      options.partner_region = path + "/partner";
      {
        History history = History::open(options);
        saves(history, "save, partner tier", [&] { copy(pinned_.data(), array_.data()); });
        restores(history, "restore, partner tier", [&] { copy(array_.data(), pinned_.data()); });
        discard_all(history);
      }
      options.gpu_bytes = (kSteps + 1) * bytes_;
      const PinnedBuffer<std::byte> pinned(kInARow * bytes_);
      flushes(options, "flush, GPU to partner tier", pinned.data());
      options.gpu_bytes = 0;
      options.host_bytes = (kSteps + 1) * bytes_;
      flushes(options, "save, host, partner tier", pinned.data());
    });
  }
  // The same in memory of the second GPU, which another process lends, beside copies to memory of
  // that GPU which this process has. Where there is one GPU all are within it, and the lines say
  // so: they do not tell what a link between two is used for.
  void partner_gpu(const std::string& folder) {
    const bool two = gpus_in_sight() > 1;
    const PeerMemory peer(kInARow * bytes_);
    in_folder_of(folder, [&](const std::string& path) {
      HistoryOptions options;
      options.partner_bytes = (kSteps + 1) * bytes_ + (1 << 20);
      options.partner_region = path + "/partner";
      options.partner_lender = path + "/lender";
      const Lender lender(options.partner_lender, options.partner_bytes);
      {
        History history = History::open(options);
        saves(history, two ? "save, partner's GPU" : "save, partner on the same GPU",
              [&] { copy(peer.data(), array_.data()); });
        restores(history, two ? "restore, partner's GPU" : "restore, partner on the same GPU",
                 [&] { copy(array_.data(), peer.data()); });
        discard_all(history);
      }
      options.gpu_bytes = (kSteps + 1) * bytes_;
      flushes(options, two ? "flush, GPU to partner's GPU" : "flush, to a partner on the same GPU",
              peer.data());
    });
  }
  // Reading past the caches of one that was opened anew, beside as many plain files: what was read
  // before comes from a cache of the disk's.
  void disk_tier(const std::string& folder) {
    in_folder_of(folder, [&](const std::string& path) {
      std::deque<bench::PlainFile> files;
      const std::string disk = path + "/history";
      {
        History history = History::open({.disk = disk});
        history.protect("snapshot", array_.data(), bytes_);
        for (std::uint64_t step = 0; step < kSteps; ++step) {
          files.emplace_back(path + "/plain" + std::to_string(step), 4);
          files.back().write({pinned_.data(), bytes_});
          history.save(step, stream_);
        }
      }
      History history = History::open({.disk = disk});
      history.protect("snapshot", array_.data(), bytes_);
      std::size_t left = kSteps;
      restores(history, "restore, disk", [&] { files[--left].read({pinned_.data(), bytes_}); });
    });
  }

 private:
  static void in_folder_of(const std::string& folder,
                           const std::function<void(const std::string&)>& body) {
    std::string path = folder + "/copies-XXXXXX";
    if (!::mkdtemp(path.data())) {
      throw holdfast::Error(holdfast::Errc::io, folder + ": no folder can be made here");
    }
    try {
      body(path);
    } catch (...) {
      std::filesystem::remove_all(path);
      throw;
    }
    std::filesystem::remove_all(path);
  }
  static void discard_all(History& history) {
    for (const std::uint64_t step : history.steps()) history.discard(step);
    history.flush();
  }
  // Beside as many plain copies, which go to `to`.
  void flushes(const HistoryOptions& options, const char* path, std::byte* to) {
    History history = History::open(options);
    history.protect("snapshot", array_.data(), bytes_);
    const auto ours = [&] {
      std::vector<holdfast::Ticket> tickets;
      tickets.reserve(kInARow);
      for (std::uint64_t step = 0; step < kInARow; ++step) {
        tickets.push_back(history.save(step, stream_));
      }
      for (const auto& ticket : tickets) ticket.wait(Tier::partner);
    };
    const auto plain = [&] {
      for (std::uint64_t step = 0; step < kInARow; ++step) {
        holdfast::copy_async(stream_, to + step * bytes_, array_.data(), bytes_);
      }
      stream_.synchronize();
    };
    Pairs pairs(path, kInARow * bytes_);
    for (int repeat = 0; repeat < 7; ++repeat) {
      repeat == 0 ? (plain(), ours()) : pairs.add(ours, plain);
      discard_all(history);
    }
    pairs.print();
  }
  void copy(void* to, const void* from) {
    holdfast::copy_async(stream_, to, from, bytes_);
    stream_.synchronize();
  }
  void saves(History& history, const char* path, const std::function<void()>& plain) {
    history.protect("snapshot", array_.data(), bytes_);
    // Once before, since memory that was never touched is slower; on the CPU backend most of all.
    for (std::uint64_t step = 0; step < kSteps; ++step) history.save(step, stream_);
    stream_.synchronize();
    history.flush();
    for (std::uint64_t step = 0; step < kSteps; ++step) history.discard(step);
    Pairs pairs(path, bytes_);
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const auto ours = [&] {
        history.save(step, stream_);
        stream_.synchronize();
      };
      step == 0 ? (plain(), ours()) : pairs.add(ours, plain, pause_);
    }
    pairs.print();
  }
  void restores(History& history, const char* path, const std::function<void()>& plain) {
    Pairs pairs(path, bytes_);
    for (std::uint64_t step = kSteps; step-- > 0;) {
      const auto ours = [&] {
        history.restore(step, stream_);
        stream_.synchronize();
      };
      step + 1 == kSteps ? (plain(), ours()) : pairs.add(ours, plain, pause_);
    }
    pairs.print();
  }

  const std::uint64_t bytes_;
  DeviceBuffer<std::byte> array_, other_;
  PinnedBuffer<std::byte> pinned_;
  Stream stream_;
  std::chrono::microseconds pause_{};
};

}  // namespace

void print_copies(const Settings& settings) {
  // O_DIRECT takes whole pages.
  Copies copies((settings.bytes + 4095) / 4096 * 4096);
  copies.gpu_tier();
  copies.gpu_tier_behind_pauses(kPause);
  copies.host_tier();
  copies.partner_tier(settings.disk);
  copies.partner_gpu(settings.disk);
  copies.disk_tier(settings.disk);
}

}  // namespace score
