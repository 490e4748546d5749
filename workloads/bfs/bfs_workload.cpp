#include <algorithm>
#include <memory>
#include <optional>

#include "bfs/bfs.hpp"
#include "bfs/search.hpp"
#include "workload/cpu_flush.hpp"
#include "workload/inputs.hpp"

namespace bfs {
namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;
using workload::Array;
using workload::Backing;
using workload::Mode;
using workload::Settings;
using workload::Size;
using u32 = std::uint32_t;

constexpr const char* kRealInput = "road/NY.gr.xz";
constexpr std::uint32_t kMostSide = 1u << 16;

struct Shape {
  u32 width;
  u32 height;
};

// Of generated graphs. With the source in the middle these take 74, 881 and 5,866 levels.
Shape default_shape(Size size) {
  switch (size) {
    case Size::test:
      return {96, 32};
    case Size::real:
      return {1600, 160};
    case Size::paper:
      break;
  }
  return {9000, 2667};
}

struct Input {
  Graph graph;
  std::string words;
  u32 source;  // by default
};

Input real_input(const std::string& text, const std::string& name, const std::string& words) {
  Input input;
  input.graph = parse_graph(text, name);
  input.words = words;
  input.source = 0;
  return input;
}

Input generated_input(const Settings& settings) {
  const Shape usual = default_shape(settings.size);
  const auto width =
      static_cast<u32>(workload::number_option(settings, "width", usual.width, 1, kMostSide));
  const auto height =
      static_cast<u32>(workload::number_option(settings, "height", usual.height, 1, kMostSide));
  if (std::uint64_t{width} * height > kMostNodes) {
    throw Error(Errc::invalid_argument, concat("options width=", width, " and height=", height,
                                               ": give at most ", kMostNodes, " nodes"));
  }
  Input input;
  input.graph = make_road_grid(width, height, settings.seed);
  input.words = concat("generated: road grid of ", width, " x ", height);
  input.source = height / 2 * width + width / 2;
  return input;
}

Input read_or_make(const Settings& settings) {
  const auto named = workload::read_named_input(
      settings, "graph",
      "a graph in the DIMACS form, such as a road network of the 9th DIMACS challenge "
      "(http://www.diag.uniroma1.it/challenge9)");
  if (named) return real_input(named->text, named->path, named->path);
  if (settings.size == Size::real) {
    const auto text = workload::read_input(settings.data_folder, kRealInput);
    if (text) return real_input(*text, kRealInput, "New York road network");
  }
  return generated_input(settings);
}

class Bfs final : public workload::Workload {
 public:
  explicit Bfs(const Settings& settings) : mode_(settings.mode) {
    Input input = read_or_make(settings);
    graph_ = std::move(input.graph);
    source_ = static_cast<u32>(workload::number_option(settings, "source", input.source + 1, 1,
                                                       graph_.nodes())) -
              1;
    words_ = concat(input.words, ", ", graph_.nodes(), " nodes, ", graph_.targets.size(),
                    " arcs, from node ", source_ + 1);
    levels_per_step_ = workload::number_option(settings, "levels_per_step",
                                               settings.size == Size::test ? 16 : 64, 1, 1u << 20);
    publish_costs_ = workload::number_option(settings, "publish_costs", 0, 0, 1) != 0;
    // The number of steps has to be known beforehand, so the oracle searches first.
    expected_ = oracle_costs(graph_, source_);
    u32 deepest = 0;
    for (const u32 cost : expected_) {
      if (cost != kUnreached) deepest = std::max(deepest, cost);
    }
    levels_ = deepest + 1;  // the last one finds nothing, which is how a search ends
    steps_ = (levels_ + levels_per_step_ - 1) / levels_per_step_;
    if (settings.steps != 0) steps_ = std::min(steps_, settings.steps);
  }

  std::string input() const override { return words_; }
  std::uint64_t steps() const override { return steps_; }
  std::uint64_t medium_bytes() const override {
    return (2 * std::uint64_t{graph_.nodes()} + levels_ + 1) * sizeof(u32);
  }
  std::uint64_t kernel_bytes() const override {
    const Reached now = reached();
    const std::uint64_t ends = ends_come_later() ? 0 : now.levels - resumed_.levels;
    return (std::uint64_t{now.end - resumed_.end} * 2 + ends) * sizeof(u32);
  }

