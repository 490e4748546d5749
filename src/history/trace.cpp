#include "history/trace.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>
#include <utility>

#include "core/files.hpp"
#include "history/json.hpp"

namespace holdfast::history {

namespace {

using Kind = TraceEvent::Kind;
using holdfast::detail::concat;

constexpr std::size_t kMostMessages = 1000, kMostMessageBytes = 500;

// A file that is there is replaced only if it is a trace, or empty: a path may be a mistake.
void check_path(const std::string& path) {
  const std::string what = concat("the history's trace '", path, "'");
  const core::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd && errno != ENOENT) throw core::system_error(errno, "open", path);
  if (fd) {
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) throw core::system_error(errno, "look at", path);
    if (!S_ISREG(info.st_mode)) {
      throw Error(Errc::invalid_argument, what + " is no regular file: name a file");
    }
    std::string start(kTraceStart.size(), '\0');
    const bool whole = core::read_exactly(fd.get(), start.data(), start.size(), 0, path);
    if (info.st_size > 0 && (!whole || start != kTraceStart)) {
      throw Error(Errc::already_exists,
                  what + " would replace a file that is no trace: name another, or remove it");
    }
  }
  const std::string folder = core::folder_of(path);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw core::system_error(errno, "write the history's trace into", folder);
  }
}

}  // namespace

Census take_census(const Catalog& catalog, int tier) {
  Census census;
  if (!catalog.is_cache(tier)) return census;
  for (const Fragment& fragment : catalog.space(tier).fragments()) {
    if (fragment.step == kGap) continue;
    const State state = catalog.state(fragment.step, tier);
    if (!is_whole(state)) {
      ++census.moving;
    } else if (is_ready(state)) {
      ++census.ready;
    } else if (is_alone(state)) {
      ++census.unflushed;
    } else {
      ++census.evictable;
    }
  }
  return census;
}

const char* to_string(Kind kind) noexcept {
  constexpr const char* kNames[] = {"save",      "restore", "flush()",        "wait()", "wait",
                                    "direct",    "copy",    "flush",          "fetch",  "evicted",
                                    "discarded", "hint",    "prefetch_start", "held"};
  return kNames[static_cast<std::size_t>(kind)];
}

const char* to_string(TraceEvent::Outcome outcome) noexcept {
  constexpr const char* kNames[] = {"done", "failed", "damaged", "given up"};
  return kNames[static_cast<std::size_t>(outcome)];
}

const char* to_string(TraceEvent::Why why) noexcept {
  constexpr const char* kNames[] = {"", "room", "copy", "fetch", "flush", "removal", "durable"};
  return kNames[static_cast<std::size_t>(why)];
}

std::uint32_t thread_number() noexcept {
  static std::atomic<std::uint32_t> given{0};
  static thread_local const std::uint32_t own = ++given;
  return own;
}

Trace::Trace(const std::string& path, std::uint64_t limit, std::vector<TierName> tiers)
    : path_(core::absolute_path(path)),
      tiers_(std::move(tiers)),
      opened_(Clock::now()),
      opened_unix_ns_(unix_now_ns()),
      held_(tiers_.size()) {
  if (limit == 0 || limit > kMostEvents) {
    throw Error(Errc::invalid_argument,
                concat("History::open: trace_events is ", limit, ": 1 to ", kMostEvents));
  }
  check_path(path_);
  ring_.resize(static_cast<std::size_t>(limit));
}

void Trace::note_held(const Catalog& catalog, std::int64_t now) noexcept {
  for (int tier = 0; tier < catalog.tiers(); ++tier) {
    std::uint64_t& held = held_[static_cast<std::size_t>(tier)];
    const std::uint64_t used = catalog.used(tier);
    if (used == held) continue;
    held = used;
    TraceEvent event;
    event.kind = Kind::held;
    event.begin_ns = event.end_ns = now;
    event.to = static_cast<std::int8_t>(tier);
    event.bytes = used;
    note(event);
  }
}

std::uint16_t Trace::keep_message(const std::string& text) noexcept {
  try {
    if (messages_.size() >= kMostMessages) return TraceEvent::kNoMessage;
    messages_.push_back(text.substr(0, kMostMessageBytes));
    return static_cast<std::uint16_t>(messages_.size() - 1);
  } catch (...) {  // no memory
    return TraceEvent::kNoMessage;
  }
}

