// Batches whose operations have a kind each: as if they were made one after the other. Included by
// hash_map_kernels.inl alone. docs/map.md, "Mixed batches".
//
// One group makes all operations of a key. What they do to it together follows from whether it is
// there before: they are folded, in their order, into one change, which is made as that of any
// batch. A value that another one replaces within the batch is stored nowhere.
#pragma once

namespace holdfast::detail {

struct MapMixed {
  const MapOp* kinds;          // by operation
  const std::uint32_t* entry;  // by operation: the same for those of one key
  const std::uint32_t* ops;    // all of them: those of one key side by side, in their order
  // By operation: whose value goes to its place in `out`, an operation's, or with kMapOfOut what
  // that one has got there; kMapNoSource: none does. Null: values are not asked for.
  std::uint32_t* source;
  // By operation: 1 if it has what its key had before the batch already. Null: none has.
  const std::uint8_t* read;
  bool again;  // only keys whose first operation has no status
};
inline constexpr std::uint32_t kMapOfOut = 1u << 31;
inline constexpr std::uint32_t kMapNoSource = ~0u;

#if HOLDFAST_DEVICE_CODE

// What a key has between two operations: the value of the operation of that number, or
inline constexpr std::uint32_t kMapAbsent = ~0u;        // it is not there
inline constexpr std::uint32_t kMapOriginal = ~0u - 1;  // what it had before the batch

// What becomes of an operation of a key that is `there`. `failed`: no value can be set, and why.
__device__ __forceinline__ MapStatus map_fold(MapOp kind, bool there, MapStatus failed) {
  if (kind == MapOp::erase && there) return MapStatus::erased;
  const bool needs = kind == MapOp::erase || kind == MapOp::find || kind == MapOp::assign;
  if (!there && needs) return MapStatus::absent;
  if (there && kind != MapOp::insert_or_assign && kind != MapOp::assign) return MapStatus::kept;
  if (failed != MapStatus{}) return failed;
  return there ? MapStatus::assigned : MapStatus::inserted;
}

struct MapFolded {
  std::uint32_t end;     // the key's state behind all of its operations
  std::uint32_t reader;  // the first one that gets the value from before; kMapAbsent: none does
};

__device__ __forceinline__ bool map_has_entry(const MapBatch& batch, const MapMixed& mixed,
                                              std::uint64_t position, std::uint32_t entry) {
  return position < batch.count && mixed.entry[mixed.ops[position]] == entry;
}

// The operations of a key that a group's threads have.
struct MapFoldable {
  std::uint32_t op;
  MapOp kind;
  bool is_its;  // false from some thread on
};

// Folds them, which follow what is folded. Each thread needs two facts of those in front of it, and
// finds both in ballots: whether the last one that decides it leaves the key there, and the last
// one that sets its value or takes it.
template <unsigned Width>
__device__ __forceinline__ void map_fold_some(const MapGroup<Width>& group, const MapBatch& batch,
                                              const MapMixed& mixed, const MapFoldable& mine,
                                              MapStatus failed, MapFolded& folded) {
  const auto last_of = [](unsigned bits) { return 31u - __clz(static_cast<int>(bits)); };
  const unsigned before = (1u << group.rank) - 1;
  const MapOp kind = mine.kind;
  const bool erases = mine.is_its && kind == MapOp::erase;
  const bool leaves = mine.is_its && failed == MapStatus{} && kind != MapOp::erase &&
                      kind != MapOp::find && kind != MapOp::assign;
  const unsigned erasing = group.ballot(erases);
  const unsigned leaving = group.ballot(leaves);
  const unsigned deciding = (erasing | leaving) & before;
  const bool there =
      deciding == 0 ? folded.end != kMapAbsent : (leaving >> last_of(deciding) & 1) != 0;
  const MapStatus status = map_fold(kind, there, failed);

  const bool sets = mine.is_its && (status == MapStatus::inserted || status == MapStatus::assigned);
  const unsigned changing = group.ballot(sets) | erasing;
  const auto state_behind = [&](unsigned changes) {
    const unsigned last = changes == 0 ? 0 : last_of(changes);
    const std::uint32_t op = group.from(mine.op, last);
    if (changes == 0) return folded.end;
    return (erasing >> last & 1) != 0 ? kMapAbsent : op;
  };
  const std::uint32_t state = state_behind(changing & (before | 1u << group.rank));
  const bool gets = mine.is_its && (kind == MapOp::find || kind == MapOp::find_or_insert) &&
                    (status == MapStatus::kept || status == MapStatus::inserted);
  const bool gets_original = gets && state == kMapOriginal;
  const unsigned getting_original = group.ballot(gets_original);
  bool reads = false;
  if (folded.reader == kMapAbsent && getting_original != 0) {
    const auto first = static_cast<unsigned>(__ffs(static_cast<int>(getting_original))) - 1;
    folded.reader = group.from(mine.op, first);
    reads = group.rank == first;
  }
  folded.end = state_behind(changing);
  if (!mine.is_its) return;
  batch.status[mine.op] = status;
  if (mixed.source == nullptr) return;
  mixed.source[mine.op] = !gets || reads  ? kMapNoSource
                          : gets_original ? folded.reader | kMapOfOut
                                          : state;
}

// All operations of the key whose first one is at `position`, as many at once as a group has
// threads. Of one with more than that several such are fetched together: a key with a large part of
// a batch would wait for memory most of the time.
template <unsigned Width>
__device__ __forceinline__ MapFolded map_fold_all(const MapGroup<Width>& group,
                                                  const MapBatch& batch, const MapMixed& mixed,
                                                  std::uint64_t position, bool there,
                                                  MapStatus failed) {
  constexpr unsigned kTogether = 4;
  const std::uint32_t entry = mixed.entry[mixed.ops[position]];
  MapFolded folded{there ? kMapOriginal : kMapAbsent, kMapAbsent};
  // Whether the key has operations behind these.
  const auto fold = [&](const MapFoldable& mine) {
    map_fold_some(group, batch, mixed, mine, failed, folded);
    return group.ballot(!mine.is_its) == 0;
  };
  const auto op_at = [&](std::uint64_t at) { return at < batch.count ? mixed.ops[at] : 0; };
  const auto of = [&](std::uint64_t at, std::uint32_t op) {
    return MapFoldable{op, mixed.kinds[op], at < batch.count && mixed.entry[op] == entry};
  };
  const std::uint64_t first = position + group.rank;
  bool more = fold(of(first, op_at(first)));
  for (std::uint64_t at = first + Width; more; at += kTogether * Width) {
    std::uint32_t op[kTogether];
    MapFoldable mine[kTogether];
#pragma unroll
    for (unsigned i = 0; i < kTogether; ++i) op[i] = op_at(at + i * Width);
#pragma unroll
    for (unsigned i = 0; i < kTogether; ++i) mine[i] = of(at + i * Width, op[i]);
#pragma unroll
    for (unsigned i = 0; i < kTogether; ++i) {
      if (more) more = fold(mine[i]);
    }
  }
  return folded;
}

// The one change that makes a key what its operations leave; `needed`: there is one.
struct MapNet {
  bool needed;
  MapOperation operation;
  std::uint32_t op;  // whose value it sets
};
__device__ __forceinline__ MapNet map_net_of(const MapFolded& folded, bool there) {
  if (folded.end == kMapAbsent) return {there, MapOperation::erase, 0};
  if (folded.end == kMapOriginal) return {false, MapOperation::erase, 0};
  return {true, there ? MapOperation::assign : MapOperation::insert, folded.end};
}

__device__ __forceinline__ bool map_failed(MapStatus status) {
  return status == MapStatus::full || status == MapStatus::no_value;
}

// A group for each operation; that of the first one of a key makes all of them. If the key is its
// alone, and no lookup, it is made as it is, with one look.
//
// Where there is no room for what the operations leave, they are folded once more, without those
// that set a value. Beside others a change may find that the key has come or gone since it was
// looked at, and it begins again. The operations up to the first change took effect at the look,
// the others at the change.
template <class Key, class Config, bool Alone>
__global__ void map_mixed_kernel(MapView view, MapBatch batch, MapMixed mixed) {
  const MapGroup<Config::kWidth> group;
  const std::uint64_t position = map_thread() / Config::kWidth;
  if (position >= batch.count) return;
  if (batch.refuse[0] != 0 || batch.refuse[1] != 0) return;
  const std::uint32_t op = mixed.ops[position];
  const std::uint32_t entry = mixed.entry[op];
  if (position != 0 && map_has_entry(batch, mixed, position - 1, entry)) return;
  if (mixed.again) {
    if (batch.status[op] != MapStatus{}) return;
    group.sync();  // nobody's status is stored before all have looked
  }
  const MapOp kind = mixed.kinds[op];
  const bool one = kind != MapOp::find && !map_has_entry(batch, mixed, position + 1, entry);
  const MapKey<Key> key = map_key_of_op<Key>(view, batch, op);
  const auto row = [&](auto* rows, std::uint32_t of) {
    return rows != nullptr ? rows + std::uint64_t{of} * view.value_bytes : nullptr;
  };
  const auto to_read = [&](std::uint32_t of) {
    return mixed.read != nullptr && mixed.read[of] != 0 ? nullptr : row(batch.out, of);
  };
  const auto reads = [&](const MapFolded& of) {
    return of.reader != kMapAbsent && to_read(of.reader) != nullptr;
  };
  MapStatus failed{};
  bool was_there = false;  // as it failed
  for (;;) {
    std::uint64_t word = kMapNone;
    MapFolded folded{};
    MapNet net{true, static_cast<MapOperation>(static_cast<unsigned>(kind) - 1), op};
    if (!one) {
      word = map_find_word<Key, Config, Alone>(view, group, key);
      const bool there = map_is_value(word);
      if (there != was_there) failed = MapStatus{};
      was_there = there;
      folded = map_fold_all(group, batch, mixed, position, there, failed);
      net = map_net_of(folded, there);
      if constexpr (Alone) {  // in front of the change: a row of the cache has the new value then
        if (reads(folded)) map_cache_take(view, group, word, row(batch.out, folded.reader));
        if (!net.needed && there && view.cache.entries != nullptr && group.rank == 0) {
          map_cache_touch(view, map_place_of(word), false);
        }
        group.sync();
      }
    }
    MapStatus became{};
    if (net.needed) {
      became = map_operation<Key, Config, Alone>(view, group, key, row(batch.values, net.op),
                                                 one ? to_read(op) : nullptr, net.operation);
    }
    if (one) {
      if (group.rank == 0) batch.status[op] = became;
      if (group.rank == 0 && mixed.source != nullptr) mixed.source[op] = kMapNoSource;
      return;
    }
    if (map_failed(became)) {
      failed = became;
      continue;
    }
    if (became == MapStatus::kept || became == MapStatus::absent) continue;
    if constexpr (!Alone) {
      if (reads(folded)) map_take_value(view, group, word, row(batch.out, folded.reader));
    }
    return;
  }
}

#endif  // HOLDFAST_DEVICE_CODE

}  // namespace holdfast::detail
