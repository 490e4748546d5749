#include "comparison.hpp"

#include <stdlib.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <stdexcept>

#include "bench.hpp"
#include "plain_file.hpp"

namespace power {
namespace {

// Shares of a batch that are too small keep no writer busy.
constexpr unsigned kLeastShare = 64;

struct Entry {
  std::unique_ptr<System> system;
  Result result;
};

std::vector<Entry> make_systems(const Plan& plan) {
  const Setting setting{plan.shape, plan.folder, plan.warm + plan.repeat, plan.threads};
  std::vector<std::unique_ptr<System>> made;
  using Layout = holdfast::KvStore::Layout;
  for (const Layout layout : {Layout::in_place, Layout::log}) {
    made.push_back(make_holdfast(setting, layout, 0));
    for (const unsigned batches : plan.batches_per_commit) {
      made.push_back(make_holdfast(setting, layout, batches));
    }
  }
  made.push_back(make_cap_pages(setting));
  made.push_back(make_cap_log(setting));
  if (plan.rocksdb) {
    made.push_back(make_rocksdb(setting, RocksDbForm::one_batch));
    made.push_back(make_rocksdb(setting, RocksDbForm::vector_memtable));
    if (plan.threads > 1 && plan.shape.batch >= plan.threads * kLeastShare) {
      made.push_back(make_rocksdb(setting, RocksDbForm::shares));
    }
  }
  std::vector<Entry> entries;
  for (auto& system : made) {
    Result result;
    result.promise = system->promise();
    entries.push_back({std::move(system), std::move(result)});
  }
  // Those that carry out as many batches lie together: one oracle goes along.
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.result.promise.batches_per_commit < b.result.promise.batches_per_commit;
  });
  return entries;
}

// A turn of one system and, behind it, of the bound.
void take_turn(Entry& entry, Inputs& inputs, PlainStream& plain, std::uint64_t round,
               bool measured) {
  const unsigned batches = entry.result.promise.batches_per_commit;
  inputs.prepare(round * batches, batches);
  const std::uint64_t before = system_write_bytes();
  const Turn turn = entry.system->run(inputs);
  const std::uint64_t written = system_write_bytes() - before;
  double bound = 0;
  if (turn.disk_bytes > 0) {
    plain.reserve(turn.disk_bytes);
    bound = plain.write(turn.disk_bytes);
  }
  if (!measured) return;
  entry.result.turns.push_back(turn);
  entry.result.system_bytes.push_back(static_cast<double>(written));
  if (turn.disk_bytes > 0) entry.result.plain_seconds.push_back(bound);
}

}  // namespace

void compare_systems(const Plan& plan, const std::function<void(const Result&)>& on_result) {
  check_shape(plan.shape);
  if (plan.repeat == 0 || plan.threads == 0) {
    throw std::invalid_argument("turns and threads are 1 or more");
  }
  std::vector<Entry> entries = make_systems(plan);
  const unsigned most = entries.back().result.promise.batches_per_commit;
  Inputs inputs(plan.shape, most);
  Team team(plan.threads);
  PlainStream plain(plan.folder + "/plain", team);

  std::uint64_t rounds = 0;
  double spent = 0;
  for (; rounds < plan.warm + plan.repeat; ++rounds) {
    if (rounds > plan.warm && spent > plan.seconds) break;
    if (rounds == plan.warm) {
      for (Entry& entry : entries) entry.system->warmed_up();
    }
    spent += bench::seconds([&] {
      // No one is always the first.
      for (std::size_t i = 0; i < entries.size(); ++i) {
        take_turn(entries[(i + rounds) % entries.size()], inputs, plain, rounds,
                  rounds >= plan.warm);
      }
    });
  }
  Oracle oracle(plan.shape);
  for (Entry& entry : entries) {
    entry.result.batches = rounds * entry.result.promise.batches_per_commit;
    oracle.advance(entry.result.batches);
    entry.result.io = entry.system->io();
    entry.result.cpu_threads = entry.system->cpu_threads();
    entry.system->crash();
    entry.result.recovered = entry.system->recover(oracle);
    on_result(entry.result);
    entry.system.reset();
  }
}

void check_shape(const Shape& shape) {
  if (!std::has_single_bit(shape.table_bytes) || shape.table_bytes < kDiskPage ||
      shape.table_bytes > std::uint64_t{1} << 40) {
    throw std::invalid_argument("a table has a power of two of bytes, from 4 KiB to 1 TiB");
  }
  if (shape.keys == 0 || shape.keys > shape.capacity()) {
    throw std::invalid_argument("there are 1 key or more, and no more than the table has places");
  }
  if (shape.batch == 0 || shape.batch > 1u << 26) {
    throw std::invalid_argument("a batch has from 1 to 2^26 SETs");
  }
}

ScratchFolder::ScratchFolder(const std::string& parent) : path_(parent + "/holdfast-power-XXXXXX") {
  bench::check(::mkdtemp(path_.data()) != nullptr, parent.c_str());
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace power
