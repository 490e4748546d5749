// A hash map that lives in a region: keys of 4 to 128 bytes, values of one size from 4 bytes to
// 4 KiB, updated in place by kernels, without locks and without a log. In batches from the host, or
// by kernels as they go (hash_map_ref.hpp).
//
// Source: GPHash (FAST '25). docs/map.md says how it is made and how to choose a configuration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "holdfast/config.hpp"
#include "holdfast/hash_map_ref.hpp"
#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"
#include "holdfast/transaction.hpp"

namespace holdfast {

// What a pair's score is, by which insert_and_evict() chooses what goes: pairs of the least score
// do. Scores are volatile, 8 bytes of device memory for each slot: all pairs have 0 when a map is
// opened, and so has a pair that kernels with refs inserted. An access is a lookup by find(), or an
// operation of an update batch that counts and leaves its key with a value (of apply(): each that
// is inserted, assigned or kept); those of kernels with refs, and of batches beside them, are none.
enum class MapScores {
  none,    // there are none
  lru,     // the number of the batch of the last access
  lfu,     // accesses since the map was opened; insert_and_evict() may be given how many
  custom,  // what insert_and_evict() was given with the key; 0 for a pair that others inserted
};

struct MapOptions {
  // How the operations of a batch are laid out over the table. Answers are the same.
  enum class Order {
    automatic,  // ordered where it pays (docs/map.md)
    unordered,
    ordered,  // by their places in the table
  };
  // Whether a directory stands in device memory: a copy of keys and slots, where batches look
  // first, so that only values and what changes cross the link.
  enum class Directory {
    automatic,  // where the table is across the link, and that leaves an eighth of device memory
    off,
    on,  // Errc::no_memory where there is no room for it
  };

  std::uint64_t capacity = 0;     // slots at least; the load factor is of them
  std::uint32_t value_bytes = 8;  // a multiple of 4, from 4 to 4,096
  // Operations of a batch at most; 1 to 2^24. Each takes about 60 bytes of device memory, and a
  // value's where kernels cannot read values where they are.
  std::uint32_t max_batch = 1u << 20;
  // Values above 8 bytes: places for them. 0: one for each slot, and max_batch more, so that a
  // batch that assigns always has room. Kernels with a ref take one for each value that they set,
  // until quiesce().
  std::uint64_t value_places = 0;
  Directory directory = Directory::automatic;
  MapCache cache = {};  // of values above 8 bytes; takes a directory, which it turns on
  // Operations of batches that the record of changes keeps, for export_changes(); 0: there is none.
  // Each takes a key's bytes in the region, beside those of max_batch more. The name of a map that
  // has one has 40 bytes at most.
  std::uint64_t changes = 0;
  MapScores scores = MapScores::none;  // for insert_and_evict()
};

// How a map is opened. What is 0 is as the map has it.
struct MapOpenOptions {
  std::uint32_t value_bytes = 0;  // what the caller takes values for
  std::uint32_t max_batch = 0;
  MapOptions::Directory directory = MapOptions::Directory::automatic;
  MapCache cache = {};  // is empty at first
  MapScores scores = MapScores::none;
};

// What an operation of a mixed batch is (HashMap::apply()): as the batches of that name.
enum class MapOp : std::uint8_t {
  insert = 1,
  insert_or_assign = 2,
  assign = 3,
  find_or_insert = 4,
  erase = 5,
  find = 6,
};

// What a batch did: how many of its operations had which MapStatus.
struct MapResult {
  std::uint64_t inserted = 0;
  std::uint64_t assigned = 0;
  std::uint64_t kept = 0;
  std::uint64_t erased = 0;
  std::uint64_t absent = 0;
  std::uint64_t superseded = 0;
  std::uint64_t full = 0;
  std::uint64_t no_value = 0;

