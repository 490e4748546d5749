// What a log map refuses, and that nothing of it is changed then.
#include "log_map/log_map_test.hpp"

namespace holdfast::test {
namespace {

class LogMapMisuse : public Scratch {};

TEST_F(LogMapMisuse, OptionsThatCannotBeAreRefused) {
  const auto refused = [](const LogMap::Options& shape, const std::string& word) {
    EXPECT_EQ(error_of([&] { (void)LogMap::region_bytes(shape); }, {word}), Errc::invalid_argument);
  };
  refused(log_map_options(0, 16, 10), "capacity");
  refused(log_map_options((1ull << 29) + 1, 16, 10), "capacity");
  refused(log_map_options(10, 0, 10), "value_bytes");
  refused(log_map_options(10, 6, 10), "value_bytes");
  refused(log_map_options(10, 4100, 10), "value_bytes");
  refused(log_map_options(10, 16, 0), "max_batch");
  refused(log_map_options(10, 16, (1 << 24) + 1), "max_batch");
  refused(log_map_options(10, 16, 10, 1ull << 32), "log");
  refused(log_map_options(10'000, 16, 10, 2048), "log");
  refused(log_map_options(10, 16, 10, 0, static_cast<Form>(9)), "index");
  refused(log_map_options(1ull << 29, 4096, 10), "value_bytes");
}

TEST_F(LogMapMisuse, BatchesThatCannotBeChangeNothing) {
  LogMapOpened opened = LogMapOpened::create(path(), log_map_options(100, 16, 120));
  const NumberedBatch batch(4, 80, 90, 16);
  Oracle oracle;
  batch.apply(opened);
  batch.apply(oracle);
  const Keys many(121, 5);
  const Rows rows(many.size() * 16);
  std::vector<std::uint8_t> found(121);
  LogMap& map = *opened.map;
  const auto refused = [&](auto&& body, Errc code, const std::string& word) {
    EXPECT_EQ(error_of(body, {word}), code);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  };
  refused([&] { map.insert_or_assign(many.data(), rows.data(), 121); }, Errc::invalid_argument,
          "max_batch");
  refused([&] { map.erase(many.data(), 121); }, Errc::invalid_argument, "max_batch");
  refused([&] { map.find(many.data(), nullptr, found.data(), 121); }, Errc::invalid_argument,
          "max_batch");
  refused([&] { map.insert_or_assign(nullptr, rows.data(), 1); }, Errc::invalid_argument, "keys");
  refused([&] { map.insert_or_assign(many.data(), nullptr, 1); }, Errc::invalid_argument, "values");
  refused([&] { map.find(many.data(), nullptr, nullptr, 1); }, Errc::invalid_argument, "found");
  const Keys reserved{1, LogMap::kReservedKey, 2};
  refused([&] { map.insert_or_assign(reserved.data(), rows.data(), 3); }, Errc::invalid_argument,
          "map 'map'");
  refused([&] { map.erase(reserved.data(), 3); }, Errc::invalid_argument, "map 'map'");
  for (const auto some : {&LogMap::insert, &LogMap::assign}) {
    std::vector<MapStatus> told(121, MapStatus::refused);
    const auto call = [&](const std::uint64_t* keys, const void* values, std::size_t count) {
      return [=, &map, &told] { (map.*some)(keys, values, count, told.data()); };
    };
    refused(call(many.data(), rows.data(), 121), Errc::invalid_argument, "max_batch");
    refused(call(nullptr, rows.data(), 1), Errc::invalid_argument, "keys");
    refused(call(many.data(), nullptr, 1), Errc::invalid_argument, "values");
    refused(call(reserved.data(), rows.data(), 3), Errc::invalid_argument, "map 'map'");
    EXPECT_EQ(told, std::vector<MapStatus>(121, MapStatus::refused));
    (map.*some)(nullptr, nullptr, 0, nullptr);
  }
  Keys fresh(60);
  for (std::size_t i = 0; i < fresh.size(); ++i) fresh[i] = 1000 + i;
  refused([&] { map.insert_or_assign(fresh.data(), rows.data(), fresh.size()); }, Errc::no_space,
          "capacity");
  refused([&] { map.insert(fresh.data(), rows.data(), fresh.size()); }, Errc::no_space, "capacity");
  map.insert_or_assign(nullptr, nullptr, 0);
  map.erase(nullptr, 0);
  map.find(nullptr, nullptr, nullptr, 0);
  map.find(batch.keys.data(), nullptr, found.data(), 1);
  EXPECT_EQ(found[0], 1);
  // What was refused has taken no place for good.
  for (std::uint64_t n = 4; n < 12; ++n) {
    const NumberedBatch more(n, 80, 90, 16);
    more.apply(opened);
    more.apply(oracle);
  }
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

TEST_F(LogMapMisuse, NamesThatAreTakenOrUnknownAreRefused) {
  const LogMap::Options shape = log_map_options(100, 16, 100);
  RegionOptions options;
  options.size = 2 * LogMap::region_bytes(shape) + (8 << 20);
  Region region = Region::create(path(), options);
  (void)region.allocate<std::uint32_t>("array", 4);
  EXPECT_EQ(error_of([&] { (void)LogMap::open(region, "map"); }), Errc::not_found);
  EXPECT_EQ(error_of([&] { LogMap::remove(region, "map"); }), Errc::not_found);
  EXPECT_EQ(error_of([&] { (void)LogMap::create(region, std::string(40, 'x'), shape); }, {"39"}),
            Errc::invalid_argument);
  {
    const std::string longest(39, 'x');
    (void)LogMap::create(region, longest, shape);
    EXPECT_EQ(LogMap::open(region, longest).size(), 0u);
    LogMap::remove(region, longest);
  }
  std::optional<LogMap> map(LogMap::create(region, "map", shape));
  EXPECT_EQ(error_of([&] { (void)LogMap::create(region, "map", shape); }, {"'map'"}),
            Errc::already_exists);
  KvStore::Options of_store;
  of_store.capacity = 100;
  of_store.max_batch = 10;
  of_store.layout = KvStore::Layout::log;
  (void)KvStore::create(region, of_store);
  EXPECT_EQ(error_of([&] { (void)LogMap::open(region, "kvs"); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { LogMap::remove(region, "kvs"); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { (void)LogMap::create(region, "kvs", shape); }, {"'kvs'", "another"}),
            Errc::already_exists);
  EXPECT_EQ(error_of([&] { (void)LogMap::open(region, "map", static_cast<Form>(9)); }, {"index"}),
            Errc::invalid_argument);
  map.reset();
  const std::size_t objects = region.objects().size();
  LogMap::remove(region, "map");
  EXPECT_LT(region.objects().size(), objects);
  EXPECT_EQ(error_of([&] { (void)LogMap::open(region, "map"); }), Errc::not_found);
  (void)LogMap::create(region, "map", shape);
  EXPECT_EQ(LogMap::open(region, "map").size(), 0u);
}

TEST_F(LogMapMisuse, AMapThatIsOpenedAgainEndsTheFirst) {
  LogMapOpened opened = LogMapOpened::create(path(), log_map_options(100, 16, 100));
  const Keys keys{1, 2};
  opened.put(keys, Rows(32));
  LogMap second = LogMap::open(*opened.region, "map");
  EXPECT_EQ(error_of([&] { opened.put(keys, Rows(32)); }), Errc::closed);
  EXPECT_EQ(second.size(), 2u);
  LogMap moved = std::move(second);
  EXPECT_EQ(error_of([&] { (void)second.size(); }, {"moved"}), Errc::closed);
  opened.region->close();
  EXPECT_EQ(error_of([&] { (void)moved.size(); }), Errc::closed);
}

TEST_F(LogMapMisuse, ARegionThatIsTooSmallHoldsNothingOfIt) {
  const LogMap::Options shape = log_map_options(100'000, 256, 100);
  // There is room for the values, or for neither.
  for (const std::uint64_t size :
       {std::uint64_t{4} << 20, LogMap::region_bytes(shape) - (4 << 20)}) {
    SCOPED_TRACE(size);
    RegionOptions options;
    options.size = options.max_size = size;
    Region region = Region::create(path(std::to_string(size)), options);
    const std::string takes = std::to_string(LogMap::region_bytes(shape));
    EXPECT_EQ(error_of([&] { (void)LogMap::create(region, "map", shape); }, {"'map'", takes}),
              Errc::no_space);
    EXPECT_TRUE(region.objects().empty());
  }
}

TEST_F(LogMapMisuse, OperationsThatAreNoneAreRefused) {
  const LogMapOpened opened = LogMapOpened::create(path(), log_map_options(100, 16, 100));
  const NumberedBatch first(4, 60, 40, 16);
  Oracle oracle;
  first.apply(opened);
  first.apply(oracle);
  NumberedBatch batch(1, 60, 40, 16);
  const auto refused = [&](const LogMap::Op* operations, const std::vector<std::string>& words) {
    const auto give = [&] {
      opened.map->apply(operations, batch.keys.data(), batch.rows.data(), batch.keys.size());
    };
    EXPECT_EQ(error_of(give, words), Errc::invalid_argument);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  };
  refused(nullptr, {"without operations"});
  batch.operations[17] = static_cast<LogMap::Op>(9);
  refused(batch.operations.data(), {"operation 17", "9"});
  batch.operations[17] = LogMap::Op::erase;
  batch.keys[3] = LogMap::kReservedKey;
  refused(batch.operations.data(), {"1 operation"});
  EXPECT_EQ(opened.map->apply(nullptr, nullptr, nullptr, 0).inserted, 0u);
}

}  // namespace
}  // namespace holdfast::test
