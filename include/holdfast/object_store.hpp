// An object store, as the remote tier of a history wants it: HistoryOptions::remote_store. Derive
// from it over whatever library speaks the store's protocol. Python has one over obstore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "holdfast/error.hpp"

namespace holdfast {

struct StoredObject {
  std::string key;
  std::uint64_t bytes = 0;
  std::uint64_t modified_unix_ns = 0;  // by the store's clock
};

// Objects under one prefix, which is this history's own; keys are relative to it, and have no
// slashes.
//
// Every function may block, for as long as its own time limits say, and throws Error: permission
// (credentials), io (the network, the server, a limit of time), not_found (the bucket; of read(),
// the object). Messages name what the store said; the history adds the key. Thread safety: all
// functions from any number of threads; the threads are the history's own.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // Fills `part` with the next bytes of an object. What it throws ends the upload.
  using Source = std::function<void(std::span<std::byte> part)>;

  // Makes an object of `bytes` bytes, in place of one that has the key. *It is there once it is
  // whole*, by a request that is atomic, such as the one that completes an upload in parts: that is
  // the commit point of a checkpoint. Asks `source` for all bytes in their order, in parts of any
  // size, on one thread at a time; memory should be bounded by a few parts. After a throw, also of
  // `source`, there is nothing, and parts that were uploaded are given back, as far as the store
  // can be reached.
  virtual void put(const std::string& key, std::uint64_t bytes, const Source& source) = 0;
  // Makes a small object unless one has the key: then false, and nothing happens. Throws
  // unsupported where the store cannot tell in one step.
  virtual bool put_new(const std::string& key, std::span<const std::byte> bytes) = 0;
  // Bytes of an object from `offset` on. Returns how many there were, fewer only at its end.
  virtual std::size_t read(const std::string& key, std::uint64_t offset,
                           std::span<std::byte> into) = 0;
  // Nothing if there is no such object.
  virtual std::optional<StoredObject> head(const std::string& key) = 0;
  virtual std::vector<StoredObject> list() = 0;
  // No such object: nothing happens.
  virtual void remove(const std::string& key) = 0;
  // Keeps all others from writing here for as long as what it returns lives; put(), put_new() and
  // remove() throw in_use should another have taken over all the same. Throws in_use where another
  // writes. Null: the store cannot, and the history keeps an object `history.lock` there for it.
  virtual std::shared_ptr<void> claim() { return nullptr; }
  // Everything that was there is known to be gone for good, as with a process that had it in its
  // memory, or another writes here now: nothing is counted on any longer. Writing throws until
  // claim() is called again, behind the end of what it had returned: that begins anew, and with an
  // empty place; or it throws in_use.
  virtual bool is_lost() const { return false; }
  // Finds out whether what was there is, by asking, where that is not certain; is_lost() knows
  // then. Throws what keeps it from knowing.
  virtual void confirm() {}
  // Where this is, such as "s3://bucket/prefix", for messages.
  virtual const std::string& path() const = 0;
};

}  // namespace holdfast
