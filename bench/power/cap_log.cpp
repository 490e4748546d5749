#include <unistd.h>

#include <atomic>
#include <cstring>
#include <optional>

#include "bench.hpp"
#include "device_table.hpp"
#include "system.hpp"

namespace power {
namespace {

// In front of each batch, in a page of its own where the batch does not fit behind it.
struct Header {
  std::uint64_t magic;
  std::uint64_t sequence;  // from 1
  std::uint64_t sets;
  std::uint64_t sum;  // of keys, then values
  std::uint64_t own;  // of the four above
};
constexpr std::uint64_t kMagic = 0x676f6c2d706163u;  // "cap-log"
constexpr std::uint64_t kHeaderBytes = 64;
static_assert(sizeof(Header) <= kHeaderBytes);

std::uint64_t own_sum(const Header& header) { return checksum(&header.magic, 4, 0); }

std::uint64_t record_bytes(std::uint32_t batch) {
  return disk_rounded(kHeaderBytes + std::uint64_t{batch} * 16);
}

class CapLog : public System {
 public:
  explicit CapLog(const Setting& setting)
      : shape_(setting.shape),
        path_(setting.folder + "/cap-log"),
        team_(setting.threads),
        table_(std::in_place, shape_),
        file_(std::in_place, path_, setting.turns * record_bytes(shape_.batch)),
        record_(record_bytes(shape_.batch)),
        sum_(1),
        sum_host_(1) {}

  ~CapLog() override { ::unlink(path_.c_str()); }
  CapLog(const CapLog&) = delete;
  CapLog& operator=(const CapLog&) = delete;

  const Promise& promise() const override { return promise_; }

  Turn run(const Inputs& inputs) override {
    if (file_->bytes() < (sequence_ + 1) * record_.bytes()) {
      throw std::runtime_error("cap-log: the log is full: more turns than were asked for");
    }
    Turn turn;
    turn.total_seconds = bench::seconds([&] {
      started_.record(stream_);
      table_->set(stream_, inputs.device_keys(0), inputs.device_values(0), shape_.batch);
      ended_.record(stream_);
      turn.commit_seconds = bench::seconds([&] { append(inputs); });
      stream_.synchronize();
    });
    turn.batch_seconds = holdfast::Event::elapsed_ms(started_, ended_) / 1e3;
    turn.disk_bytes = record_.bytes();
    return turn;
  }

  void crash() override {
    table_.reset();
    file_.reset();
  }

  Recovered recover(const Oracle& oracle) override {
    const DiskFile file = DiskFile::open_cold(path_);
    const PinnedMemory bytes(file.bytes());
    Recovered result;
    result.seconds = bench::seconds([&] {
      table_.emplace(shape_);
      file.read(team_, {0, bytes.data(), bytes.bytes()});
      replay(bytes);
    });
    const PinnedMemory table(shape_.table_bytes);
    table_->save(stream_, table.data());
    Comparison comparison(oracle, promise_.system);
    for_each_pair(table.data(), table.bytes(),
                  [&](std::uint64_t key, std::uint64_t value) { comparison.pair(key, value); });
    result.pairs = comparison.finish(Comparison::Losses::by_eviction);
    result.lost = oracle.distinct() - result.pairs;
    return result;
  }

  std::string io() const override { return direct_ ? "direct" : "buffered"; }
  unsigned cpu_threads() const override { return team_.threads(); }

 private:
  std::uint64_t* words() const {
    return reinterpret_cast<std::uint64_t*>(record_.data() + kHeaderBytes);
  }

  // Beside the kernels that carry the batch out.
  void append(const Inputs& inputs) {
    const std::uint64_t sets = shape_.batch;
    const std::size_t half = sets * sizeof(std::uint64_t);
    holdfast::fill_async(beside_, sum_.data(), 0, sum_.bytes());
    launch_checksum(beside_, inputs.device_keys(0), sets, 0, sum_.data());
    launch_checksum(beside_, inputs.device_values(0), sets, sets, sum_.data());
    holdfast::copy_async(beside_, words(), inputs.device_keys(0), half);
    holdfast::copy_async(beside_, words() + sets, inputs.device_values(0), half);
    holdfast::copy_async(beside_, sum_host_.data(), sum_.data(), sum_.bytes());
    beside_.synchronize();
    Header header{kMagic, sequence_ + 1, sets, sum_host_[0], 0};
    header.own = own_sum(header);
    std::memcpy(record_.data(), &header, sizeof(header));
    const DiskFile::Piece piece{sequence_ * record_.bytes(), record_.data(), record_.bytes()};
    file_->write(team_, {&piece, 1});
    file_->sync();
    direct_ = file_->direct();
    ++sequence_;
  }

  // Whole records, in order; the first that is not whole ends the log.
  void replay(const PinnedMemory& bytes) {
    holdfast::DeviceBuffer<std::uint64_t> keys(shape_.batch), values(shape_.batch);
    const std::size_t half = keys.bytes();
    const std::uint64_t each = record_bytes(shape_.batch);
    for (std::uint64_t i = 0; (i + 1) * each <= bytes.bytes(); ++i) {
      Header header;
      std::memcpy(&header, bytes.data() + i * each, sizeof(header));
      if (header.magic != kMagic || header.own != own_sum(header)) break;
      if (header.sequence != i + 1 || header.sets != shape_.batch) break;
      const auto* const pairs =
          reinterpret_cast<const std::uint64_t*>(bytes.data() + i * each + kHeaderBytes);
      if (sum_of(pairs) != header.sum) break;
      holdfast::copy_async(stream_, keys.data(), pairs, half);
      holdfast::copy_async(stream_, values.data(), pairs + shape_.batch, half);
      table_->set(stream_, keys.data(), values.data(), shape_.batch);
    }
    stream_.synchronize();
  }

  std::uint64_t sum_of(const std::uint64_t* pairs) {
    constexpr std::uint64_t kWords = 1 << 17;
    std::atomic<std::uint64_t> sum{0};
    team_.for_chunks(std::uint64_t{shape_.batch} * 2, kWords,
                     [&](unsigned, std::uint64_t first, std::uint64_t count) {
                       sum += checksum(pairs + first, count, first);
                     });
    return sum;
  }

  const Promise promise_{"cap-log",
                         "redo log of the pairs",
                         "power",
                         "batches",
                         "a batch survives a power cut once it returned, as an entry of the log; "
                         "the table itself is never durable",
                         "replays every batch since the log began, which nothing here shortens"};
  Shape shape_;
  std::string path_;
  Team team_;
  holdfast::Stream stream_, beside_;
  holdfast::Event started_, ended_;
  std::optional<DeviceTable> table_;
  std::optional<DiskFile> file_;
  PinnedMemory record_;
  holdfast::DeviceBuffer<unsigned long long> sum_;
  holdfast::PinnedBuffer<unsigned long long> sum_host_;
  std::uint64_t sequence_ = 0;
  bool direct_ = false;
};

}  // namespace

std::unique_ptr<System> make_cap_log(const Setting& setting) {
  return std::make_unique<CapLog>(setting);
}

}  // namespace power
