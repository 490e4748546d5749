#include "bytes_map/free_space.hpp"

#include <algorithm>
#include <numeric>

namespace holdfast::bytes_map {
namespace {

bool is_before(const Extent& a, const Extent& b) { return a.first < b.first; }

struct Smaller {
  const std::vector<Extent>& of;
  bool operator()(std::size_t a, std::size_t b) const { return of[a].grains < of[b].grains; }
};

// Where extents of the free ones are chosen for a batch.
class Choice {
 public:
  Choice(std::vector<Extent>& free, std::uint64_t wanted) : free_(free) {
    const Extent* best = nullptr;
    for (const Extent& each : free_) {
      if (each.grains >= wanted && (best == nullptr || each.grains < best->grains)) best = &each;
    }
    if (best != nullptr) {
      now_ = static_cast<std::size_t>(best - free_.data());
    } else {
      by_size_.resize(free_.size());
      std::iota(by_size_.begin(), by_size_.end(), std::size_t{0});
      std::make_heap(by_size_.begin(), by_size_.end(), Smaller{free_});
      next();
    }
  }
  Extent take(std::uint64_t grains) {
    if (grains == 0 || now_ == kNone) return {};
    if (free_[now_].grains < grains) next();
    Extent& from = free_[now_];
    if (from.grains < grains) return {};
    const Extent taken{from.first, grains};
    from.first += grains;
    from.grains -= grains;
    return taken;
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  // The largest one.
  void next() {
    if (now_ != kNone) {
      by_size_.push_back(now_);
      std::push_heap(by_size_.begin(), by_size_.end(), Smaller{free_});
    }
    if (by_size_.empty()) return;
    std::pop_heap(by_size_.begin(), by_size_.end(), Smaller{free_});
    now_ = by_size_.back();
    by_size_.pop_back();
  }

  std::vector<Extent>& free_;
  std::vector<std::size_t> by_size_;  // a heap, without the one that is taken from
  std::size_t now_ = kNone;
};

}  // namespace

FreeSpace::FreeSpace(std::uint64_t grains, const std::vector<Extent>& used) {
  std::uint64_t at = 0;
  for (const Extent& each : used) {
    if (each.first > at) free_.push_back({at, each.first - at});
    at = each.end();
  }
  if (grains > at) free_.push_back({at, grains - at});
}

std::vector<Extent> FreeSpace::take(const std::vector<std::uint64_t>& sizes) {
  Choice choice(free_, std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}));
  std::vector<Extent> taken(sizes.size());
  std::transform(sizes.begin(), sizes.end(), taken.begin(),
                 [&](std::uint64_t grains) { return choice.take(grains); });
  std::erase_if(free_, [](const Extent& each) { return each.grains == 0; });
  return taken;
}

void FreeSpace::give(std::vector<Extent> extents) {
  std::erase_if(extents, [](const Extent& each) { return each.grains == 0; });
  std::sort(extents.begin(), extents.end(), is_before);
  const auto middle = static_cast<std::ptrdiff_t>(free_.size());
  free_.insert(free_.end(), extents.begin(), extents.end());
  std::inplace_merge(free_.begin(), free_.begin() + middle, free_.end(), is_before);
  std::size_t kept = 0;
  for (std::size_t i = 1; i < free_.size(); ++i) {
    if (free_[kept].end() == free_[i].first) {
      free_[kept].grains += free_[i].grains;
    } else {
      free_[++kept] = free_[i];
    }
  }
  if (!free_.empty()) free_.resize(kept + 1);
}

std::uint64_t FreeSpace::grains() const {
  return std::accumulate(free_.begin(), free_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Extent& each) { return sum + each.grains; });
}

std::uint64_t FreeSpace::largest() const {
  std::uint64_t most = 0;
  for (const Extent& each : free_) most = std::max(most, each.grains);
  return most;
}

}  // namespace holdfast::bytes_map
