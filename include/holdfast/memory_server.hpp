// Memory of another node for histories: a server that keeps checkpoints in the memory of its
// process, and `HistoryOptions::remote = "tcp://HOST:PORT/NAME"`, which keeps them there. So a node
// that is lost has its checkpoints in the memory of a partner. docs/history.md, "Partner copies".
//
// MPI is not used for it: a rank that is lost ends an MPI job, and with it whatever would have the
// copies. For the same reason the server is best a process of its own (`holdfast history partner`).
//
// Trust: none is asked of who connects, and nothing is encrypted. Whoever reaches the port can read
// and replace what is there, so bind it to a network of the job's own; the default is 127.0.0.1.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "holdfast/object_store.hpp"

namespace holdfast {

struct MemoryServerOptions {
  std::uint64_t bytes = 0;  // of memory for all that is kept; taken as it is needed
  // HOST:PORT, an address of this machine; [HOST]:PORT of IPv6. Port 0: one that is free.
  std::string listen = "127.0.0.1:0";
  std::uint32_t connections = 256;  // at a time; a history has up to 8
  // A connection that says nothing for so long is closed: its process stands still, or its node is
  // gone. 100 ms at least.
  std::chrono::milliseconds silence{15'000};
};

// Serves from its making to its end, on threads of its own; what it has kept ends with it. A forked
// child has a copy that serves nothing, and keeps the port taken. Thread safety: any number of
// threads.
class MemoryServer {
 public:
  // Throws invalid_argument (no bytes; what is no address), in_use (of the port), permission, io.
  explicit MemoryServer(const MemoryServerOptions& options);
  ~MemoryServer();
  MemoryServer(MemoryServer&&) noexcept;
  MemoryServer& operator=(MemoryServer&&) noexcept;

  // "tcp://127.0.0.1:41234": a history puts "/NAME" behind it.
  const std::string& address() const;
  std::uint64_t used_bytes() const;  // by what is kept, and by what is on its way
  std::uint64_t names() const;       // under which something is kept

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct MemoryStoreOptions {
  std::chrono::milliseconds connecting{5'000};
  // That the server may be silent, or take for a piece of a MiB, before it is given up.
  std::chrono::milliseconds silence{10'000};
};

// What a server keeps under a name, as an object store. Connects when it is asked for something.
// For so long as `connecting` after an attempt that failed, or a server that was silent, every call
// fails at once. Throws invalid_argument: what is no such address.
std::shared_ptr<ObjectStore> memory_store(const std::string& url,
                                          const MemoryStoreOptions& options = {});
// Whether a remote tier's place is one of these: it begins with "tcp://".
bool is_memory_url(const std::string& place) noexcept;

}  // namespace holdfast
