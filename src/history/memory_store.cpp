// The client of memory_wire.hpp: a few connections that take turns, and a thread that keeps them
// from being silent for too long.
//
// A request whose connection has ended meanwhile goes over a new one, once, unless bytes of an
// object are on their way. Where the server cannot be reached, or says nothing, calls fail at once
// for a while: a history that has a thousand checkpoints to send must not wait a thousand times.
//
// A server that was started again has lost what it had. From then on nothing is asked of it and
// nothing written, until claim() begins anew with it: who counts on what was there hears of it
// first. Who was taken over from counts on nothing there either, and writes there no more.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/checksum.hpp"
#include "core/process.hpp"
#include "history/memory_wire.hpp"
#include "holdfast/memory_server.hpp"

namespace holdfast {

using core::UniqueFd;
using detail::concat;
using history::wire::Broken;
using history::wire::Clock;
using history::wire::Head;
using history::wire::Id;
using history::wire::Kind;

namespace wire = history::wire;

namespace {

using std::chrono::milliseconds;

constexpr char kScheme[] = "tcp://";
constexpr std::size_t kMostLinks = 8;
constexpr std::uint64_t kSmall = 64u << 10;     // objects up to here go in one message
constexpr milliseconds kKeeperPatience{2'000};  // close() may have to wait for so long
constexpr milliseconds kKeeperPause{500};       // a server that ends is seen within so long

// The server has answered, and says no.
class Refused : public Error {
  using Error::Error;
};
// The server was started again.
class Lost : public Error {
 public:
  explicit Lost(const std::string& server)
      : Error(Errc::io, concat("the memory server at ", server,
                               " was started again, and what it had is gone")) {}
};

Errc code_of(std::uint64_t number) {
  for (const Errc code : {Errc::invalid_argument, Errc::not_found, Errc::in_use, Errc::no_space,
                          Errc::no_memory, Errc::unsupported}) {
    if (number == static_cast<std::uint64_t>(code)) return code;
  }
  return Errc::io;
}

std::string who_this_is() {
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') std::strcpy(host, "a host");
  return concat("process ", ::getpid(), " on ", host);
}

void check_key(const std::string& key) {
  if (wire::is_key(key)) return;
  throw Error(Errc::invalid_argument, concat("'", wire::printable(std::as_bytes(std::span(key))),
                                             "' is no key of a memory server: up to ",
                                             wire::kMostKey, " letters of ASCII without blanks"));
}

struct Link {
  Link() = default;
  // A child that was forked meanwhile has the socket, too, and would keep the claim.
  ~Link() {
    if (fd && maker.is_this_process()) ::shutdown(fd.get(), SHUT_RDWR);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  UniqueFd fd;
  core::Maker maker;
  std::uint64_t sequence = 0;
  bool owns = false;    // has the claim
  bool rested = false;  // was used before, and may have ended meanwhile
  Clock::time_point used = Clock::now();
};
using LinkPtr = std::unique_ptr<Link>;

// Of one that rests: nobody has asked, so all that can have come is an end.
bool has_ended(const Link& link) {
  pollfd entry{link.fd.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) != 0;
}

struct Answer {
  Head head;
  std::vector<std::byte> payload;
};

class MemoryStore : public ObjectStore, public std::enable_shared_from_this<MemoryStore> {
 public:
  MemoryStore(const std::string& url, const MemoryStoreOptions& options);
  ~MemoryStore() override;

  void put(const std::string& key, std::uint64_t bytes, const Source& source) override;
  bool put_new(const std::string& key, std::span<const std::byte> bytes) override;
  std::size_t read(const std::string& key, std::uint64_t offset,
                   std::span<std::byte> into) override;
  std::optional<StoredObject> head(const std::string& key) override;
  std::vector<StoredObject> list() override;
  void remove(const std::string& key) override;
  std::shared_ptr<void> claim() override;
  bool is_lost() const override { return lost_; }
  void confirm() override;
  const std::string& path() const override { return path_; }

 private:
  // For a link that is used, and given back or, after an exception, closed.
  enum class Use { reading, writing };
  template <class Request>
  auto with_link(Use use, const bool& may_repeat, const Request& request);
  LinkPtr take(Use use, const MemoryStoreOptions& limits, bool only_new);
  LinkPtr take_idle(bool only_new);
  void give_back(LinkPtr link);
  void forget(LinkPtr link);
  LinkPtr connect(const MemoryStoreOptions& limits);
  void say_hello(Link& link, milliseconds silence);
  void claim_on(Link& link, milliseconds silence);
  void note_down(const std::string& why);

  static void send(Link& link, Kind kind, const std::string& key, std::uint64_t a, std::uint64_t b,
                   std::span<const std::byte> payload, milliseconds silence);
  static Answer receive(Link& link, milliseconds silence, std::span<std::byte>* into = nullptr);
  Answer ask(Link& link, Kind kind, const std::string& key, std::uint64_t a = 0,
             std::uint64_t b = 0, std::span<const std::byte> payload = {},
             std::span<std::byte>* into = nullptr) const {
    send(link, kind, key, a, b, payload, options_.silence);
    return receive(link, options_.silence, into);
  }
  void stream(Link& link, std::uint64_t bytes, const Source& source) const;
  static void end_upload(const Link& link) noexcept;
  void release();
  void keep();
  void ping_resting();

  const std::string path_;
  const MemoryStoreOptions options_;
  const core::Maker maker_;
  wire::Endpoint endpoint_;
  std::string name_;
  Id own_id_{};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<LinkPtr> idle_;  // the last one was used last
  std::size_t taken_ = 0;
  bool knows_server_ = false;
  Id server_id_{};
  std::atomic<bool> lost_ = false;  // until the next claim()
  std::string taken_over_;          // what the server said of it; empty: it was not
  milliseconds suffered_{0};        // silence, by the server
  bool is_claimed_ = false;         // by claim()
  bool has_claim_ = false;          // by that, or since something was written
  std::uint64_t claim_ = 0;         // its number
  Clock::time_point down_until_{};
  std::string why_down_;
  bool ends_ = false;
  std::thread keeper_;
};

MemoryStore::MemoryStore(const std::string& url, const MemoryStoreOptions& options)
    : path_(url), options_(options) {
  const std::string place = url.substr(std::min(url.size(), sizeof kScheme - 1));
  const std::size_t slash = place.find('/');
  name_ = slash == place.npos ? std::string() : place.substr(slash + 1);
  if (!is_memory_url(url) || !wire::is_key(name_)) {
    throw Error(Errc::invalid_argument,
                concat("'", wire::printable(std::as_bytes(std::span(url))),
                       "' is no place in a memory server: give tcp://HOST:PORT/NAME, the name of "
                       "up to ",
                       wire::kMostKey, " letters of ASCII without blanks"));
  }
  for (const milliseconds limit : {options.connecting, options.silence}) {
    if (limit >= milliseconds(1) && limit <= std::chrono::hours(24)) continue;
    throw Error(Errc::invalid_argument, "memory_store: limits of time are 1 ms to a day");
  }
  endpoint_ = wire::parse_endpoint(place.substr(0, slash), "a memory server at");
  core::random_bytes(own_id_.data(), own_id_.size());
  idle_.reserve(kMostLinks);  // there are never more, so that giving back takes no memory
}

MemoryStore::~MemoryStore() {
  if (!maker_.is_this_process()) {  // it is its maker's, as the connections are
    if (keeper_.joinable()) keeper_.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (keeper_.joinable()) keeper_.join();
}

// ---- Links --------------------------------------------------------------------------------------

template <class Request>
auto MemoryStore::with_link(Use use, const bool& may_repeat, const Request& request) {
  for (bool repeats = false;; repeats = true) {
    LinkPtr link = take(use, options_, repeats);
    const bool rested = link->rested;
    try {
      auto result = request(*link);
      give_back(std::move(link));
      return result;
    } catch (const Refused&) {
      give_back(std::move(link));
      throw;
    } catch (const Broken& broken) {
      forget(std::move(link));
      const bool ended = broken.why() == Broken::Why::ended;
      if (ended && rested && may_repeat && !repeats) continue;
      if (broken.why() == Broken::Why::silent) note_down(broken.what());
      throw Error(Errc::io, broken.what());
    } catch (...) {
      forget(std::move(link));
      throw;
    }
  }
}

// Throws what keeps a link from being there, as Error.
LinkPtr MemoryStore::take(Use use, const MemoryStoreOptions& limits, bool only_new) {
  if (!maker_.is_this_process()) {
    maker_.refuse("this memory store", "open one of the child's own");
  }
  {
    std::unique_lock lock(mutex_);
    if (use == Use::writing && !taken_over_.empty()) throw Refused(Errc::in_use, taken_over_);
    if (lost_ && taken_over_.empty()) throw Lost(endpoint_.text());
    const auto is_free = [&] { return taken_ < kMostLinks; };
    if (!changed_.wait_for(lock, limits.silence, is_free)) {
      throw Error(Errc::io, concat("all ", kMostLinks, " connections were in use for ",
                                   wire::words(limits.silence)));
    }
    ++taken_;
  }
  LinkPtr link;
  try {
    link = take_idle(only_new);
    if (!link) link = connect(limits);
    if (use == Use::writing && !link->owns) claim_on(*link, limits.silence);
    return link;
  } catch (const Broken& broken) {
    forget(std::move(link));
    if (broken.why() == Broken::Why::silent) note_down(broken.what());
    throw Error(Errc::io, broken.what());
  } catch (const Refused&) {
    if (link) {
      give_back(std::move(link));
    } else {
      forget(nullptr);
    }
    throw;
  } catch (...) {
    forget(std::move(link));
    throw;
  }
}

// Null: there is none that has not ended.
LinkPtr MemoryStore::take_idle(bool only_new) {
  std::vector<LinkPtr> ended;
  const std::lock_guard lock(mutex_);
  if (only_new) ended.swap(idle_);
  while (!idle_.empty()) {
    LinkPtr link = std::move(idle_.back());
    idle_.pop_back();
    if (!has_ended(*link)) return link;
    ended.push_back(std::move(link));
  }
  return nullptr;
}

void MemoryStore::give_back(LinkPtr link) {
  link->rested = true;
  link->used = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    --taken_;
    if (has_claim_ || !link->owns) idle_.push_back(std::move(link));
  }
  changed_.notify_all();
}

void MemoryStore::forget(LinkPtr link) {
  link.reset();
  {
    const std::lock_guard lock(mutex_);
    --taken_;
  }
  changed_.notify_all();
}

void MemoryStore::note_down(const std::string& why) {
  std::vector<LinkPtr> ended;
  const std::lock_guard lock(mutex_);
  down_until_ = Clock::now() + options_.connecting;
  why_down_ = why;
  ended.swap(idle_);
}

LinkPtr MemoryStore::connect(const MemoryStoreOptions& limits) {
  {
    const std::lock_guard lock(mutex_);
    if (Clock::now() < down_until_) throw Error(Errc::io, why_down_ + " (a moment ago)");
  }
  auto link = std::make_unique<Link>();
  try {
    link->fd = wire::connect_to(endpoint_, Clock::now() + limits.connecting);
  } catch (const Error& error) {
    note_down(error.what());
    throw;
  }
  say_hello(*link, limits.silence);
  return link;
}

void MemoryStore::say_hello(Link& link, milliseconds silence) {
  const std::string who = who_this_is();
  std::vector<std::byte> payload(own_id_.size() + who.size());
  std::memcpy(payload.data(), own_id_.data(), own_id_.size());
  std::memcpy(payload.data() + own_id_.size(), who.data(), who.size());
  send(link, Kind::hello, name_, 0, 0, payload, silence);
  const Answer answer = receive(link, silence);
  Id server{};
  if (answer.payload.size() != server.size() || answer.head.a == 0) {
    throw Broken(Broken::Why::senseless, "the other side is no memory server");
  }
  std::memcpy(server.data(), answer.payload.data(), server.size());
  const std::lock_guard lock(mutex_);
  if (knows_server_ && server != server_id_) {
    lost_ = true;
    has_claim_ = false;
    throw Lost(endpoint_.text());
  }
  knows_server_ = true;
  server_id_ = server;
  suffered_ = milliseconds(std::min<std::uint64_t>(answer.head.a, 86'400'000));
  if (!keeper_.joinable()) keeper_ = std::thread([this] { keep(); });
}

void MemoryStore::claim_on(Link& link, milliseconds silence) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = claim_;
  }
  send(link, Kind::claim, {}, number, 0, {}, silence);
  Answer answer;
  try {
    answer = receive(link, silence + wire::kPatience);
  } catch (const Refused& refused) {
    const std::lock_guard lock(mutex_);
    if (refused.code() == Errc::in_use && number != 0 && claim_ == number) {
      taken_over_ = refused.what();
      lost_ = true;
      has_claim_ = false;
    }
    throw;
  }
  link.owns = true;
  const std::lock_guard lock(mutex_);
  has_claim_ = true;
  claim_ = answer.head.a;
}

// ---- Messages -----------------------------------------------------------------------------------

void MemoryStore::send(Link& link, Kind kind, const std::string& key, std::uint64_t a,
                       std::uint64_t b, std::span<const std::byte> payload, milliseconds silence) {
  Head head;
  head.kind = kind;
  head.sequence = kind == Kind::part ? link.sequence : ++link.sequence;
  head.a = a;
  head.b = b;
  wire::send(link.fd.get(), head, key, payload, Clock::now() + silence);
}

// `into`: for the payload, of which as much is left of it as came.
Answer MemoryStore::receive(Link& link, milliseconds silence, std::span<std::byte>* into) {
  const auto deadline = [&] { return Clock::now() + silence; };
  const auto is_senseless = [](const char* what) {
    return Broken(Broken::Why::senseless, concat("the memory server's answer is ", what));
  };
  Answer answer;
  std::string key;
  answer.head = wire::receive(link.fd.get(), key, deadline());
  const Head& head = answer.head;
  const bool is_error = head.kind == Kind::error;
  if (head.sequence != link.sequence && !(is_error && head.sequence == 0)) {
    throw is_senseless("to another request");
  }
  if (into != nullptr && !is_error) {
    if (head.payload_bytes > into->size()) throw is_senseless("longer than what was asked for");
    *into = into->first(head.payload_bytes);
    wire::receive_payload(link.fd.get(), head, *into, deadline());
  } else {
    answer.payload.resize(head.payload_bytes);
    wire::receive_payload(link.fd.get(), head, answer.payload, deadline());
  }
  if (is_error) throw Refused(code_of(head.a), wire::printable(answer.payload));
  if (head.kind != Kind::ok && head.kind != Kind::data) throw is_senseless("of an unknown kind");
  return answer;
}

// ---- What a store does --------------------------------------------------------------------------

void MemoryStore::stream(Link& link, std::uint64_t bytes, const Source& source) const {
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(wire::kPart);
  for (std::uint64_t at = 0; at < bytes;) {
    const std::span<std::byte> part(memory.get(), std::min<std::uint64_t>(wire::kPart, bytes - at));
    try {
      source(part);
    } catch (...) {
      end_upload(link);
      throw;
    }
    try {
      send(link, Kind::part, {}, at, 0, part, options_.silence);
    } catch (const Broken& broken) {
      if (broken.why() != Broken::Why::ended) throw;
      receive(link, milliseconds(100));  // it may have said why
      throw;
    }
    at += part.size();
  }
  receive(link, options_.silence);
}

// The server has taken memory for the whole object, which the next one may want: it has let go of
// it when it ends the connection.
void MemoryStore::end_upload(const Link& link) noexcept {
  ::shutdown(link.fd.get(), SHUT_WR);
  try {
    wire::wait_for(link.fd.get(), POLLIN, Clock::now() + kKeeperPatience);
  } catch (...) {
  }
}

void MemoryStore::put(const std::string& key, std::uint64_t bytes, const Source& source) {
  check_key(key);
  bool may_repeat = true;
  if (bytes <= kSmall) {
    std::vector<std::byte> whole(bytes);
    if (bytes > 0) source(whole);
    with_link(Use::writing, may_repeat,
              [&](Link& link) { return ask(link, Kind::put_all, key, 0, 0, whole); });
    return;
  }
  with_link(Use::writing, may_repeat, [&](Link& link) {
    Answer answer = ask(link, Kind::put, key, bytes);
    may_repeat = false;
    try {
      stream(link, bytes, source);
    } catch (const Refused& refused) {  // amid the parts: it listens no more
      throw Error(refused.code(), refused.what());
    }
    return answer;
  });
}

bool MemoryStore::put_new(const std::string& key, std::span<const std::byte> bytes) {
  check_key(key);
  const bool may_repeat = false;  // it would find what it has made
  return with_link(Use::writing, may_repeat, [&](Link& link) {
    return ask(link, Kind::put_all, key, 1, 0, bytes).head.a != 0;
  });
}

std::size_t MemoryStore::read(const std::string& key, std::uint64_t offset,
                              std::span<std::byte> into) {
  check_key(key);
  const bool may_repeat = true;
  const auto request = [&](Link& link) {
    std::size_t got = 0;
    while (got < into.size()) {
      const std::size_t wanted = std::min<std::size_t>(wire::kMostPayload, into.size() - got);
      std::span<std::byte> piece = into.subspan(got, wanted);
      ask(link, Kind::read, key, offset + got, wanted, {}, &piece);
      got += piece.size();
      if (piece.size() < wanted) break;
    }
    return got;
  };
  try {
    return with_link(Use::reading, may_repeat, request);
  } catch (const Lost& lost) {
    throw Error(Errc::not_found, lost.what());
  }
}

std::optional<StoredObject> MemoryStore::head(const std::string& key) {
  check_key(key);
  const bool may_repeat = true;
  try {
    const Answer answer =
        with_link(Use::reading, may_repeat, [&](Link& link) { return ask(link, Kind::head, key); });
    return StoredObject{key, answer.head.a, answer.head.b};
  } catch (const Refused& refused) {
    if (refused.code() != Errc::not_found) throw;
    return std::nullopt;
  } catch (const Lost&) {
    return std::nullopt;
  }
}

std::vector<StoredObject> MemoryStore::list() {
  const bool may_repeat = true;
  return with_link(Use::reading, may_repeat, [&](Link& link) {
    std::vector<StoredObject> all;
    for (bool more = true; more;) {
      const Answer answer = ask(link, Kind::list, all.empty() ? std::string() : all.back().key);
      std::span<const std::byte> left = answer.payload;
      more = answer.head.a != 0 && !left.empty();
      while (!left.empty()) {
        wire::Entry entry{};
        if (left.size() >= sizeof entry) std::memcpy(&entry, left.data(), sizeof entry);
        if (entry.key_bytes == 0 || entry.key_bytes > left.size() - sizeof entry ||
            all.size() >= wire::kMostObjects) {
          throw Broken(Broken::Why::senseless, "the memory server's list makes no sense");
        }
        const auto key = left.subspan(sizeof entry, entry.key_bytes);
        all.push_back({wire::printable(key), entry.bytes, entry.modified_unix_ns});
        left = left.subspan(sizeof entry + entry.key_bytes);
      }
    }
    return all;
  });
}

void MemoryStore::remove(const std::string& key) {
  check_key(key);
  const bool may_repeat = true;
  with_link(Use::writing, may_repeat, [&](Link& link) { return ask(link, Kind::remove, key); });
}

std::shared_ptr<void> MemoryStore::claim() {
  {
    const std::lock_guard lock(mutex_);
    if (is_claimed_) {
      throw Error(Errc::in_use, "it is open for writing in this process: close that history first");
    }
    if (!taken_over_.empty()) throw Error(Errc::in_use, taken_over_);
    is_claimed_ = true;
    if (lost_.exchange(false)) knows_server_ = false;
  }
  // Gives it up, also where it does not come to be.
  struct Claim {
    std::shared_ptr<MemoryStore> of;
    explicit Claim(std::shared_ptr<MemoryStore> store) : of(std::move(store)) {}
    ~Claim() { of->release(); }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
  };
  auto claim = std::make_shared<Claim>(shared_from_this());
  const bool may_repeat = true;
  with_link(Use::writing, may_repeat, [&](Link& link) { return ask(link, Kind::ping, {}); });
  return claim;
}

void MemoryStore::confirm() {
  {
    const std::lock_guard lock(mutex_);
    if (lost_ || !is_claimed_) return;
  }
  const bool may_repeat = true;
  try {
    with_link(Use::writing, may_repeat, [&](Link& link) { return ask(link, Kind::ping, {}); });
  } catch (const Error&) {
    if (!lost_) throw;
  }
}

void MemoryStore::release() {
  if (!maker_.is_this_process()) return;
  std::vector<LinkPtr> owning;  // the server sees their end
  const std::lock_guard lock(mutex_);
  is_claimed_ = has_claim_ = false;
  claim_ = 0;
  for (LinkPtr& link : idle_) {
    if (link->owns) owning.push_back(std::move(link));
  }
  std::erase(idle_, nullptr);
}

// ---- Keeping ------------------------------------------------------------------------------------

void MemoryStore::keep() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const milliseconds pause = std::min(suffered_ / 4, kKeeperPause);
    if (changed_.wait_for(lock, pause, [&] { return ends_; })) return;
    lock.unlock();
    try {
      ping_resting();
    } catch (...) {  // whoever wants something of the server hears of it
    }
    lock.lock();
  }
}