  std::uint64_t not_done() const { return full + no_value; }
};

// What insert_and_evict() did.
struct MapEviction {
  MapResult result;
  std::uint64_t evicted = 0;  // pairs that were in the map, and are not any more
  // Pairs in the arrays: those, and of the batch those that are not in the map.
  std::uint64_t count() const { return evicted + result.not_done(); }
};

struct MapStats {
  std::uint64_t size = 0;      // pairs
  std::uint64_t capacity = 0;  // slots
  std::uint64_t table_bytes = 0;
  std::uint32_t value_bytes = 0;
  std::uint64_t value_places = 0;  // 0: values are in slots
  std::uint64_t free_places = 0;   // of these
  std::uint64_t max_batch = 0;
  bool directory = false;          // there is one
  bool refs_out = false;           // ref() was called since the last quiesce()
  std::uint64_t left_to_move = 0;  // buckets that migrate() has to empty yet; 0: it does not grow
  MapCacheStats cache = {};
};

// What opening found, and put in order.
struct MapRecovery {
  std::uint64_t pairs = 0;
  std::uint64_t cleared = 0;     // slots whose insertion was cut off
  std::uint64_t erased = 0;      // slots of keys that were erased, and had not come free yet
  std::uint64_t duplicates = 0;  // slots of a key that a preferred slot has, too
  bool needed() const { return cleared + erased + duplicates != 0; }
};

// Milliseconds of the parts of the last batch.
struct MapTiming {
  double prepare = 0;  // operations into reach of kernels; which are the last of their keys; order
  double apply = 0;    // table and values
  double report = 0;   // statuses and counts back
};

// A moment of a map with a record of changes (MapOptions::changes). It says nothing to any other
// map, nor to one that was set back to before it, which refuse it.
struct MapVersion {
  std::uint64_t opening = 0;  // of the map; drawn at random
  std::uint64_t number = 0;   // operations recorded before it
  // Who is at it may have values of operations up to here; of version() it is the number. A map
  // that was set back to before that refuses it, too.
  std::uint64_t seen = 0;
  friend bool operator==(const MapVersion&, const MapVersion&) = default;
};

// What export_changes() has left in the arrays that it was given.
struct MapChanges {
  MapVersion from;
  MapVersion to;
  std::uint64_t upserts = 0;     // pairs
  std::uint64_t tombstones = 0;  // keys that are not there
};

namespace detail {

struct MapKernels;
class MapHost;
enum class MapOperation : std::uint32_t { insert, insert_or_assign, assign, find_or_insert, erase };

// Where insert_and_evict() leaves what goes; of as many elements as the batch has operations.
struct MapWent {
  void* keys;
  void* values;
  std::uint64_t* scores;  // null: nobody asks
};

// What of a map its type says.
struct MapTypes {
  std::uint32_t key_bytes;
  std::uint32_t levels;
  std::uint32_t hashes;
  std::uint32_t ways;
  std::uint64_t hash_id;
  const MapKernels* kernels;
};

// What an initialiser gets: keys, and room for values, in device memory.
struct MapInit {
  const void* keys;
  std::byte* values;
};

// As MapKernels::collect; empty: that.
using MapCollect =
    std::function<void(Stream&, const MapView&, std::uint64_t first, std::uint64_t slots,
                       void* keys, std::byte* values, unsigned long long* pairs)>;

template <class Key, class Config>
struct MapLaunch;
#if HOLDFAST_DEVICE_CODE
template <class Key, class Init>
__global__ void map_init_kernel(const Key* keys, std::byte* values, std::uint32_t value_bytes,
                                std::uint32_t count, Init init);
#endif

// A map of any types; HashMap is what to use.
class MapBase {
 public:
  MapStats stats() const;
  std::uint64_t size() const { return stats().size; }
  // Slots. Of the level that a growth empties they count until it ends, though no new key goes
  // there.
  std::uint64_t capacity() const;
  double load_factor() const;
  std::uint32_t value_bytes() const;
  const MapRecovery& recovery() const;  // of open()
  MapTiming timing() const;
  void set_order(MapOptions::Order order);  // of batches from here on

  // Ends the refs that were given out: what kernels erased or replaced comes free. REQUIRES: the
  // kernels that use them were waited for; no later kernel uses them. Reads the table once.
  void quiesce();

