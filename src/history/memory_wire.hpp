// What a memory server (memory_server.cpp) and its clients (memory_store.cpp) say to each other
// over TCP.
//
// A message is a head of 64 bytes, a key and a payload; numbers are little-endian. The head has a
// checksum (XXH3) of its own, and one each of key and payload: both sides check all three, and who
// finds one that does not hold ends the connection. A client asks, the server answers, one request
// at a time; an answer has the number of its question.
//
//   hello   key: the name of the place; payload: 16 bytes that are this client's alone, and who it
//           is, in words -> ok: `a` ms of silence that the server suffers; payload: 16 bytes that
//           are this server's alone. Comes first.
//   claim   `a`: the number of an earlier claim, or 0 -> ok: `a` its number; error in_use
//   put     `a`: bytes -> ok: there is room; then `part` after `part`, in order, `a` its offset,
//           unanswered -> ok once all bytes are there
//   put_all `a`: 1, unless there is one; payload: the object -> ok: `a` whether it was made
//   read    `a` offset, `b` bytes, at most kMostPayload -> data, shorter only at the object's end
//   head    -> ok: `a` bytes, `b` when it was made, ns since 1970; error not_found
//   list    key: the last one that is known, or none -> data: entries; `a`: 1 if there are more
//   remove  -> ok, also where there is none
//   ping    -> ok
//   error   `a`: an Errc; payload: what is wrong, in words
//
// Invariants
// - An object is there whole or not at all: it gets its key when its last byte has come and every
//   checksum has held. A connection that ends before leaves nothing; what was answered with ok
//   stays until it is removed or replaced, or the server ends.
// - One client at a time may write to a name: who has claimed it, while it has a connection. A
//   newcomer has the claim once no connection of the owner's is left: a process that ends closes
//   them, and of one that stands still, or whose node is gone, the server closes them when it has
//   been silent for so long as hello said. Who was taken over from is refused for good.
// - Nobody waits for ever. Each side ends a connection on which a message has not begun, or ended,
//   within its limit of silence; who writes to a name pings while it has nothing to say.
// - A server that was started again is known by its 16 bytes, and is not taken for the one before.
// - No number that comes over the wire is believed: keys, payloads, objects, names, connections
//   and bytes in all have limits, which are checked before memory is taken.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/files.hpp"

namespace holdfast::history::wire {

inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::uint32_t kMostKey = 255;  // printable ASCII, without blanks
inline constexpr std::uint32_t kMostPayload = 4u << 20;
inline constexpr std::uint32_t kPart = 1u << 20;  // every part but the last has these bytes
inline constexpr std::uint32_t kMostWords = 512;  // of an error, or of who somebody is
inline constexpr std::uint32_t kIdBytes = 16;
inline constexpr std::size_t kMostNames = 4096, kMostObjects = std::size_t{1} << 17;  // of a server

// For which a claim waits for the end of connections of an owner who was killed just now.
inline constexpr std::chrono::milliseconds kPatience{2'000};

using Id = std::array<std::uint8_t, kIdBytes>;

enum class Kind : std::uint16_t {
  hello = 1,
  claim,
  put,
  part,
  put_all,
  read,
  head,
  list,
  remove,
  ping,
  ok = 100,
  data,
  error,
};

struct Head {
  char magic[4] = {'H', 'F', 'M', 'S'};
  std::uint16_t version = kVersion;
  Kind kind{};
  std::uint64_t sequence = 0;  // of an error that is of the connection: 0
  std::uint32_t key_bytes = 0, payload_bytes = 0;
  std::uint64_t a = 0, b = 0;
  std::uint64_t key_hash = 0, payload_hash = 0;
  std::uint64_t hash = 0;  // of the bytes before
};
static_assert(sizeof(Head) == 64);

// A key's entry in a list: these, and the key.
struct Entry {
  std::uint64_t bytes, modified_unix_ns;
  std::uint32_t key_bytes, reserved;
};
static_assert(sizeof(Entry) == 24);

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
std::string words(std::chrono::milliseconds time);

// The other side has ended the connection, been silent, or said what makes no sense.
class Broken : public Error {
 public:
  enum class Why { ended, silent, senseless };
  Broken(Why why, const std::string& message) : Error(Errc::io, message), why_(why) {}
  Why why() const { return why_; }

 private:
  Why why_;
};

// Both throw Broken, and io. One that threw has left the connection of no use.
void send(int fd, Head head, const std::string& key, std::span<const std::byte> payload,
          Deadline deadline);
// The head, checked, and the key; `key_bytes` and `payload_bytes` are within their limits.
Head receive(int fd, std::string& key, Deadline deadline);
// Its payload. REQUIRES: `into` has head.payload_bytes.
void receive_payload(int fd, const Head& head, std::span<std::byte> into, Deadline deadline);

// Fit to be printed: other bytes become '?'.
std::string printable(std::span<const std::byte> text);
bool is_key(const std::string& text);

// Throws invalid_argument, with `what`: the address is not HOST:PORT.
struct Endpoint {
  std::string host, port;
  std::string text() const;
};
Endpoint parse_endpoint(const std::string& text, const char* what);
// Both throw io and invalid_argument (an unknown host); of one that listens in_use and permission.
core::UniqueFd listen_at(const Endpoint& endpoint);
core::UniqueFd connect_to(const Endpoint& endpoint, Deadline deadline);
std::uint16_t port_of(int listener);

// False behind the deadline.
bool wait_for(int fd, short events, Deadline deadline);

}  // namespace holdfast::history::wire
