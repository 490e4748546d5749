// Exact event lists of small kernels.
#include "cpu/events.hpp"

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cpu/recorder.hpp"
#include "cpu/support.hpp"

namespace holdfast::test {
namespace {

using cpu::EventKind;

// "kind[name+offset:size]=value", or "kind" where there is no address.
class Namer {
 public:
  void name(const char* name, const void* start, std::size_t bytes) {
    ranges_.push_back({name, static_cast<const char*>(start), bytes});
  }

  std::string text(const Recorded& record) const {
    const cpu::Event& event = record.event;
    std::string out = to_string(event.kind);
    if (event.kind == EventKind::atomic || event.kind == EventKind::fence ||
        event.kind == EventKind::acquire || event.kind == EventKind::release) {
      constexpr const char* kScopes[] = {"block", "device", "system"};
      out += std::string("<") + kScopes[static_cast<int>(event.scope)] + ">";
    }
    if (event.is_volatile) out = "volatile " + out;
    if (event.is_atomic) out = "atomic " + out;
    if (event.address != nullptr) {
      const char* address = static_cast<const char*>(event.address);
      std::string place = "?";
      for (const Range& range : ranges_) {
        if (address >= range.start && address < range.start + range.bytes) {
          place = range.name + ("+" + std::to_string(address - range.start));
        }
      }
      out +=
          "[" + place + ":" + std::to_string(event.size) + "]=" + std::to_string(record.number());
      if (!record.new_value.empty()) {
        out += "->" + std::to_string(Recorded{event, record.new_value, {}}.number());
      }
    }
    return out;
  }

  // The events of one thread, less its begin and end.
  std::vector<std::string> texts(const Recorder& recorder, unsigned thread = 0) const {
    std::vector<std::string> out;
    for (const Recorded& record : recorder.events) {
      const EventKind kind = record.event.kind;
      if (kind <= EventKind::thread_end || record.event.thread != thread) continue;
      out.push_back(text(record));
    }
    return out;
  }

