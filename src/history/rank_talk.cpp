#include "history/rank_talk.hpp"

#include <cstdint>
#include <cstring>
#include <utility>

#include "core/guard.hpp"

namespace holdfast::history {

using detail::concat;

namespace {

constexpr std::uint32_t kMagic = 0x31484648;  // "HFH1": the version of what ranks say
constexpr std::uint32_t kWell = ~std::uint32_t{0};

// In front of what a rank gives.
struct Front {
  std::uint32_t magic = kMagic;
  std::uint32_t code = kWell;  // or the Errc of what it met, whose message is what follows
  char call[32] = {};
};

RankTalk::Bytes message(const char* call, std::uint32_t code, std::span<const std::byte> bytes) {
  Front front;
  front.code = code;
  std::strncpy(front.call, call, sizeof front.call - 1);
  RankTalk::Bytes all(sizeof front + bytes.size());
  std::memcpy(all.data(), &front, sizeof front);
  if (!bytes.empty()) std::memcpy(all.data() + sizeof front, bytes.data(), bytes.size());
  return all;
}

Front front_of(const RankTalk::Bytes& bytes, std::size_t rank) {
  Front front;
  if (bytes.size() >= sizeof front) std::memcpy(&front, bytes.data(), sizeof front);
  if (bytes.size() < sizeof front || front.magic != kMagic ||
      front.call[sizeof front.call - 1] != 0) {
    throw Error(Errc::invalid_argument,
                concat("rank ", rank,
                       " gave what no history says: all ranks run the same build, "
                       "and use the group for one thing at a time"));
  }
  return front;
}

}  // namespace

RankTalk::RankTalk(std::shared_ptr<RankGroup> group, std::chrono::milliseconds timeout)
    : group_(std::move(group)), timeout_(timeout), rank_(group_->rank()), size_(group_->size()) {
  if (size_ < 1 || rank_ < 0 || rank_ >= size_) {
    throw Error(Errc::invalid_argument, concat("the group of ranks says that this is rank ", rank_,
                                               " of ", size_, ": ranks are 0 to size - 1"));
  }
  if (timeout_.count() <= 0) {
    throw Error(Errc::invalid_argument,
                "ranks_timeout is more than 0: how long ranks are waited for");
  }
}

std::vector<RankTalk::Bytes> RankTalk::gather(std::span<const std::byte> mine,
                                              std::chrono::milliseconds timeout) {
  if (!lost_.empty()) throw Error(Errc::rank_lost, lost_);
  try {
    std::vector<Bytes> all = group_->all_gather(mine, timeout);
    if (all.size() == static_cast<std::size_t>(size_)) return all;
    throw Error(Errc::invalid_argument, concat("the group of ranks gathered from ", all.size(),
                                               " ranks, and there are ", size_));
  } catch (const std::exception& error) {  // who has heard what is not known: nothing more is said
    lost_ = error.what();
    throw;
  }
}

std::vector<RankTalk::Bytes> RankTalk::exchange(const char* call, std::span<const std::byte> mine,
                                                std::chrono::milliseconds longer) {
  const std::lock_guard lock(one_at_a_time_);
  failed_ = true;
  std::vector<Bytes> all = gather(message(call, kWell, mine), timeout_ + longer);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Front front = front_of(all[rank], rank);
    if (front.code == kWell) continue;
    const auto* const text = reinterpret_cast<const char*>(all[rank].data());
    const std::string said(text + sizeof front, text + all[rank].size());
    throw Error(static_cast<Errc>(front.code), concat("rank ", rank, ": ", said));
  }
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Front front = front_of(all[rank], rank);
    if (std::strncmp(front.call, call, sizeof front.call - 1) == 0) continue;
    throw Error(Errc::invalid_argument,
                concat("rank ", rank, " calls ", front.call, ", and rank ", rank_, " ", call,
                       ": all ranks make the same collective calls in the same order"));
  }
  for (Bytes& bytes : all) {
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(sizeof(Front)));
  }
  failed_ = false;
  return all;
}

void RankTalk::tell_failure(const char* call, const std::exception_ptr& error) noexcept {
  try {
    const std::lock_guard lock(one_at_a_time_);
    failed_ = true;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception&) {
      const Error met = core::current_error(call);
      const std::string words = met.what();
      gather(message(call, static_cast<std::uint32_t>(met.code()), std::as_bytes(std::span(words))),
             2 * timeout_);
    }
  } catch (...) {  // then the deadline tells them
  }
}

}  // namespace holdfast::history
