// The ranks of a run: groups of the library's own, and groups of Python's.
#include "holdfast/ranks.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstring>

#include "bindings.hpp"

namespace holdfast::python {
namespace {

using namespace nb::literals;
using std::chrono::milliseconds;

RankGroup::Bytes bytes_of(nb::handle object) {
  if (!nb::isinstance<nb::bytes>(object)) {
    throw Error(Errc::invalid_argument,
                "all_gather() of this group of ranks returns no list of bytes");
  }
  const auto bytes = nb::cast<nb::bytes>(object);
  RankGroup::Bytes copy(bytes.size());
  if (!copy.empty()) std::memcpy(copy.data(), bytes.c_str(), copy.size());
  return copy;
}

// A group whose collective is a function of Python's.
class CalledRanks : public RankGroup {
 public:
  CalledRanks(nb::object all_gather, int rank, int size, std::string node)
      : all_gather_(std::move(all_gather)), node_(std::move(node)), rank_(rank), size_(size) {}
  ~CalledRanks() override {
    if (nb::is_alive()) {
      const nb::gil_scoped_acquire gil;
      all_gather_.reset();
    } else {
      all_gather_.release();
    }
  }
  CalledRanks(const CalledRanks&) = delete;
  CalledRanks& operator=(const CalledRanks&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string node() const override { return node_.empty() ? RankGroup::node() : node_; }

  std::vector<Bytes> all_gather(std::span<const std::byte> mine, milliseconds timeout) override {
    const nb::gil_scoped_acquire gil;
    try {
      const nb::object given = all_gather_(nb::bytes(mine.data(), mine.size()),
                                           static_cast<double>(timeout.count()) / 1e3);
      std::vector<Bytes> all;
      for (const nb::handle item : given) all.push_back(bytes_of(item));
      return all;
    } catch (const nb::python_error& error) {
      const std::string kind = nb::cast<std::string>(nb::str(error.type().attr("__name__")));
      throw Error(Errc::rank_lost, detail::concat(kind, ": ", nb::str(error.value()).c_str()));
    }
  }

 private:
  nb::object all_gather_;
  const std::string node_;
  const int rank_, size_;
};

}  // namespace

std::chrono::milliseconds parse_timeout(double seconds) {
  if (std::isfinite(seconds) && seconds > 0 && seconds < 1e9) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
  }
  throw Error(Errc::invalid_argument, "a timeout is seconds, more than 0 and less than 10^9");
}

void bind_ranks(nb::module_& module) {
  nb::class_<RankGroup>(module, "RankGroup", "The processes of a run.")
      .def_prop_ro("rank", &RankGroup::rank, "0 to size - 1")
      .def_prop_ro("size", &RankGroup::size)
      .def_prop_ro("node", &RankGroup::node, "equal for ranks that share a machine")
      .def(
          "all_gather",
          [](RankGroup& group, const nb::bytes& mine, double timeout) {
            std::vector<RankGroup::Bytes> all;
            {
              const auto* const data = reinterpret_cast<const std::byte*>(mine.c_str());
              const std::span<const std::byte> given(data, mine.size());
              nb::gil_scoped_release no_gil;
              all = group.all_gather(given, parse_timeout(timeout));
            }
            std::vector<nb::bytes> result;
            for (const RankGroup::Bytes& bytes : all) {
              result.emplace_back(bytes.data(), bytes.size());
            }
            return result;
          },
          "mine"_a, "timeout"_a,
          "Returns what each rank has given, by rank. Collective; timeout: seconds.");
  module.def(
      "local_ranks",
      [](const std::string& path, int rank, int size, double timeout, const std::string& node) {
        const LocalRanksOptions options{path, rank, size, parse_timeout(timeout), node};
        nb::gil_scoped_release no_gil;
        return local_ranks(options);
      },
      "path"_a, "rank"_a, "size"_a, "timeout"_a, "node"_a);
  module.def(
      "ranks_from_environment",
      [](double timeout) {
        const milliseconds limit = parse_timeout(timeout);
        nb::gil_scoped_release no_gil;
        return ranks_from_environment(limit);
      },
      "timeout"_a);
  module.def(
      "ranks_by_call",
      [](nb::object all_gather, int rank, int size, const std::string& node) {
        return std::shared_ptr<RankGroup>(
            std::make_shared<CalledRanks>(std::move(all_gather), rank, size, node));
      },
      "all_gather"_a, "rank"_a, "size"_a, "node"_a);
}

}  // namespace holdfast::python
