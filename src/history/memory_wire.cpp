#include "history/memory_wire.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "core/checksum.hpp"

namespace holdfast::history::wire {

using core::UniqueFd;
using detail::concat;

namespace {

constexpr std::size_t kHashed = offsetof(Head, hash);

std::uint64_t hash_of(std::span<const std::byte> bytes) {
  return core::hash_bytes(bytes.data(), bytes.size());
}

[[noreturn]] void throw_silent() {
  throw Broken(Broken::Why::silent, "the other side was silent for too long");
}
[[noreturn]] void throw_ended() {
  throw Broken(Broken::Why::ended, "the other side has ended the connection");
}
[[noreturn]] void throw_senseless(const char* what) {
  throw Broken(Broken::Why::senseless,
               concat("what came over the connection makes no sense: ", what));
}

// After a failed send or recv: waits until it is to be tried again.
void wait_to_go_on(int fd, short events, Deadline deadline) {
  if (errno == EINTR) return;
  if (errno != EAGAIN && errno != EWOULDBLOCK) throw_ended();
  if (!wait_for(fd, events, deadline)) throw_silent();
}

void receive_all(int fd, std::span<std::byte> into, Deadline deadline) {
  while (!into.empty()) {
    const ssize_t got = ::recv(fd, into.data(), into.size(), MSG_DONTWAIT);
    if (got == 0) throw_ended();
    if (got > 0) {
      into = into.subspan(static_cast<std::size_t>(got));
      // A byte now and then is no message, either.
      if (!into.empty() && Clock::now() >= deadline) throw_silent();
    } else {
      wait_to_go_on(fd, POLLIN, deadline);
    }
  }
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses look_up(const Endpoint& endpoint, bool listens) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(endpoint.host.c_str(), endpoint.port.c_str(), &wanted, &list);
  if (error == 0) return Addresses(list);
  const std::string why = error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error);
  throw Error(Errc::io, concat("no address of the host '", endpoint.host, "' is known: ", why,
                               "; check its name"));
}

UniqueFd socket_for(const addrinfo& address) {
  UniqueFd fd(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                       address.ai_protocol));
  if (!fd) throw core::system_error(errno, "make", "a socket");
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

// A connection to a port that nobody listens at, and that the system gave this side for its own.
bool is_connected_to_itself(int fd) {
  sockaddr_storage own{}, other{};
  socklen_t size = sizeof own, other_size = sizeof other;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_size) == 0 &&
         size == other_size && std::memcmp(&own, &other, size) == 0;
}

