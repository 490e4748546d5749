// Memory of another node as an object store: the server, its client, and what is between them.
#include "holdfast/memory_server.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "history/memory_wire.hpp"
#include "history/object_step_store.hpp"
#include "support/error_of.hpp"
#include "support/in_child.hpp"
#include "support/memory_server_process.hpp"
#include "support/message_proxy.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#include "support/still_fork.hpp"

namespace holdfast {
namespace {

using history::Step;
using history::StepInfo;
using test::error_of;
using test::MessageProxy;
using Mishap = MessageProxy::Mishap;
namespace wire = history::wire;
using std::chrono::milliseconds;

constexpr MemoryStoreOptions kImpatient{milliseconds(2000), milliseconds(400)};

std::vector<std::byte> bytes_of(std::uint64_t seed, std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < count; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, count - i));
  }
  return bytes;
}

void put(ObjectStore& store, const std::string& key, const std::vector<std::byte>& bytes) {
  std::size_t at = 0;
  store.put(key, bytes.size(), [&](std::span<std::byte> part) {
    std::memcpy(part.data(), bytes.data() + at, part.size());
    at += part.size();
  });
}
std::vector<std::byte> get(ObjectStore& store, const std::string& key,
                           std::size_t most = 20 << 20) {
  std::vector<std::byte> bytes(most);
  bytes.resize(store.read(key, 0, bytes));
  return bytes;
}

class MemoryStoreTest : public ::testing::Test {
 protected:
  MemoryStoreTest() { ::alarm(240); }  // what waits for ever fails
  ~MemoryStoreTest() override { ::alarm(0); }

  static MemoryServerOptions options(std::uint64_t bytes = 64 << 20) {
    MemoryServerOptions options;
    options.bytes = bytes;
    return options;
  }
  // Once the server has let go of uploads whose connections have ended.
  void expect_used(std::uint64_t bytes) const {
    for (int attempt = 0; attempt < 200 && server_->used_bytes() != bytes; ++attempt) {
      ::usleep(50'000);
    }
    EXPECT_EQ(server_->used_bytes(), bytes);
  }
  std::shared_ptr<ObjectStore> store(const std::string& name = "rank3") const {
    return memory_store(server_->address() + "/" + name, kImpatient);
  }
  // A server of its own, where others would disturb.
  void restart(const MemoryServerOptions& with) { server_ = std::make_unique<MemoryServer>(with); }

  std::unique_ptr<MemoryServer> server_ = std::make_unique<MemoryServer>(options());
};

// Random operations by two clients, under a name each, beside maps.
TEST_F(MemoryStoreTest, DoesWhatAMapDoes) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  const std::shared_ptr<ObjectStore> stores[] = {store("a"), store("b/c")};
  std::map<std::string, std::vector<std::byte>> maps[2];
  const std::size_t sizes[] = {0, 1, 4096, 65536, 65537, 1 << 20, (1 << 20) + 1, 5 << 20};
  const std::uint64_t operations = test::some_of(400, 50);
  for (std::uint64_t i = 0; i < operations; ++i) {
    const std::size_t which = random() % 2;
    ObjectStore& store = *stores[which];
    auto& map = maps[which];
    const std::string key = "key" + std::to_string(random() % 6);
    const auto bytes = bytes_of(random(), sizes[random() % std::size(sizes)]);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", operation " + std::to_string(i));
    switch (random() % 6) {
      case 0:
        put(store, key, bytes);
        map[key] = bytes;
        break;
      case 1: {
        const auto few = std::span(bytes).first(std::min<std::size_t>(bytes.size(), 5000));
        EXPECT_EQ(store.put_new(key, few), !map.contains(key));
        map.try_emplace(key, few.begin(), few.end());
        break;
      }
      case 2:
        store.remove(key);
        map.erase(key);
        break;
      case 3: {
        const auto found = store.head(key);
        ASSERT_EQ(found.has_value(), map.contains(key));
        EXPECT_TRUE(!found || found->bytes == map[key].size());
        break;
      }
      case 4: {
        const auto all = store.list();
        ASSERT_EQ(all.size(), map.size());
        for (const StoredObject& each : all) EXPECT_EQ(map.at(each.key).size(), each.bytes);
        break;
      }
      default: {
        const std::uint64_t offset = random() % (6 << 20);
        std::vector<std::byte> into(random() % (6 << 20));
        if (!map.contains(key)) {
          EXPECT_EQ(error_of([&] { store.read(key, offset, into); }), Errc::not_found);
          break;
        }
        const auto& there = map[key];
        const std::size_t begin = std::min<std::size_t>(offset, there.size());
        const std::size_t count = std::min(into.size(), there.size() - begin);
        ASSERT_EQ(store.read(key, offset, into), count);
        EXPECT_TRUE(std::equal(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(count),
                               there.begin() + static_cast<std::ptrdiff_t>(begin)));
      }
    }
  }
  EXPECT_LE(server_->names(), 2u);
}