  // Resizing (docs/map.md, "Resizing"). A table doubles: a level is added on top, and the pairs of
  // the lowest one move there. Everything else goes on meanwhile, but while a ref is out nothing
  // moves: these throw invalid_argument then.
  //
  // Makes the level, and as many places of values as there are; enlarges the region where it has
  // no room (Region::grow(), up to its max_size). A growth that is under way is ended first. Throws
  // with nothing changed no_space (the message has the bytes), no_shared_memory, no_memory (a
  // directory that is `on`, or places), already_exists (the program has an object of the name that
  // the level or the places get; the message names it), invalid_argument (too large), unsupported
  // (a map that was made before maps could grow).
  void grow();
  // Moves the pairs of so many buckets of the lowest level, and waits; its time is that of so many
  // buckets. Returns whether the growth goes on. A crash loses nothing, and the next opening
  // goes on with what is left.
  bool migrate(std::uint64_t buckets);
  // Grows, at once and to the end, until there are so many slots. Throws as grow(). What is known
  // not to fit before the first growth begins (more slots than a table can have, or more bytes than
  // the region's max_size, or than there is shared memory for) throws with nothing changed; what
  // only turns out later, behind the last growth that had room.
  void reserve(std::uint64_t capacity);

  // Begins to load the cache, beside what batches do, and returns; nothing if a load is under way.
  // Its values serve from a batch on that finds it done. REQUIRES: the map ends, or await_cache()
  // has returned, before the region is closed. Throws invalid_argument if there is no cache.
  void load_cache();
  // Waits for the load that is under way: it serves the next batch.
  void await_cache();

  // Changes (docs/map.md, "Changes"), of a map that was made with MapOptions::changes; of any other
  // these, export_changes() and apply_changes() throw unsupported.
  //
  // Where the record ends now. Throws invalid_argument while a ref is out: kernels with refs record
  // nothing, so that no version from before ref() is any good behind it.
  MapVersion version() const;
  // Says, durably, that this map has what another one had at that version, and followed() gives it
  // again. Not needed behind apply_changes(), but behind a whole export that was inserted here:
  // version() of the other map, taken before the export began, with the number of another one that
  // was taken behind it as `seen`. Both have to be of one opening; if not, a whole export begins
  // again. With {} it follows none, which it has to before it is emptied for a whole export.
  void follow(const MapVersion& version);
  MapVersion followed() const;  // {}: nothing yet

  // Empty if the table, the values' places, the directory and the cache are as they should be, read
  // by the host alone; otherwise what is wrong. REQUIRES: no kernel with a ref runs.
  std::string verify() const;

  // In which batches run. Good also of a map that another has ended.
  Stream& stream() const;

 protected:
  explicit MapBase(std::shared_ptr<MapHost> host);
  static std::shared_ptr<MapHost> create(Region& region, std::string_view name,
                                         const MapTypes& types, const MapOptions& options,
                                         std::uint64_t empty_key, std::uint64_t empty_value);
  static std::shared_ptr<MapHost> open(Region& region, std::string_view name, const MapTypes& types,
                                       const MapOpenOptions& options);
  static std::uint64_t region_bytes(const MapTypes& types, const MapOptions& options);
  // Whether there is one, damaged or not, or another durable object; what a creation that was cut
  // off has left is none.
  static bool is_there(Region& region, std::string_view name);
  static void remove(Region& region, std::string_view name);
  // What it was made with as MapOptions::changes. Throws damaged, and as Durable::open().
  static std::uint64_t recorded(Region& region, std::string_view name);

  using Operation = MapOperation;
  MapResult update(Operation operation, const void* keys, const void* values, void* out,
                   std::size_t count, MapStatus* status);
  void find(const void* keys, void* values, std::uint8_t* found, std::size_t count) const;
  void find_async(Stream& by, const void* keys, void* values, std::uint8_t* found,
                  std::size_t count) const;
  MapResult apply(const MapOp* operations, const void* keys, const void* values, void* out,
                  std::size_t count, MapStatus* status);
  MapResult accumulate(const void* keys, const void* deltas, MapElement element, std::size_t count,
                       MapStatus* status);
  MapEviction insert_and_evict(const void* keys, const void* values, const std::uint64_t* scores,
                               std::size_t count, const MapWent& went, MapStatus* status);
  void scores(const void* keys, std::uint64_t* scores, std::uint8_t* found,
              std::size_t count) const;
  MapInit stage(const void* keys, std::size_t count);
  MapChanges export_changes(const MapVersion& since, std::uint64_t most, void* keys, void* values,
                            void* erased) const;
  MapResult apply_changes(const MapChanges& of, const void* keys, const void* values,
                          const void* erased);
  std::uint64_t export_batch(std::uint64_t first, std::uint64_t slots, void* keys, void* values,
                             const MapCollect& collect = {}) const;
  MapView give_ref();

