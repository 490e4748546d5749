// Options::robust: bugs that are found without a verification, by what recovery reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "check/unseen_test.hpp"
#include "check/verdicts.hpp"
#include "checked_append/append.hpp"
#include "holdfast/check.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::check {
namespace {

Program example(const std::string& name) {
  const auto offers = checked_append::offers();
  const auto offer = std::find_if(offers.begin(), offers.end(),
                                  [&](const Offer& one) { return one.name == name; });
  return offer->make({});
}

// A log without an oracle: recovery reads what the log says it holds, and nobody judges it.
Program unjudged(const std::string& name) {
  Program program = example(name);
  program.verify = nullptr;
  program.recover = [](Region& region) {
    const auto* const head =
        static_cast<const std::uint64_t*>(region.address(region.object("head")));
    const auto* const records =
        static_cast<const std::uint64_t*>(region.address(region.object("records")));
    const std::uint64_t count = check::read(head);
    for (std::uint64_t i = 0; i < count; ++i) check::read(records + i);
  };
  return program;
}

Report check_robust(const Program& program, Options options = {}) {
  options.robust = true;
  if (!options.model) options.model = Model::sbrp;
  return check(program, options);
}

TEST(Robust, ALogThatCountsWhatMayBeLostIsFoundWithoutAVerification) {
  const Report report = check_robust(unjudged("append_naive"));
  ASSERT_EQ(report.verdict, Verdict::failed);
  const Failure& failure = report.failures[0];
  EXPECT_NE(failure.message.find("recovery reads records+"), std::string::npos) << failure.message;
  EXPECT_NE(failure.message.find("comes before what it reads at head+0"), std::string::npos)
      << failure.message;
  EXPECT_NE(failure.suggestion.find("persist() behind the store at append.cu:15"),
            std::string::npos)
      << failure.suggestion;
  EXPECT_EQ(to_string(failure.lost.place), "append.cu:15");
  EXPECT_EQ(to_string(failure.kept.place), "append.cu:17");
}

TEST(Robust, TheMendedLogIsRobust) {
  for (const char* const name : {"append", "append_blocks"}) {
    for (const Model model : {Model::sbrp, Model::epoch}) {
      Options options;
      options.model = model;
      options.schedules = 50;  // some, since it is the states of each that are looked at
      const Report report = check_robust(unjudged(name), options);
      EXPECT_TRUE(nothing_fails(report)) << name << ": " << to_string(report.verdict);
      EXPECT_TRUE(report.complete) << name;
      for (const Failure& failure : report.failures) ADD_FAILURE() << failure.message;
    }
  }
}

// Stored, seen by the host, and promised, without a fence and without waiting for the stream. One
// schedule shows it; where schedules are explored, a host that polls has to do so by volatile
// accesses (SchedulesTest), since a plain read lets nobody else go on.
TEST(Robust, WhatWasPromisedMayNotBeMissing) {
  constexpr unsigned kWords = 2;
  const auto words_of = [](Region& region) {
    return static_cast<std::uint64_t*>(region.address(region.object("words")));
  };
  Program program;
  program.name = "words";
  program.set_up = [](Region& region) { region.allocate<std::uint64_t>("words", kWords + 1); };
  program.run = [=](Region& region, Session& session) {
    session.start();
    Stream stream;
    launch(stream, 1, kWords, test::store_words, words_of(region));
    while (check::read(words_of(region) + kWords) == 0) {
    }
    session.acknowledge();
    stream.synchronize();
  };
  program.recover = [=](Region& region) { check::read(words_of(region)); };
  Options options;
  options.schedules = 0;
  const Report report = check_robust(program, options);
  ASSERT_EQ(report.verdict, Verdict::failed);
  EXPECT_NE(report.failures[0].message.find("words+0 without a store that was acknowledged"),
            std::string::npos)
      << report.failures[0].message;
}

TEST(Robust, TooNarrowAScopeIsFound) {
  EXPECT_EQ(check_robust(unjudged("append_blocks_naive")).verdict, Verdict::failed);
}

// Two stores without a fence in between, the first of which stores what is there already or not.
Program published(std::uint64_t payload_before) {
  Program program;
  program.name = "published";
  program.set_up = [=](Region& region) {
    region.allocate<test::Pair>("pair", 1)[0].payload = payload_before;
  };
  program.run = [](Region& region, Session& session) {
    session.start();
    Stream stream;
    launch(stream, 1, 1, test::publish<false>, region.find<test::Pair>("pair").data());
    stream.synchronize();
    session.acknowledge();
  };
  program.recover = [](Region& region) {
    const test::Pair* const pair = region.find<test::Pair>("pair").data();
    check::read(&pair->valid);
    check::read(&pair->payload);
  };
  return program;
}

TEST(Robust, ValuesCountAndNotWhichStoreLeftThem) {
  EXPECT_EQ(check_robust(published(0)).verdict, Verdict::failed);
  EXPECT_TRUE(nothing_fails(check_robust(published(42))));
}

// A verification that there is is run for what it reads, and not believed.
TEST(Robust, WhatAVerificationSaysDoesNotCount) {
  Program program = example("append");
  program.verify = [](Region&, const History&, std::uint64_t) { return std::string("never good"); };
  EXPECT_TRUE(nothing_fails(check_robust(program)));
  EXPECT_EQ(check(program).verdict, Verdict::failed);
  EXPECT_EQ(check_robust(example("append_naive")).verdict, Verdict::failed);
}

}  // namespace
}  // namespace holdfast::check
