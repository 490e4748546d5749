// A migration's shot with each way to keep its wavefields: the stores of examples/adjoint.
//
//   adjoint_bench [--option=value ...] CELL ...
//
// A CELL is STORE/FORM and settings, for example history/packed/every=8/host_mib=4096. STORE: none
// (computes alone, and its image is wrong), memory, revolve, history. FORM: exact, packed.
// Settings: every (steps from one that is kept to the next), snapshots (of revolve), gpu_mib,
// host_mib and disk=1 (of history). All cells keep as many steps of as many bytes, so those with a
// larger `every` compute more beside.
//
// A line of JSON for each cell. A cell's shot is run once before it is timed, and then --repeat
// times; the medians count. Each image is compared, bit for bit, with that of the first cell with
// the same form and `every`; exit status 1 if one differs, or shows nothing, 2 if a store fails but
// for want of memory, which the line says.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adjoint/history_store.hpp"
#include "adjoint/misfit.hpp"
#include "adjoint/snapshot_store.hpp"
#include "adjoint/solver.hpp"
#include "adjoint/survey.hpp"
#include "bench.hpp"
#include "holdfast/error.hpp"

namespace {

using adjoint::SnapshotStore;
using holdfast::Errc;
using holdfast::Error;
using holdfast::Stream;
using holdfast::Tier;

struct Settings {
  std::uint64_t nx = 64, nz = 64;
  std::uint64_t kept = 60;  // steps that are kept, of whatever cell
  std::uint64_t repeat = 3;
  std::uint64_t seconds = 0;  // no cell begins later, nor is one repeated; 0: no limit
  std::string disk;
  std::vector<std::string> cells;
};

struct Cell {
  std::string name, store, form;
  std::uint64_t every = 1, snapshots = 16, gpu_mib = 1, host_mib = 1, disk = 0;
};

struct Models {  // velocities
  std::vector<double> truth, smooth;
};

[[noreturn]] void refuse(const std::string& why) { throw Error(Errc::invalid_argument, why); }

std::uint64_t number(const std::string& word, const std::string& text) {
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text.c_str(), &end, 0);
  if (text.empty() || *end != '\0' || text[0] == '-' || value > 1u << 30) {
    refuse(word + ": give a whole number, at most 2^30");
  }
  return value;
}

std::uint64_t* setting(Cell& cell, std::string_view name) {
  if (name == "every") return &cell.every;
  if (name == "snapshots") return &cell.snapshots;
  if (name == "gpu_mib") return &cell.gpu_mib;
  if (name == "host_mib") return &cell.host_mib;
  if (name == "disk") return &cell.disk;
  return nullptr;
}

Cell parse_cell(const std::string& name) {
  Cell cell;
  cell.name = name;
  std::size_t place = 0;
  for (int word_number = 0; place <= name.size(); ++word_number) {
    const std::size_t slash = std::min(name.find('/', place), name.size());
    const std::string word = name.substr(place, slash - place);
    place = slash + 1;
    if (word_number < 2) {
      (word_number == 0 ? cell.store : cell.form) = word;
      continue;
    }
    const std::size_t equals = word.find('=');
    std::uint64_t* const value = setting(cell, word.substr(0, equals));
    if (value == nullptr || equals == std::string::npos) {
      refuse(name + ": '" + word + "': every=, snapshots=, gpu_mib=, host_mib= or disk=");
    }
    *value = number(word, word.substr(equals + 1));
  }
  for (const char* store : {"none", "memory", "revolve", "history"}) {
    if (cell.store != store) continue;
    if (cell.form != "exact" && cell.form != "packed") refuse(name + ": exact or packed?");
    if (cell.every == 0) refuse(name + ": every=0: give 1 or more");
    return cell;
  }
  refuse(name + ": STORE/FORM, of none, memory, revolve and history");
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--", 0) != 0) {
      settings.cells.push_back(word);
      continue;
    }
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    const std::string value = equals == word.size() ? "" : word.substr(equals + 1);
    if (name == "--disk") {
      settings.disk = value;
      continue;
    }
    std::uint64_t* const place = name == "--nx"        ? &settings.nx
                                 : name == "--nz"      ? &settings.nz
                                 : name == "--kept"    ? &settings.kept
                                 : name == "--repeat"  ? &settings.repeat
                                 : name == "--seconds" ? &settings.seconds
                                                       : nullptr;
    if (place == nullptr) {
      refuse(word + ": there are --nx= --nz= --kept= --repeat= --seconds= --disk=");
    }
    *place = number(word, value);
  }
  if (settings.cells.empty()) refuse("no cell is given, such as history/exact/every=8");
  return settings;
}

