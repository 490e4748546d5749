#include "holdfast/history_folder.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "core/guard.hpp"
#include "core/uuid.hpp"
#include "history/folder_store.hpp"
#include "history/object_step_store.hpp"
#include "holdfast/memory_server.hpp"

namespace holdfast {

using history::DamagedFile;
using history::open_folder_store;
using history::StepInfo;
using history::StepStore;

struct HistoryFolder::Impl {
  std::unique_ptr<StepStore> store;
};

namespace {

std::unique_ptr<StepStore> open_at(const std::string& path, bool read_only) {
  if (!is_memory_url(path)) return open_folder_store(path, {.read_only = read_only, .name = {}});
  return history::open_object_step_store(memory_store(path), {.read_only = read_only});
}

}  // namespace

HistoryFolder::HistoryFolder(const std::string& path) try
    : impl_(std::make_unique<Impl>(Impl{open_at(path, true)})) {
} catch (const std::exception&) {
  core::fail("HistoryFolder()");
}
HistoryFolder::HistoryFolder(std::shared_ptr<ObjectStore> objects) try
    : impl_(std::make_unique<Impl>(
          Impl{history::open_object_step_store(std::move(objects), {.read_only = true})})) {
} catch (const std::exception&) {
  core::fail("HistoryFolder()");
}
HistoryFolder::~HistoryFolder() = default;
HistoryFolder::HistoryFolder(HistoryFolder&&) noexcept = default;
HistoryFolder& HistoryFolder::operator=(HistoryFolder&&) noexcept = default;

HistoryFolder::Impl& HistoryFolder::impl() const {
  if (!impl_) detail::throw_moved_from("history folder");
  return *impl_;
}

const std::string& HistoryFolder::path() const { return impl().store->path(); }
std::string HistoryFolder::uuid() const { return core::to_text(impl().store->uuid()); }
std::uint64_t HistoryFolder::file_bytes() const { return impl().store->bytes_used(); }
// As History has it: by the saves, and not by the writes, of which a later one may have been of an
// older checkpoint that was damaged.
std::optional<std::uint64_t> HistoryFolder::latest() const {
  const std::vector<StepInfo> steps = impl().store->steps();
  const auto last = std::max_element(steps.begin(), steps.end(), history::is_saved_before);
  return last == steps.end() ? std::nullopt : std::optional(last->step);
}

std::vector<HistoryStep> HistoryFolder::steps() const {
  std::vector<HistoryStep> steps;
  for (const StepInfo& info : impl().store->steps()) {
    HistoryStep step{path() + "/" + history::step_file_name(info.step),
                     info.step,
                     info.bytes,
                     info.saved_at_ns,
                     {}};
    for (const history::Part& part : info.parts) step.arrays.push_back({part.name, part.bytes});
    steps.push_back(std::move(step));
  }
  return steps;
}

std::vector<HistoryDamage> HistoryFolder::damaged() const {
  std::vector<HistoryDamage> all;
  for (const DamagedFile& file : impl().store->damaged()) {
    all.push_back({file.path, file.step, file.code, file.reason});
  }
  return all;
}

void HistoryFolder::verify(std::uint64_t step) const {
  impl().store->verify(step, [](std::uint64_t) { return true; });
}

namespace {

// open(read_only)
template <class Open>
void discard_from(const Open& open, std::span<const std::uint64_t> steps) {
  const auto check = [&](const StepStore& store) {
    std::set<std::uint64_t> there;
    for (const StepInfo& info : store.steps()) there.insert(info.step);
    for (const DamagedFile& file : store.damaged()) there.insert(file.step);
    for (const std::uint64_t step : steps) {
      if (there.contains(step)) continue;
      throw Error(Errc::not_found, detail::concat("there is no checkpoint ", step, " in '",
                                                  store.path(), "': nothing was removed"));
    }
  };
  // For reading first: opening for writing would make a history where there is none.
  check(*open(true));
  const std::unique_ptr<StepStore> store = open(false);
  check(*store);
  for (const std::uint64_t step : std::set(steps.begin(), steps.end())) store->remove(step);
}

}  // namespace

void HistoryFolder::discard(const std::string& path, std::span<const std::uint64_t> steps) {
  discard_from([&](bool read_only) { return open_at(path, read_only); }, steps);
}

void HistoryFolder::discard(const std::shared_ptr<ObjectStore>& objects,
                            std::span<const std::uint64_t> steps) {
  discard_from(
      [&](bool read_only) {
        return history::open_object_step_store(objects, {.read_only = read_only});
      },
      steps);
}

}  // namespace holdfast
