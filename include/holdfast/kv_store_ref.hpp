// The device side of a key-value store: lookups. See kv_store.hpp for the host side.
#pragma once

#include <cstdint>

#include "holdfast/config.hpp"

#if HOLDFAST_DEVICE_CODE
#include "holdfast/kernel.hpp"
#endif

namespace holdfast {

namespace detail {

class LogMapHost;

// How a store lays out its pairs. none: there is no store.
enum class KvLayout : std::uint32_t { none, buckets, index, fingerprints };

// A pair as a store holds it. Keys are inverted, so that zeroed memory holds no pair.
struct alignas(16) KvPair {
  std::uint64_t key;
  std::uint64_t value;
};

// What lookups need to know of a store.
struct KvView {
  KvLayout layout = KvLayout::none;
  const KvPair* pairs = nullptr;
  std::uint64_t mask = 0;                // buckets - 1; otherwise: slots - 1
  const std::uint32_t* where = nullptr;  // index: by slot, which record holds the pair
  // fingerprints: `pairs` are the records of the log.
  const std::uint64_t* words = nullptr;  // by slot
  const std::uint32_t* lives = nullptr;  // by segment of the log: how often it was made free
  std::uint32_t shift = 0;               // log2 of a segment's records
};

// Slots of an index. One of key 0 is empty, and ends a search. One of a key that was erased keeps
// it, with this value and the bit in `where`: a pair may have the value, too. One whose key is
// kKvGone can be used again; the pair whose inverted key this is has the slot behind all others.
inline constexpr std::uint64_t kKvGone = 1;
inline constexpr std::uint64_t kKvErased = 0xa5e7d1b3c94f6820ull;
inline constexpr std::uint32_t kKvErasedBit = 0x80000000u;

// Slots of fingerprints are one word each: a fingerprint of the key above the position of its
// record, with the bit of a tombstone. 0 is empty, and ends a search; this one can be used again.
// No record is at position 0.
inline constexpr std::uint64_t kKvGoneWord = kKvErasedBit;

}  // namespace detail

// A KvStore as kernels see it, for lookups; KvStore::ref() gives it. Trivially copyable, of any
// layout of a store. One that is made by default finds nothing.
//
// What a lookup answers depends on how it is ordered with the batches, set() and erase(), of its
// store. That is the same for find() and find_by_warp().
//
// Behind a batch (launched, on whichever stream, when its call has returned; or ordered behind it
// in KvStore::stream()): exactly the state that it left, which is committed. A batch that threw
// invalid_argument, unsupported or log_full left the state before it; behind one that threw
// anything else nothing is promised until the store is opened again.
//
// Beside batches (not ordered with them): each key by itself, so that of two keys of a batch, or of
// one that is asked for twice, one may be as before the batch and the other as after it:
// - a key that none of them sets, erases or evicts: exactly as it is;
// - a key that is there all along, and whose value they replace: found, with the value before a
//   batch or after it;
// - a key that one of them inserts, erases or evicts: found or not. A value that is found may be
//   none that the key ever had: what goes with a key is read in words of 8 bytes, each of which is
//   seen as before or after by itself. So such an answer is to be asked for again behind the batch.
//   BatchResult::evicted says whether a batch evicted any; one that it evicted and set again counts
//   as evicted, too.
// It rests on aligned words of 8 bytes being loaded and stored whole, which the store and its refs
// do by strong accesses of device scope; nothing more is relied on. What is seen beside a batch is
// not committed yet and may not be durable: a crash, or the batch's own failure, takes it back.
//
// kReservedKey is never found. Lookups write nothing and never wait; one that reads a record over
// the link (KvStore::Index::fingerprints) reads again if cleaning made room of it meanwhile.
//
// A ref is good as long as its store, wherever that is moved, is the last of its process to have
// been opened, and as the region is open. Batches, commits, and growing the region leave it good.
// Opening the store again does not, and the ref cannot know: what it finds may be of before the
// batches of the store that was opened since. REQUIRES: kernels that use it were waited for before
// its store object ends or the region is closed.
// Thread safety: any threads of any kernels, on any streams, launched by any threads of the host.
class KvStoreRef {
 public:
  // The one key that cannot be stored.
  static constexpr std::uint64_t kReservedKey = ~std::uint64_t{0};

  KvStoreRef() = default;

#if HOLDFAST_DEVICE_CODE
  // Whether `key` is there. If so, stores its value to *value, and else leaves that as it is.
  __device__ bool find(std::uint64_t key, std::uint64_t* value) const;

  // The same for the keys of a warp, which its threads look for together: a GPU reads fewer and
  // wider pieces of memory than by find() in each of them. (On the CPU backend find() is the faster
  // one.) REQUIRES: all 32 threads of a warp make the call together; one that looks for nothing
  // gives kReservedKey.
  __device__ bool find_by_warp(std::uint64_t key, std::uint64_t* value) const;
#endif

 private:
  friend class KvStore;
  friend class detail::LogMapHost;
  explicit KvStoreRef(const detail::KvView& view) : view_(view) {}

  detail::KvView view_;
};

}  // namespace holdfast

#if HOLDFAST_DEVICE_CODE
#include "holdfast/kv_store_ref.inl"
#endif
