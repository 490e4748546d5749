// The proof of interception: random lists of accesses of every form, against an oracle that
// carries them out on a copy of the arena and says which bytes each one loads and stores.
#include "cpu/accesses.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "cpu/recorder.hpp"
#include "cpu/support.hpp"

namespace holdfast::test {
namespace {

using cpu::EventKind;

// How often each byte of the arena is loaded and stored by one access.
struct Footprint {
  std::map<std::size_t, int> loads, stores;

  void add(std::map<std::size_t, int>& bytes, std::size_t offset, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) ++bytes[offset + i];
  }
  void load(std::size_t offset, std::size_t count) { add(loads, offset, count); }
  void store(std::size_t offset, std::size_t count) { add(stores, offset, count); }
  bool operator==(const Footprint&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Footprint& f) {
  out << "loads";
  for (const auto& [at, times] : f.loads) out << " " << at << "x" << times;
  out << "; stores";
  for (const auto& [at, times] : f.stores) out << " " << at << "x" << times;
  return out;
}

struct FormInfo {
  unsigned alignment;
  unsigned bytes;  // 0: Access::bytes
};

FormInfo info(Form form) {
  switch (form) {
    case Form::load1:
    case Form::store1:
    case Form::volatile_store1:
    case Form::builtin_atomic_or:
      return {1, 1};
    case Form::load2:
    case Form::store2:
    case Form::std_atomic_add:
      return {2, 2};
    case Form::load4:
    case Form::store4:
    case Form::volatile_load4:
    case Form::add4:
    case Form::bit_field:
    case Form::std_atomic_load:
    case Form::std_atomic_cas:
    case Form::cuda_atomic_add:
    case Form::cuda_atomic_cas:
    case Form::release4:
    case Form::acquire4:
    case Form::std_swap:
    case Form::double_store:
      return {4, 4};
    case Form::load8:
    case Form::store8:
    case Form::volatile_load8:
    case Form::volatile_store8:
    case Form::std_atomic_store:
    case Form::cuda_atomic_max64:
    case Form::release8:
    case Form::acquire8:
    case Form::virtual_construct:
      return {8, 8};
    case Form::load16:
    case Form::store16:
      return {16, 16};
    case Form::unaligned_store2:
      return {1, 2};
    case Form::unaligned_load4:
    case Form::unaligned_store4:
    case Form::volatile_unaligned_store4:
      return {1, 4};
    case Form::unaligned_load8:
    case Form::unaligned_store8:
      return {1, 8};
    case Form::copy12:
      return {4, 12};
    case Form::copy16:
      return {8, 16};
    case Form::copy24:
    case Form::clear24:
      return {8, 24};
    case Form::copy40:
      return {8, 40};
    case Form::copy200:
    case Form::clear200:
      return {8, 200};
    case Form::memcpy_3:
      return {1, 3};
    case Form::memcpy_8:
    case Form::builtin_memmove_8:
    case Form::memset_8:
      return {1, 8};
    case Form::memcpy_64:
      return {1, 64};
    case Form::std_memcpy:
      return {1, 24};
    case Form::builtin_memcpy_16:
      return {1, 16};
    case Form::std_memmove:
      return {1, 40};
    case Form::std_memset:
      return {1, 100};
    case Form::builtin_memset_32:
      return {1, 32};
    case Form::std_copy:
    case Form::std_copy_backward:
    case Form::std_fill_words:
    case Form::loop_copy:
    case Form::loop_clear:
      return {4, 0};
    default:
      return {1, 0};
  }
}

// Whether source and destination may overlap.
bool may_overlap(Form form) {
  return form == Form::memmove_any || form == Form::std_memmove ||
         form == Form::builtin_memmove_8 || form == Form::memcmp_any;
}

Access make_access(std::mt19937_64& random) {
  Access access{};
  access.form = static_cast<Form>(random() % static_cast<unsigned>(Form::count_));
  const FormInfo form = info(access.form);
  access.bytes = form.bytes ? form.bytes : static_cast<std::uint32_t>(4 + random() % 30 * 4);
  const auto offset = [&] {
    return static_cast<std::uint32_t>(random() % ((kArenaBytes - access.bytes) / form.alignment) *
                                      form.alignment);
  };
  access.to = offset();
  do {
    access.from = offset();
  } while (!may_overlap(access.form) && access.from + access.bytes > access.to &&
           access.to + access.bytes > access.from);
  access.value = random();
  return access;
}

// Carries out accesses by byte-wise operations of its own.
class Oracle {
 public:
  explicit Oracle(std::vector<unsigned char>& arena) : arena_(arena) {}