 private:
  Shared<MapHost> host_;
};

// Defined where kernels are compiled; those of the shapes in "Instances" below, by the library.
template <class Key, class Config>
const MapKernels& map_kernels();

}  // namespace detail

// A map from Key to values of value_bytes() bytes: the durable object `name` of its region, of
// which there may be others. Key is an unsigned integer of 4 or 8 bytes, or plain bytes: a
// trivially copyable class whose equal values have equal bytes (no padding, no floating point), of
// 16 to 128 bytes, a multiple of 8, and aligned to 8, such as Bytes<32>. All pointers may be to
// host memory, to device memory or into a region; those to values are aligned to 4 bytes.
//
// The library has the configurations MapConfig<4>, <8>, <16> and <32>, for all keys. Any other has
// to be used in a kernel file (.cu), where it is compiled.
//
// Batches. Of operations with the same key the last one in the batch counts; the others are
// `superseded`. Once a call returned, what it did survives what the region's persist rung survives;
// if a crash cuts it off, each operation is there whole or not at all, whatever of the others is.
// So it is with batches of one kind; apply() has those of several. `status`, which may be null,
// gets what became of each operation. An operation that is `full` or has `no_value` left everything
// as it was; the rest of its batch is done. A batch with the empty key, with a value that cannot be
// stored, or of more than max_batch operations throws invalid_argument with nothing changed.
//
// Refs. Once ref() was called, and until quiesce(), batches may run beside kernels with refs, by
// the contract of the refs, and nothing comes free. Else a batch has the table to itself: it is
// faster, and what it makes free is free for the next one.
//
// Invariants, between calls: a key is in one slot at most, one of those that its hashes give; no
// two slots name one place of a value; every place that no slot names is free.
//
// Opening it again in the same process ends the earlier map: its calls throw closed. While refs of
// that one are out it is refused: invalid_argument. REQUIRES: the region outlives the map, and is
// not moved meanwhile; the map outlives its refs. Thread safety: one thread at a time.
template <class Key, class Config = MapConfig<>>
class HashMap : public detail::MapBase {
  static_assert((std::is_unsigned_v<Key> && (sizeof(Key) == 4 || sizeof(Key) == 8)) ||
                    detail::kMapHasLongKeys<Key>,
                "keys are unsigned integers of 4 or 8 bytes, or trivially copyable classes without "
                "padding of 16 to 128 bytes, a multiple of 8, aligned to 8");
  using Kernels = detail::MapKernelKey<Key>;

 public:
  using Options = MapOptions;
  using OpenOptions = MapOpenOptions;
  using Directory = MapOptions::Directory;

  // A kill leaves the map whole or absent. A name has 46 bytes at most: with that of any growth's
  // object behind it, it is one of the region's. Throws invalid_argument (options, name),
  // already_exists, no_space (the message says what it takes), no_memory, and as Durable::create();
  // there is none then, or what was there before.
  static HashMap create(Region& region, std::string_view name, const Options& options,
                        EmptyKey<Key> empty_key = {}, EmptyValue empty_value = {}) {
    return HashMap(
        MapBase::create(region, name, types(), options, empty_key.value, empty_value.bits));
  }
  // Opens it, and clears what a crash cut off (recovery()). Reads the table once. Throws not_found,
  // damaged (with nothing changed), invalid_argument (another size of keys or values, configuration
  // or hash; options), no_memory, and as Durable::open().
  static HashMap open(Region& region, std::string_view name, const MapOpenOptions& options = {}) {
    return HashMap(MapBase::open(region, name, types(), options));
  }
  // Removes it, with what growths have added and its record of changes, whatever the types of its
  // keys and values. Whoever has it open in this process is ended, as by open(). A kill leaves it
  // whole, or absent with something for the next creation to remove. Throws not_found,
  // invalid_argument (it is no hash map; refs of it are out, which kernels may still use), and as
  // Durable::remove().
  static void remove(Region& region, std::string_view name) { MapBase::remove(region, name); }
  // Bytes that a region must have to hold it and nothing else.
  static std::uint64_t region_bytes(const Options& options) {
    return MapBase::region_bytes(types(), options);
  }

