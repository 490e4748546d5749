#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "bench.hpp"
#include "device_table.hpp"
#include "system.hpp"

namespace power {
namespace {

static_assert(kTablePage == kDiskPage);

// How many scattered pages a disk likes to have under way is its own affair: the fastest counts.
constexpr std::array<unsigned, 3> kTimesThreads = {1, 4, 8};

class CapPages : public System {
 public:
  explicit CapPages(const Setting& setting)
      : shape_(setting.shape),
        path_(setting.folder + "/cap-pages"),
        table_(std::in_place, shape_),
        file_(std::in_place, path_, shape_.table_bytes) {
    for (const unsigned times : kTimesThreads) {
      teams_.push_back(std::make_unique<Team>(setting.threads * times));
    }
    best_.fill(std::numeric_limits<double>::infinity());
    table_->gather(stream_);  // takes its memory
  }

  ~CapPages() override { ::unlink(path_.c_str()); }
  CapPages(const CapPages&) = delete;
  CapPages& operator=(const CapPages&) = delete;

  const Promise& promise() const override { return promise_; }

  Turn run(const Inputs& inputs) override {
    const std::size_t tried = warm_ ? chosen_ : round_++ % teams_.size();
    Turn turn;
    turn.batch_seconds = bench::seconds([&] {
      for (unsigned i = 0; i < inputs.count(); ++i) {
        table_->set(stream_, inputs.device_keys(i), inputs.device_values(i), shape_.batch);
      }
      stream_.synchronize();
    });
    turn.commit_seconds = bench::seconds([&] { turn.disk_bytes = publish(*teams_[tried]); });
    turn.total_seconds = turn.batch_seconds + turn.commit_seconds;
    if (!warm_) best_[tried] = std::min(best_[tried], turn.commit_seconds);
    return turn;
  }

  void warmed_up() override {
    warm_ = true;
    chosen_ =
        static_cast<std::size_t>(std::min_element(best_.begin(), best_.end()) - best_.begin());
  }

  void crash() override {
    table_.reset();
    file_.reset();
  }

  Recovered recover(const Oracle& oracle) override {
    const DiskFile file = DiskFile::open_cold(path_);
    if (file.bytes() != shape_.table_bytes) {
      throw std::runtime_error("cap-pages: its file has another size");
    }
    const PinnedMemory bytes(shape_.table_bytes);
    Recovered result;
    result.seconds = bench::seconds([&] {
      file.read(*teams_[chosen_], {0, bytes.data(), bytes.bytes()});
      table_.emplace(shape_);
      table_->load(stream_, bytes.data());
    });
    Comparison comparison(oracle, promise_.system);
    for_each_pair(bytes.data(), bytes.bytes(),
                  [&](std::uint64_t key, std::uint64_t value) { comparison.pair(key, value); });
    result.pairs = comparison.finish(Comparison::Losses::by_eviction);
    result.lost = oracle.distinct() - result.pairs;
    return result;
  }

  std::string io() const override { return direct_ ? "direct" : "buffered"; }
  unsigned cpu_threads() const override { return teams_[chosen_]->threads(); }

 private:
  // Runs of neighbours are one piece. Returns the bytes.
  std::uint64_t publish(Team& team) {
    const DeviceTable::Pages pages = table_->gather(stream_);
    std::vector<DiskFile::Piece> pieces;
    for (std::uint32_t i = 0; i < pages.count; ++i) {
      const std::uint64_t offset = pages.numbers[i] * kTablePage;
      if (!pieces.empty() && pieces.back().offset + pieces.back().bytes == offset) {
        pieces.back().bytes += kTablePage;
      } else {
        pieces.push_back({offset, pages.bytes + i * kTablePage, kTablePage});
      }
    }
    file_->write(team, pieces);
    file_->sync();
    direct_ = file_->direct();
    return pages.count * kTablePage;
  }

  const Promise promise_{
      "cap-pages",
      "changed pages in place",
      "power",
      "nothing",
      "a batch survives a power cut once it returned; one that is cut off leaves "
      "pages of two batches, and nothing tells",
      "reads the table, copies it to the device"};
  Shape shape_;
  std::string path_;
  holdfast::Stream stream_;
  std::optional<DeviceTable> table_;
  std::optional<DiskFile> file_;
  std::vector<std::unique_ptr<Team>> teams_;
  std::array<double, kTimesThreads.size()> best_{};
  std::size_t chosen_ = 0, round_ = 0;
  bool warm_ = false, direct_ = false;
};

}  // namespace

std::unique_ptr<System> make_cap_pages(const Setting& setting) {
  return std::make_unique<CapPages>(setting);
}

}  // namespace power
