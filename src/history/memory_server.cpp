// The server of memory_wire.hpp: an acceptor, and a thread for each connection.
//
// Locks: `mutex_` is over names, objects and connections, and is held for moments; bytes come and
// go without it, into memory that nobody else knows yet, and out of objects that are never changed.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/checksum.hpp"
#include "core/guard.hpp"
#include "core/process.hpp"
#include "history/memory_pieces.hpp"
#include "history/memory_wire.hpp"
#include "history/step_file.hpp"
#include "holdfast/memory_server.hpp"

namespace holdfast {

using core::UniqueFd;
using detail::concat;
using history::MemoryPieces;
using history::wire::Clock;
using history::wire::Head;
using history::wire::Id;
using history::wire::Kind;

namespace wire = history::wire;

namespace {

constexpr std::size_t kListed = 1024;  // objects in an answer

struct Object {
  std::unique_ptr<MemoryPieces::Piece> memory;
  std::uint64_t modified_unix_ns = 0;
  std::span<std::byte> bytes() const { return memory->bytes(); }
};

// What is under a name.
struct Place {
  std::map<std::string, std::shared_ptr<const Object>> objects;
  std::optional<Id> owner;
  std::string owner_words;
  std::uint64_t claim = 0;       // the owner's; grows with each
  unsigned owned = 0, open = 0;  // connections of the owner's, and all
};

struct Connection {
  UniqueFd fd;
  std::thread thread;
  bool ended = false;
};

}  // namespace

struct MemoryServer::Impl {
  explicit Impl(const MemoryServerOptions& options);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  class Session;
  using Places = std::map<std::string, Place>;

  void run() noexcept;
  void admit(UniqueFd peer);
  void serve(Connection& connection) noexcept;
  void join_ended();
  Places::iterator open_place(const std::string& name);
  void close_place(Places::iterator place, bool owns);
  std::uint64_t claim(Place& place, const Id& id, const std::string& who, std::uint64_t earlier);
  std::shared_ptr<Object> new_object(std::uint64_t bytes) const {
    auto object = std::make_shared<Object>();
    object->memory = memory_->take(bytes);
    return object;
  }
  bool store(Place& place, const std::string& key, const std::shared_ptr<Object>& object,
             bool only_new);
  std::shared_ptr<const Object> find(const Place& place, const std::string& key);
  bool remove(Place& place, const std::string& key);