  // Inserts what is not there.
  MapResult insert(const Key* keys, const void* values, std::size_t count,
                   MapStatus* status = nullptr) {
    return update(Operation::insert, keys, values, nullptr, count, status);
  }
  MapResult insert_or_assign(const Key* keys, const void* values, std::size_t count,
                             MapStatus* status = nullptr) {
    return update(Operation::insert_or_assign, keys, values, nullptr, count, status);
  }
  // Assigns to what is there.
  MapResult assign(const Key* keys, const void* values, std::size_t count,
                   MapStatus* status = nullptr) {
    return update(Operation::assign, keys, values, nullptr, count, status);
  }
  // As insert(), and `out`, which is not `values`, gets what each key has then; that of an
  // operation that was not done, or is superseded, is left as it was.
  MapResult find_or_insert(const Key* keys, const void* values, void* out, std::size_t count,
                           MapStatus* status = nullptr) {
    return update(Operation::find_or_insert, keys, values, out, count, status);
  }
#if HOLDFAST_DEVICE_CODE
  // The same with values that `init` makes: init(key, value) is called on the device, once for each
  // operation of the batch, by a thread of its own, and stores value_bytes() bytes, also for keys
  // that turn out to be there. A class that kernels take, with operator() const.
  template <class Init>
  requires std::is_class_v<Init> MapResult find_or_insert(const Key* keys, const Init& init,
                                                          void* out, std::size_t count,
                                                          MapStatus* status = nullptr) {
    if (count == 0) return {};
    const detail::MapInit staged = MapBase::stage(keys, count);
    launch(stream(), dim3(blocks_for(count, 256)), dim3(256), detail::map_init_kernel<Key, Init>,
           static_cast<const Key*>(staged.keys), staged.values, value_bytes(),
           static_cast<std::uint32_t>(count), init);
    return update(Operation::find_or_insert, keys, staged.values, out, count, status);
  }
#endif
  // Adds to the values that are there, element by element: `assigned`, or `absent`. T is float,
  // double, or an integer of 4 or 8 bytes, which wraps around; values are arrays of T, and `deltas`
  // are aligned to T. Deltas of one key in the batch all count: their sum, in no order, is added as
  // that of the last one; the others are `superseded`. It is sums that have to be values, not
  // deltas: one of a key that is there, and that cannot be stored (EmptyValue), throws as a value
  // does, and beside refs, which may change it meanwhile, its operation is `no_value`. Throws
  // invalid_argument also if sizeof(T) does not divide value_bytes().
  template <class T>
  MapResult accumulate(const Key* keys, const T* deltas, std::size_t count,
                       MapStatus* status = nullptr) {
    return MapBase::accumulate(keys, deltas, detail::map_element_of<T>(), count, status);
  }
  // As insert_or_assign(), of a map with scores (docs/map.md, "Scores and eviction"); but where all
  // slots of a new key are taken, by keys that cannot move, the pair there of the least score goes,
  // of those that this batch has not set; it is the new one that goes instead (it is `full`), if
  // its own score is less than all of theirs, or if the batch has set them all. Of equal scores any
  // pair goes. What goes is in the arrays evicted_*, in no order, each of `count` elements, of
  // which count() of what is returned are set: pairs that were evicted, with the values and scores
  // that they had, and those of the batch that are not in the map (`full`, `no_value`; a key with
  // the latter may be there with its value from before). So what was there, and what counted of the
  // batch, is in the map or in the arrays. `evicted_scores` may be null.
  //
  // `scores`, by operation: of `custom` the score of each key, that of one that is there, too; of
  // `lfu` of how many accesses it is, or null: one; of `lru` null.
  //
  // What is returned as evicted is gone, durably, and in the record of changes. A crash leaves each
  // operation whole or not at all; a pair that was to make way may be gone then, without the new
  // one being there: who has to keep it stores it elsewhere first.
  //
  // Throws invalid_argument, with nothing changed, as other batches; and if the map was opened
  // without scores, while a ref is out or the table grows, for scores that the policy does not
  // take, or none where it needs them, and without a place for keys or values.
  MapEviction insert_and_evict(const Key* keys, const void* values, const std::uint64_t* scores,
                               std::size_t count, Key* evicted_keys, void* evicted_values,
                               std::uint64_t* evicted_scores, MapStatus* status = nullptr) {
    return MapBase::insert_and_evict(keys, values, scores, count,
                                     {evicted_keys, evicted_values, evicted_scores}, status);
  }
  // The scores of keys, 0 where a key is not there (found[i]: 0). No access. Throws
  // invalid_argument (the map was opened without scores; a ref is out).
  void scores(const Key* keys, std::uint64_t* scores, std::uint8_t* found,
              std::size_t count) const {
    MapBase::scores(keys, scores, found, count);
  }
  MapResult erase(const Key* keys, std::size_t count, MapStatus* status = nullptr) {
    return update(Operation::erase, keys, nullptr, nullptr, count, status);
  }
  // Operations of several kinds, which do as if they were made one after the other (docs/map.md,
  // "Mixed batches"): operations[i] is what is made with keys[i]. None is superseded: a find()
  // between two operations that set its key sees the first one. `values` has a row for each
  // operation, of which those of erase() and find() are not read; null: no operation sets a value.
  // `out`, which is not `values`, gets what a find() that is `kept` has found (else it is
  // `absent`), and what a find_or_insert() leaves; other rows stay as they are; null: nobody asks.
  //
  // A crash leaves of each key what it had, or what all of its operations leave; of some keys this,
  // of others that. Where there is no room for what they leave, none of them that would set a value
  // is done: it is `full` or has `no_value`; the others are. What the batch erases leaves slots to
  // its other keys; whether it leaves places of values to them is not said.
  //
  // Throws invalid_argument as other batches, and for an operation that is none or has no value.
  MapResult apply(const MapOp* operations, const Key* keys, const void* values, void* out,
                  std::size_t count, MapStatus* status = nullptr) {
    return MapBase::apply(operations, keys, values, out, count, status);
  }
  // found[i]: 1 if it is there, else 0. The value of a key that is not there is left as it was.
  void find(const Key* keys, void* values, std::uint8_t* found, std::size_t count) const {
    MapBase::find(keys, values, found, count);
  }
  void contains(const Key* keys, std::uint8_t* found, std::size_t count) const {
    MapBase::find(keys, nullptr, found, count);
  }