TEST_F(MemoryStoreTest, AListMayBeLong) {
  const auto own = store();
  for (int i = 0; i < 2500; ++i) own->put_new("key" + std::to_string(i), {});
  EXPECT_EQ(own->list().size(), 2500u);
}

TEST_F(MemoryStoreTest, AFullServerSaysSo) {
  restart(options(8 << 20));
  const auto own = store();
  put(*own, "a", bytes_of(1, 5 << 20));
  EXPECT_EQ(error_of([&] { put(*own, "b", bytes_of(2, 5 << 20)); }, {"8.0 MiB"}), Errc::no_space);
  EXPECT_EQ(error_of([&] { own->put("c", ~std::uint64_t{0}, [](auto) {}); }), Errc::no_space);
  EXPECT_FALSE(own->head("b"));
  EXPECT_EQ(get(*own, "a"), bytes_of(1, 5 << 20));
  own->remove("a");
  put(*own, "b", bytes_of(2, 5 << 20));
  EXPECT_EQ(get(*own, "b"), bytes_of(2, 5 << 20));
  own->remove("b");
  EXPECT_EQ(server_->used_bytes(), 0u);
  for (int i = 0; i < 9000; ++i) {  // an empty object takes memory, too
    try {
      own->put_new("key" + std::to_string(i), {});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::no_space);
      EXPECT_GT(i, 1000);
      return;
    }
  }
  ADD_FAILURE() << "it takes objects without an end";
}

TEST_F(MemoryStoreTest, OneClientWritesToAName) {
  auto first = store(), second = store(), other = store("another");
  std::shared_ptr<void> claim = first->claim();
  EXPECT_TRUE(claim);
  EXPECT_EQ(error_of([&] { first->claim(); }, {"this process"}), Errc::in_use);
  put(*first, "a", bytes_of(1, 100));
  EXPECT_EQ(
      error_of([&] { second->put_new("b", {}); }, {"open for writing", std::to_string(::getpid())}),
      Errc::in_use);
  EXPECT_EQ(get(*second, "a"), bytes_of(1, 100));  // reading goes on beside it
  EXPECT_TRUE(other->claim());
  claim = nullptr;
  claim = second->claim();  // at once
  EXPECT_EQ(error_of([&] { first->claim(); }, {"open for writing"}), Errc::in_use);
  EXPECT_EQ(get(*first, "a"), bytes_of(1, 100));
  put(*second, "b", bytes_of(2, 100));
  EXPECT_EQ(second->list().size(), 2u);
}