// Whoever writes has a connection that rests and is not silent, though others are held up.
void MemoryStore::ping_resting() {
  const MemoryStoreOptions limits{std::min(options_.connecting, kKeeperPatience),
                                  std::min(options_.silence, kKeeperPatience)};
  std::vector<LinkPtr> resting, ended;
  {
    const std::lock_guard lock(mutex_);
    for (LinkPtr& link : idle_) {
      if (has_ended(*link)) {
        ended.push_back(std::move(link));
      } else if (Clock::now() - link->used > suffered_ / 8) {
        resting.push_back(std::move(link));
      }
    }
    std::erase(idle_, nullptr);
    taken_ += resting.size();
  }
  for (LinkPtr& link : resting) {
    try {
      send(*link, Kind::ping, {}, 0, 0, {}, limits.silence);
      receive(*link, limits.silence);
      give_back(std::move(link));
    } catch (const Broken& broken) {
      forget(std::move(link));
      if (broken.why() == Broken::Why::silent) note_down(broken.what());
    } catch (...) {
      forget(std::move(link));
    }
  }
  bool wants_claim = false;
  {
    const std::lock_guard lock(mutex_);
    wants_claim = has_claim_ && taken_ == 0;  // who uses one hears of it
    for (const LinkPtr& link : idle_) wants_claim &= !link->owns;
  }
  if (wants_claim) give_back(take(Use::writing, limits, false));
}

}  // namespace

bool is_memory_url(const std::string& place) noexcept {
  return place.compare(0, sizeof kScheme - 1, kScheme) == 0;
}

std::shared_ptr<ObjectStore> memory_store(const std::string& url,
                                          const MemoryStoreOptions& options) {
  return std::make_shared<MemoryStore>(url, options);
}

}  // namespace holdfast