// What computing takes with nothing kept.
class NoStore : public SnapshotStore {
 public:
  void plan(std::span<const std::uint64_t> /*order*/) override { sizes_.clear(); }
  void protect(const std::string& /*name*/, void* /*device*/, std::uint64_t bytes) override {
    bytes_ = bytes;
  }
  void save(std::uint64_t step, Stream& /*stream*/) override { sizes_[step] = bytes_; }
  void restore(std::uint64_t /*step*/, Stream& /*stream*/) override {}
  std::uint64_t size(std::uint64_t step, const std::string& /*name*/) const override {
    return sizes_.at(step);
  }
  std::uint64_t most_bytes() const override { return 0; }

 private:
  std::map<std::uint64_t, std::uint64_t> sizes_;
  std::uint64_t bytes_ = 0;
};

// Hands on to another store, and adds up for how long its calls kept the program.
class TimedStore : public SnapshotStore {
 public:
  explicit TimedStore(SnapshotStore& of) : of_(of) {}
  void plan(std::span<const std::uint64_t> order) override {
    seconds += bench::seconds([&] { of_.plan(order); });
  }
  void protect(const std::string& name, void* device, std::uint64_t bytes) override {
    of_.protect(name, device, bytes);
  }
  void save(std::uint64_t step, Stream& stream) override {
    seconds += bench::seconds([&] { of_.save(step, stream); });
  }
  void restore(std::uint64_t step, Stream& stream) override {
    seconds += bench::seconds([&] { of_.restore(step, stream); });
  }
  std::uint64_t size(std::uint64_t step, const std::string& name) const override {
    return of_.size(step, name);
  }
  bool recomputes() const override { return of_.recomputes(); }
  std::uint64_t most_bytes() const override { return of_.most_bytes(); }

  double seconds = 0;

 private:
  SnapshotStore& of_;
};

struct Bits {
  std::string cell;  // whose they are
  std::vector<float> sensitivity, correlation, illumination;
  bool blank() const {
    return std::all_of(correlation.begin(), correlation.end(), [](float v) { return v == 0; });
  }
  bool same(const Bits& other) const {
    const auto equal = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    return equal(sensitivity, other.sensitivity) && equal(correlation, other.correlation) &&
           equal(illumination, other.illumination);
  }
};

// What one shot took.
struct Shot {
  double forward = 0, backward = 0;              // seconds, each until the stream is done
  double forward_calls = 0, backward_calls = 0;  // of which the calls of the store
  std::uint64_t recomputed = 0;                  // steps
};

// The most that a store held, by where.
struct Held {
  std::uint64_t gpu = 0, host = 0, disk = 0;
};

