// The race detector on what streams and the host do at the same time, in explorations of schedules.
#include <gtest/gtest.h>

#include <algorithm>

#include "check/race.hpp"
#include "check/race_streams_test.hpp"
#include "holdfast/cpu/chooser.hpp"
#include "holdfast/cpu/host_observer.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::test {
namespace {

using check::Race;
using check::RaceDetector;
using Kinds = std::vector<std::string>;

// The first that can go on, or the last: whether two race is no matter of who comes first.
class Ends : public cpu::Chooser {
 public:
  explicit Ends(bool last) : last_(last) {}
  std::size_t choose(std::span<const cpu::Step> steps) override {
    std::size_t chosen = steps.size();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!steps[i].blocked && (last_ || chosen == steps.size())) chosen = i;
    }
    return chosen;
  }
  void only_read() override {}
  void order(cpu::Actor, cpu::Actor) override {}
  void meet(std::span<const cpu::Actor>) override {}

 private:
  bool last_;
};

class RacingStreams : public ::testing::TestWithParam<bool> {
 protected:
  // What races in `host`, by kind, each kind once.
  template <class Host>
  Kinds races(Host host) {
    std::fill(words_.begin(), words_.end(), 0u);
    RaceDetector detector;
    cpu::set_listener(&detector);
    Ends chooser(GetParam());
    {
      cpu::Exploration exploration(chooser);
      const cpu::HostObserver observer;
      exploration.run([&] {
        Stream one, other;
        host(one, other);
        other.synchronize();
        one.synchronize();
      });
    }
    cpu::set_listener(nullptr);
    EXPECT_TRUE(detector.complete());
    Kinds kinds;
    text_.clear();
    for (const Race& race : detector.races()) {
      kinds.push_back(race.kind);
      text_ += to_string(race) + "\n";
    }
    std::sort(kinds.begin(), kinds.end());
    kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
    return kinds;
  }

  unsigned* word(unsigned i) { return &words_[16 * i]; }

  std::vector<unsigned> words_ = std::vector<unsigned>(1024);
  std::string text_;
};

INSTANTIATE_TEST_SUITE_P(Choosing, RacingStreams, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "the_last" : "the_first");
});

const Kinds kNone;
const Kinds kStreams{"streams do not wait"};
const Kinds kHost{"host does not wait"};

TEST_P(RacingStreams, KernelsOfTwoStreams) {
  EXPECT_EQ(races([&](Stream& one, Stream& other) {
              launch(one, 2, 2, put, word(0), 1u);
              launch(other, 1, 1, put, word(8), 1u);
            }),
            kNone)
      << text_;
  EXPECT_EQ(races([&](Stream& one, Stream& other) {
              launch(one, 1, 1, put, word(0), 1u);
              launch(other, 1, 1, copy_word, word(1), word(0));
            }),
            kStreams)
      << text_;
  EXPECT_NE(text_.find("a write of block 0, thread 0"), std::string::npos) << text_;
}

TEST_P(RacingStreams, TheHostsWaitForOneOrdersWhatItLaunchesThen) {
  EXPECT_EQ(races([&](Stream& one, Stream& other) {
              launch(one, 1, 1, put, word(0), 1u);
              launch(other, 1, 1, put, word(1), 1u);
              one.synchronize();
              launch(other, 1, 1, copy_word, word(2), word(0));
            }),
            kNone)
      << text_;
  EXPECT_EQ(races([&](Stream& one, Stream& other) {
              launch(one, 1, 1, put, word(0), 1u);
              launch(other, 1, 1, put, word(1), 1u);
              other.synchronize();
              launch(other, 1, 1, copy_word, word(2), word(0));
            }),
            kStreams)
      << text_;
}

TEST_P(RacingStreams, AnEventOrdersWhatIsBeforeIt) {
  EXPECT_EQ(races([&](Stream& one, Stream& other) {
              Event done;
              launch(one, 1, 1, put, word(0), 1u);
              done.record(one);
              launch(one, 1, 1, put, word(1), 1u);
              done.wait(other);
              launch(other, 1, 1, copy_word, word(2), word(0));
            }),
            kNone)
      << text_;
  EXPECT_EQ(races([&](Stream& one, Stream& other) {
              Event done;
              launch(one, 1, 1, put, word(0), 1u);
              done.record(one);
              launch(one, 1, 1, put, word(1), 1u);
              done.wait(other);
              launch(other, 1, 1, copy_word, word(2), word(1));
            }),
            kStreams)
      << text_;
}

