// The map of byte strings at its smallest: batches of one key, or of two; and kernels that do the
// same by a ref, a group for each key.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "checking/sized_offer.hpp"
#include "holdfast/bytes_map.hpp"
#include "holdfast/kernel.hpp"
#include "layers.hpp"

namespace holdfast::check {
namespace {

enum class Call : std::uint32_t { insert, insert_or_assign, erase };

struct Plan {
  Call call;
  bool there;  // the keys are there before
  std::uint32_t operations;
  // Its index is growing, of which opening moves the keys, and the first piece of what there is for
  // records is full.
  bool grown = false;
  bool by_ref = false;
  static constexpr std::uint32_t kFillers = 44;  // so that keys are on the level that is emptied

  // Records of three grains, so that each has parts that can be lost by themselves.
  static std::uint64_t record_bytes() { return BytesMap::record_bytes_of(1, 5); }
  static std::string key(std::uint32_t i) { return i == 0 ? "a" : "b"; }
  static std::string before(std::uint32_t i) { return i == 0 ? "old" : "older"; }
  static std::string after(std::uint32_t i) { return i == 0 ? "new" : "newer"; }
  BytesMapOptions options() const {
    BytesMapOptions options;
    options.capacity = 1;
    const std::uint64_t records = grown ? kFillers + operations : 2 * operations;
    options.record_bytes = records * record_bytes();
    options.max_batch = operations;
    return options;
  }
  ByteStringVector strings(std::string (*of)(std::uint32_t)) const {
    ByteStringVector made;
    for (std::uint32_t i = 0; i < operations; ++i) made.push_back(of(i));
    return made;
  }
};

struct Operation {
  Call call;
  ByteSpan key, value;
};

__global__ void apply_kernel(BytesMapRef ref, const Operation* operations) {
  const BytesMapRef::Group group;
  const Operation& of = operations[(blockIdx.x * blockDim.x + threadIdx.x) / BytesMapRef::kWidth];
  switch (of.call) {
    case Call::insert:
      ref.insert(group, of.key, of.value);
      return;
    case Call::insert_or_assign:
      ref.insert_or_assign(group, of.key, of.value);
      return;
    case Call::erase:
      ref.erase(group, of.key);
  }
}

void apply_by_ref(BytesMap& map, const Plan& plan) {
  const ByteStringVector keys = plan.strings(Plan::key), values = plan.strings(Plan::after);
  const PinnedBuffer<std::byte> bytes(keys.bytes.size() + values.bytes.size());
  std::copy(keys.bytes.begin(), keys.bytes.end(), bytes.data());
  std::byte* const of_values =
      std::copy(values.bytes.begin(), values.bytes.end(), bytes.data() + keys.bytes.size()) -
      values.bytes.size();
  const PinnedBuffer<Operation> operations(plan.operations);
  for (std::uint32_t i = 0; i < plan.operations; ++i) {
    operations[i] = {plan.call,
                     {bytes.data() + keys.offsets[i], keys[i].size()},
                     {of_values + values.offsets[i], values[i].size()}};
  }
  const BytesMapRef ref =
      map.ref(plan.call == Call::erase ? 0 : plan.operations * Plan::record_bytes());
  launch(map.stream(), dim3(1), dim3(plan.operations * BytesMapRef::kWidth), apply_kernel, ref,
         operations.data());
  map.stream().synchronize();
}

void apply(BytesMap& map, const Plan& plan) {
  if (plan.by_ref) return apply_by_ref(map, plan);
  const ByteStringVector keys = plan.strings(Plan::key), values = plan.strings(Plan::after);
  switch (plan.call) {
    case Call::insert:
      map.insert(keys, values);
      return;
    case Call::insert_or_assign:
      map.insert_or_assign(keys, values);
      return;
    case Call::erase:
      map.erase(keys);
  }
}

// Behind others, which are erased then, and whose room another record takes.
void set_up_growth(Region& region, BytesMap map, const Plan& plan) {
  const auto filler = [](std::uint32_t i) {
    return ByteStringVector({std::string(1, static_cast<char>('0' + i))});
  };
  for (std::uint32_t i = 0; i < Plan::kFillers; ++i) {
    map.insert(filler(i), ByteStringVector({"12345"}));
  }
  map.insert(plan.strings(Plan::key), plan.strings(Plan::before));
  for (std::uint32_t i = 0; i < Plan::kFillers; ++i) {
    map.erase(filler(i));
  }
  ByteStringVector keys, values;
  const std::uint64_t slots = map.stats().capacity;
  map.export_batch(slots / 3 * 2, slots, keys, values);
  if (keys.size() != plan.operations) {
    throw Error(Errc::invalid_argument, "the keys are not on the lower level: choose others");
  }
  const std::uint64_t free = map.stats().free_bytes;
  map.insert(ByteStringVector({"large"}), ByteStringVector({std::string(free - 32, 'x')}));
  map.reserve({.record_bytes = map.stats().record_bytes + 1});
  MapOpenOptions how;
  how.value_bytes = sizeof(std::uint64_t);
  HashMap<Bytes<16>>::open(region, "map.index", how).grow();
}

// verify() of the map counts what is free: a record that was written and never named is, too.
std::string verify(const Plan& plan, BytesMap& map, const History& history) {
  if (std::string wrong = map.verify(); !wrong.empty()) return wrong;
  std::vector<BytesFound> found;
  const ByteStringVector values = map.find(plan.strings(Plan::key), found);
  for (std::uint32_t i = 0; i < plan.operations; ++i) {
    const bool there = found[i] == BytesFound::present;
    if (found[i] == BytesFound::damaged) return "key " + Plan::key(i) + " is damaged";
    const bool is_before =
        there == plan.there && (!there || values[i] == Plan::before(i)) && !history.acknowledged;
    const bool is_after = history.started != 0 && there == (plan.call != Call::erase) &&
                          (!there || values[i] == Plan::after(i));
    if (!is_before && !is_after) {
      return detail::concat("key ", Plan::key(i), there ? " has the value " : " is not there",
                            values[i]);
    }
  }
  return {};
}

Program make(std::shared_ptr<const Plan> plan) {
  const auto recovered = std::make_shared<std::unique_ptr<BytesMap>>();
  Program program;
  program.region_bytes =
      BytesMap::region_bytes(plan->options()) + (plan->grown ? 16 : 4) * kPageBytes;
  program.set_up = [plan](Region& region) {
    BytesMap map = BytesMap::create(region, "map", plan->options());
    if (plan->grown) return set_up_growth(region, std::move(map), *plan);
    if (plan->there) map.insert(plan->strings(Plan::key), plan->strings(Plan::before));
  };
  program.run = [plan](Region& region, Session& session) {
    BytesMap map = BytesMap::open(region, "map");
    session.start();
    apply(map, *plan);
    session.acknowledge();
  };
  program.recover = [recovered](Region& region) {
    *recovered = std::make_unique<BytesMap>(BytesMap::open(region, "map"));
  };
  program.verify = [plan, recovered](Region&, const History& history, std::uint64_t) {
    return verify(*plan, **recovered, history);
  };
  return program;
}

Offer offer(const std::string& name, const std::string& summary, const Plan& plan) {
  const auto program = [=](const Sizes& sizes) {
    if (sizes.blocks != 0 || sizes.persists != 0 || sizes.threads > 2) {
      throw Error(Errc::invalid_argument,
                  "a bytes map's batches have one size, --threads: operations, 1 or 2");
    }
    auto sized = std::make_shared<Plan>(plan);
    if (sizes.threads != 0) sized->operations = sizes.threads;
    Program made = make(sized);
    made.name = name;
    return made;
  };
  return {name, summary, true, program, {{1, 0, 0}}};
}

}  // namespace

std::vector<Offer> bytes_map_programs() {
  return {offer("bytes_map_insert", "the map of byte strings: a batch that inserts",
                {Call::insert, false, 1}),
          offer("bytes_map_update", "the same: a batch that assigns",
                {Call::insert_or_assign, true, 1}),
          offer("bytes_map_erase", "the same: a batch that erases", {Call::erase, true, 1}),
          offer("bytes_map_grow",
                "the same: a growth ends, and a batch assigns, whose record is in what was added",
                {Call::insert_or_assign, true, 1, true}),
          offer("bytes_map_ref_insert", "the same: a kernel inserts by a ref",
                {Call::insert, false, 1, false, true}),
          offer("bytes_map_ref_update", "the same: a kernel assigns",
                {Call::insert_or_assign, true, 1, false, true}),
          offer("bytes_map_ref_erase", "the same: a kernel erases",
                {Call::erase, true, 1, false, true})};
}

}  // namespace holdfast::check