  const MemoryServerOptions options_;
  const core::Maker maker_;
  Id id_{};
  std::shared_ptr<MemoryPieces> memory_;
  UniqueFd listener_, stop_;
  std::string address_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;
  Places places_;
  std::uint64_t claims_ = 0, objects_ = 0;
  std::list<Connection> connections_;
  std::thread thread_;
};

// One connection, from its hello to its end.
class MemoryServer::Impl::Session {
 public:
  Session(Impl& server, int fd) : server_(server), fd_(fd) {}
  ~Session() {
    if (place_) server_.close_place(*place_, owns_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void run() {
    for (;;) {
      if (!wire::wait_for(fd_, POLLIN, deadline())) return;
      request_ = {};
      try {
        request_ = wire::receive(fd_, key_, deadline());
        answer();
      } catch (const wire::Broken& broken) {
        if (broken.why() == wire::Broken::Why::senseless) refuse(Errc::io, broken.what());
        return;
      } catch (const Error& error) {
        refuse(error.code(), error.what());
        if (!whole_) return;  // what follows is no request
      } catch (const std::bad_alloc&) {
        refuse(Errc::no_memory, "the memory server has no memory left");
        if (!whole_) return;
      }
    }
  }

 private:
  wire::Deadline deadline() const { return Clock::now() + server_.options_.silence; }

  void reply(Kind kind, std::uint64_t a = 0, std::uint64_t b = 0,
             std::span<const std::byte> payload = {}) {
    Head head;
    head.kind = kind;
    head.sequence = request_.sequence;
    head.a = a;
    head.b = b;
    wire::send(fd_, head, {}, payload, deadline());
  }
  void refuse(Errc code, std::string words) {
    words.resize(std::min<std::size_t>(words.size(), wire::kMostWords));
    reply(Kind::error, static_cast<std::uint64_t>(code), 0, std::as_bytes(std::span(words)));
  }
  [[noreturn]] void refuse_request(const char* why) {
    whole_ = false;
    throw Error(Errc::invalid_argument, concat("a request that the memory server refuses: ", why));
  }

  std::vector<std::byte> small_payload() {
    std::vector<std::byte> payload(request_.payload_bytes);
    wire::receive_payload(fd_, request_, payload, deadline());
    return payload;
  }
  Place& place() {
    if (!place_) refuse_request("no hello came before it");
    return (*place_)->second;
  }
  Place& own_place() {
    Place& own = place();
    if (!owns_) refuse_request("no claim came before it");
    return own;
  }

  void answer() {
    whole_ = true;
    if (request_.kind != Kind::hello && request_.kind != Kind::put_all &&
        request_.payload_bytes > 0) {
      refuse_request("bytes that belong to nothing");
    }
    const bool has_key = request_.kind == Kind::hello || request_.kind == Kind::put ||
                         request_.kind == Kind::put_all || request_.kind == Kind::read ||
                         request_.kind == Kind::head || request_.kind == Kind::remove;
    if (has_key ? !wire::is_key(key_) : !key_.empty() && !wire::is_key(key_)) {
      refuse_request("no key, or one with other letters than printable ASCII");
    }
    switch (request_.kind) {
      case Kind::hello:
        return hello();
      case Kind::claim:
        return claim();
      case Kind::put:
        return put();
      case Kind::put_all:
        return put_all();
      case Kind::read:
        return read();
      case Kind::head:
        return head();
      case Kind::list:
        return list();
      case Kind::remove:
        server_.remove(own_place(), key_);
        return reply(Kind::ok);
      case Kind::ping:
        place();
        return reply(Kind::ok);
      default:
        refuse_request("of an unknown kind");
    }
  }

  void hello() {
    if (place_) refuse_request("a second hello");
    if (request_.payload_bytes < wire::kIdBytes ||
        request_.payload_bytes > wire::kIdBytes + wire::kMostWords) {
      refuse_request("a hello without who it is from");
    }
    const std::vector<std::byte> payload = small_payload();
    std::memcpy(client_.data(), payload.data(), client_.size());
    who_ = wire::printable(std::span(payload).subspan(client_.size()));
    place_ = server_.open_place(key_);
    reply(Kind::ok, static_cast<std::uint64_t>(server_.options_.silence.count()), 0,
          std::as_bytes(std::span(server_.id_)));
  }

  void claim() {
    Place& place = this->place();
    if (owns_) refuse_request("a second claim");
    const std::uint64_t number = server_.claim(place, client_, who_, request_.a);
    owns_ = true;
    reply(Kind::ok, number);
  }

  void put() {
    Place& place = own_place();
    const Head request = request_;
    const std::string key = key_;
    if (request.a == 0) refuse_request("no bytes");
    const std::shared_ptr<Object> object = server_.new_object(request.a);
    reply(Kind::ok);
    whole_ = false;
    const std::span<std::byte> bytes = object->bytes();
    for (std::uint64_t at = 0; at < bytes.size();) {
      const std::uint64_t part = std::min<std::uint64_t>(wire::kPart, bytes.size() - at);
      const Head head = wire::receive(fd_, key_, deadline());
      if (head.kind != Kind::part || head.sequence != request.sequence || head.a != at ||
          head.payload_bytes != part || !key_.empty()) {
        refuse_request("another part than the next one");
      }
      wire::receive_payload(fd_, head, bytes.subspan(at, part), deadline());
      at += part;
    }
    whole_ = true;
    server_.store(place, key, object, false);
    reply(Kind::ok);
  }

  void put_all() {
    Place& place = own_place();
    if (request_.payload_bytes > wire::kPart) refuse_request("too much at a time");
    const std::vector<std::byte> payload = small_payload();
    const std::shared_ptr<Object> object = server_.new_object(payload.size());
    if (!payload.empty()) std::memcpy(object->bytes().data(), payload.data(), payload.size());
    reply(Kind::ok, server_.store(place, key_, object, request_.a != 0) ? 1 : 0);
  }

  std::shared_ptr<const Object> found() {
    std::shared_ptr<const Object> object = server_.find(place(), key_);
    if (!object) throw Error(Errc::not_found, "the memory server has no such object");
    return object;
  }
  void read() {
    if (request_.b > wire::kMostPayload) refuse_request("too much at a time");
    const std::shared_ptr<const Object> object = found();
    const std::span<const std::byte> bytes = object->bytes();
    const std::uint64_t at = std::min<std::uint64_t>(request_.a, bytes.size());
    reply(Kind::data, 0, 0,
          bytes.subspan(at, std::min<std::uint64_t>(request_.b, bytes.size() - at)));
  }
  void head() {
    const std::shared_ptr<const Object> object = found();
    reply(Kind::ok, object->bytes().size(), object->modified_unix_ns);
  }

  void list() {
    const Place& place = this->place();
    std::vector<std::byte> entries;
    bool more = false;
    {
      const std::lock_guard lock(server_.mutex_);
      std::size_t listed = 0;
      for (auto each = place.objects.upper_bound(key_); each != place.objects.end(); ++each) {
        more = listed++ == kListed;
        if (more) break;
        const auto& [key, object] = *each;
        const wire::Entry entry{object->bytes().size(), object->modified_unix_ns,
                                static_cast<std::uint32_t>(key.size()), 0};
        const auto head = std::as_bytes(std::span(&entry, 1));
        const auto name = std::as_bytes(std::span(key));
        entries.insert(entries.end(), head.begin(), head.end());
        entries.insert(entries.end(), name.begin(), name.end());
      }
    }
    reply(Kind::data, more ? 1 : 0, 0, entries);
  }

  Impl& server_;
  const int fd_;
  Id client_{};
  std::string who_;
  std::optional<Places::iterator> place_;
  bool owns_ = false;
  Head request_;
  std::string key_;
  bool whole_ = true;  // everything of the request has come
};

// ---- What is kept -------------------------------------------------------------------------------

MemoryServer::Impl::Places::iterator MemoryServer::Impl::open_place(const std::string& name) {
  const std::lock_guard lock(mutex_);
  auto found = places_.find(name);
  if (found == places_.end()) {
    if (places_.size() >= wire::kMostNames) {
      throw Error(Errc::no_space, concat("the memory server has ", wire::kMostNames,
                                         " names, and no room for more"));
    }
    found = places_.emplace(name, Place{}).first;
  }
  ++found->second.open;
  return found;
}

void MemoryServer::Impl::close_place(Places::iterator place, bool owns) {
  const std::lock_guard lock(mutex_);
  Place& own = place->second;
  if (owns && --own.owned == 0) changed_.notify_all();
  if (--own.open == 0 && own.objects.empty()) places_.erase(place);
}

// Returns its number.
std::uint64_t MemoryServer::Impl::claim(Place& place, const Id& id, const std::string& who,
                                        std::uint64_t earlier) {
  std::unique_lock lock(mutex_);
  const auto is_free = [&] { return stops_ || place.owned == 0 || place.owner == id; };
  const bool free = changed_.wait_for(lock, wire::kPatience, is_free);
  if (stops_) throw Error(Errc::io, "the memory server ends");
  // Of a place that was left empty, and went, nobody has taken anything.
  if (earlier != 0 && place.owner && earlier != place.claim) {
    throw Error(Errc::in_use,
                concat("it was taken over by ", place.owner_words,
                       ", which found this process silent; nothing more is written there: close "
                       "this history"));
  }
  if (!free) {
    throw Error(
        Errc::in_use,
        concat("it is open for writing by ", place.owner_words,
               "; wait for its end (of one that stands still or whose node is gone: ",
               wire::words(options_.silence), " after its last word), or give another name"));
  }
  if (place.owner != id) {
    // A number that is never used again, by this server or by one after it.
    claims_ = std::max(claims_ + 1, history::now_ns());
    place.claim = claims_;
    place.owner = id;
    place.owner_words = who;
  }
  ++place.owned;
  return place.claim;
}

bool MemoryServer::Impl::store(Place& place, const std::string& key,
                               const std::shared_ptr<Object>& object, bool only_new) {
  object->modified_unix_ns = history::now_ns();
  std::shared_ptr<const Object> old;  // goes without the lock
  const std::lock_guard lock(mutex_);
  const auto found = place.objects.find(key);
  if (found == place.objects.end()) {
    if (objects_ >= wire::kMostObjects) {
      throw Error(Errc::no_space, concat("the memory server has ", wire::kMostObjects,
                                         " objects, and takes no more; keep fewer checkpoints"));
    }
    place.objects.emplace(key, object);
    ++objects_;
    return true;
  }
  if (only_new) return false;
  old = std::exchange(found->second, object);
  return true;
}

std::shared_ptr<const Object> MemoryServer::Impl::find(const Place& place, const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = place.objects.find(key);
  return found == place.objects.end() ? nullptr : found->second;
}

bool MemoryServer::Impl::remove(Place& place, const std::string& key) {
  std::shared_ptr<const Object> old;
  const std::lock_guard lock(mutex_);
  const auto found = place.objects.find(key);
  if (found == place.objects.end()) return false;
  old = std::move(found->second);
  place.objects.erase(found);
  --objects_;
  return true;
}

// ---- Connections --------------------------------------------------------------------------------

namespace {

MemoryServerOptions checked(const MemoryServerOptions& options) {
  const auto refuse = [](const char* why) {
    throw Error(Errc::invalid_argument, concat("MemoryServer: ", why));
  };
  if (options.bytes == 0 || options.bytes >> 62 != 0) {
    refuse("bytes is what it may take of memory: 1 to 2^62");
  }
  if (options.connections == 0 || options.connections > 65536) {
    refuse("connections: 1 to 65,536 at a time");
  }
  if (options.silence < std::chrono::milliseconds(100) ||
      options.silence > std::chrono::hours(24)) {
    refuse("silence: 100 ms to a day");
  }
  return options;
}

}  // namespace

MemoryServer::Impl::Impl(const MemoryServerOptions& options)
    : options_(checked(options)), memory_(std::make_shared<MemoryPieces>(options.bytes)) {
  core::random_bytes(id_.data(), id_.size());
  wire::Endpoint endpoint = wire::parse_endpoint(options.listen, "MemoryServer: listen");
  listener_ = wire::listen_at(endpoint);
  endpoint.port = std::to_string(wire::port_of(listener_.get()));
  address_ = "tcp://" + endpoint.text();
  stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!stop_) throw core::system_error(errno, "make", "an event");
  thread_ = std::thread([this] { run(); });
}

MemoryServer::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    for (const Connection& connection : connections_) {
      if (!connection.ended) ::shutdown(connection.fd.get(), SHUT_RDWR);
    }
  }
  changed_.notify_all();
  const std::uint64_t one = 1;
  while (::write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
  for (Connection& connection : connections_) connection.thread.join();
}

void MemoryServer::Impl::run() noexcept {
  for (;;) {
    pollfd waited[2] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(waited, 2, -1) < 0) continue;
    if (waited[1].revents != 0) return;
    join_ended();
    UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!peer) {  // gone again; or there is no descriptor left, which may pass
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) ::usleep(100'000);
      continue;
    }
    try {
      admit(std::move(peer));
    } catch (...) {  // no thread, or no memory: the other side sees an end
    }
  }
}