  // find() and contains() that return at once: behind what `by` has queued, and in front of what it
  // queues later. Nothing of it may change until then. Batches that follow wait on the device.
  // Throws invalid_argument for memory that kernels cannot use; what the device meets is thrown by
  // by.synchronize(), and by later calls.
  void find_async(Stream& by, const Key* keys, void* values, std::uint8_t* found,
                  std::size_t count) const {
    MapBase::find_async(by, keys, values, found, count);
  }
  void contains_async(Stream& by, const Key* keys, std::uint8_t* found, std::size_t count) const {
    MapBase::find_async(by, keys, nullptr, found, count);
  }

  // The pairs in slots `first` and on, `slots` of them at most, in no order; returns how many.
  // There are capacity() slots. `values` may be null.
  std::uint64_t export_batch(std::uint64_t first, std::uint64_t slots, Key* keys,
                             void* values) const {
    return MapBase::export_batch(first, slots, keys, values);
  }
#if HOLDFAST_DEVICE_CODE
  // Of those the ones for which predicate(key, value) holds, which runs on the device, once for
  // each pair, and reads what it wants of the value's value_bytes(). A class as an initialiser is.
  template <class Predicate>
  std::uint64_t export_batch_if(std::uint64_t first, std::uint64_t slots,
                                const Predicate& predicate, Key* keys, void* values) const {
    return MapBase::export_batch(
        first, slots, keys, values,
        [&](Stream& stream, const detail::MapView& view, std::uint64_t from, std::uint64_t some,
            void* keys_out, std::byte* values_out, unsigned long long* pairs) {
          detail::MapLaunch<Kernels, Config>::template collect_if<Key>(
              stream, view, from, some, keys_out, values_out, pairs, predicate);
        });
  }
#endif
  // What the next `most` recorded operations behind `since` have changed, max_batch at most: each
  // of their keys once, with the value that it has now, or among `erased` if it is not there now.
  // The three arrays have room for `most`. Called again with `to`, until that is version(), it
  // gives all keys that have changed since; a map that had all of `since` has all of this one's
  // pairs then, and no others, if it has taken them in this order.
  //
  // Invariants: an operation is recorded durably before its batch changes anything, so that a batch
  // that was killed is in a later export. A key that was not changed may be in one, too.
  //
  // Throws not_found (the record does not reach back to `since`, or that is no version of this map,
  // or not any more: take a whole export), unsupported, and invalid_argument (a ref is out).
  MapChanges export_changes(const MapVersion& since, std::uint64_t most, Key* keys, void* values,
                            Key* erased) const {
    return MapBase::export_changes(since, most, keys, values, erased);
  }
  // Makes these changes, and then, durably, follows `of.to`. A crash in between leaves the map at
  // the number of `of.from`, with some of them made, and with the opening of `of.to`, and what it
  // has seen: then the same are to be applied again, or others from followed(). Throws, with
  // nothing changed, conflict (they do not begin where followed() is: a gap, or they are in
  // already), not_found (it follows nothing yet), invalid_argument (counts or versions that no page
  // has, or a key or value that cannot be stored), unsupported; and no_space: pairs found no
  // room, and the map is as behind such a crash.
  MapResult apply_changes(const MapChanges& of, const Key* keys, const void* values,
                          const Key* erased) {
    return MapBase::apply_changes(of, keys, values, erased);
  }

