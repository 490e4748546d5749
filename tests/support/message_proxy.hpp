// Stands between a memory server and its clients and passes on whole messages, of which it cuts,
// flips or holds up one; or does what a test says when it comes.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <list>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "history/memory_wire.hpp"

namespace holdfast::test {

class MessageProxy {
 public:
  enum class Mishap {
    none,
    cut_before,  // both connections end, and the message has not gone on
    cut_within,
    cut_behind,
    flip,  // a bit of it
    hold,  // neither this one nor another goes on
  };
  // `server`: the address of one, "tcp://...". The message that is `at`-th in the order in which
  // they come, from either side, over all connections, meets with the mishap.
  explicit MessageProxy(const std::string& server, Mishap mishap = Mishap::none,
                        std::uint64_t at = ~std::uint64_t{0}, std::uint64_t seed = 1)
      : server_(history::wire::parse_endpoint(server.substr(6), "a server")),
        mishap_(mishap),
        at_(at),
        random_(seed),
        listener_(history::wire::listen_at({"127.0.0.1", "0"})),
        acceptor_([this] { accept_all(); }) {}
  ~MessageProxy() {
    ends_ = true;
    ::shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    const std::lock_guard lock(mutex_);
    for (Pair& pair : pairs_) {
      cut(pair);
      for (std::thread& thread : pair.threads) thread.join();
    }
  }
  MessageProxy(const MessageProxy&) = delete;
  MessageProxy& operator=(const MessageProxy&) = delete;

  std::string address() const {
    return "tcp://127.0.0.1:" + std::to_string(history::wire::port_of(listener_.get()));
  }
  std::uint64_t messages() const { return count_; }
  bool struck() const { return count_ > at_; }
  // Called when the message has come, before anything else. Before the first connection.
  std::function<void()> on_message;

 private:
  struct Pair {
    core::UniqueFd client, server;
    std::thread threads[2];
  };

  void accept_all() {
    for (;;) {
      pollfd waited{listener_.get(), POLLIN, 0};
      ::poll(&waited, 1, 100);
      if (ends_) return;
      core::UniqueFd client(::accept(listener_.get(), nullptr, nullptr));
      if (!client) continue;
      try {
        auto server = history::wire::connect_to(
            server_, history::wire::Clock::now() + std::chrono::seconds(2));
        const std::lock_guard lock(mutex_);
        Pair& pair = pairs_.emplace_back();
        pair.client = std::move(client);
        pair.server = std::move(server);
        pair.threads[0] = std::thread([this, &pair] { pass(pair, pair.client, pair.server); });
        pair.threads[1] = std::thread([this, &pair] { pass(pair, pair.server, pair.client); });
      } catch (const Error&) {  // no server: the client sees an end
      }
    }
  }

  static void cut(Pair& pair) {
    ::shutdown(pair.client.get(), SHUT_RDWR);
    ::shutdown(pair.server.get(), SHUT_RDWR);
  }
  static bool read_all(int fd, std::byte* to, std::size_t bytes) {
    while (bytes > 0) {
      pollfd waited{fd, POLLIN, 0};
      ::poll(&waited, 1, -1);
      const ssize_t got = ::recv(fd, to, bytes, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
      if (got < 0) continue;
      to += got;
      bytes -= static_cast<std::size_t>(got);
    }
    return true;
  }
  static bool write_all(int fd, const std::byte* from, std::size_t bytes) {
    while (bytes > 0) {
      pollfd waited{fd, POLLOUT, 0};
      ::poll(&waited, 1, -1);
      const ssize_t sent = ::send(fd, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
      if (sent < 0) continue;
      from += sent;
      bytes -= static_cast<std::size_t>(sent);
    }
    return true;
  }

  void pass(Pair& pair, const core::UniqueFd& from, const core::UniqueFd& to) {
    std::vector<std::byte> message;
    for (;;) {
      history::wire::Head head;
      message.resize(sizeof head);
      if (!read_all(from.get(), message.data(), sizeof head)) break;
      std::memcpy(&head, message.data(), sizeof head);
      message.resize(sizeof head + head.key_bytes + head.payload_bytes);
      if (!read_all(from.get(), message.data() + sizeof head, message.size() - sizeof head)) break;
      const std::uint64_t number = count_++;
      const Mishap now = number == at_ ? mishap_ : Mishap::none;
      if (number == at_ && on_message) on_message();
      if (now == Mishap::hold) held_ = true;
      while (held_ && !ends_) ::usleep(5000);
      if (now == Mishap::cut_before) break;
      if (now == Mishap::cut_within) {
        write_all(to.get(), message.data(), 1 + pick(message.size() - 1));
        break;
      }
      if (now == Mishap::flip) message[pick(message.size())] ^= std::byte(1u << pick(8));
      if (!write_all(to.get(), message.data(), message.size()) || now == Mishap::cut_behind) break;
    }
    cut(pair);
  }
  std::size_t pick(std::size_t below) {
    const std::lock_guard lock(mutex_);
    return random_() % std::max<std::size_t>(below, 1);
  }

  const history::wire::Endpoint server_;
  const Mishap mishap_;
  const std::uint64_t at_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::atomic<std::uint64_t> count_ = 0;
  std::atomic<bool> ends_ = false, held_ = false;
  const core::UniqueFd listener_;
  std::list<Pair> pairs_;
  std::thread acceptor_;
};

}  // namespace holdfast::test