void MemoryServer::Impl::admit(UniqueFd peer) {
  const std::lock_guard lock(mutex_);
  if (stops_) return;
  if (connections_.size() >= options_.connections) {
    const std::string why = concat("the memory server has ", options_.connections,
                                   " connections, and takes no more at a time");
    Head head;
    head.kind = Kind::error;
    head.a = static_cast<std::uint64_t>(Errc::io);
    // The socket's buffer is empty and takes it at once.
    wire::send(peer.get(), head, {}, std::as_bytes(std::span(why)), Clock::now());
    ::shutdown(peer.get(), SHUT_WR);
    return;
  }
  Connection& connection = connections_.emplace_back();
  connection.fd = std::move(peer);
  try {
    connection.thread = std::thread([this, &connection] { serve(connection); });
  } catch (...) {
    connections_.pop_back();
    throw;
  }
}

void MemoryServer::Impl::serve(Connection& connection) noexcept {
  try {
    Session(*this, connection.fd.get()).run();
  } catch (...) {  // it has ended, or said what makes no sense, or there is no memory for it
  }
  const std::lock_guard lock(mutex_);
  connection.fd.reset();
  connection.ended = true;
}

void MemoryServer::Impl::join_ended() {
  std::list<Connection> ended;
  {
    const std::lock_guard lock(mutex_);
    for (auto each = connections_.begin(); each != connections_.end();) {
      const auto next = std::next(each);
      if (each->ended) ended.splice(ended.end(), connections_, each);
      each = next;
    }
  }
  for (Connection& connection : ended) connection.thread.join();
}