  // Calls visit(key, value) on the host for every pair.
  template <class Visit>
  void for_each(Visit&& visit) const {
    constexpr std::uint64_t kSlots = std::uint64_t{1} << 14;
    std::vector<Key> keys(kSlots);
    std::vector<std::uint32_t> values(kSlots * value_bytes() / 4);
    for (std::uint64_t first = 0; first < capacity(); first += kSlots) {
      const std::uint64_t pairs = export_batch(first, kSlots, keys.data(), values.data());
      for (std::uint64_t i = 0; i < pairs; ++i) {
        visit(keys[i], static_cast<const void*>(values.data() + i * value_bytes() / 4));
      }
    }
  }

  // For kernels, until quiesce().
  HashMapRef<Key, Config> ref() { return HashMapRef<Key, Config>(give_ref()); }

 private:
  explicit HashMap(std::shared_ptr<detail::MapHost> host) : MapBase(std::move(host)) {}
  static detail::MapTypes types() {
    return {sizeof(Key),
            Config::kLevels,
            Config::kHashes,
            Config::kWays,
            Config::HashFunctions::kId,
            &detail::map_kernels<Kernels, Config>()};
  }
};

}  // namespace holdfast

#if HOLDFAST_DEVICE_CODE
#include "holdfast/hash_map_kernels.inl"
#endif

// Instances: what the library has compiled.
namespace holdfast::detail {
#define HOLDFAST_MAP_INSTANCE(Key, width) \
  extern template const MapKernels& map_kernels<Key, MapConfig<width>>();
HOLDFAST_MAP_INSTANCE(std::uint32_t, 4)
HOLDFAST_MAP_INSTANCE(std::uint32_t, 8)
HOLDFAST_MAP_INSTANCE(std::uint32_t, 16)
HOLDFAST_MAP_INSTANCE(std::uint32_t, 32)
HOLDFAST_MAP_INSTANCE(MapLongKey, 4)
HOLDFAST_MAP_INSTANCE(MapLongKey, 8)
HOLDFAST_MAP_INSTANCE(MapLongKey, 16)
HOLDFAST_MAP_INSTANCE(MapLongKey, 32)
HOLDFAST_MAP_INSTANCE(std::uint64_t, 4)
HOLDFAST_MAP_INSTANCE(std::uint64_t, 8)
HOLDFAST_MAP_INSTANCE(std::uint64_t, 16)
HOLDFAST_MAP_INSTANCE(std::uint64_t, 32)
#undef HOLDFAST_MAP_INSTANCE
}  // namespace holdfast::detail