  void prepare(Backing& backing) override {
    backing_ = &backing;
    costs_ = backing.array<u32>("costs", graph_.nodes());
    sequence_ = backing.array<u32>("sequence", graph_.nodes());
    ends_ = backing.array<u32>("ends", levels_ + 1);
    Durable durable{costs_.data, sequence_.data, ends_.data};
    if (mode_ == Mode::cpu) {
      on_cpu_.emplace(graph_, durable, levels_, backing.cpu_threads());
      return;
    }
    if (ends_come_later()) {
      volatile_ends_ = holdfast::DeviceBuffer<u32>(levels_ + 1);
      holdfast::copy_async(backing.stream(), volatile_ends_.data(), ends_.data,
                           volatile_ends_.bytes());
      durable.ends = volatile_ends_.data();
    }
    by_kernels_.emplace(backing.stream(), graph_, durable, levels_,
                        workload::kernel_persists(mode_));
    if (workload::gathers(mode_)) by_kernels_->set_up_gathering();
  }

  std::uint64_t resume() override {
    resumed_ = on_cpu_ ? on_cpu_->recover(source_) : by_kernels_->recover(source_);
    if (resumed_.levels == 0) publish(0, 1, 0);
    if (backing_->progress() == steps_) return steps_;
    // The last step has something to do behind its levels.
    return std::min(resumed_.levels / levels_per_step_, steps_ - 1);
  }

  void step(std::uint64_t number) override {
    const u32 goal = last_level(number + 1);
    const u32 before = reached().levels;
    if (on_cpu_) {
      on_cpu_->expand(goal - std::min(goal, before));
    } else if (workload::kernel_persists(mode_)) {
      by_kernels_->expand(goal - std::min(goal, before));
    } else if (workload::gathers(mode_)) {
      for (u32 level = before; level < goal; ++level) {
        const u32* const nodes = by_kernels_->expand_gathered();
        store_level(nodes, reached().begin, reached().end, level + 1);
      }
    } else {
      // The CPU persists each level, as kernels do where they can.
      for (u32 level = before; level < goal; ++level) {
        by_kernels_->expand(1);
        publish(reached().begin, reached().end, level + 1);
      }
    }
    if (number + 1 < steps_) return;
    if (!stores_costs_with_levels()) backing_->publish(costs_);
    if (on_cpu_) backing_->flush_parallel(costs_.data, costs_.count * sizeof(u32));
    backing_->set_progress(steps_);
  }

  std::uint64_t digest() override { return workload::checksum(backing_->read(costs_)); }
  std::string verify() override;

 private:
  const Reached& reached() const { return on_cpu_ ? on_cpu_->reached() : by_kernels_->reached(); }
  // Levels that are expanded after `steps` steps.
  u32 last_level(std::uint64_t steps) const {
    return static_cast<u32>(std::min<std::uint64_t>(steps * levels_per_step_, levels_));
  }
  // Kernels store to the medium, and do not order what they store.
  bool ends_come_later() const {
    return workload::stores_directly(mode_) && !workload::kernel_persists(mode_);
  }
  // The nodes of a level, and then its end. Costs follow from these (recovery makes them), so the
  // least to transfer is what a level adds to the sequence.
  void publish(u32 begin, u32 end, u32 level);
  // The same by CPU threads that know the nodes. In mode cap_delta the costs, too, before the end:
  // what is on the medium is then what kernels that persist leave there.
  void store_level(const u32* nodes, u32 begin, u32 end, u32 level);
  bool stores_costs_with_levels() const {
    return mode_ == Mode::cap_delta || (mode_ == Mode::cap_delta_raw && publish_costs_);
  }
  std::string verify_sequence(u32 levels);

  Mode mode_;
  Graph graph_;
  u32 source_ = 0;
  std::string words_;
  std::uint64_t levels_per_step_ = 0;
  bool publish_costs_ = false;
  std::vector<u32> expected_;
  u32 levels_ = 0;
  std::uint64_t steps_ = 0;