// ---- The interface ------------------------------------------------------------------------------

MemoryServer::MemoryServer(const MemoryServerOptions& options) try
    : impl_(std::make_unique<Impl>(options)) {
} catch (const std::exception&) {
  core::fail("MemoryServer()");
}
MemoryServer::~MemoryServer() {
  // A forked child has a copy without the threads, which cannot be joined: there it stays.
  if (impl_ && !impl_->maker_.is_this_process()) static_cast<void>(impl_.release());
}
MemoryServer::MemoryServer(MemoryServer&&) noexcept = default;
MemoryServer& MemoryServer::operator=(MemoryServer&& other) noexcept {
  MemoryServer old(std::move(other));
  std::swap(impl_, old.impl_);
  return *this;
}

const std::string& MemoryServer::address() const {
  if (!impl_) detail::throw_moved_from("memory server");
  return impl_->address_;
}
std::uint64_t MemoryServer::used_bytes() const {
  if (!impl_) detail::throw_moved_from("memory server");
  return impl_->memory_->used();
}
std::uint64_t MemoryServer::names() const {
  if (!impl_) detail::throw_moved_from("memory server");
  const std::lock_guard lock(impl_->mutex_);
  return static_cast<std::uint64_t>(
      std::count_if(impl_->places_.begin(), impl_->places_.end(),
                    [](const auto& place) { return !place.second.objects.empty(); }));
}

}  // namespace holdfast