// Of a claim nothing is left that could be taken for the newcomer's, though both come and go.
TEST_F(MemoryStoreTest, WhoWasTakenOverFromIsRefusedForGood) {
  MemoryServerOptions with = options();
  with.silence = milliseconds(300);
  server_ = nullptr;
  const test::MemoryServerProcess server(with);
  int ends[2], back[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::pipe(back), 0);
  const std::string address = server.address() + "/rank3";
  const pid_t child = test::fork_when_still();
  if (child == 0) {
    ::alarm(60);
    char word = 'c';
    Errc code{};
    try {
      const auto own = memory_store(address, kImpatient);
      put(*own, "a", bytes_of(1, 100));
      (void)!::write(ends[1], &word, 1);
      (void)!::read(back[0], &word, 1);
      code = error_of([&] { put(*own, "a", bytes_of(2, 100)); }, {"taken over"});
    } catch (...) {
    }
    ::_exit(code == Errc::in_use && !HasFailure() ? 0 : 1);
  }
  ::close(ends[1]);  // so that the child's end is seen
  char word = 0;
  ASSERT_EQ(::read(ends[0], &word, 1), 1);
  auto own = memory_store(address, kImpatient);
  EXPECT_EQ(error_of([&] { own->claim(); }), Errc::in_use);  // it rests, and is not silent
  ::kill(child, SIGSTOP);
  auto claim = own->claim();  // within its patience
  put(*own, "a", bytes_of(3, 100));
  claim = own = nullptr;
  ::kill(child, SIGCONT);
  ASSERT_EQ(::write(back[1], &word, 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(get(*memory_store(address, kImpatient), "a"), bytes_of(3, 100));
  for (const int fd : {ends[0], back[0], back[1]}) ::close(fd);
}

TEST_F(MemoryStoreTest, AServerThatWasStartedAgainIsNotTakenForTheOneBefore) {
  const auto own = store();
  put(*own, "a", bytes_of(1, 100));
  MemoryServerOptions again = options();
  again.listen = server_->address().substr(6);
  server_ = nullptr;
  EXPECT_EQ(error_of([&] { get(*own, "a"); }, {"connect"}), Errc::io);
  restart(again);
  ::usleep(2'100'000);  // it fails at once for a while
  EXPECT_EQ(error_of([&] { get(*own, "a"); }, {"started again"}), Errc::not_found);
  EXPECT_TRUE(own->is_lost());
  EXPECT_FALSE(own->head("a"));
  EXPECT_EQ(error_of([&] { put(*own, "a", bytes_of(1, 100)); }, {"started again"}), Errc::io);
  EXPECT_TRUE(store()->list().empty());
  {
    const auto claim = own->claim();
    EXPECT_FALSE(own->is_lost());
    put(*own, "b", bytes_of(2, 100));
  }
  EXPECT_EQ(store()->list().size(), 1u);
}

// The server had taken memory for it, which the next one wants.
TEST_F(MemoryStoreTest, AnUploadThatIsGivenUpLeavesItsRoomToTheNext) {
  restart(options(8 << 20));
  const auto own = store();
  for (std::uint64_t round = 0; round < test::some_of(30, 5); ++round) {
    int parts = 0;
    EXPECT_THROW(own->put("a", 5 << 20,
                          [&](std::span<std::byte>) {
                            if (++parts == 2) throw std::runtime_error("given up");
                          }),
                 std::runtime_error);
    put(*own, "b", bytes_of(1, 5 << 20));
    own->remove("b");
  }
}

TEST_F(MemoryStoreTest, AServerThatDiesAmidAnUploadIsAnErrorOfIo) {
  server_ = nullptr;
  test::MemoryServerProcess server(options());
  const auto own = memory_store(server.address() + "/x", kImpatient);
  EXPECT_EQ(error_of([&] { own->put("a", 5 << 20, [&](std::span<std::byte>) { server.kill(); }); }),
            Errc::io);
}

TEST_F(MemoryStoreTest, KeysAreChecked) {
  const auto own = store();
  for (const std::string& key : {std::string(), std::string(256, 'a'), std::string("a b")}) {
    EXPECT_EQ(error_of([&] { put(*own, key, bytes_of(1, 100)); }, {"no key"}),
              Errc::invalid_argument);
    EXPECT_EQ(error_of([&] { get(*own, key); }, {"no key"}), Errc::invalid_argument);
  }
  put(*own, std::string(255, 'a'), bytes_of(1, 100));
}

TEST_F(MemoryStoreTest, LimitsOfTimeAreChecked) {
  for (const milliseconds limit : {milliseconds(0), milliseconds::max(), milliseconds::min()}) {
    EXPECT_EQ(error_of([&] {
                memory_store("tcp://127.0.0.1:1/x", {limit, milliseconds(1)});
              }),
              Errc::invalid_argument);
    EXPECT_EQ(error_of([&] {
                memory_store("tcp://127.0.0.1:1/x", {milliseconds(1), limit});
              }),
              Errc::invalid_argument);
  }
}

// One that accepts and says nothing, and one that is not there.
TEST_F(MemoryStoreTest, NobodyWaitsForEver) {
  const auto listener = wire::listen_at({"127.0.0.1", "0"});
  const std::string port = std::to_string(wire::port_of(listener.get()));
  const auto mute = memory_store("tcp://127.0.0.1:" + port + "/x", kImpatient);
  const auto begin = wire::Clock::now();
  EXPECT_EQ(error_of([&] { mute->list(); }, {"silent"}), Errc::io);
  EXPECT_LT(wire::Clock::now() - begin, std::chrono::seconds(20));
  for (int i = 0; i < 1000; ++i) {  // at once
    EXPECT_EQ(error_of([&] { mute->list(); }, {"silent", "a moment ago"}), Errc::io);
  }
  MemoryServer gone(options());
  const auto none = memory_store(gone.address() + "/x", kImpatient);
  gone = MemoryServer(options());
  EXPECT_EQ(error_of([&] { none->list(); }, {"connect"}), Errc::io);
}

TEST_F(MemoryStoreTest, ConnectionsHaveALimit) {
  MemoryServerOptions with = options();
  with.connections = 3;
  restart(with);
  std::vector<std::shared_ptr<ObjectStore>> open;
  for (int i = 0; i < 3; ++i) {
    open.push_back(store("name" + std::to_string(i)));
    open.back()->list();
  }
  EXPECT_EQ(error_of([&] { store()->list(); }), Errc::io);
  open.pop_back();
  for (int attempt = 0;; ++attempt) {  // the server sees the end in a moment
    try {
      EXPECT_TRUE(store()->list().empty());
      break;
    } catch (const Error&) {
      ASSERT_LT(attempt, 100);
      ::usleep(20'000);
    }
  }
  EXPECT_TRUE(open[0]->list().empty());
}

TEST_F(MemoryStoreTest, ASourceThatThrowsLeavesNothing) {
  const auto own = store();
  for (const std::uint64_t bytes : {1000u, 5u << 20}) {
    int parts = 0;
    EXPECT_THROW(own->put("a", bytes,
                          [&](std::span<std::byte>) {
                            if (++parts == (bytes > 5000 ? 3 : 1)) throw 5;
                          }),
                 int);
    EXPECT_FALSE(own->head("a"));
  }
  put(*own, "a", bytes_of(1, 3 << 20));
  EXPECT_TRUE(get(*own, "a") == bytes_of(1, 3 << 20));
}

TEST_F(MemoryStoreTest, ManyThreadsAtOnce) {
  const auto own = store();
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 12; ++i) {  // more than there are connections
    threads.emplace_back([&, i] {
      const std::string key = "key" + std::to_string(i);
      for (std::uint64_t round = 0; round < 5; ++round) {
        put(*own, key, bytes_of(i + round, 200'000));
        EXPECT_EQ(get(*own, key, 300'000), bytes_of(i + round, 200'000));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(own->list().size(), 12u);
}

TEST_F(MemoryStoreTest, AForkedChildIsRefused) {
  server_ = nullptr;
  const test::MemoryServerProcess server(options());
  const auto own = memory_store(server.address() + "/rank0", kImpatient);
  put(*own, "a", bytes_of(1, 100));
  EXPECT_EQ(
      test::in_child([&] { EXPECT_EQ(error_of([&] { own->list(); }, {"child"}), Errc::in_use); }),
      0);
  EXPECT_EQ(get(*own, "a"), bytes_of(1, 100));
}

TEST_F(MemoryStoreTest, WrongAddressesAreRefused) {
  for (const char* url :
       {"", "tcp://", "tcp://host", "tcp://host/x", "tcp://host:1", "tcp://host:1/",
        "tcp://host:65536/x", "tcp://host:1x/y", "tcp://:1/x", "tcp://::1:5/x", "tcp://host:1/a b",
        "s3://host:1/x", "tcp://h:999999999999999999999/x"}) {
    EXPECT_EQ(error_of([&] { memory_store(url); }, {"HOST"}), Errc::invalid_argument) << url;
  }
  EXPECT_EQ(error_of([&] { memory_store("tcp://h:1/" + std::string(256, 'x')); }),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { memory_store("tcp://no.such.host.invalid:1/x")->list(); },
                     {"no.such.host.invalid"}),
            Errc::io);
  EXPECT_EQ(error_of([&] { MemoryServer({}); }, {"bytes"}), Errc::invalid_argument);
  MemoryServerOptions with = options();
  with.listen = "nonsense";
  EXPECT_EQ(error_of([&] { MemoryServer{with}; }, {"listen"}), Errc::invalid_argument);
  with.listen = server_->address().substr(6);
  EXPECT_EQ(error_of([&] { MemoryServer{with}; }, {"another process", with.listen}), Errc::in_use);
  with = options();
  with.connections = 0;
  EXPECT_EQ(error_of([&] { MemoryServer{with}; }, {"connections"}), Errc::invalid_argument);
  with = options();
  with.silence = milliseconds(1);
  EXPECT_EQ(error_of([&] { MemoryServer{with}; }, {"silence"}), Errc::invalid_argument);
}

// ---- Bytes that nobody meant --------------------------------------------------------------------

// Random bytes, heads with random fields whose checksums hold, and good beginnings that are cut.
// The server goes on, keeps what it had, and gives back what it took.
TEST_F(MemoryStoreTest, AnyBytesLeaveTheServerWhole) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  MemoryServerOptions with = options(256 << 20);
  with.silence = milliseconds(1000);
  with.connections = 64;
  restart(with);
  {
    const auto own = store("kept");
    put(*own, "a", bytes_of(1, 3 << 20));
  }
  const std::uint64_t used = server_->used_bytes();
  const auto endpoint = wire::parse_endpoint(server_->address().substr(6), "");
  const std::uint64_t rounds = test::some_of(2000, 100);
  const auto text = [&] {
    std::string text(random() % 5 == 0 ? random() % 300 : 1 + random() % 8, 'x');
    if (!text.empty() && random() % 10 == 0)
      text[random() % text.size()] = static_cast<char>(random());
    return text;
  };
  for (std::uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    const auto deadline = wire::Clock::now() + std::chrono::seconds(5);
    try {
      const auto fd = wire::connect_to(endpoint, deadline);
      const auto send = [&](wire::Kind kind, const std::string& key, std::uint64_t a,
                            std::uint64_t b, std::span<const std::byte> payload) {
        wire::Head head;
        head.kind = kind;
        head.sequence = random() % 3;
        head.a = a;
        head.b = b;
        wire::send(fd.get(), head, key, payload, deadline);
      };
      if (random() % 8 == 0) {
        const auto noise = bytes_of(random(), random() % 2000);
        (void)!::send(fd.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
        continue;
      }
      if (random() % 8 != 0) send(wire::Kind::hello, "noise", 0, 0, bytes_of(1, 16));
      if (random() % 2 != 0) send(wire::Kind::claim, "", 0, 0, {});
      for (std::uint64_t i = random() % 5; i-- > 0;) {
        constexpr std::uint64_t kNumbers[] = {
            0, 1, 100, 1 << 20, (1 << 20) + 1, 5 << 20, ~std::uint64_t{0}, std::uint64_t{1} << 63};
        const auto kind = static_cast<wire::Kind>(random() % 20 == 0 ? random() : random() % 12);
        send(kind, random() % 3 == 0 ? "" : text(), kNumbers[random() % 8], kNumbers[random() % 8],
             bytes_of(random(), random() % 3 == 0 ? random() % 70'000 : 0));
      }
    } catch (const Error&) {  // the server has ended the connection
    }
  }
  const auto own = store("kept");
  EXPECT_TRUE(get(*own, "a") == bytes_of(1, 3 << 20));
  EXPECT_TRUE(own->claim());
  const auto noise = store("noise");
  for (int attempt = 0;; ++attempt) {
    try {
      for (const StoredObject& each : noise->list()) noise->remove(each.key);
      break;
    } catch (const Error&) {  // the last ones of the connections are on their way out
      ASSERT_LT(attempt, 100);
      ::usleep(50'000);
    }
  }
  expect_used(used);
}

// A server of which nothing can be expected. The client throws, and ends.
TEST_F(MemoryStoreTest, AnyBytesLeaveTheClientWhole) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  const auto listener = wire::listen_at({"127.0.0.1", "0"});
  const std::string address =
      "tcp://127.0.0.1:" + std::to_string(wire::port_of(listener.get())) + "/x";
  std::atomic<bool> ends = false;
  std::thread noise([&] {
    std::mt19937_64 own(seed);
    while (!ends) {
      if (!wire::wait_for(listener.get(), POLLIN, wire::Clock::now() + milliseconds(50))) continue;
      const core::UniqueFd fd(::accept(listener.get(), nullptr, nullptr));
      const auto deadline = wire::Clock::now() + std::chrono::seconds(2);
      try {
        if (own() % 4 == 0) {
          const auto bytes = bytes_of(own(), own() % 500);
          (void)!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
          continue;
        }
        for (std::uint64_t i = 0; i < 6; ++i) {
          std::string key;
          const wire::Head asked = wire::receive(fd.get(), key, deadline);
          std::vector<std::byte> payload(asked.payload_bytes);
          wire::receive_payload(fd.get(), asked, payload, deadline);
          wire::Head head;
          constexpr wire::Kind kKinds[] = {wire::Kind::ok, wire::Kind::data, wire::Kind::error};
          head.kind = i == 0 ? wire::Kind::ok : kKinds[own() % 3];
          head.sequence = own() % 10 == 0 ? own() : asked.sequence;
          head.a = i == 0 ? 1000 : own() % 40;
          head.b = own();
          const std::size_t bytes = i == 0 ? 16 : own() % 3 == 0 ? own() % 500 : own() % 30;
          wire::send(fd.get(), head, own() % 10 == 0 ? "key" : "", bytes_of(own() % 2, bytes),
                     deadline);
        }
      } catch (const Error&) {
      }
    }
  });
  int thrown = 0;
  for (int round = 0; round < 300; ++round) {
    const auto own = memory_store(address, {milliseconds(1000), milliseconds(150)});
    for (int i = 0; i < 3; ++i) {
      try {
        switch (random() % 6) {
          case 0:
            own->list();
            break;
          case 1:
            own->head("a");
            break;
          case 2:
            get(*own, "a", 1000);
            break;
          case 3:
            put(*own, "a", bytes_of(1, 100'000));
            break;
          case 4:
            own->claim();
            break;
          default:
            own->remove("a");
        }
      } catch (const Error&) {
        ++thrown;
      }
    }
  }
  ends = true;
  noise.join();
  EXPECT_GT(thrown, 300);
}

// ---- Steps over a connection that fails ---------------------------------------------------------

struct Told {
  std::map<Step, std::vector<std::byte>> there;
  std::vector<Step> removed;
  int failures = 0;
};

StepInfo info_of(Step step, std::size_t bytes) {
  return {step, bytes, {{"field", 0, bytes}}, 1000 + step, {}};
}

// Writes, reads and removes steps; of what has failed nothing is believed.
Told use_steps(const std::string& address, const MemoryStoreOptions& limits) {
  Told told;
  const auto tries = [&](auto&& body) {
    try {
      body();
      return true;
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Errc::io || error.code() == Errc::in_use ||
                  error.code() == Errc::already_exists || error.code() == Errc::not_found)
          << error.what();
      ++told.failures;
      return false;
    }
  };
  std::unique_ptr<history::StepStore> store;
  for (int attempt = 0; attempt < 2 && !store; ++attempt) {
    tries([&] { store = history::open_object_step_store(memory_store(address, limits)); });
  }
  if (!store) return told;
  for (Step step = 0; step < 4; ++step) {
    const auto blob = bytes_of(step, step == 2 ? (2u << 20) + 100 : 30'000 + 100 * step);
    if (tries([&] { store->write(info_of(step, blob.size()), blob, {}); })) told.there[step] = blob;
  }
  for (const auto& each : told.there) {
    std::vector<std::byte> into(each.second.size());
    EXPECT_TRUE(!tries([&] { store->read(each.first, into, {}); }) || into == each.second);
  }
  for (const Step step : {Step{1}, Step{2}}) {
    if (!told.there.contains(step)) continue;
    if (tries([&] { store->remove(step); })) {
      told.removed.push_back(step);
      told.there.erase(step);
    } else {
      told.there.erase(step);  // it is there, or it is not
    }
  }
  return told;
}

void check_steps(const std::string& address, const Told& told) {
  const auto store = history::open_object_step_store(memory_store(address));  // takes over at once
  EXPECT_TRUE(store->damaged().empty());
  for (const auto& [step, blob] : told.there) {
    std::vector<std::byte> into(blob.size());
    EXPECT_NO_THROW(store->read(step, into, {})) << step;
    EXPECT_EQ(into, blob) << step;
  }
  for (const Step step : told.removed) EXPECT_FALSE(store->find(step)) << step;
  for (const StepInfo& info : store->steps()) EXPECT_TRUE(store->verify(info.step, {}));
}

TEST_F(MemoryStoreTest, EveryMessageIsCutOrFlippedInTurn) {
  const std::uint64_t seed = test::test_seed();
  std::uint64_t messages = 0;
  {
    MessageProxy proxy(server_->address());
    const Told told = use_steps(proxy.address() + "/count", kImpatient);
    EXPECT_EQ(told.failures, 0);
    EXPECT_EQ(told.there.size(), 2u);
    messages = proxy.messages();
  }
  EXPECT_GT(messages, 40u);
  const std::uint64_t used = server_->used_bytes();
  int runs = 0, struck = 0, failed = 0;
  for (const Mishap mishap :
       {Mishap::cut_before, Mishap::cut_within, Mishap::cut_behind, Mishap::flip}) {
    const test::Every tried = test::every(1, 10, seed);
    for (std::uint64_t at = tried.first; at < messages; at += tried.step) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", mishap " +
                   std::to_string(static_cast<int>(mishap)) + " at message " + std::to_string(at));
      const std::string name = "/run" + std::to_string(++runs);
      MessageProxy proxy(server_->address(), mishap, at, seed + at);
      const Told told = use_steps(proxy.address() + name, kImpatient);
      struck += proxy.struck();
      failed += told.failures > 0;
      check_steps(server_->address() + name, told);
      ASSERT_FALSE(HasFailure());
      const auto own = memory_store(server_->address() + name);
      for (const StoredObject& each : own->list()) own->remove(each.key);
      expect_used(used);
      ASSERT_FALSE(HasFailure());
    }
  }
  std::printf("%d runs, %d struck, %d with a failure\n", runs, struck, failed);
  EXPECT_GT(struck * 10, runs * (test::share() == 1 ? 9 : 7));
}

TEST_F(MemoryStoreTest, AMessageThatIsHeldUpEndsInTime) {
  const test::Every tried = test::every(6, 30);
  for (std::uint64_t at = tried.first; at < 60; at += tried.step) {
    SCOPED_TRACE("at message " + std::to_string(at));
    MemoryServerOptions with = options();
    with.silence = milliseconds(300);
    restart(with);
    MessageProxy proxy(server_->address(), Mishap::hold, at);
    const auto begin = wire::Clock::now();
    const Told told = use_steps(proxy.address() + "/x", {milliseconds(300), milliseconds(100)});
    EXPECT_LT(wire::Clock::now() - begin, std::chrono::seconds(60));
    check_steps(server_->address() + "/x", told);
  }
}

}  // namespace
}  // namespace holdfast