// The cell's program: its buffers, its store, its shots.
class Run {
 public:
  Run(const Settings& settings, const Cell& cell, const Models& models)
      : cell_(cell),
        survey_(adjoint::make_survey(settings.nx, settings.nz, settings.kept * cell.every, 1,
                                     cell.every)),
        solver_(survey_, cell.form == "packed"),
        model_(adjoint::to_device<float>(stream_, adjoint::courant2(survey_, models.smooth))),
        observed_(solver_.trace_values()),
        traces_(solver_.trace_values()),
        sums_(survey_.grid.cells) {
    const auto truth = adjoint::to_device<float>(stream_, adjoint::courant2(survey_, models.truth));
    solver_.record(stream_, truth.data(), 0, observed_.data());
    stream_.synchronize();
    setup_seconds_ = bench::seconds([&] { store_ = make_store(settings.disk); });
    solver_.check(*store_);
  }
  ~Run() {  // the buffers are in use until then
    try {
      stream_.synchronize();
    } catch (const Error&) {  // said by who waited before
    }
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Shot shoot() {
    for (auto* sum : {&sums_.sensitivity, &sums_.correlation, &sums_.illumination}) {
      fill_async(stream_, sum->data(), 0, sum->bytes());
    }
    stream_.synchronize();
    const std::uint64_t recomputed = this->recomputed();
    TimedStore store(*store_);
    Shot shot;
    shot.forward = bench::seconds([&] {
      solver_.forward(stream_, model_.data(), 0, traces_.data(), store);
      stream_.synchronize();
    });
    shot.forward_calls = store.seconds;
    note_held();
    adjoint::subtract(stream_, traces_.size(), traces_.data(), observed_.data());
    stream_.synchronize();
    store.seconds = 0;
    shot.backward = bench::seconds([&] {
      solver_.backward(stream_, traces_.data(), store, sums_.sums());
      stream_.synchronize();
    });
    shot.backward_calls = store.seconds;
    shot.recomputed = (this->recomputed() - recomputed) * cell_.every;
    return shot;
  }

  Bits bits() {
    const auto host = [&](const holdfast::DeviceBuffer<float>& sum) {
      std::vector<float> values(sum.size());
      copy_async(stream_, values.data(), sum.data(), sum.bytes());
      stream_.synchronize();
      return values;
    };
    return {cell_.name, host(sums_.sensitivity), host(sums_.correlation), host(sums_.illumination)};
  }

  void describe(bench::Line& line) const {
    line.count("steps", survey_.steps).count("kept_steps", survey_.imaged());
    line.count("step_bytes", solver_.field_bytes()).number("setup_seconds", setup_seconds_);
    line.count("most_bytes", store_->most_bytes()).count("gpu_bytes", held_.gpu);
    line.count("host_bytes", held_.host).count("disk_bytes", held_.disk);
    if (history_ == nullptr) return;
    const holdfast::HistoryStats stats = history_->stats();
    line.count("waits", stats.waits);
    for (const Tier tier : {Tier::gpu, Tier::host, Tier::disk}) {
      const auto& count = stats.restored_from[static_cast<int>(tier)];
      line.count((std::string("from_") + to_string(tier)).c_str(), count.checkpoints);
    }
  }

 private:
  std::uint64_t recomputed() const { return revolve_ == nullptr ? 0 : revolve_->recomputed(); }

  std::unique_ptr<SnapshotStore> make_store(const std::string& disk) {
    if (cell_.store == "none") return std::make_unique<NoStore>();
    if (cell_.store == "memory") return std::make_unique<adjoint::MemoryStore>();
    if (cell_.store == "revolve") {
      auto store = std::make_unique<adjoint::RevolveStore>(
          cell_.snapshots,
          [this](std::uint64_t step, Stream& stream) { solver_.advance(step, stream); });
      revolve_ = store.get();
      return store;
    }
    if (cell_.disk != 0 && disk.empty()) refuse(cell_.name + ": disk=1 needs --disk=FOLDER");
    holdfast::HistoryOptions options;
    options.gpu_bytes = cell_.gpu_mib << 20;
    options.host_bytes = cell_.host_mib << 20;
    if (cell_.disk != 0) options.disk = disk + "/steps";
    auto store = std::make_unique<adjoint::HistoryStore>(options);
    history_ = store.get();
    return store;
  }

  // Behind a forward pass, when the most is kept.
  void note_held() {
    if (history_ == nullptr) {
      held_.gpu = store_->most_bytes();
      return;
    }
    const holdfast::HistoryStats stats = history_->stats();
    const auto most = [&](std::uint64_t& bytes, Tier tier) {
      bytes = std::max(bytes, stats.held_in[static_cast<int>(tier)].bytes);
    };
    most(held_.gpu, Tier::gpu);
    most(held_.host, Tier::host);
    most(held_.disk, Tier::disk);
  }

  Cell cell_;
  adjoint::Survey survey_;
  Stream stream_;
  adjoint::Solver<float> solver_;
  holdfast::DeviceBuffer<float> model_, observed_, traces_;
  adjoint::SumBuffers<float> sums_;
  std::unique_ptr<SnapshotStore> store_;
  adjoint::RevolveStore* revolve_ = nullptr;
  adjoint::HistoryStore* history_ = nullptr;
  Held held_;
  double setup_seconds_ = 0;
};

void print_times(bench::Line& line, const std::vector<Shot>& shots) {
  const auto median = [&](auto value) {
    std::vector<double> values;
    values.reserve(shots.size());
    for (const Shot& shot : shots) values.push_back(value(shot));
    return bench::median(values);
  };
  const auto seconds = [](const Shot& shot) { return shot.forward + shot.backward; };
  std::vector<double> all;
  all.reserve(shots.size());
  for (const Shot& shot : shots) all.push_back(seconds(shot));
  line.number("seconds", median(seconds)).numbers("shot_seconds", all);
  line.number("forward_seconds", median([](const Shot& shot) { return shot.forward; }));
  line.number("backward_seconds", median([](const Shot& shot) { return shot.backward; }));
  line.number("forward_call_seconds", median([](const Shot& shot) { return shot.forward_calls; }));
  line.number("backward_call_seconds",
              median([](const Shot& shot) { return shot.backward_calls; }));
  line.count("recomputed_steps", shots.front().recomputed);
}

// The images so far, by form and `every`.
class Images {
 public:
  // Whether there is an image, and that of the first cell; and for a packed one how far it is from
  // exact.
  bool compare(const Cell& cell, Bits bits, bench::Line& line) {
    if (bits.blank()) {  // any store has that
      std::fprintf(stderr, "%s: nothing comes back in so few steps: give more\n",
                   cell.name.c_str());
      return false;
    }
    const auto exact = first_.find({"exact", cell.every});
    if (cell.form == "packed" && exact != first_.end()) {
      const auto wide = [](const std::vector<float>& values) {
        return std::vector<double>(values.begin(), values.end());
      };
      line.number("correlation_error",
                  adjoint::relative_error(wide(bits.correlation), wide(exact->second.correlation)));
    }
    const auto [first, is_first] = first_.try_emplace({cell.form, cell.every}, bits);
    if (is_first) return true;
    const bool same = first->second.same(bits);
    line.text("image_of", first->second.cell).count("same_image", same ? 1 : 0);
    if (!same) std::fprintf(stderr, "%s: another image\n", cell.name.c_str());
    return same;
  }

