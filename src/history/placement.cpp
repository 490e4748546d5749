#include "history/placement.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "core/files.hpp"
#include "core/uuid.hpp"
#include "history/step_file.hpp"
#include "holdfast/memory_server.hpp"

namespace holdfast::history {

using detail::concat;

namespace {

constexpr char kCall[] = "History::open()";
constexpr std::uint64_t kPage = 4096;

// What each rank tells the others. Behind it: its node.
struct Hello {
  std::uint64_t run;  // rank 0's counts
  std::uint64_t coupling;
  std::uint64_t node_host_bytes, node_disk_bytes, weight;
  std::uint64_t tiers;  // a bit for each that is for good
};

[[noreturn]] void refuse(const std::string& why) { throw Error(Errc::invalid_argument, why); }

void check(const HistoryOptions& options) {
  if (options.weight == 0) refuse("History::open: weight is at least 1");
  if (options.node_host_bytes > 0 && options.host_bytes > 0) {
    refuse(
        "History::open: host_bytes is this rank's, node_host_bytes its node's: give one of them");
  }
  if (options.node_disk_bytes > 0 && options.disk_bytes > 0) {
    refuse(
        "History::open: disk_bytes is this rank's, node_disk_bytes its node's: give one of them");
  }
  if (options.node_disk_bytes > 0 && options.disk.empty()) {
    refuse("History::open: node_disk_bytes needs disk");
  }
}

// Random, so that no two runs have one, and by the clock, so that later ones are larger.
std::uint64_t new_run() {
  const core::Uuid random = core::new_uuid();
  std::uint64_t low = 0;
  std::memcpy(&low, &random, sizeof low);
  return (now_ns() & ~std::uint64_t{0xffff}) | (low & 0xffff);
}

Hello hello_of(const HistoryOptions& options) {
  Hello hello{};
  hello.run = new_run();
  hello.coupling = static_cast<std::uint64_t>(options.coupling);
  hello.node_host_bytes = options.node_host_bytes;
  hello.node_disk_bytes = options.node_disk_bytes;
  hello.weight = options.weight;
  hello.tiers = (options.disk.empty() ? 0u : 1u) | (options.remote.empty() ? 0u : 2u);
  return hello;
}

// Folders of ranks that have checkpoints, of another number of ranks than this.
std::optional<std::string> other_ranks(const std::string& folder, int size) {
  const std::string ending = rank_folder(0, size).substr(rank_folder(0, size).find("-of-"));
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("rank-") || name.find("-of-") == name.npos || name.ends_with(ending)) {
      continue;
    }
    for (const auto& file : std::filesystem::directory_iterator(entry.path(), error)) {
      if (step_of_file_name(file.path().filename())) return name;
    }
  }
  return std::nullopt;
}

// The folder of this rank, in that of all, which is made.
std::string own_folder(const std::string& folder, const RankTalk& talk) {
  if (::mkdir(folder.c_str(), 0700) == 0) {
    core::sync_folder_of(folder);
  } else if (errno != EEXIST) {
    throw core::system_error(errno, "make the folder", folder);
  }
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    refuse(concat("'", folder, "' is no folder: give one, or a path that is free"));
  }
  struct stat info {};
  if (::stat((folder + "/" + kHistoryFile).c_str(), &info) == 0) {
    refuse(concat("'", folder, "' is the history of one process, and this is rank ", talk.rank(),
                  " of ", talk.size(), ": give the ranks another folder"));
  }
  if (const auto other = other_ranks(folder, talk.size())) {
    refuse(concat("'", folder, "' has checkpoints of another number of ranks ('", *other,
                  "'), and there are ", talk.size(),
                  ": start as many as there were, or give another folder"));
  }
  return folder + "/" + rank_folder(talk.rank(), talk.size());
}

}  // namespace

std::string rank_folder(int rank, int size) {
  char text[64];
  std::snprintf(text, sizeof text, "rank-%05d-of-%05d", rank, size);
  return text;
}

std::string rank_title(int rank, int size) { return concat("rank ", rank, " of ", size); }