std::vector<TraceEvent> Trace::events() const {
  std::vector<TraceEvent> events;
  const std::uint64_t first = dropped();
  events.reserve(static_cast<std::size_t>(noted_ - first));
  for (std::uint64_t i = first; i < noted_; ++i) {
    events.push_back(ring_[static_cast<std::size_t>(i % ring_.size())]);
  }
  return events;
}

// --- The file
// --------------------------------------------------------------------------------------

namespace {

// Text that goes into a file by and by.
class TextFile {
 public:
  explicit TextFile(const std::string& path)
      : path_(path),
        fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644)) {
    if (!fd_) throw core::system_error(errno, "make", path);
  }
  template <class... Parts>
  void add(const Parts&... parts) {
    append(text_, parts...);
    if (text_.size() > kMost) empty();
  }
  void empty() {
    if (const int error = core::write_exactly(fd_.get(), text_.data(), text_.size(), at_)) {
      throw core::system_error(error, "write", path_);
    }
    at_ += text_.size();
    text_.clear();
  }

 private:
  static constexpr std::size_t kMost = 1 << 16;
  const std::string path_;
  core::UniqueFd fd_;
  std::string text_;
  std::uint64_t at_ = 0;
};

// Tracks: calls by their thread, lanes behind them, each with a number of its own.
constexpr std::uint32_t kLaneTracks = 1'000'000;

bool is_call(Kind kind) { return kind <= Kind::ticket; }
bool is_lane(Kind kind) { return kind == Kind::flushing || kind == Kind::fetching; }

class Writer {
 public:
  Writer(TextFile& file, const std::vector<Trace::TierName>& tiers,
         const std::vector<std::string>& messages)
      : file_(file), tiers_(tiers), messages_(messages) {}

  void name_tracks(const std::vector<TraceEvent>& events);
  void add(const TraceEvent& event, std::uint64_t number);

 private:
  template <class... Parts>
  void line(const Parts&... parts) {
    file_.add(first_ ? "\n" : ",\n", parts...);
    first_ = false;
  }
  std::string_view tier(std::int8_t number) const {
    if (number < 0) return "program";
    return holdfast::to_string(tiers_[static_cast<std::size_t>(number)].tier);
  }
  static std::uint32_t track_of(const TraceEvent& event) {
    if (event.kind == Kind::flushing) return kLaneTracks + 2 * std::uint32_t(event.from);
    if (event.kind == Kind::fetching) return kLaneTracks + 2 * std::uint32_t(event.to) + 1;
    return event.thread;
  }
  std::string track_name(const TraceEvent& event) const;
  std::string name_of(const TraceEvent& event) const;
  std::string details_of(const TraceEvent& event) const;

  TextFile& file_;
  const std::vector<Trace::TierName>& tiers_;
  const std::vector<std::string>& messages_;
  bool first_ = true;
};

std::string Writer::track_name(const TraceEvent& event) const {
  std::string name;
  if (event.kind == Kind::flushing) {
    append(name, "flush out of ", tier(event.from));
  } else if (event.kind == Kind::fetching) {
    append(name, "fetch into ", tier(event.to));
  } else {
    append(name, "program, thread ", event.thread);
  }
  return name;
}

void Writer::name_tracks(const std::vector<TraceEvent>& events) {
  line(R"({"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"history"}})");
  std::set<std::uint32_t> named;
  for (const TraceEvent& event : events) {
    if (!is_call(event.kind) && !is_lane(event.kind)) continue;
    if (!named.insert(track_of(event)).second) continue;
    line(R"({"ph":"M","name":"thread_name","pid":1,"tid":)", track_of(event), R"(,"args":{"name":)",
         json_string(track_name(event)), "}}");
  }
}

std::string Writer::name_of(const TraceEvent& event) const {
  std::string name;
  if (event.kind == Kind::wait && event.why == TraceEvent::Why::room) {
    append(name, "wait for room in ", tier(event.to));
  } else if (event.kind == Kind::wait) {
    append(name, "wait: ", to_string(event.why));
  } else if (event.kind == Kind::direct) {
    append(name, event.to < 0 ? "read from " : "write to ",
           tier(event.to < 0 ? event.from : event.to));
  } else if (event.kind == Kind::held) {
    append(name, "bytes in ", tier(event.to));
  } else if (event.kind == Kind::flush || event.kind == Kind::prefetch_start) {
    append(name, to_string(event.kind));
  } else {
    append(name, to_string(event.kind), " ", event.step);
  }
  return name;
}