  Backing* backing_ = nullptr;
  Array<u32> costs_;
  Array<u32> sequence_;
  Array<u32> ends_;
  holdfast::DeviceBuffer<u32> volatile_ends_;
  std::optional<Search> by_kernels_;
  std::optional<CpuSearch> on_cpu_;
  Reached resumed_;
};

void Bfs::publish(u32 begin, u32 end, u32 level) {
  if (workload::kernel_persists(mode_) || on_cpu_) return;
  if (workload::gathers(mode_)) {
    store_level(&source_, begin, end, level);
    return;
  }
  backing_->publish(sequence_, begin, end - begin);
  if (publish_costs_) backing_->publish(costs_);
  if (ends_come_later()) {
    holdfast::copy_async(backing_->stream(), ends_.data + level, volatile_ends_.data() + level,
                         sizeof(u32));
  }
  backing_->publish(ends_, level, 1);
}

void Bfs::store_level(const u32* nodes, u32 begin, u32 end, u32 level) {
  constexpr u32 kPart = 512;  // nodes: fewer are not worth waking a thread for
  const auto on_medium = [&](const Array<u32>& array) {
    return reinterpret_cast<u32*>(backing_->on_medium(array.id));
  };
  u32* const costs = on_medium(costs_);
  u32* const sequence = on_medium(sequence_) + begin;
  u32* const level_end = on_medium(ends_) + level;
  const bool with_costs = stores_costs_with_levels();
  const std::uint64_t added = (end - begin) * sizeof(u32);
  holdfast::testing::Throttle& medium = backing_->throttle();
  backing_->timed([&] {
    const holdfast::testing::Throttle::Mark begun = medium.mark();
    backing_->team().for_chunks(
        end - begin, kPart, [&](unsigned, std::uint64_t first, std::uint64_t count) {
          std::copy_n(nodes + first, count, sequence + first);
          workload::flush_lines(sequence + first, count * sizeof(u32));
          if (!with_costs) return;
          workload::store_scattered(
              count, [&](std::uint64_t i) { return costs + nodes[first + i]; },
              [&](std::uint64_t i) { costs[nodes[first + i]] = level + 1; });
        });
    __atomic_store_n(level_end, end, __ATOMIC_RELEASE);
    workload::flush_lines(level_end, sizeof(u32));
    backing_->count_written(added * (with_costs ? 2 : 1) + sizeof(u32));
    medium.write(begun, added, holdfast::testing::Access::aligned);
    medium.write(begun, (with_costs ? added : 0) + sizeof(u32), holdfast::testing::Access::random);
    medium.wait();
  });
}

std::string Bfs::verify() {
  const u32 levels = last_level(steps_);
  const std::vector<u32> costs = backing_->read(costs_);
  for (std::size_t node = 0; node < costs.size(); ++node) {
    const u32 expected = expected_[node] <= levels ? expected_[node] + 1 : 0;
    if (costs[node] != expected) {
      return concat("node ", node + 1, ": its cost is stored as ", costs[node],
                    ", and should be as ", expected);
    }
  }
  return verify_sequence(levels);
}

// Each node that was reached is there once, in the order of its cost, and the ends are right.
std::string Bfs::verify_sequence(u32 levels) {
  const std::vector<u32> sequence = backing_->read(sequence_);
  const std::vector<u32> ends = backing_->read(ends_);
  std::vector<bool> seen(graph_.nodes());
  u32 i = 0;
  for (u32 level = 0; level <= levels; ++level) {
    for (; i < ends[level] && i < sequence.size(); ++i) {
      const u32 node = sequence[i];
      if (node >= graph_.nodes() || seen[node] || expected_[node] != level) {
        return concat("place ", i, " of the search sequence holds ", node,
                      ", which does not belong into level ", level);
      }
      seen[node] = true;
    }
  }
  for (std::size_t node = 0; node < expected_.size(); ++node) {
    if (seen[node] != (expected_[node] <= levels)) {
      return concat("node ", node + 1, " is missing in the search sequence");
    }
  }
  return {};
}

}  // namespace

workload::Info info() {
  return {
      .name = "bfs",
      .summary = "breadth-first search with persistent costs and search sequence",
      .kind = workload::Info::Class::native,
      .table_row = 7,
      .options =
          {{"graph",
            "file in the DIMACS form, .gz and .xz too (default: the New York road network)"},
           {"source",
            "node to start from, counted from 1 (default 1; of a generated graph its middle)"},
           {"levels_per_step", "levels in a step (default 64; size test: 16)"},
           {"publish_costs",
            "1: where the CPU persists, all costs after each level; 0: once, at the end (default); "
            "cap-delta stores those of the level with it"},
           {"width", "of a generated graph (default 96, 1,600 or 9,000 by size)"},
           {"height", "of a generated graph (default 32, 160 or 2,667 by size)"}},
      .make = [](const Settings& settings) { return std::make_unique<Bfs>(settings); },
      .kernel_access = holdfast::testing::Access::random,
  };
}

std::vector<workload::Info> workloads() { return {info()}; }

}  // namespace bfs
