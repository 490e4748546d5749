#include "prefix_sum/prefix_sum_workload.hpp"

#include <algorithm>
#include <memory>

#include "prefix_sum/prefix_sum.hpp"
#include "prefix_sum/prefix_sum_oracle.hpp"
#include "prefix_sum/rows.hpp"
#include "workload/inputs.hpp"

namespace prefix_sum {
namespace {

using workload::Array;
using workload::Backing;
using workload::Mode;
using workload::Settings;
using workload::Size;

struct Defaults {
  std::uint32_t rows;
  std::uint32_t length;
  std::uint32_t steps;
};

Defaults defaults(Size size) {
  switch (size) {
    case Size::test:
      return {64, 256, 8};
    case Size::real:
      return {1024, 1024, 16};
    case Size::paper:
      break;
  }
  return {1u << 20, 1024, 16};
}

// Zeros, too, and the largest number there is.
std::vector<std::uint32_t> make_numbers(std::uint64_t count, std::uint64_t seed) {
  std::vector<std::uint32_t> numbers(count);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::uint32_t& number : numbers) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto drawn = static_cast<std::uint32_t>(state >> 33);
    number = drawn % 1024 == 1023 ? UINT32_MAX : drawn % 1000;
  }
  return numbers;
}

class PrefixSumWorkload final : public workload::Workload {
 public:
  explicit PrefixSumWorkload(const Settings& settings) : mode_(settings.mode) {
    const Defaults usual = defaults(settings.size);
    rows_ = static_cast<std::uint32_t>(
        workload::number_option(settings, "rows", usual.rows, 1, kMaxBlocks));
    length_ = static_cast<std::uint32_t>(
        workload::number_option(settings, "length", usual.length, 1, kMaxThreads));
    const std::uint64_t steps =
        std::min<std::uint64_t>(settings.steps != 0 ? settings.steps : usual.steps, rows_);
    rows_per_step_ = static_cast<std::uint32_t>((rows_ + steps - 1) / steps);
    numbers_ = make_numbers(size(), settings.seed);
  }

  std::string input() const override {
    return holdfast::detail::concat("generated: ", rows_, " rows of ", length_, " numbers");
  }
  std::uint64_t steps() const override { return (rows_ + rows_per_step_ - 1) / rows_per_step_; }
  std::uint64_t medium_bytes() const override { return 2 * size() * sizeof(std::uint64_t); }
  std::uint64_t kernel_bytes() const override { return kernel_bytes_; }

  void prepare(Backing& backing) override {
    backing_ = &backing;
    partial_ = backing.array<std::uint64_t>("partial", size());
    result_ = backing.array<std::uint64_t>("result", size());
    if (mode_ == Mode::cpu) return;
    device_numbers_ = holdfast::DeviceBuffer<std::uint32_t>(size());
    totals_ = holdfast::DeviceBuffer<std::uint64_t>(rows_per_step_);
    holdfast::copy_async(backing.stream(), device_numbers_.data(), numbers_.data(),
                         device_numbers_.bytes());
    backing.stream().synchronize();
  }

  // Within the step the sentinels say which rows are there.
  std::uint64_t resume() override { return backing_->progress(); }

  void step(std::uint64_t number) override {
    const auto first = static_cast<std::uint32_t>(number * rows_per_step_);
    const RowRange range{first, std::min(rows_per_step_, rows_ - first)};
    const Rows rows{partial_.data, result_.data, length_};
    if (mode_ == Mode::cpu) {
      sum_rows_on_cpu(numbers_.data(), rows, range, backing_->cpu_threads());
    } else {
      sum_rows(backing_->stream(), device_numbers_.data(), rows, range, totals_.data(),
               workload::kernel_persists(mode_));
    }
    const std::uint64_t place = std::uint64_t{range.first} * length_;
    const std::uint64_t count = std::uint64_t{range.count} * length_;
    backing_->publish(partial_, place, count);
    backing_->publish(result_, place, count);
    backing_->set_progress(number + 1);
    kernel_bytes_ += 2 * count * sizeof(std::uint64_t);
  }

  workload::Digest digest() override {
    workload::Digester all;
    for (const auto* sums : {&partial_, &result_}) {
      backing_->for_durable(
          *sums, [&](const unsigned char* bytes, std::uint64_t count) { all.add(bytes, count); });
    }
    return all.finish();
  }

  std::string verify() override {
    const auto compare = [&](const Array<std::uint64_t>& stored, bool from_row_start,
                             const char* what) {
      SumOracle oracle(numbers_, length_, from_row_start, what);
      backing_->for_durable(stored, [&](const unsigned char* bytes, std::uint64_t count) {
        oracle.compare(reinterpret_cast<const std::uint64_t*>(bytes),
                       count / sizeof(std::uint64_t));
      });
      return oracle.wrong();
    };
    const std::string wrong = compare(partial_, true, "partial sum");
    return wrong.empty() ? compare(result_, false, "final sum") : wrong;
  }

 private:
  std::uint64_t size() const { return std::uint64_t{rows_} * length_; }

  Mode mode_;
  std::uint32_t rows_ = 0;
  std::uint32_t length_ = 0;
  std::uint32_t rows_per_step_ = 0;
  std::vector<std::uint32_t> numbers_;
  std::uint64_t kernel_bytes_ = 0;

  Backing* backing_ = nullptr;
  Array<std::uint64_t> partial_;
  Array<std::uint64_t> result_;
  holdfast::DeviceBuffer<std::uint32_t> device_numbers_;
  holdfast::DeviceBuffer<std::uint64_t> totals_;
};

}  // namespace

workload::Info info() {
  return {
      .name = "prefix_sum",
      .summary = "prefix sum with persistent partial and final sums, resumed row by row",
      .kind = workload::Info::Class::native,
      .table_row = 9,
      .options =
          {{"rows",
            "rows, each of which one block sums up (default 64, 1,024 or 1,048,576 by size)"},
           {"length", "numbers of a row, 1 to 1,024 (default 1,024; size test: 256)"}},
      .make =
          [](const Settings& settings) { return std::make_unique<PrefixSumWorkload>(settings); },
  };
}

std::vector<workload::Info> workloads() { return {info()}; }

}  // namespace prefix_sum