  Footprint apply(const Access& a) {
    Footprint print;
    const std::size_t n = a.bytes;
    switch (a.form) {
      case Form::load1:
      case Form::load2:
      case Form::load4:
      case Form::load8:
      case Form::load16:
      case Form::unaligned_load4:
      case Form::unaligned_load8:
      case Form::volatile_load4:
      case Form::volatile_load8:
      case Form::acquire4:
      case Form::acquire8:
        print.load(a.from, n);
        break;
      case Form::std_atomic_load:
        print.load(a.to, n);
        break;
      case Form::store1:
      case Form::store2:
      case Form::store4:
      case Form::store8:
      case Form::unaligned_store2:
      case Form::unaligned_store4:
      case Form::unaligned_store8:
      case Form::volatile_store1:
      case Form::volatile_store8:
      case Form::volatile_unaligned_store4:
      case Form::std_atomic_store:
      case Form::release4:
      case Form::release8:
      case Form::double_store:
        print.store(a.to, n);
        put(a.to, n, a.value);
        break;
      case Form::store16:
        print.store(a.to, n);
        for (std::uint32_t i = 0; i < 4; ++i) {
          put(a.to + 4 * i, 4, static_cast<std::uint32_t>(a.value) + i);
        }
        break;
      case Form::virtual_construct:
        print.store(a.to, n);
        skip_value(a.to, n);
        break;
      case Form::bit_field: {
        print.store(a.to, n);  // of the word that holds it; the load of its neighbours is not one
        const std::uint64_t old = get(a.to, n);
        put(a.to, n, (old & ~(31ull << 7)) | (a.value & 31) << 7);
        break;
      }
      case Form::std_swap: {
        print.load(a.to, n), print.load(a.from, n);
        print.store(a.to, n), print.store(a.from, n);
        for (std::size_t i = 0; i < n; ++i) std::swap(arena_[a.to + i], arena_[a.from + i]);
        break;
      }
      case Form::clear24:
      case Form::clear200:
      case Form::loop_clear:
        fill(print, a, 0);
        break;
      case Form::memset_any:
      case Form::memset_8:
      case Form::std_memset:
      case Form::builtin_memset_32:
      case Form::std_fill_bytes:
        fill(print, a, static_cast<unsigned char>(a.value));
        break;
      case Form::std_fill_words:
        print.store(a.to, n);
        for (std::size_t i = 0; i < n; i += 4) put(a.to + i, 4, a.value);
        break;
      case Form::memcmp_any:
        print.load(a.to, n), print.load(a.from, n);
        break;
      case Form::add4:
      case Form::std_atomic_add:
      case Form::std_atomic_cas:
      case Form::builtin_atomic_or:
      case Form::cuda_atomic_add:
      case Form::cuda_atomic_cas:
      case Form::cuda_atomic_max64:
        print.load(a.to, n);
        print.store(a.to, n);
        put(a.to, n, modified(a, get(a.to, n)));
        break;
      default: {  // every copy
        print.load(a.from, n);
        print.store(a.to, n);
        const std::vector<unsigned char> bytes(arena_.begin() + a.from,
                                               arena_.begin() + a.from + n);
        std::copy(bytes.begin(), bytes.end(), arena_.begin() + a.to);
      }
    }
    return print;
  }

  // Bytes whose value the oracle does not know (a pointer to a table of virtual functions).
  const std::vector<std::pair<std::size_t, std::size_t>>& unknown() const { return unknown_; }

 private:
  std::uint64_t get(std::size_t at, std::size_t n) const {
    std::uint64_t value = 0;
    for (std::size_t i = n; i-- > 0;) value = value << 8 | arena_[at + i];
    return value;
  }
  void put(std::size_t at, std::size_t n, std::uint64_t value) {
    for (std::size_t i = 0; i < n; ++i) arena_[at + i] = static_cast<unsigned char>(value >> 8 * i);
  }
  void skip_value(std::size_t at, std::size_t n) { unknown_.push_back({at, n}); }
  void fill(Footprint& print, const Access& a, unsigned char byte) {
    print.store(a.to, a.bytes);
    std::fill_n(arena_.begin() + a.to, a.bytes, byte);
  }
  static std::uint64_t modified(const Access& a, std::uint64_t old) {
    const std::uint64_t word = a.value & 0xffffffff;
    switch (a.form) {
      case Form::std_atomic_cas:
      case Form::cuda_atomic_cas:
        return old == word / 2 ? word : old;
      case Form::builtin_atomic_or:
        return old | (word & 0xff);
      case Form::cuda_atomic_max64:
        return std::max(old, a.value);
      default:
        return old + a.value;
    }
  }

