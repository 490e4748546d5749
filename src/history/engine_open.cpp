// How a history comes to be: its tiers, and what earlier processes have left in them.
#include <algorithm>
#include <utility>

#include "core/files.hpp"
#include "history/engine.hpp"
#include "history/object_step_store.hpp"
#include "holdfast/memory_server.hpp"

namespace holdfast::history {

using holdfast::detail::concat;

namespace {

std::vector<StepInfo> in_order_of_saves(const StepStore& store) {
  std::vector<StepInfo> steps = store.steps();
  std::erase_if(steps, [](const StepInfo& info) { return info.step == kGap; });  // no save()'s
  std::sort(steps.begin(), steps.end(), is_saved_before);
  return steps;
}

bool has_remote(const HistoryOptions& options) {
  return !options.remote.empty() || options.remote_store;
}

// Another GPU's memory is nearer to this GPU than the host's is: copies come to it without the
// host.
bool is_before_host(const HistoryOptions& options) { return !options.partner_lender.empty(); }

std::vector<TierSpec> specs_of(const HistoryOptions& options) {
  std::vector<TierSpec> specs;
  specs.reserve(kTierKinds);
  if (options.gpu_bytes > 0) specs.push_back({.capacity = options.gpu_bytes, .alignment = 4096});
  const TierSpec partner{.capacity = options.partner_bytes,
                         .alignment = HostTier::alignment(options.partner_bytes),
                         .keeps_newest = true};
  if (options.partner_bytes > 0 && is_before_host(options)) specs.push_back(partner);
  if (options.host_bytes > 0) {
    const bool region = !options.host_region.empty();
    specs.push_back({.capacity = options.host_bytes,
                     .alignment = region ? HostTier::alignment(options.host_bytes) : 4096});
  }
  if (options.partner_bytes > 0 && !is_before_host(options)) specs.push_back(partner);
  if (!options.disk.empty()) specs.push_back({.capacity = options.disk_bytes, .storage = true});
  if (has_remote(options)) specs.push_back({.capacity = options.remote_bytes, .storage = true});
  for (const std::string* path :
       {&options.host_region, &options.partner_lender, &options.disk, &options.remote}) {
    if (path->find('\0') == path->npos) continue;
    throw Error(Errc::invalid_argument,
                "History::open: a path has a zero byte, which no file's name has");
  }
  if (specs.empty()) {
    throw Error(Errc::invalid_argument,
                "History::open: no tier: set gpu_bytes, host_bytes, partner_bytes, disk or remote");
  }
  if (options.host_bytes == 0 && !options.host_region.empty()) {
    throw Error(Errc::invalid_argument, "History::open: host_region needs host_bytes");
  }
  if ((options.partner_bytes == 0) != options.partner_region.empty()) {
    throw Error(Errc::invalid_argument,
                "History::open: a partner's memory has partner_region and partner_bytes: set both");
  }
  if (!options.partner_region.empty() && options.partner_region == options.host_region) {
    throw Error(Errc::invalid_argument,
                "History::open: host_region and partner_region are one: give each its own");
  }
  if (options.partner_region.empty() && !options.partner_owner.empty()) {
    throw Error(Errc::invalid_argument, "History::open: partner_owner needs partner_region");
  }
  if (options.partner_region.empty() && !options.partner_lender.empty()) {
    throw Error(Errc::invalid_argument,
                "History::open: partner_lender needs partner_region, which says what is there");
  }
  if (!options.partner_lender.empty() && options.partner_lender == options.partner_region) {
    throw Error(Errc::invalid_argument,
                "History::open: partner_region and partner_lender are one: give each its own");
  }
  for (const TierSpec& spec : specs) {
    if (spec.storage || spec.capacity >= spec.alignment) continue;
    throw Error(Errc::invalid_argument, concat("History::open: a cache of ", spec.capacity,
                                               " bytes: at least ", spec.alignment));
  }
  return specs;
}

}  // namespace

Engine::Engine(const HistoryOptions& options, std::unique_ptr<StepStore> disk,
               std::unique_ptr<Together> together, const std::string& title)
    : options_(options),
      core_(std::make_shared<Core>(
          specs_of(options),
          Catalog::Options{.retains = options.keep_last > 0 || options.keep_every > 0})),
      together_(std::move(together)) {
  if (options.remote_store && !options.remote.empty()) {
    throw Error(Errc::invalid_argument,
                "History::open: remote and remote_store: give a folder, or an object store");
  }
  std::fill(std::begin(numbers_), std::end(numbers_), -1);
  const auto add = [&](Tier kind, bool there) {
    if (!there) return;
    numbers_[index_of(kind)] = static_cast<int>(kinds_.size());
    kinds_.push_back(kind);
  };
  add(Tier::gpu, options.gpu_bytes > 0);
  const bool has_partner = options.partner_bytes > 0;
  add(Tier::partner, has_partner && is_before_host(options));
  add(Tier::host, options.host_bytes > 0);
  add(Tier::partner, has_partner && !is_before_host(options));
  add(Tier::disk, !options.disk.empty());
  add(Tier::remote, has_remote(options));
  if (options.host_bytes > 0) {
    host_.emplace(options.host_bytes, options.host_region);
  }
  if (options.partner_bytes > 0) {
    partner_.emplace(options.partner_bytes, options.partner_region, options.partner_owner,
                     options.partner_lender);
  }
  const FolderOptions folder{.name = title};
  if (!options.disk.empty()) {
    auto& store = stores_[index_of(Tier::disk)];
    store = disk ? std::move(disk) : open_folder_store(options.disk, folder);
  }
  if (options.remote_store) {
    stores_[index_of(Tier::remote)] = open_object_step_store(options.remote_store);
  } else if (is_memory_url(options.remote)) {
    stores_[index_of(Tier::remote)] =
        open_object_step_store(memory_store(options.remote), {.name = title});
  } else if (has_remote(options)) {
    stores_[index_of(Tier::remote)] = open_folder_store(options.remote, folder);
  }
  start_trace();
  adopt();
  if (!is_cache(static_cast<int>(kinds_.size()) - 1)) bounce_ = std::make_unique<Bounces>();
  if (options.gpu_bytes > 0) gpu_ = DeviceBuffer<std::byte>(options.gpu_bytes);
  core_->note_losses = [this] { note_losses(); };
  start_status_server();
  start_threads();
  set_opened(true);
}

void Engine::set_opened(bool opened) {
  for (auto* memory : {&host_, &partner_}) {
    if (*memory) (*memory)->set_opened(opened);
  }
}

// What earlier processes have left. Of several under one number the one that was saved last counts;
// a flush replaces the others.
void Engine::adopt() {
  const auto note = [&](const StepInfo& info) {
    note_save_time(info.saved_at_ns);
    Record& record = records_[info.step];
    if (record.info.bytes == 0 || record.info.saved_at_ns < info.saved_at_ns) record.info = info;
  };
  const auto counts = [&](const StepInfo& info) {
    const auto record = records_.find(info.step);
    return record != records_.end() && record->second.info == info;
  };
  const auto take = [&](const StepInfo& info, Tier kind, std::uint64_t offset) {
    if (!counts(info)) return false;
    if (!core_->catalog.adopt(info.step, room_of(info), tier_of(kind), offset)) return false;
    records_.at(info.step).arrival[index_of(kind)] = ++arrivals_counted_;
    return true;
  };
  std::vector<StepInfo> stored[kTierKinds];
  for (std::size_t kind = 0; kind < kTierKinds; ++kind) {
    if (stores_[kind]) stored[kind] = in_order_of_saves(*stores_[kind]);
  }
  if (together_) agree_on_found(stored);
  const auto is_agreed = [&](const StepInfo& info) {
    return !together_ || together_->is_complete(info.step, info.stamp);
  };
  for (const auto& infos : stored) {
    for (const StepInfo& info : infos) note(info);
  }
  for (const Tier kind : kinds_) {
    const HostTier* const memory = memory_of(kind);
    if (!memory) continue;
    for (const HostTier::Found& found : memory->found()) {
      if (is_agreed(found.info)) note(found.info);
    }
  }
  for (const Tier kind : kinds_) {
    HostTier* const memory = memory_of(kind);
    if (!memory) continue;
    for (const HostTier::Found& found : memory->found()) {
      if (!take(found.info, kind, found.offset)) memory->forget(found.info.step);
    }
  }
  for (const Tier kind : kinds_) {
    for (const StepInfo& info : stored[index_of(kind)]) take(info, kind, 0);
  }
  for (const Tier kind : kinds_) {
    for (const StepInfo& info : stored[index_of(kind)]) {
      if (!counts(info)) remove_stale(info.step, kind);
    }
  }
  std::erase_if(records_, [&](const auto& entry) { return !core_->catalog.knows(entry.first); });
}

// A file that another checkpoint of its number has taken the place of, in a slower store. Otherwise
// it would be there again once the history is opened without that.
void Engine::remove_stale(Step step, Tier kind) {
  bool stored_below = false;
  for (int tier = tier_of(kind) + 1; tier < core_->catalog.tiers(); ++tier) {
    stored_below |= is_whole(core_->catalog.state(step, tier));
  }
  if (!stored_below) return;  // the flush to this store replaces it
  try {
    remove_file(*stores_[index_of(kind)], step);
  } catch (const Error&) {
    ++stats_.failed_transfers;
    warn_or_keep(step, std::current_exception());
  }
}

}  // namespace holdfast::history
