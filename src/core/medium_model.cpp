#include "holdfast/testing/medium_model.hpp"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <utility>

#include "holdfast/error.hpp"

namespace holdfast::testing {

using detail::concat;

namespace {

constexpr double kGB = 1e9;
constexpr double kLeast = 1e6;  // bytes a second: below, a workload of megabytes takes minutes
constexpr double kMost = 1e12;
constexpr std::string_view kLimit = "limit=";

// Writes: GPM (ASPLOS '22) section 6.1, as a GPU reaches them over PCIe 3. The paper gives no
// figures for reads. Those, and the latencies beyond DRAM's (of a flushed store 62 against 57 ns,
// of a random load 305 against 101 ns): Yang et al., An Empirical Guide to the Behavior and Use of
// Scalable Persistent Memory (FAST '20), section 3: 6.6 GB/s a module, 5.8 times that for six.
MediumModel optane() {
  MediumModel model;
  model.persist_latency_ns = 5;
  model.write_bytes_per_second = 12.5 * kGB;
  model.unaligned_efficiency = 3.13 / 12.5;
  model.random_efficiency = 0.72 / 12.5;
  model.read_latency_ns = 204;
  model.read_bytes_per_second = 38 * kGB;
  model.label = "optane";
  return model;
}

// A CXL 2.0 Type 3 expander of DDR5 on eight lanes of PCIe 5. Micron's announcement of the CZ120
// (2023): up to 36 GB/s, two reads to a write, so 24 GB/s one way; that writes alone reach the same
// is assumed, and that the access makes no difference, since it is DRAM. Latency: 70 to 90 ns more
// than local DRAM, Li et al., Pond (ASPLOS '23).
MediumModel cxl() {
  MediumModel model;
  model.persist_latency_ns = 80;
  model.write_bytes_per_second = 24 * kGB;
  model.read_latency_ns = 80;
  model.read_bytes_per_second = 24 * kGB;
  model.label = "cxl";
  return model;
}

[[noreturn]] void refuse(std::string_view text, const char* why) {
  throw Error(
      Errc::invalid_argument,
      concat("medium '", text, "': ", why,
             "; use dram, optane, cxl, or limit=RATE with a RATE of 1MB/s to 1000GB/s, such "
             "as limit=1.6GB/s"));
}

double rate_of(std::string_view text, std::string_view rate) {
  double value = 0;
  const auto [end, error] = std::from_chars(rate.data(), rate.data() + rate.size(), value);
  if (error != std::errc()) refuse(text, "its rate is not a number");
  const std::string_view unit = rate.substr(static_cast<std::size_t>(end - rate.data()));
  if (unit == "KB/s") {
    value *= 1e3;
  } else if (unit == "MB/s") {
    value *= 1e6;
  } else if (unit == "GB/s") {
    value *= kGB;
  } else {
    refuse(text, "its rate has no unit that is known (KB/s, MB/s, GB/s)");
  }
  if (!(value >= kLeast && value <= kMost)) refuse(text, "its rate is out of range");
  return value;
}

void check_figure(const char* name, double value, double least, double most) {
  if (value >= least && value <= most) return;  // false for NaN, too
  throw Error(Errc::invalid_argument, concat("a medium model's ", name, " is ", value,
                                             ": give a value from ", least, " to ", most));
}

double seconds(std::uint64_t bytes, double bytes_per_second) {
  return bytes_per_second > 0 ? static_cast<double>(bytes) / bytes_per_second : 0;
}

}  // namespace

const char* to_string(Access access) noexcept {
  switch (access) {
    case Access::aligned:
      return "aligned";
    case Access::unaligned:
      return "unaligned";
    case Access::random:
      return "random";
  }
  return "unknown";
}

MediumModel MediumModel::parse(std::string_view text) {
  if (text == "dram") return {};
  if (text == "optane") return optane();
  if (text == "cxl") return cxl();
  if (!text.starts_with(kLimit)) refuse(text, "there is no such model");
  MediumModel model;
  model.write_bytes_per_second = rate_of(text, text.substr(kLimit.size()));
  model.read_bytes_per_second = model.write_bytes_per_second;
  model.label = text;
  return model;
}

std::string MediumModel::name() const {
  if (!label.empty()) return label;
  return slows() ? "custom" : "dram";
}

bool MediumModel::slows() const {
  return persist_latency_ns > 0 || write_bytes_per_second > 0 || read_latency_ns > 0 ||
         read_bytes_per_second > 0;
}

void MediumModel::check() const {
  constexpr double kLongest = 1e9;  // a second
  constexpr double kSmallest = 1e-6;
  check_figure("persist_latency_ns", persist_latency_ns, 0, kLongest);
  check_figure("read_latency_ns", read_latency_ns, 0, kLongest);
  check_figure("write_bytes_per_second", write_bytes_per_second, 0, kMost);
  check_figure("read_bytes_per_second", read_bytes_per_second, 0, kMost);
  check_figure("unaligned_efficiency", unaligned_efficiency, kSmallest, 1);
  check_figure("random_efficiency", random_efficiency, kSmallest, 1);
}

double MediumModel::write_seconds(std::uint64_t bytes, Access access) const {
  const double aligned = seconds(bytes, write_bytes_per_second);
  switch (access) {
    case Access::unaligned:
      return aligned / unaligned_efficiency;
    case Access::random:
      return aligned / random_efficiency;
    case Access::aligned:
      break;
  }
  return aligned;
}

double MediumModel::read_seconds(std::uint64_t bytes) const {
  return seconds(bytes, read_bytes_per_second);
}

std::shared_ptr<const MediumModel> standing_for(MediumModel model) {
  return std::make_shared<const MediumModel>(std::move(model));
}

std::shared_ptr<const MediumModel> standing_for(std::string_view text) {
  return standing_for(MediumModel::parse(text));
}

}  // namespace holdfast::testing