std::uint64_t share_of(std::uint64_t budget, std::span<const std::uint64_t> weights,
                       std::size_t index, std::uint64_t unit) {
  __extension__ using Wide = unsigned __int128;
  Wide total = 0, before = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    total += weights[i];
    if (i < index) before += weights[i];
  }
  // Where the shares of all stand in a row, each boundary is rounded once.
  const Wide units = budget / unit;
  const auto boundary = [&](Wide weight) -> std::uint64_t {
    // units * weight may need more than 128 bits: weights are cut to 64 with their sum.
    Wide sum = total;
    while (sum >> 63 != 0) {
      sum >>= 1;
      weight >>= 1;
    }
    return static_cast<std::uint64_t>(units * weight / sum);
  };
  return (boundary(before + weights[index]) - boundary(before)) * unit;
}

Placement place(const HistoryOptions& options, RankTalk& talk) {
  check(options);
  const Hello mine = hello_of(options);
  const std::string node = talk.node();
  const auto name = std::as_bytes(std::span(node));
  RankTalk::Bytes bytes(sizeof mine + name.size());
  std::memcpy(bytes.data(), &mine, sizeof mine);
  std::copy(name.begin(), name.end(), bytes.begin() + sizeof mine);

  const auto all = talk.exchange(kCall, bytes);
  std::vector<std::uint64_t> weights;  // of the ranks of this node
  std::size_t index = 0;
  Placement placement;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    Hello hello{};
    if (all[rank].size() < sizeof hello) refuse(concat("rank ", rank, " runs another build"));
    std::memcpy(&hello, all[rank].data(), sizeof hello);
    const auto differs = [&](const char* what) {
      refuse(concat("History::open: ", what, " of rank ", rank, " is another than that of rank ",
                    talk.rank(), ": give all ranks the same"));
    };
    if (rank == 0) placement.run = hello.run;
    if (hello.coupling != mine.coupling) differs("coupling");
    if (hello.tiers != mine.tiers) differs("which of disk and remote there is");
    if (!std::equal(all[rank].begin() + sizeof hello, all[rank].end(), name.begin(), name.end())) {
      continue;
    }
    if (hello.node_host_bytes != mine.node_host_bytes) differs("node_host_bytes");
    if (hello.node_disk_bytes != mine.node_disk_bytes) differs("node_disk_bytes");
    if (static_cast<int>(rank) == talk.rank()) index = weights.size();
    weights.push_back(hello.weight);
  }

  placement.title = rank_title(talk.rank(), talk.size());
  HistoryOptions& own = placement.options = options;
  own.ranks = nullptr;
  const std::string folder = rank_folder(talk.rank(), talk.size());
  if (!own.disk.empty()) own.disk = own_folder(own.disk, talk);
  if (is_memory_url(own.remote)) {
    own.remote += "/" + folder;
  } else if (!own.remote.empty()) {
    own.remote = own_folder(own.remote, talk);
  }
  if (!own.host_region.empty()) own.host_region += "." + folder;
  if (!own.status.empty()) own.status += "." + folder;
  if (!own.trace.empty()) own.trace += "." + folder;
  if (!own.partner_region.empty()) {
    own.partner_region += "." + folder;
    if (!own.partner_lender.empty()) own.partner_lender += "." + folder;
    if (own.partner_owner.empty()) own.partner_owner = placement.title;
  }
  const auto take = [&](std::uint64_t budget, const char* what) {
    const std::uint64_t share = share_of(budget, weights, index, kPage);
    if (share > 0) return share;
    refuse(concat("History::open: of the ", budget, " bytes of ", what, " none are left for rank ",
                  talk.rank(), ", one of ", weights.size(), " of its node: give more"));
  };
  if (own.node_host_bytes > 0) own.host_bytes = take(own.node_host_bytes, "node_host_bytes");
  if (own.node_disk_bytes > 0) own.disk_bytes = take(own.node_disk_bytes, "node_disk_bytes");
  own.node_host_bytes = own.node_disk_bytes = 0;
  return placement;
}

}  // namespace holdfast::history
