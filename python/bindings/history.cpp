#include "holdfast/history.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <new>
#include <set>

#include "bindings.hpp"
#include "holdfast/history_folder.hpp"
#include "object_store.hpp"

namespace holdfast::python {
namespace {

using namespace nb::literals;

constexpr Tier kTiers[] = {Tier::gpu, Tier::host, Tier::partner, Tier::disk, Tier::remote};
static_assert(std::size(kTiers) == kTierKinds);

Tier parse_tier(const std::string& name) {
  for (const Tier tier : kTiers) {
    if (name == to_string(tier)) return tier;
  }
  throw Error(Errc::invalid_argument,
              "no tier is called '" + name + "': use gpu, host, partner, disk or remote");
}

OnError parse_on_error(const std::string& name) {
  if (name == "raise") return OnError::raise;
  if (name == "warn") return OnError::warn;
  throw Error(Errc::invalid_argument, "on_error is '" + name + "': use raise or warn");
}

Coupling parse_coupling(const std::string& name) {
  if (name == "tight") return Coupling::tight;
  if (name == "independent") return Coupling::independent;
  throw Error(Errc::invalid_argument, "coupling is '" + name + "': use tight or independent");
}

void refuse_forked(pid_t creator, const char* what) {
  if (creator == ::getpid()) return;
  throw Error(Errc::in_use,
              detail::concat(what, " is of process ", creator,
                             ", from which this one was forked: use it there, or open a "
                             "history of this process's own, in another folder"));
}

// A save as Python sees it.
struct TicketHandle {
  Ticket ticket;
  pid_t creator = ::getpid();

  template <class Function>
  auto with(Function&& function) const {
    refuse_forked(creator, "this ticket");
    nb::gil_scoped_release no_gil;
    return function(ticket);
  }
};

// A history as Python sees it. The arrays are kept alive by holdfast.History.
// Thread safety: any number of threads; no call keeps the interpreter's lock.
class HistoryHandle {
 public:
  explicit HistoryHandle(const HistoryOptions& options) : disk_(options.disk) {
    // Of its folders and regions. What another thread opens meanwhile is let go of, too, by a
    // child: it is the parent's as well.
    const std::set<ino_t> before = locked_inodes();
    history_.emplace(History::open(options));
    for (const ino_t inode : locked_inodes()) {
      if (!before.contains(inode)) inodes_.push_back(inode);
    }
  }
  ~HistoryHandle() {
    if (is_forked()) {
      // The parent's: the threads are not here that an end would wait for.
      new (std::nothrow) std::optional<History>(std::move(history_));
      new (std::nothrow) std::vector<Stream>(std::move(streams_));
      return;
    }
    nb::gil_scoped_release no_gil;
    history_.reset();  // prints what it could not tell anyone
    streams_.clear();
  }
  HistoryHandle(const HistoryHandle&) = delete;
  HistoryHandle& operator=(const HistoryHandle&) = delete;

  // Calls function(History&).
  template <class Function>
  auto with(Function&& function) {
    refuse_forked(creator_, "this history");
    nb::gil_scoped_release no_gil;
    return function(*history_);
  }

  // Calls function(History&, Stream&): in the order of the stream that is given, without waiting
  // for it; or else behind all that the device was given, and returns once that is done.
  template <class Function>
  void with_stream(const std::optional<std::uintptr_t>& native, Function&& function) {
    return with([&](History& history) {
      if (native && is_cuda()) {
        Stream stream = Stream::borrow(reinterpret_cast<void*>(*native));
        function(history, stream);
        return;
      }
      Lease lease(*this);
      if (is_cuda()) backend::synchronize();
      function(history, *lease.stream);
      lease.stream->synchronize();
    });
  }

  void close() {
    with([&](History& history) {
      const std::lock_guard lock(closing_);
      closed_ = true;
      history.close();
    });
  }
  void close_at_exit() {
    if (is_forked()) return;
    try {
      close();
    } catch (const Error&) {
      fail_at_exit();
      throw;
    }
  }
  // In a forked child: the parent's death is to free the folders and regions.
  void leave_to_parent() noexcept {
    if (!is_forked() || inodes_.empty()) return;
    leave_inherited_locks(inodes_, nullptr, reinterpret_cast<const std::byte*>(UINTPTR_MAX));
  }
  bool is_open() const { return !closed_; }
  const std::string& disk() const { return disk_; }

 private:
  static bool is_cuda() { return std::string(backend::name()) == "cuda"; }
  bool is_forked() const { return creator_ != ::getpid(); }

