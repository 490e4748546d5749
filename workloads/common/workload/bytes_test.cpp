// What workloads count as stored to the medium, against every store that their kernels make there.
#include <gtest/gtest.h>

#include <cstring>
#include <ostream>

#include "holdfast/cpu/listener.hpp"
#include "support/scratch.hpp"
#include "workload/workload.hpp"

namespace workload {
void PrintTo(const Info& info, std::ostream* out) { *out << info.name; }
}  // namespace workload

namespace {

using holdfast::cpu::Event;
using holdfast::cpu::EventKind;
using workload::Backing;

// Adds up what is stored to a region while it lives.
class Meter : public holdfast::cpu::Listener {
 public:
  explicit Meter(const holdfast::Region& region)
      : first_(static_cast<const char*>(region.base())), bytes_(region.size()) {
    holdfast::cpu::set_listener(this);
  }
  ~Meter() override { holdfast::cpu::set_listener(nullptr); }

  void on_event(const Event& event) override {
    const bool stores = event.kind == EventKind::store || event.kind == EventKind::release ||
                        (event.kind == EventKind::atomic &&
                         std::memcmp(event.value, event.new_value, event.size) != 0);
    const auto* const address = static_cast<const char*>(event.address);
    if (!stores || address < first_ || address >= first_ + bytes_) return;
    if (event.is_copy) by_copies += event.size;
    if (!event.host) by_kernels += event.size;
  }

  std::uint64_t by_kernels = 0;
  std::uint64_t by_copies = 0;

 private:
  const char* first_;
  std::uint64_t bytes_;
};

class EachWorkload : public holdfast::test::Scratch,
                     public ::testing::WithParamInterface<workload::Info> {};

INSTANTIATE_TEST_SUITE_P(Bytes, EachWorkload, ::testing::ValuesIn(workload::workloads()),
                         [](const auto& info) { return info.param.name; });

struct Counts {
  std::uint64_t of_workload, of_backing;  // the latter without progress, which the host stores
  std::uint64_t by_kernels, by_copies;
};

// Of all steps of a run.
Counts count_steps(const workload::Info& info, const workload::Settings& settings,
                   const std::string& path) {
  const auto work = info.make(settings);
  workload::BackingOptions options;
  options.mode = settings.mode;
  options.path = path;
  options.capacity = work->medium_bytes();
  options.cpu_threads = 2;
  Counts counts{};
  {
    Backing backing(options);
    work->prepare(backing);
    const std::uint64_t first = work->resume();
    backing.stream().synchronize();
    const std::uint64_t before = work->kernel_bytes();
    const std::uint64_t written_before = backing.bytes_written();
    std::uint64_t progress_bytes = 0;
    {
      const Meter meter(backing.region());
      for (std::uint64_t step = first; step < work->steps(); ++step) {
        const std::uint64_t progress = backing.progress();
        work->step(step);
        progress_bytes += backing.progress() == progress ? 0 : sizeof(progress);
      }
      backing.stream().synchronize();
      counts.by_kernels = meter.by_kernels;
      counts.by_copies = meter.by_copies;
    }
    counts.of_workload = work->kernel_bytes() - before;
    counts.of_backing = backing.bytes_written() - written_before - progress_bytes;
    EXPECT_EQ(work->verify(), "");
  }
  Backing::destroy(path);
  return counts;
}

void expect_all_counted(const workload::Info& info, const workload::Settings& settings,
                        const std::string& path) {
  const Counts counts = count_steps(info, settings, path);
  EXPECT_GT(counts.by_kernels, 0u);
  EXPECT_EQ(counts.of_workload + counts.of_backing, counts.by_kernels + counts.by_copies);
}

// What is copied, by checkpoints, the backing counts.
TEST_P(EachWorkload, CountsTheBytesThatItsKernelsStore) {
  expect_all_counted(GetParam(), {}, path());
}

// Entries of the conventional log are elsewhere, and as large.
TEST_P(EachWorkload, CountsTheConventionalLog) {
  if (GetParam().options.count("log") == 0) GTEST_SKIP() << "it has no log to choose";
  workload::Settings settings;
  settings.options["log"] = "conventional";
  expect_all_counted(GetParam(), settings, path());
}

// There the CPU persists what kernels store. Of a checkpoint the backing counts it.
TEST_P(EachWorkload, CountsWhatKernelsStoreWithoutPersists) {
  workload::Settings settings;
  settings.mode = workload::Mode::ndp;
  const Counts counts = count_steps(GetParam(), settings, path());
  EXPECT_GT(counts.by_kernels, 0u);
  if (GetParam().kind == workload::Info::Class::checkpointing) {
    EXPECT_EQ(counts.of_workload, 0u);
    EXPECT_EQ(counts.of_backing, counts.by_kernels);
    EXPECT_EQ(counts.by_copies, 0u);
  } else {
    EXPECT_EQ(counts.of_workload, counts.by_kernels);
  }
}

// What copies a checkpoint is what the option says.
TEST_P(EachWorkload, CopiesCheckpointsByWhatIsAskedFor) {
  if (GetParam().kind != workload::Info::Class::checkpointing) GTEST_SKIP() << "it makes none";
  for (const workload::Mode mode :
       {workload::Mode::gpm, workload::Mode::eadr, workload::Mode::ndp}) {
    for (const bool by_engine : {false, true}) {
      SCOPED_TRACE(std::string(to_string(mode)) + (by_engine ? ", engine" : ", kernels"));
      workload::Settings settings;
      settings.mode = mode;
      if (by_engine) settings.options["checkpoint"] = "engine";
      const Counts counts = count_steps(GetParam(), settings, path());
      EXPECT_EQ(counts.by_copies != 0, by_engine);
      EXPECT_EQ(counts.of_backing, counts.by_kernels + counts.by_copies);
    }
  }
}

}  // namespace
