// gpDB as workloads: INSERT and UPDATE in every mode, resumed, killed, and given bad input.
#include "gpdb/gpdb.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "gpdb/input.hpp"
#include "gpdb/table.hpp"
#include "holdfast/error.hpp"
#include "holdfast/stream.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"
#include "workload_checks.hpp"

namespace {

using holdfast::Errc;
using holdfast::test::error_of;
using workload::Info;
using workload::Mode;
using workload::Settings;
using workload_checks::error_with;

bool on_cpu() { return std::string_view(holdfast::backend::name()) == "cpu"; }

Settings settings_of(Mode mode, std::uint64_t rows = 0) {
  Settings settings;
  settings.mode = mode;
  if (rows != 0) settings.options["rows"] = std::to_string(rows);
  return settings;
}

Info info_named(const std::string& name) {
  return name == "insert" ? gpdb::insert_info() : gpdb::update_info();
}

class Workloads : public ::testing::TestWithParam<std::string> {
 protected:
  Info info() const { return info_named(GetParam()); }
};

std::string name_of(const ::testing::TestParamInfo<std::string>& test) { return test.param; }

TEST_P(Workloads, EndAlikeInEveryMode) {
  const auto expected = workload_checks::run_whole(info(), settings_of(Mode::gpm));
  EXPECT_EQ(expected.steps, 4u);
  for (const Mode mode : workload::all_modes()) {
    const auto run = workload_checks::run_whole(info(), settings_of(mode));
    EXPECT_EQ(run.wrong, "") << to_string(mode);
    EXPECT_EQ(run.digest, expected.digest) << to_string(mode);
  }
}

TEST_P(Workloads, GoOnStepByStep) {
  const auto expected = workload_checks::run_whole(info(), settings_of(Mode::gpm));
  for (const Mode mode : workload::all_modes()) {
    const auto run = workload_checks::run_step_by_step(info(), settings_of(mode));
    EXPECT_EQ(run.wrong, "") << to_string(mode);
    EXPECT_EQ(run.digest, expected.digest) << to_string(mode);
  }
}

TEST_P(Workloads, SurviveKills) {
  if (!on_cpu()) GTEST_SKIP() << "a process with a GPU does not fork";
  for (const Mode mode : {Mode::gpm, Mode::cpu, Mode::cap_mm, Mode::ndp, Mode::cap_fs,
                          Mode::cap_delta, Mode::cap_delta_raw}) {
    SCOPED_TRACE(to_string(mode));
    workload_checks::expect_kills_survived(info(), settings_of(mode), 10, 7);
  }
}

TEST_P(Workloads, TakeRowsThatFillNoBlock) {
  for (const std::uint64_t rows : {4ull, 5ull, 31ull, 2047ull, 2049ull, 4099ull}) {
    for (const Mode mode : {Mode::gpm, Mode::ndp, Mode::cpu, Mode::cap_delta}) {
      const auto run = workload_checks::run_whole(info(), settings_of(mode, rows));
      EXPECT_EQ(run.wrong, "") << rows << " rows, mode " << to_string(mode);
    }
  }
}

TEST_P(Workloads, RefuseBadOptions) {
  for (const char* rows : {"0", "-1", "many", "10x", "99999999999"}) {
    EXPECT_EQ(error_with(info(), {{"rows", rows}}, {"give a whole number"}), Errc::invalid_argument)
        << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Gpdb, Workloads, ::testing::Values("insert", "update"), name_of);

TEST(GpdbInsert, RefusesMoreStepsThanRows) {
  Settings settings = settings_of(Mode::gpm, 3);
  settings.steps = 4;
  EXPECT_EQ(error_of([&] { gpdb::insert_info().make(settings); }, {"give 1 to 3"}),
            Errc::invalid_argument);
}

TEST(GpdbUpdate, ChangesARowMoreThanOnce) {
  Settings settings = settings_of(Mode::gpm, 3000);
  settings.steps = 45;  // each of 20 carriers twice and more
  const auto run = workload_checks::run_step_by_step(gpdb::update_info(), settings);
  EXPECT_EQ(run.wrong, "");
  settings.mode = Mode::cpu;
  EXPECT_EQ(workload_checks::run_step_by_step(gpdb::update_info(), settings).digest, run.digest);
}

TEST(GpdbUpdate, WithoutTheCopyOfItsRowsItEndsAlike) {
  Settings settings = settings_of(Mode::gpm, 4099);
  settings.steps = 45;  // so that rows are read that an earlier step changed
  const auto expected = workload_checks::run_step_by_step(gpdb::update_info(), settings);
  for (const Mode mode : {Mode::gpm, Mode::eadr, Mode::ndp}) {
    settings.mode = mode;
    settings.options["cache"] = "off";
    const auto run = workload_checks::run_step_by_step(gpdb::update_info(), settings);
    EXPECT_EQ(run.wrong, "") << to_string(mode);
    EXPECT_EQ(run.digest, expected.digest) << to_string(mode);
  }
  EXPECT_EQ(error_with(gpdb::update_info(), {{"cache", "some"}}, {"cache=some", "give on or off"}),
            Errc::invalid_argument);
}

TEST(GpdbUpdate, SortedChangesGiveTheSame) {
  const auto expected = workload_checks::run_whole(gpdb::update_info(), settings_of(Mode::gpm));
  for (const Mode mode : {Mode::cap_delta, Mode::cap_delta_raw}) {
    Settings settings = settings_of(mode);
    settings.options["changes"] = "sorted";
    const auto run = workload_checks::run_step_by_step(gpdb::update_info(), settings);
    EXPECT_EQ(run.wrong, "") << to_string(mode);
    EXPECT_EQ(run.digest, expected.digest) << to_string(mode);
  }
}

Settings with_log(const char* layout, std::uint64_t rows = 0) {
  Settings settings = settings_of(Mode::gpm, rows);
  settings.options["log"] = layout;
  return settings;
}

TEST(GpdbUpdate, TheConventionalLogGivesTheSame) {
  for (const std::uint64_t rows : {20'000ull, 5ull, 2049ull, 30'011ull}) {
    Settings settings = with_log("conventional", rows);
    settings.steps = 7;
    const auto run = workload_checks::run_step_by_step(gpdb::update_info(), settings);
    EXPECT_EQ(run.wrong, "") << rows;
    settings.options["log"] = "coalesced";
    EXPECT_EQ(workload_checks::run_whole(gpdb::update_info(), settings).digest, run.digest) << rows;
  }
}

// 30,000 rows: more than one entry in a partition, so that recovery takes them off one by one.
TEST(GpdbUpdate, KillsWithTheConventionalLogAreSurvived) {
  if (!on_cpu()) GTEST_SKIP() << "a process with a GPU does not fork";
  Settings settings = with_log("conventional", 30'000);
  settings.steps = 6;
  workload_checks::expect_kills_survived(gpdb::update_info(), settings, 20,
                                         holdfast::test::test_seed());
}

TEST(GpdbUpdate, ALogThatIsNoneIsRefused) {
  EXPECT_EQ(error_with(gpdb::update_info(), {{"log", "fast"}},
                       {"log=fast", "give coalesced or conventional"}),
            Errc::invalid_argument);
}

using GpdbRegion = holdfast::test::Scratch;

TEST_F(GpdbRegion, OfTheOtherLogIsRefused) {
  const auto open = [&](const char* layout) {
    const auto work = gpdb::update_info().make(with_log(layout, 100));
    workload::BackingOptions options;
    options.path = path();
    options.capacity = work->medium_bytes();
    workload::Backing backing(options);
    work->prepare(backing);
  };
  open("conventional");
  open("conventional");
  EXPECT_EQ(error_of([&] { open("coalesced"); }, {"other log", "remove the region"}),
            Errc::invalid_argument);
  workload::Backing::destroy(path());
}

TEST_F(GpdbRegion, OfAnotherInputIsRefused) {
  const auto open = [&](std::uint64_t rows) {
    const auto work = gpdb::update_info().make(settings_of(Mode::gpm, rows));
    workload::BackingOptions options;
    options.path = path();
    options.capacity = work->medium_bytes();
    workload::Backing backing(options);
    work->prepare(backing);
  };
  open(100);
  open(100);
  EXPECT_EQ(error_of([&] { open(101); }, {"100 rows", "101", "remove the region"}),
            Errc::invalid_argument);
  workload::Backing::destroy(path());
}

// Every row is of the one carrier that the query names, and the log has room for fewer.
TEST_F(GpdbRegion, AnUpdateThatDoesNotFitItsLogIsTakenBack) {
  constexpr std::uint64_t kRows = 300;
  for (const auto layout : {holdfast::LogLayout::coalesced, holdfast::LogLayout::conventional}) {
    holdfast::Region region = holdfast::Region::create(path(), options(1 << 20));
    gpdb::Table table = gpdb::Table::create(region, {kRows, 10, layout, 4});
    holdfast::Stream stream;
    const std::vector<gpdb::Row> rows(kRows);
    table.head_part()[0].rows = kRows;
    holdfast::DeviceBuffer<std::uint16_t> carriers(kRows);  // 0
    EXPECT_EQ(error_of(
                  [&] {
                    table.update(stream, carriers.data(), {0, 5, 10});
                  },
                  {"'gpdb.tx'", path(), "taken back"}),
              Errc::log_full);
    EXPECT_EQ(std::memcmp(table.rows().data(), rows.data(), kRows * sizeof(gpdb::Row)), 0);
    EXPECT_EQ(table.head(stream).batches, 0u);

    const std::vector<std::uint16_t> others(kRows - 3, 1);
    holdfast::copy_async(stream, carriers.data(), others.data(), others.size() * 2);
    EXPECT_EQ(table.update(stream, carriers.data(), {0, 6, 10}), 3u);
    EXPECT_EQ(table.rows()[kRows - 1].revision, 6u);
    EXPECT_EQ(table.rows()[0].revision, 0u);
    EXPECT_EQ(table.head(stream).batches, 1u);
    region.abandon();
    holdfast::Region::destroy(path());
  }
}

// A batch that was taken back left the copy as the table is, too: the log of the next one, which is
// taken back as well, puts back what the copy says.
TEST_F(GpdbRegion, TheCopyOfItsRowsFollowsTheTable) {
  constexpr std::size_t kRows = 300;
  holdfast::Region region = holdfast::Region::create(path(), options(1 << 20));
  gpdb::Table table = gpdb::Table::create(region, {kRows, 10});
  holdfast::Stream stream;
  table.keep_copy(stream);
  std::vector<gpdb::Row> rows(kRows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].distance = static_cast<std::int32_t>(i);
    rows[i].fare = 7;
  }
  holdfast::DeviceBuffer<gpdb::Row> source(rows.size());
  holdfast::copy_async(stream, source.data(), rows.data(), source.bytes());
  table.insert(stream, source.data(), kRows / 2);
  table.insert(stream, source.data() + kRows / 2, kRows / 2);

  holdfast::DeviceBuffer<std::uint16_t> carriers(rows.size());
  std::vector<std::uint16_t> of_rows(rows.size(), 1);
  for (std::size_t i = 0; i < 5; ++i) of_rows[60 * i] = 2;
  holdfast::copy_async(stream, carriers.data(), of_rows.data(), carriers.bytes());
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(error_of([&] { table.update(stream, carriers.data(), {1, 5, 10}); }), Errc::log_full);
    for (const gpdb::Row& row : table.rows()) EXPECT_EQ(row.fare, 7u) << row.id;
  }
  EXPECT_EQ(table.update(stream, carriers.data(), {2, 6, 10}), 5u);
  for (const gpdb::Row& row : table.rows()) {
    const auto miles = static_cast<std::uint32_t>(row.distance);
    EXPECT_EQ(miles, row.id);
    EXPECT_EQ(row.fare, row.id % 60 == 0 ? 4000 + 10 * miles : 7u) << row.id;
  }
  region.abandon();
  holdfast::Region::destroy(path());
}

// The last version had these objects and no header.
TEST_F(GpdbRegion, OfTheLastVersionIsRefused) {
  holdfast::Region region = holdfast::Region::create(path(), options(1 << 20));
  holdfast::Transaction::create(region, "gpdb.tx")
      .create_log(region, "gpdb.head_log", holdfast::LogShape::conventional(1, 16));
  EXPECT_EQ(error_of([&] { gpdb::Table::open(region); }, {"'gpdb'", "earlier version"}),
            Errc::unsupported);
  EXPECT_EQ(error_of([&] { gpdb::Table::create(region, {10}); }, {"gpdb.", "another region"}),
            Errc::already_exists);
  EXPECT_EQ(error_of([&] { gpdb::Table::bytes({0}); }, {"0 rows"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { gpdb::Table::bytes({10, 11}); }), Errc::invalid_argument);
}

constexpr const char* kHeader =
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,"
    "flight,tailnum,origin,dest,air_time,distance\n";
constexpr const char* kFirst = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400\n";
constexpr const char* kCancelled = "2013,1,1,NA,1630,NA,NA,1815,NA,EV,4308,NA,EWR,RDU,NA,416\n";

class GpdbCsv : public holdfast::test::Scratch {
 protected:
  std::string write(const std::string& text) {
    const std::string name = path("flights.csv");
    std::ofstream(name, std::ios::binary) << text;
    return name;
  }
  void expect_refused(const std::string& text, std::vector<std::string> words) {
    words.push_back("'f.csv'");
    EXPECT_EQ(error_of([&] { gpdb::parse_csv(text, "f.csv", 0); }, words), Errc::damaged) << text;
  }
};

TEST_F(GpdbCsv, IsReadByItsHeader) {
  const gpdb::Input input = gpdb::parse_csv(std::string(kHeader) + kFirst + kCancelled, "f.csv", 0);
  ASSERT_EQ(input.rows.size(), 2u);
  const gpdb::Row& row = input.rows[0];
  EXPECT_EQ(row.day, 20130101u);
  EXPECT_EQ(row.carrier, 30 * 36 + 10);  // U, A
  EXPECT_EQ(row.flight, 1545);
  EXPECT_EQ(row.departure, 515);
  EXPECT_EQ(row.arrival, 819);
  EXPECT_EQ(row.departure_delay, 2);
  EXPECT_EQ(row.arrival_delay, 11);
  EXPECT_EQ(row.air_time, 227);
  EXPECT_EQ(row.distance, 1400);
  EXPECT_EQ(input.rows[1].departure_delay, gpdb::kMissing);
  EXPECT_EQ(input.rows[1].tail, 0u);
  EXPECT_EQ(input.carriers.size(), 2u);
  EXPECT_EQ(input.most_of_one_carrier, 1u);
}

TEST_F(GpdbCsv, IsWorkedOn) {
  std::string text = kHeader;
  for (int i = 0; i < 40; ++i) text += i % 3 ? kFirst : kCancelled;
  for (const Info& info : {gpdb::insert_info(), gpdb::update_info()}) {
    Settings settings;
    settings.options["csv"] = write(text);
    const auto run = workload_checks::run_whole(info, settings);
    EXPECT_EQ(run.wrong, "") << info.name;
    settings.mode = Mode::cpu;
    EXPECT_EQ(workload_checks::run_whole(info, settings).digest, run.digest) << info.name;
  }
}

TEST_F(GpdbCsv, IsRefusedWhereItIsDamaged) {
  const std::string header = kHeader;
  expect_refused("", {"empty"});
  expect_refused(header, {"a header alone"});
  expect_refused("year,month\n2013,1\n", {"line 1", "no column 'day'"});
  expect_refused(header + kFirst + "2013,1,1,517,515,2,83",
                 {"line 3", "7 fields, and the header has 16"});
  expect_refused(header + "2013,1,1,517,515,late,830,819,11,UA,1545,N14228,EWR,IAH,227,1400\n",
                 {"line 2: column 'dep_delay' is 'late'"});
  expect_refused(header + "2013,13,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400\n",
                 {"'month'", "from 1 to 12"});
  expect_refused(header + "2013,1,1,517,515,2,830,819,11,UAL,1545,N14228,EWR,IAH,227,1400\n",
                 {"'carrier'"});
  expect_refused(header + "2013,1,1,517,515,2,830,819,11,\"UA\",1545,N14228,EWR,IAH,227,1400\n",
                 {"without quotes"});
}

TEST_F(GpdbCsv, IsRefusedWhereItHasTooFewRows) {
  const std::string text = std::string(kHeader) + kFirst;
  EXPECT_EQ(error_of([&] { gpdb::parse_csv(text, "f.csv", 2); }, {"'f.csv'", "has 1 rows, not 2"}),
            Errc::invalid_argument);
}

}  // namespace