std::string Writer::details_of(const TraceEvent& event) const {
  std::string text;
  append(text, R"({"step":)", event.step, R"(,"bytes":)", event.bytes, R"(,"from":")",
         tier(event.from), R"(","to":")", tier(event.to), R"(","outcome":")",
         to_string(event.outcome), "\"");
  if (event.why != TraceEvent::Why::none) append(text, R"(,"why":")", to_string(event.why), "\"");
  if (event.paused_ns > 0) append(text, R"(,"paused_us":)", microseconds(event.paused_ns));
  if (event.kind == Kind::restore) {
    append(text, R"(,"hinted":)", event.hinted ? "true" : "false", R"(,"prefetching":)",
           event.prefetching ? "true" : "false");
  }
  if (!(event.census == Census{})) {
    append(text, R"(,"moving":)", event.census.moving, R"(,"unflushed":)", event.census.unflushed,
           R"(,"ready":)", event.census.ready, R"(,"evictable":)", event.census.evictable);
  }
  if (event.message < messages_.size()) {
    append(text, R"(,"message":)", json_string(messages_[event.message]));
  }
  return text + "}";
}

void Writer::add(const TraceEvent& event, std::uint64_t number) {
  std::string common;
  append(common, R"("name":")", name_of(event), R"(","cat":")", to_string(event.kind),
         R"(","pid":1,"tid":)", track_of(event), R"(,"ts":)");
  const std::string begin = microseconds(event.begin_ns);
  if (event.kind == Kind::held) {
    line(R"({"ph":"C",)", common, begin, R"(,"args":{"bytes":)", event.bytes, "}}");
    return;
  }
  const std::string details = details_of(event);
  if (event.kind == Kind::copy) {  // copies on several streams overlap
    line(R"({"ph":"b","id":)", number, ",", common, begin, R"(,"args":)", details, "}");
    line(R"({"ph":"e","id":)", number, ",", common, microseconds(event.end_ns), "}");
  } else if (is_call(event.kind) || is_lane(event.kind) || event.kind == Kind::wait ||
             event.kind == Kind::direct) {
    line(R"({"ph":"X",)", common, begin, R"(,"dur":)", microseconds(event.end_ns - event.begin_ns),
         R"(,"args":)", details, "}");
  } else {
    line(R"({"ph":"i","s":"t",)", common, begin, R"(,"args":)", details, "}");
  }
}

}  // namespace

void Trace::write() const {
  check_path(path_);  // what has come there since the history was opened
  std::vector<TraceEvent> all = events();
  // What encloses others comes before them.
  std::stable_sort(all.begin(), all.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  const std::string partial = concat(path_, ".", ::getpid(), ".partial");
  try {
    TextFile file(partial);
    file.add(kTraceStart, R"(,"opened_unix_ns":)", opened_unix_ns_, R"(,"pid":)", ::getpid(),
             R"(,"closed_us":)", microseconds(now()), R"(,"events":)", all.size(), R"(,"dropped":)",
             dropped(), R"(,"limit":)", ring_.size(), R"(,"tiers":[)");
    for (std::size_t i = 0; i < tiers_.size(); ++i) {
      file.add(i == 0 ? "" : ",", R"({"tier":")", holdfast::to_string(tiers_[i].tier),
               R"(","capacity":)", tiers_[i].capacity, "}");
    }
    file.add(R"(]},"displayTimeUnit":"ms","traceEvents":[)");
    Writer writer(file, tiers_, messages_);
    writer.name_tracks(all);
    std::uint64_t number = 0;
    for (const TraceEvent& event : all) writer.add(event, number++);
    file.add("\n]}\n");
    file.empty();
    if (::rename(partial.c_str(), path_.c_str()) != 0) {
      throw core::system_error(errno, "put the history's trace in place of", path_);
    }
  } catch (...) {
    ::unlink(partial.c_str());
    throw;
  }
}

}  // namespace holdfast::history