 private:
  struct Range {
    std::string name;
    const char* start;
    std::size_t bytes;
  };
  std::vector<Range> ranges_;
};

using Texts = std::vector<std::string>;

template <class... Arguments>
void run(unsigned grid, unsigned block, auto kernel, Arguments... arguments) {
  Stream stream;
  launch(stream, grid, block, kernel, arguments...);
  stream.synchronize();
}

TEST(Events, NameWhoWhereAndWhat) {
  std::vector<unsigned> in = {1, 2, 3, 4, 5, 6}, out(6);
  Recorder recorder;
  run(2, 3, load_add_store, static_cast<const unsigned*>(in.data()), out.data());
  std::size_t at = 0;
  const auto next = [&]() -> const Recorded& { return recorder.events.at(at++); };
  EXPECT_EQ(next().event.kind, EventKind::kernel_begin);
  for (unsigned block = 0; block < 2; ++block) {
    EXPECT_EQ(next().event.kind, EventKind::block_begin);
    for (unsigned thread = 0; thread < 3; ++thread) {
      const unsigned i = block * 3 + thread;
      EXPECT_EQ(next().event.kind, EventKind::thread_begin);
      const Recorded& load = next();
      EXPECT_EQ(load.event.kind, EventKind::load);
      EXPECT_EQ(load.event.address, &in[i]);
      EXPECT_EQ(load.number(), i + 1);
      const Recorded& store = next();
      EXPECT_EQ(store.event.kind, EventKind::store);
      EXPECT_EQ(store.event.address, &out[i]);
      EXPECT_EQ(store.event.size, 4u);
      EXPECT_EQ(store.number(), i + 2);
      EXPECT_EQ(store.event.block, block);
      EXPECT_EQ(store.event.thread, thread);
      EXPECT_EQ(store.event.lane, thread);
      EXPECT_NE(store.event.pc, nullptr);
      EXPECT_EQ(next().event.kind, EventKind::thread_end);
    }
    EXPECT_EQ(next().event.kind, EventKind::block_end);
  }
  const cpu::Event& end = next().event;
  EXPECT_EQ(end.kind, EventKind::kernel_end);
  EXPECT_TRUE(end.completed);
  EXPECT_EQ(at, recorder.events.size());
}

TEST(Events, EveryOperationHasItsOwn) {
  std::array<unsigned, 8> words{};
  std::uint64_t flag = 0;
  Recorder recorder;
  run(1, 1, all_operations, words.data(), &flag);
  Namer namer;
  namer.name("words", words.data(), sizeof words);
  namer.name("flag", &flag, sizeof flag);
  EXPECT_EQ(
      namer.texts(recorder),
      (Texts{"store[words+0:4]=7", "ordering_fence", "store[words+4:4]=8", "durability_fence",
             "durability_fence", "fence<block>", "fence<device>", "fence<system>",
             "atomic<block>[words+8:4]=0->5", "atomic<device>[words+8:4]=5->5",
             "atomic<system>[words+8:4]=5->6", "release<device>[flag+0:8]=77",
             "acquire<block>[flag+0:8]=77", "store[words+12:4]=77", "volatile store[words+16:4]=3",
             "volatile load[words+16:4]=3", "store[words+20:4]=3"}));
}

TEST(Events, NameTheSourceLine) {
  std::array<unsigned, 8> words{};
  std::uint64_t flag = 0;
  Recorder recorder;
  run(1, 1, all_operations, words.data(), &flag);
  unsigned line = 0;
  for (const Recorded& record : recorder.events) {
    if (record.event.file == nullptr) continue;
    EXPECT_NE(std::string(record.event.file).find("events.cu"), std::string::npos);
    EXPECT_GT(record.event.line, line);
    line = record.event.line;
  }
  EXPECT_GT(line, 0u);
}

TEST(Events, SharedMemoryIsDelivered) {
  std::array<unsigned, 2> out{};
  Recorder recorder;
  run(1, 2, through_shared, out.data());
  Namer namer;
  namer.name("out", out.data(), sizeof out);
  EXPECT_EQ(namer.texts(recorder, 0),
            (Texts{"store[?:4]=10", "barrier", "load[?:4]=11", "store[out+0:4]=11"}));
  EXPECT_EQ(namer.texts(recorder, 1),
            (Texts{"store[?:4]=11", "barrier", "load[?:4]=10", "store[out+4:4]=10"}));
}

TEST(Events, LocalMemoryAndBuiltInVariablesAreNot) {
  unsigned out = 0;
  Recorder recorder;
  run(1, 1, local_only, &out);
  Namer namer;
  namer.name("out", &out, sizeof out);
  EXPECT_EQ(namer.texts(recorder), (Texts{"store[out+0:4]=62"}));
}

TEST(Events, ArgumentsAreNot) {
  unsigned out = 0;
  Recorder recorder;
  run(1, 1, by_value, ByValue{{1, 2, 3, 4, 5, 6}}, &out);
  Namer namer;
  namer.name("out", &out, sizeof out);
  EXPECT_EQ(namer.texts(recorder), (Texts{"store[out+0:4]=21"}));
}

TEST(Events, BarriersNameGenerationAndMask) {
  unsigned out = 0;
  Recorder recorder;
  run(1, 3, with_barriers, &out);
  std::vector<std::uint64_t> generations;
  std::vector<std::uint32_t> masks;
  for (const Recorded& record : recorder.events) {
    if (record.event.thread != 0) continue;
    if (record.event.kind == EventKind::barrier) generations.push_back(record.event.generation);
    if (record.event.kind == EventKind::warp_barrier) masks.push_back(record.event.mask);
  }
  EXPECT_EQ(generations, (std::vector<std::uint64_t>{0, 1}));
  EXPECT_EQ(masks, (std::vector<std::uint32_t>{0xffffffff, 3}));
}

// All bytes of a struct that a call returns into memory, however the compiler splits the store.
TEST(Events, StructsOfCallsAreDelivered) {
  Pair in{1, 2}, out{};
  uint4 vectors{};
  Recorder recorder;
  run(1, 1, struct_calls, static_cast<const Pair*>(&in), &out, &vectors);
  EXPECT_EQ(out.a, 2u);
  std::size_t loaded = 0, stored = 0, stored_vector = 0;
  for (const Recorded& record : recorder.events) {
    const void* address = record.event.address;
    const auto inside = [&](const void* start, std::size_t bytes) {
      return address >= start && address < static_cast<const char*>(start) + bytes;
    };
    if (record.event.kind == EventKind::load && inside(&in, sizeof in)) loaded += record.event.size;
    if (record.event.kind == EventKind::store && inside(&out, sizeof out)) {
      stored += record.event.size;
    }
    if (record.event.kind == EventKind::store && inside(&vectors, sizeof vectors)) {
      stored_vector += record.event.size;
    }
  }
  EXPECT_EQ(loaded, sizeof in);
  EXPECT_EQ(stored, sizeof out);
  EXPECT_EQ(stored_vector, sizeof vectors);
}

TEST(Events, InlineFunctionsOfHostFilesDoNotReplaceTheKernels) {
  std::vector<unsigned> words = {1, 2, 3, 4, 5};
  const auto direct = &shared_helper;  // makes this file keep a copy of its own
  unsigned out = 0;
  Recorder recorder;
  const unsigned want = direct(words.data(), 5);
  EXPECT_TRUE(recorder.events.empty()) << "the host's accesses are not the kernel's";
  run(1, 1, uses_shared_helper, static_cast<const unsigned*>(words.data()), 5u, &out);
  EXPECT_EQ(out, want);
  Namer namer;
  namer.name("words", words.data(), 20);
  namer.name("out", &out, 4);
  Texts texts;
  for (unsigned i = 0; i < 5; ++i) {
    texts.push_back("load[words+" + std::to_string(4 * i) + ":4]=" + std::to_string(i + 1));
  }
  texts.push_back("store[out+0:4]=" + std::to_string(want));
  EXPECT_EQ(namer.texts(recorder), texts);
}

TEST(Events, AFaultEndsTheKernelUncompleted) {
  Recorder recorder;
  Stream stream;
  launch(stream, 1, 1, local_only, reinterpret_cast<unsigned*>(16));
  EXPECT_THROW(stream.synchronize(), Error);
  const cpu::Event& end = recorder.events.back().event;
  EXPECT_EQ(end.kind, EventKind::kernel_end);
  EXPECT_FALSE(end.completed);
  for (const Recorded& record : recorder.events) {
    EXPECT_NE(record.event.kind, EventKind::store) << "a store that faulted did not happen";
  }
}

TEST(Events, NoListenerNoHarm) {
  EXPECT_TRUE(cpu::can_listen());
  std::vector<unsigned> in(64, 1), out(64);
  run(2, 32, load_add_store, static_cast<const unsigned*>(in.data()), out.data());
  EXPECT_EQ(out[63], 2u);
}

TEST(Events, AreCountedExactly) {
  struct Count : cpu::Listener {
    void on_event(const cpu::Event& event) override { events += !event.host; }
    std::uint64_t events = 0;
  };
  Count count;
  cpu::set_listener(&count);
  std::vector<unsigned> in(1 << 20), out(1 << 20);
  run(4096, 256, load_add_store, static_cast<const unsigned*>(in.data()), out.data());
  cpu::set_listener(nullptr);
  EXPECT_EQ(count.events, 2u + 4096 * 2 + (1u << 20) * 4);
}

}  // namespace
}  // namespace holdfast::test