TEST_P(RacingStreams, TheHostWaitsForAnEvent) {
  for (const bool for_it : {true, false}) {
    EXPECT_EQ(races([&](Stream& one, Stream&) {
                Event done;
                launch(one, 1, 1, put, word(0), 1u);
                done.record(one);
                launch(one, 1, 1, put, word(1), 1u);
                done.synchronize();
                load_on_host(word(for_it ? 0 : 1));
              }),
              for_it ? kNone : kHost)
        << text_;
  }
}

TEST_P(RacingStreams, Copies) {
  for (const bool waits : {true, false}) {
    const auto between = [&](Stream& one, Stream& other) {
      Event done;
      done.record(one);
      if (waits) done.wait(other);
    };
    const Kinds expected = waits ? kNone : kStreams;
    EXPECT_EQ(races([&](Stream& one, Stream& other) {
                copy_async(one, word(0), word(1), 64);
                between(one, other);
                launch(other, 1, 1, put, word(0) + 3, 1u);
              }),
              expected)
        << text_;
    EXPECT_EQ(races([&](Stream& one, Stream& other) {
                launch(one, 1, 1, put, word(1) + 3, 1u);
                between(one, other);
                copy_async(other, word(0), word(1), 64);
              }),
              expected)
        << text_;
    EXPECT_EQ(races([&](Stream& one, Stream& other) {
                copy_async(one, word(0), word(1), 64);
                between(one, other);
                copy_async(other, word(2), word(0), 64);
              }),
              expected)
        << text_;
  }
  EXPECT_EQ(races([&](Stream& one, Stream& other) {
              copy_async(one, word(1), word(0), 64);
              copy_async(other, word(2), word(0), 64);
              launch(other, 1, 1, copy_word, word(3), word(0));
            }),
            kNone)
      << text_;
}

TEST_P(RacingStreams, KernelsThatTellEachOther) {
  for (const bool fenced : {true, false}) {
    EXPECT_EQ(races([&](Stream& one, Stream& other) {
                launch(one, 1, 1, send, word(0), word(1), fenced ? Sent::persisted : Sent::plainly);
                launch(other, 1, 1, receive, word(0), word(1), word(2));
              }),
              fenced ? kNone : kStreams)
        << text_;
  }
  // What a kernel has learnt from one beside it is known to all that come behind it.
  EXPECT_EQ(races([&](Stream& one, Stream& other) {
              launch(one, 1, 1, send, word(0), word(1), Sent::persisted);
              launch(other, 1, 1, receive, word(0), word(1), word(2));
              launch(other, 1, 1, copy_word, word(3), word(0));
              other.synchronize();
              load_on_host(word(0));
            }),
            kNone)
      << text_;
}

TEST_P(RacingStreams, TheHostIsTold) {
  EXPECT_EQ(races([&](Stream& one, Stream&) {
              launch(one, 1, 1, send, word(0), word(1), Sent::persisted);
              wait_on_host(word(1));
              load_on_host(word(0));
            }),
            kNone)
      << text_;
  for (const Sent how : {Sent::plainly, Sent::device_fence}) {  // it reaches the device alone
    EXPECT_EQ(races([&](Stream& one, Stream&) {
                launch(one, 1, 1, send, word(0), word(1), how);
                wait_on_host(word(1));
                load_on_host(word(0));
              }),
              kHost)
        << text_;
  }
}

TEST_P(RacingStreams, TheHostTells) {
  EXPECT_EQ(races([&](Stream& one, Stream&) {
              launch(one, 1, 1, receive, word(0), word(1), word(2));
              store_on_host(word(0), 7);
              tell_on_host(word(1));
            }),
            kNone)
      << text_;
}

TEST_P(RacingStreams, TheHostStoresBesideAKernel) {
  EXPECT_EQ(races([&](Stream& one, Stream&) {
              store_on_host(word(0), 1);
              launch(one, 1, 1, copy_word, word(1), word(0));
            }),
            kNone)
      << text_;
  EXPECT_EQ(races([&](Stream& one, Stream&) {
              launch(one, 1, 1, copy_word, word(1), word(0));
              store_on_host(word(0), 1);
            }),
            kHost)
      << text_;
  EXPECT_EQ(races([&](Stream& one, Stream&) {
              copy_async(one, word(1), word(0), 4);
              store_on_host(word(0), 1);
            }),
            kHost)
      << text_;
}

}  // namespace
}  // namespace holdfast::test