// 0, or the errno.
int connect_socket(int fd, const addrinfo& address, Deadline deadline) {
  if (::connect(fd, address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (!wait_for(fd, POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  return is_connected_to_itself(fd) ? ECONNREFUSED : 0;
}

}  // namespace

std::string words(std::chrono::milliseconds time) {
  if (time.count() % 1000 == 0) return concat(time.count() / 1000, " s");
  return concat(time.count(), " ms");
}

bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd entry{fd, events, 0};
    const auto ms = std::clamp<long long>(left.count(), 0, 1'000'000);
    if (::poll(&entry, 1, static_cast<int>(ms)) > 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

void send(int fd, Head head, const std::string& key, std::span<const std::byte> payload,
          Deadline deadline) {
  head.key_bytes = static_cast<std::uint32_t>(key.size());
  head.payload_bytes = static_cast<std::uint32_t>(payload.size());
  head.key_hash = hash_of(std::as_bytes(std::span(key)));
  head.payload_hash = hash_of(payload);
  head.hash = core::hash_bytes(&head, kHashed);
  iovec parts[3] = {{&head, sizeof head},
                    {const_cast<char*>(key.data()), key.size()},
                    {const_cast<std::byte*>(payload.data()), payload.size()}};
  std::span<iovec> left(parts);
  while (!left.empty()) {
    msghdr message{};
    message.msg_iov = left.data();
    message.msg_iovlen = left.size();
    const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      left = core::skip_bytes(left, static_cast<std::size_t>(sent));
      if (!left.empty() && Clock::now() >= deadline) throw_silent();
    } else {
      wait_to_go_on(fd, POLLOUT, deadline);
    }
  }
}

Head receive(int fd, std::string& key, Deadline deadline) {
  Head head;
  receive_all(fd, std::as_writable_bytes(std::span(&head, 1)), deadline);
  if (std::memcmp(head.magic, Head{}.magic, sizeof head.magic) != 0) throw_senseless("no magic");
  if (head.hash != core::hash_bytes(&head, kHashed)) throw_senseless("a head's checksum");
  if (head.version != kVersion) {
    throw Broken(Broken::Why::senseless,
                 concat("the other side speaks version ", head.version, ", and this one ", kVersion,
                        ": run the same release on both"));
  }
  if (head.key_bytes > kMostKey || head.payload_bytes > kMostPayload) throw_senseless("its size");
  key.resize(head.key_bytes);
  const auto bytes = std::as_writable_bytes(std::span(key.data(), key.size()));
  receive_all(fd, bytes, deadline);
  if (head.key_hash != hash_of(bytes)) throw_senseless("a key's checksum");
  return head;
}

void receive_payload(int fd, const Head& head, std::span<std::byte> into, Deadline deadline) {
  receive_all(fd, into, deadline);
  if (head.payload_hash != hash_of(into)) throw_senseless("a checksum of bytes");
}

std::string printable(std::span<const std::byte> text) {
  std::string result;
  for (const std::byte byte : text.first(std::min<std::size_t>(text.size(), kMostWords))) {
    const auto letter = static_cast<char>(byte);
    result += letter >= ' ' && letter <= '~' ? letter : '?';
  }
  return result;
}

bool is_key(const std::string& text) {
  const auto fits = [](char letter) { return letter > ' ' && letter <= '~'; };
  return !text.empty() && text.size() <= kMostKey && std::all_of(text.begin(), text.end(), fits);
}

std::string Endpoint::text() const {
  const bool colons = host.find(':') != host.npos;
  return concat(colons ? "[" : "", host, colons ? "]" : "", ":", port);
}

Endpoint parse_endpoint(const std::string& text, const char* what) {
  const std::size_t colon = text.rfind(':');
  Endpoint endpoint;
  if (colon != text.npos) endpoint = {text.substr(0, colon), text.substr(colon + 1)};
  std::string& host = endpoint.host;
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  const auto is_digit = [](char letter) { return letter >= '0' && letter <= '9'; };
  const bool is_port = !endpoint.port.empty() && endpoint.port.size() <= 5 &&
                       std::all_of(endpoint.port.begin(), endpoint.port.end(), is_digit) &&
                       std::stoul(endpoint.port) <= 65535;
  if (is_key(host) && is_port && brackets == (host.find(':') != host.npos)) return endpoint;
  throw Error(Errc::invalid_argument,
              concat(what, " '", printable(std::as_bytes(std::span(text))),
                     "': give HOST:PORT, or [HOST]:PORT of IPv6, with a port up to 65535"));
}

UniqueFd listen_at(const Endpoint& endpoint) {
  const Addresses list = look_up(endpoint, true);
  UniqueFd fd = socket_for(*list);
  const int on = 1;  // a port is free again as soon as its server has ended
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), list->ai_addr, list->ai_addrlen) != 0 || ::listen(fd.get(), 64) != 0) {
    const int error = errno;
    if (error != EADDRINUSE && error != EADDRNOTAVAIL) {
      throw core::system_error(error, "listen at", endpoint.text());
    }
    const bool taken = error == EADDRINUSE;
    throw Error(taken ? Errc::in_use : Errc::io,
                concat("cannot listen at ", endpoint.text(), ": ",
                       taken ? "another process does; name another port, or 0 for one that is free"
                             : "that is no address of this machine"));
  }
  return fd;
}

UniqueFd connect_to(const Endpoint& endpoint, Deadline deadline) {
  const Addresses list = look_up(endpoint, false);
  int error = 0;
  for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
    UniqueFd fd = socket_for(*address);
    error = connect_socket(fd.get(), *address, deadline);
    if (error == 0) return fd;
  }
  throw Error(Errc::io, concat("cannot connect to ", endpoint.text(), ": ", std::strerror(error)));
}

std::uint16_t port_of(int listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  const bool is_6 = address.ss_family == AF_INET6;
  return ntohs(is_6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                    : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace holdfast::history::wire