  // A stream is used by one call at a time. One whose call threw may have failed for good.
  struct Lease {
    explicit Lease(HistoryHandle& of) : handle(of) {
      const std::lock_guard lock(handle.mutex_);
      if (!handle.streams_.empty()) {
        stream.emplace(std::move(handle.streams_.back()));
        handle.streams_.pop_back();
      } else {
        stream.emplace();
      }
    }
    ~Lease() {
      if (std::uncaught_exceptions() > 0) return;
      const std::lock_guard lock(handle.mutex_);
      handle.streams_.push_back(std::move(*stream));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    HistoryHandle& handle;
    std::optional<Stream> stream;
  };

  const std::string disk_;
  const pid_t creator_ = ::getpid();
  std::optional<History> history_;
  std::vector<ino_t> inodes_;
  std::mutex closing_;
  std::atomic<bool> closed_ = false;
  std::mutex mutex_;  // over the streams that are free
  std::vector<Stream> streams_;
};

using Handle = std::shared_ptr<HistoryHandle>;
using StreamNumber = std::optional<std::uintptr_t>;

Handle open_history(std::uint64_t gpu, std::uint64_t host, const std::string& host_region,
                    std::uint64_t partner, const std::string& partner_region,
                    const std::string& partner_owner, const std::string& partner_lender,
                    const std::string& disk, std::uint64_t disk_bytes, const std::string& remote,
                    nb::object remote_store, std::uint64_t remote_bytes, bool discard_consumed,
                    std::uint64_t keep_last, std::uint64_t keep_every, const std::string& on_error,
                    const std::string& status, const std::string& trace, std::uint64_t trace_events,
                    const std::shared_ptr<RankGroup>& ranks, const std::string& coupling,
                    double ranks_timeout, std::uint64_t node_host, std::uint64_t node_disk_bytes,
                    std::uint64_t weight) {
  HistoryOptions options;
  options.gpu_bytes = gpu;
  options.host_bytes = host;
  options.host_region = host_region;
  options.partner_bytes = partner;
  options.partner_region = partner_region;
  options.partner_owner = partner_owner;
  options.partner_lender = partner_lender;
  options.disk = disk;
  options.disk_bytes = disk_bytes;
  options.remote = remote;
  options.remote_store = object_store_of(std::move(remote_store));
  options.remote_bytes = remote_bytes;
  options.discard_consumed = discard_consumed;
  options.keep_last = keep_last;
  options.keep_every = keep_every;
  options.on_error = parse_on_error(on_error);
  options.status = status;
  options.trace = trace;
  options.trace_events = trace_events;
  options.ranks = ranks;
  options.coupling = parse_coupling(coupling);
  options.ranks_timeout = parse_timeout(ranks_timeout);
  options.node_host_bytes = node_host;
  options.node_disk_bytes = node_disk_bytes;
  options.weight = weight;
  nb::gil_scoped_release no_gil;
  return std::make_shared<HistoryHandle>(options);
}

void protect(const Handle& handle, const std::string& name, std::uintptr_t address,
             std::uint64_t bytes, bool on_device) {
  handle->with([&](History& history) {
    history.protect_raw(name, reinterpret_cast<void*>(address), bytes,
                        on_device ? BufferMemory::device : BufferMemory::host);
  });
}

TicketHandle save(const Handle& handle, std::uint64_t step, const StreamNumber& stream, bool keep) {
  std::optional<Ticket> ticket;
  handle->with_stream(stream, [&](History& history, Stream& in_order) {
    ticket = history.save(step, in_order, keep);
  });
  return TicketHandle{*ticket};
}

void restore(const Handle& handle, std::uint64_t step, const StreamNumber& stream, bool keep) {
  handle->with_stream(
      stream, [&](History& history, Stream& in_order) { history.restore(step, in_order, keep); });
}

template <class Function>
auto ask(Function function) {
  return [function](const Handle& handle) { return handle->with(function); };
}

using CountByTier = std::map<std::string, HistoryStats::Count>;

template <HistoryStats::Count (HistoryStats::*counts)[kTierKinds]>
CountByTier by_tier(const HistoryStats& stats) {
  CountByTier found;
  for (const Tier tier : kTiers) {
    found[to_string(tier)] = (stats.*counts)[static_cast<std::size_t>(tier)];
  }
  return found;
}

void bind_stats(nb::module_& module) {
  using Count = HistoryStats::Count;
  nb::class_<Count>(module, "HistoryCount", "Checkpoints, and their bytes.")
      .def_ro("checkpoints", &Count::checkpoints)
      .def_ro("bytes", &Count::bytes)
      .def("__repr__", [](const Count& count) {
        return detail::concat("HistoryCount(checkpoints=", count.checkpoints,
                              ", bytes=", count.bytes, ")");
      });

  nb::class_<HistoryStats>(module, "HistoryStats",
                           "What a history has done since it was opened, and what it holds.")
      .def_ro("saves", &HistoryStats::saves)
      .def_ro("restores", &HistoryStats::restores)
      .def_prop_ro("restored_from", &by_tier<&HistoryStats::restored_from>, "by tier")
      .def_prop_ro("flushed_to", &by_tier<&HistoryStats::flushed_to>, "by tier")
      .def_prop_ro("fetched_to", &by_tier<&HistoryStats::fetched_to>, "by tier")
      .def_prop_ro("evicted_from", &by_tier<&HistoryStats::evicted_from>, "by tier")
      .def_prop_ro("held_in", &by_tier<&HistoryStats::held_in>, "by tier, now")
      .def_ro("save_seconds", &HistoryStats::save_seconds, "for which saves kept their callers")
      .def_ro("restore_seconds", &HistoryStats::restore_seconds, "the same of restores")
      .def_ro("waits", &HistoryStats::waits, "of saves and restores, for room or for a transfer")
      .def_ro("failed_transfers", &HistoryStats::failed_transfers)
      .def_ro("prefetch_distance", &HistoryStats::prefetch_distance,
              "hinted checkpoints that the GPU has ready, in a row, now")
      .def("__repr__", [](const HistoryStats& stats) {
        return detail::concat("HistoryStats(saves=", stats.saves.checkpoints,
                              ", restores=", stats.restores.checkpoints, ", waits=", stats.waits,
                              ", failed_transfers=", stats.failed_transfers, ")");
      });
}

void bind_folder(nb::module_& module) {
  nb::class_<HistoryArray>(module, "HistoryArray", "An array in a checkpoint.")
      .def_ro("name", &HistoryArray::name)
      .def_ro("nbytes", &HistoryArray::bytes);
  nb::class_<HistoryStep>(module, "HistoryStep", "A checkpoint in a folder.")
      .def_ro("path", &HistoryStep::path, "of its file")
      .def_ro("step", &HistoryStep::step)
      .def_ro("nbytes", &HistoryStep::bytes, "of the arrays, and of what lies between them")
      .def_ro("saved_unix_ns", &HistoryStep::saved_unix_ns)
      .def_ro("arrays", &HistoryStep::arrays);
  nb::class_<HistoryDamage>(module, "HistoryDamage",
                            "A file that stands where a checkpoint would, and is not offered.")
      .def_ro("path", &HistoryDamage::path)
      .def_ro("step", &HistoryDamage::step, "by its name")
      .def_prop_ro("code",
                   [](const HistoryDamage& damage) { return std::string(to_string(damage.code)); })
      .def_ro("reason", &HistoryDamage::reason);

  nb::class_<HistoryFolder>(module, "HistoryFolder",
                            "What the folder of a history held when this was made.")
      .def_prop_ro("path", [](const HistoryFolder& folder) { return folder.path(); })
      .def_prop_ro("uuid", &HistoryFolder::uuid)
      .def_prop_ro("file_bytes", &HistoryFolder::file_bytes, "of the complete checkpoints' files")
      .def_prop_ro("latest", &HistoryFolder::latest, "the step that was completed last")
      .def_prop_ro("steps", &HistoryFolder::steps)
      .def_prop_ro("damaged", &HistoryFolder::damaged)
      .def("verify", &HistoryFolder::verify, "step"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "history_folder", [](const std::string& path) { return HistoryFolder(path); }, "path"_a,
      nb::call_guard<nb::gil_scoped_release>(),
      "Reads what a folder has, beside a process that has the history open.");
  module.def(
      "history_in_store",
      [](nb::object store) {
        const auto objects = object_store_of(std::move(store));
        nb::gil_scoped_release no_gil;
        return HistoryFolder(objects);
      },
      "store"_a, "The same of what an object store has.");
  module.def(
      "discard_from_history",
      [](const std::string& path, const std::vector<std::uint64_t>& steps) {
        HistoryFolder::discard(path, steps);
      },
      "path"_a, "steps"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Removes checkpoints of a history that no process has open.");
  module.def(
      "discard_from_store",
      [](nb::object store, const std::vector<std::uint64_t>& steps) {
        const auto objects = object_store_of(std::move(store));
        nb::gil_scoped_release no_gil;
        HistoryFolder::discard(objects, steps);
      },
      "store"_a, "steps"_a, "The same in an object store.");
}

void bind_ticket(nb::module_& module) {
  nb::class_<TicketHandle>(module, "HistoryTicket", "A save on its way.")
      .def_prop_ro("step", [](const TicketHandle& handle) { return handle.ticket.step(); })
      .def("staged",
           [](const TicketHandle& handle) {
             return handle.with([](const Ticket& ticket) { return ticket.staged(); });
           })
      .def(
          "is_in",
          [](const TicketHandle& handle, const std::string& tier) {
            return handle.with(
                [&](const Ticket& ticket) { return ticket.is_in(parse_tier(tier)); });
          },
          "tier"_a)
      .def("wait_staged",
           [](const TicketHandle& handle) {
             handle.with([](const Ticket& ticket) { ticket.wait_staged(); });
           })
      .def(
          "wait",
          [](const TicketHandle& handle, const std::string& tier) {
            handle.with([&](const Ticket& ticket) { ticket.wait(parse_tier(tier)); });
          },
          "tier"_a);
}

void bind_life(nb::class_<HistoryHandle>& history) {
  history.def("close", &HistoryHandle::close)
      .def("close_at_exit", &HistoryHandle::close_at_exit)
      .def("leave_to_parent", &HistoryHandle::leave_to_parent)
      .def_prop_ro("is_open", &HistoryHandle::is_open)
      .def_prop_ro("disk", [](const HistoryHandle& handle) { return handle.disk(); });
}

}  // namespace

void bind_history(nb::module_& module) {
  bind_stats(module);
  bind_folder(module);
  bind_ticket(module);
  nb::class_<HistoryHandle> history(module, "History", nb::is_weak_referenceable(),
                                    "A history's handle; holdfast.History wraps it.");
  bind_life(history);
  history.def("protect", &protect, "name"_a, "address"_a, "nbytes"_a, "on_device"_a)
      .def(
          "unprotect",
          [](const Handle& handle, const std::string& name) {
            handle->with([&](History& own) { own.unprotect(name); });
          },
          "name"_a)
      .def("save", &save, "step"_a, "stream"_a.none(), "keep"_a)
      .def("restore", &restore, "step"_a, "stream"_a.none(), "keep"_a)
      .def(
          "hint",
          [](const Handle& handle, const std::vector<std::uint64_t>& steps) {
            handle->with([&](History& own) { own.hint(steps); });
          },
          "steps"_a)
      .def("prefetch_start", ask([](History& own) { own.prefetch_start(); }))
      .def(
          "size",
          [](const Handle& handle, std::uint64_t step, const std::string& name) {
            return handle->with([&](History& own) { return own.size(step, name); });
          },
          "step"_a, "name"_a)
      .def(
          "discard",
          [](const Handle& handle, std::uint64_t step) {
            return handle->with([&](History& own) { return own.discard(step); });
          },
          "step"_a)
      .def("steps", ask([](History& own) { return own.steps(); }))
      .def(
          "latest",
          [](const Handle& handle, const std::string& tier) {
            return handle->with([&](History& own) { return own.latest(parse_tier(tier)); });
          },
          "tier"_a)
      .def(
          "agree",
          [](const Handle& handle, const std::string& tier) {
            const Tier asked = parse_tier(tier);
            return handle->with([&](History& own) { return own.agree(asked); });
          },
          "tier"_a)
      .def(
          "latest_of_all",
          [](const Handle& handle, const std::string& tier) {
            const Tier asked = parse_tier(tier);
            return handle->with([&](History& own) { return own.latest_of_all(asked); });
          },
          "tier"_a)
      .def(
          "wait_for_all",
          [](const Handle& handle, const TicketHandle& ticket, const std::string& tier) {
            const Tier asked = parse_tier(tier);
            handle->with([&](History& own) { own.wait_for_all(ticket.ticket, asked); });
          },
          "ticket"_a, "tier"_a)
      .def("flush", ask([](History& own) { own.flush(); }))
      .def(
          "verify",
          [](const Handle& handle, std::uint64_t step) {
            handle->with([&](History& own) { own.verify(step); });
          },
          "step"_a)
      .def("stats", ask([](History& own) { return own.stats(); }))
      .def("snapshot", ask([](History& own) { return to_json(own.snapshot()); }),
           "What holdfast.HistorySnapshot is made of: a JSON object.");
  module.def("open_history", &open_history, "gpu"_a, "host"_a, "host_region"_a, "partner"_a,
             "partner_region"_a, "partner_owner"_a, "partner_lender"_a, "disk"_a, "disk_bytes"_a,
             "remote"_a, "remote_store"_a.none(), "remote_bytes"_a, "discard_consumed"_a,
             "keep_last"_a, "keep_every"_a, "on_error"_a, "status"_a, "trace"_a, "trace_events"_a,
             "ranks"_a.none(), "coupling"_a, "ranks_timeout"_a, "node_host"_a, "node_disk_bytes"_a,
             "weight"_a);
}

}  // namespace holdfast::python