  std::vector<unsigned char>& arena_;
  std::vector<std::pair<std::size_t, std::size_t>> unknown_;
};

using Kernel = void (*)(const Access*, unsigned, std::byte*, std::uint64_t*);

bool loads(EventKind kind) {
  return kind == EventKind::load || kind == EventKind::acquire || kind == EventKind::atomic;
}
bool stores(EventKind kind) {
  return kind == EventKind::store || kind == EventKind::release || kind == EventKind::atomic;
}

// Forms that store the same bytes twice, unless the optimiser drops the first.
bool dead_store_may_go(const Access& access) {
  return access.form == Form::double_store || access.form == Form::virtual_construct;
}

void check(Kernel kernel, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Access> accesses(400);
  for (Access& access : accesses) access = make_access(random);
  // The table pointers that virtual_construct writes are unknown to the oracle: nothing that
  // follows may compute with them, so such accesses come last.
  std::stable_partition(accesses.begin(), accesses.end(),
                        [](const Access& a) { return a.form != Form::virtual_construct; });

  alignas(16) static unsigned char arena[kArenaBytes];
  for (unsigned char& byte : arena) byte = static_cast<unsigned char>(random());
  std::vector<unsigned char> expected(arena, arena + kArenaBytes), replayed = expected;
  std::uint64_t sink = 0;
  Recorder recorder;
  Stream stream;
  launch(stream, 1, 1, kernel, static_cast<const Access*>(accesses.data()),
         static_cast<unsigned>(accesses.size()), reinterpret_cast<std::byte*>(arena), &sink);
  stream.synchronize();

  Oracle oracle(expected);
  std::size_t at = 0;
  Footprint seen;
  for (const Recorded& record : recorder.events) {
    const cpu::Event& event = record.event;
    if (event.kind == EventKind::fence) {
      const Access& access = accesses.at(at++);
      Footprint want = oracle.apply(access);
      if (dead_store_may_go(access) && seen.stores != want.stores) {
        for (auto& [byte, times] : want.stores) ++times;
      }
      ASSERT_EQ(seen, want) << "access " << at - 1 << " of form "
                            << static_cast<unsigned>(access.form) << ", seed " << seed;
      seen = {};
      continue;
    }
    const auto* address = static_cast<const unsigned char*>(event.address);
    if (address == nullptr || address < arena || address >= arena + kArenaBytes) continue;
    const auto offset = static_cast<std::size_t>(address - arena);
    if (loads(event.kind)) {
      seen.load(offset, event.size);
      // A load gives what the stores delivered so far have left.
      const std::vector<unsigned char> left(&replayed[offset], &replayed[offset] + event.size);
      ASSERT_EQ(record.value, left)
          << "access " << at << " of form " << static_cast<unsigned>(accesses.at(at).form)
          << " loads at offset " << offset << ", seed " << seed;
    }
    if (stores(event.kind)) {
      seen.store(offset, event.size);
      const auto& bytes = event.kind == EventKind::atomic ? record.new_value : record.value;
      std::copy(bytes.begin(), bytes.end(), &replayed[offset]);
    }
  }
  ASSERT_EQ(at, accesses.size());
  EXPECT_EQ(std::memcmp(replayed.data(), arena, kArenaBytes), 0)
      << "the stores delivered do not explain what is in memory, seed " << seed;
  for (const auto& [start, bytes] : oracle.unknown()) {
    std::copy_n(arena + start, bytes, &expected[start]);
  }
  EXPECT_EQ(std::memcmp(expected.data(), arena, kArenaBytes), 0) << "seed " << seed;
}

TEST(Accesses, AllFormsAreDeliveredAtO0) {
  for (unsigned round = 0; round < 40; ++round) {
    check(o0::carry_out, test_seed() + round);
    if (HasFailure()) return;
  }
}

TEST(Accesses, AllFormsAreDeliveredAtO2) {
  for (unsigned round = 0; round < 40; ++round) {
    check(o2::carry_out, test_seed() + round);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace holdfast::test