 private:
  std::map<std::pair<std::string, std::uint64_t>, Bits> first_;
};

// False: its image is wrong.
bool measure(const Settings& settings, const Cell& cell, const Models& models, double left,
             Images& images) {
  bench::Line line("adjoint_shot");
  line.text("cell", cell.name).text("store", cell.store).text("form", cell.form);
  line.count("every", cell.every).count("nx", settings.nx).count("nz", settings.nz);
  if (cell.store == "revolve") line.count("snapshots", cell.snapshots);
  if (cell.store == "history") {
    line.count("gpu_cache_bytes", cell.gpu_mib << 20)
        .count("host_cache_bytes", cell.host_mib << 20);
  }
  bool right = true;
  try {
    std::vector<Shot> shots;
    double spent = 0;
    Run run(settings, cell, models);
    spent += bench::seconds([&] { run.shoot(); });
    do {
      spent += bench::seconds([&] { shots.push_back(run.shoot()); });
    } while (shots.size() < settings.repeat && (left == 0 || spent < left));
    print_times(line, shots);
    run.describe(line);
    if (cell.store != "none") right = images.compare(cell, run.bits(), line);
  } catch (const Error& error) {
    if (error.code() != Errc::no_memory) throw;
    line.text("error", "no_memory");
    std::fprintf(stderr, "%s: %s\n", cell.name.c_str(), error.what());
  }
  line.print();
  return right;
}

int measure_all(const Settings& settings) {
  constexpr double kBlur = 6.0;  // cells
  std::vector<Cell> cells;
  cells.reserve(settings.cells.size());
  for (const std::string& name : settings.cells) cells.push_back(parse_cell(name));
  const auto start = std::chrono::steady_clock::now();
  Models models;
  models.truth = adjoint::layered_velocity(settings.nx, settings.nz);
  models.smooth = adjoint::smoothed(models.truth, settings.nx, settings.nz, kBlur);
  Images images;
  bool right = true;
  for (const Cell& cell : cells) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    const double left = static_cast<double>(settings.seconds) - spent.count();
    if (settings.seconds != 0 && left <= 0) {
      std::fprintf(stderr, "%s: left, for %llu seconds are over\n", cell.name.c_str(),
                   static_cast<unsigned long long>(settings.seconds));
      continue;
    }
    right &= measure(settings, cell, models, settings.seconds == 0 ? 0 : left, images);
  }
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return measure_all(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "adjoint_bench: %s\n", error.what());
    return 2;
  }
}
