#include "shot_simulation.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace holdfast::history::simulation {

namespace {

using Kind = Transfer::Kind;
using Verdict = Answer::Verdict;

constexpr int kDisk = 2;

class Run {
 public:
  explicit Run(const Shot& shot)
      : shot_(shot),
        catalog_({{.capacity = shot.gpu, .alignment = 4096},
                  {.capacity = shot.host, .alignment = 4096},
                  {.storage = true}},
                 {.discard_consumed = !shot.waits}) {
    catalog_.set_costs(0, 1 / shot.link);
    catalog_.set_costs(1, 1 / shot.disk_write);
  }

  Counts go() {
    if (shot_.hints == Hints::all && !shot_.hints_late) hint_all();
    for (Step step = 0; step < shot_.bytes.size(); ++step) {
      pass(shot_.interval);
      counts_.save_wait +=
          call([&] { return catalog_.begin_save(step, shot_.bytes[step], false); });
    }
    if (shot_.waits) drain();
    if (shot_.hints == Hints::all && shot_.hints_late) hint_all();
    counts_.read = 0;
    catalog_.start_prefetch();
    const double begin = now_;
    for (std::size_t i = 0; i < shot_.restores.size(); ++i) {
      if (shot_.hints == Hints::next && i + 1 < shot_.restores.size()) {
        catalog_.hint(shot_.restores[i + 1]);
      }
      counts_.restore_wait +=
          call([&] { return catalog_.begin_restore(shot_.restores[i], false); });
      pass(shot_.interval);
    }
    counts_.backward = now_ - begin;
    return counts_;
  }

 private:
  struct Moving {
    Transfer transfer;
    double left;  // bytes
  };

  void hint_all() {
    for (const Step step : shot_.restores) catalog_.hint(step);
  }

  // Seconds for which the program was kept.
  template <class Question>
  double call(const Question& question) {
    const double begin = now_;
    bool waits = false;
    for (;;) {
      lanes();
      const Answer answer = question();
      if (answer.verdict == Verdict::go) {
        if (waits) catalog_.caller_goes_on();
        if (answer.transfer.kind == Kind::restore) {
          ++counts_.restored_from[static_cast<std::size_t>(answer.transfer.from)];
        }
        begin_moving(answer.transfer);
        while (is_moving(answer.transfer.id)) advance(std::numeric_limits<double>::infinity());
        return now_ - begin;
      }
      if (answer.verdict != Verdict::wait) throw std::logic_error("a call was refused");
      if (!waits) catalog_.caller_waits();
      waits = true;
      lanes();
      advance(std::numeric_limits<double>::infinity());
    }
  }

  void drain() {
    const double begin = now_;
    catalog_.drain_begins();
    catalog_.caller_waits();
    for (lanes(); catalog_.flush_pending(); lanes()) {
      advance(std::numeric_limits<double>::infinity());
    }
    catalog_.caller_goes_on();
    catalog_.drain_ends();
    counts_.drain = now_ - begin;
  }

  void pass(double seconds) {
    const double end = now_ + seconds;
    for (lanes(); now_ < end; lanes()) advance(end);
  }

  static bool is_of_lane(const Transfer& transfer, Kind kind, int tier) {
    return transfer.kind == kind && (kind == Kind::flush ? transfer.from : transfer.to) == tier;
  }

  // Each lane that rests begins what there is.
  void lanes() {
    for (bool begun = true; begun;) {
      begun = false;
      for (int tier = 0; tier < kDisk; ++tier) {
        for (const Kind kind : {Kind::fetch, Kind::flush}) {
          const bool busy = std::any_of(moving_.begin(), moving_.end(), [&](const Moving& moving) {
            return is_of_lane(moving.transfer, kind, tier);
          });
          if (busy) continue;
          const auto next =
              kind == Kind::flush ? catalog_.next_flush(tier) : catalog_.next_fetch(tier);
          if (!next) continue;
          begin_moving(*next);
          begun = true;
        }
      }
      catalog_.forget_evicted();
    }
  }

  void begin_moving(const Transfer& transfer) {
    moving_.push_back({transfer, double(transfer.bytes)});
    if (transfer.from == kDisk) counts_.read += transfer.bytes;
    if (transfer.to == kDisk) counts_.written += transfer.bytes;
  }
  bool is_moving(std::uint64_t id) const {
    return std::any_of(moving_.begin(), moving_.end(),
                       [&](const Moving& moving) { return moving.transfer.id == id; });
  }

  // Bytes a second now. Who reads from the disk shares it, and goes before who writes; a restore
  // goes before a fetch.
  double rate(const Moving& moving) const {
    const auto count = [&](const auto& holds) {
      return double(std::count_if(moving_.begin(), moving_.end(), holds));
    };
    const auto reads = [](const Moving& one) { return one.transfer.from == kDisk; };
    const auto writes = [](const Moving& one) { return one.transfer.to == kDisk; };
    const auto demanded = [](const Moving& one) {
      return one.transfer.from == kDisk && one.transfer.kind == Kind::restore;
    };
    if (reads(moving)) {
      if (count(demanded) > 0) return demanded(moving) ? shot_.disk_read / count(demanded) : 0;
      return shot_.disk_read / count(reads);
    }
    if (writes(moving)) return count(reads) > 0 ? 0 : shot_.disk_write / count(writes);
    const bool within = (moving.transfer.from == kProgram && moving.transfer.to == 0) ||
                        (moving.transfer.from == 0 && moving.transfer.to == kProgram);
    return within ? 1e12 : shot_.link;
  }

  // To the next end of a transfer, or to `end`.
  void advance(double end) {
    double step = end - now_;
    for (const Moving& moving : moving_) {
      if (const double at = rate(moving); at > 0) step = std::min(step, moving.left / at);
    }
    if (step == std::numeric_limits<double>::infinity()) {
      throw std::logic_error("the program waits for ever");
    }
    std::vector<double> moved;
    moved.reserve(moving_.size());
    for (const Moving& moving : moving_) moved.push_back(rate(moving) * step);
    now_ += step;
    for (std::size_t i = 0; i < moving_.size(); ++i) moving_[i].left -= moved[i];
    for (std::size_t i = 0; i < moving_.size();) {
      const Transfer transfer = moving_[i].transfer;
      const bool given_up = catalog_.is_cancelled(transfer) && transfer.kind != Kind::restore;
      if (moving_[i].left > 0.5 && !given_up) {
        ++i;
        continue;
      }
      moving_.erase(moving_.begin() + static_cast<std::ptrdiff_t>(i));
      catalog_.finish(transfer, given_up ? Outcome::failed : Outcome::done);
    }
  }

  const Shot& shot_;
  Catalog catalog_;
  std::vector<Moving> moving_;
  Counts counts_;
  double now_ = 0;
};

}  // namespace

Counts simulate(const Shot& shot) { return Run(shot).go(); }

std::uint64_t least_read(const Shot& shot) {
  const std::uint64_t all = std::accumulate(shot.bytes.begin(), shot.bytes.end(), std::uint64_t{0});
  return all - std::min(all, shot.gpu + shot.host);
}

}  // namespace holdfast::history::simulation
