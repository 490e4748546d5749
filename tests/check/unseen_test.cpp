// A recovery or verification in a file that holdfast_kernels() does not name, so that no hook
// tells what it reads.
#include "check/unseen_test.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "holdfast/check.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::check {
namespace {

using test::Pair;

template <class T>
T* object(Region& region, const char* name) {
  return static_cast<T*>(region.address(region.object(name)));
}

std::string judge(std::uint64_t payload, std::uint64_t valid, const History& history) {
  if (valid == 0) return history.acknowledged == 0 ? "" : "the pair is gone";
  return payload == 42 ? "" : "valid without its payload";
}

// Plain loads, which nothing announces.
std::string verify_plainly(Region& region, const History& history, std::uint64_t) {
  const volatile Pair* const pair = object<Pair>(region, "pair");
  const std::uint64_t valid = pair->valid;
  return judge(pair->payload, valid, history);
}

std::string verify_through_read(Region& region, const History& history, std::uint64_t) {
  const Pair* const pair = object<Pair>(region, "pair");
  const std::uint64_t valid = check::read(&pair->valid);
  return judge(check::read(&pair->payload), valid, history);
}

template <bool kFixed>
Program pair_program() {
  Program program;
  program.name = "pair";
  program.set_up = [](Region& region) {
    region.allocate_raw("pair", "Pair", sizeof(Pair), 1, Tracking::hashed);
  };
  program.run = [](Region& region, Session& session) {
    session.start();
    Stream stream;
    launch(stream, 1, 1, test::publish<kFixed>, object<Pair>(region, "pair"));
    stream.synchronize();
    session.acknowledge();
  };
  program.recover = [](Region&) {};
  program.verify = verify_plainly;
  return program;
}

bool names_this_file(const Report& report) {
  for (const Hint& hint : report.hints) {
    if (hint.what.find("not instrumented") == std::string::npos) continue;
    return hint.place.file.find("unseen_test.cpp") != std::string::npos;
  }
  return false;
}

TEST(Unseen, AVerificationThatNobodyInstrumentedFindsTheLoss) {
  if (!can_see_host()) GTEST_SKIP() << "x86-64 alone";
  const Report report = check(pair_program<false>());
  ASSERT_EQ(report.verdict, Verdict::failed) << "what it reads was not seen";
  EXPECT_EQ(report.failures[0].message, "valid without its payload");
  EXPECT_TRUE(names_this_file(report));
}

TEST(Unseen, AndPassesTheFixedTwin) {
  if (!can_see_host()) GTEST_SKIP() << "x86-64 alone";
  const Report report = check(pair_program<true>());
  EXPECT_EQ(report.verdict, Verdict::passed);
  EXPECT_TRUE(names_this_file(report));
}

TEST(Unseen, WhatIsReadThroughReadIsNoSurprise) {
  Program program = pair_program<false>();
  program.verify = verify_through_read;
  const Report report = check(program);
  EXPECT_EQ(report.verdict, Verdict::failed);
  EXPECT_FALSE(names_this_file(report));
}

TEST(Unseen, RecoveryIsWatchedToo) {
  if (!can_see_host()) GTEST_SKIP() << "x86-64 alone";
  Program program = pair_program<false>();
  program.recover = [](Region& region) {
    const volatile Pair* const pair = object<Pair>(region, "pair");
    if (pair->valid == 1 && pair->payload != 42) throw std::runtime_error("torn");
  };
  program.verify = [](Region&, const History&, std::uint64_t) { return std::string(); };
  EXPECT_EQ(check(program).verdict, Verdict::failed);
}

std::string error_of(const Program& program) {
  try {
    check(program);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::unsupported);
    return error.what();
  }
  return "no error";
}

TEST(Unseen, AStoreOfUninstrumentedCodeIsRefusedByName) {
  if (!can_see_host()) GTEST_SKIP() << "x86-64 alone";
  Program program = pair_program<true>();
  program.recover = [](Region& region) {
    volatile Pair* const pair = object<Pair>(region, "pair");
    pair->valid = 0;
  };
  const std::string message = error_of(program);
  EXPECT_NE(message.find("stores to pair+64"), std::string::npos) << message;
  EXPECT_NE(message.find("unseen_test.cpp"), std::string::npos) << message;
  EXPECT_NE(message.find("holdfast_kernels()"), std::string::npos) << message;
}

// Reads that only some states lead to, after many that were announced: what was explored by then
// may have missed some, and cannot be mended.
TEST(Unseen, AReadThatComesLateIsRefusedByName) {
  if (!can_see_host()) GTEST_SKIP() << "x86-64 alone";
  constexpr unsigned kWords = 12;
  Program program;
  program.name = "words";
  program.set_up = [](Region& region) { region.allocate<std::uint64_t>("words", kWords + 1); };
  program.run = [](Region& region, Session&) {
    Stream stream;
    launch(stream, 1, kWords, test::store_words, object<std::uint64_t>(region, "words"));
    stream.synchronize();
  };
  program.recover = [](Region&) {};
  program.verify = [](Region& region, const History&, std::uint64_t) {
    const std::uint64_t* const words = object<std::uint64_t>(region, "words");
    std::uint64_t read[kWords];
    for (unsigned i = 0; i < kWords; ++i) read[i] = check::read(words + i);
    if (read[0] != 0 || read[1] == 0) return std::string();
    return *static_cast<const volatile std::uint64_t*>(words + kWords) > 1 ? std::string("no")
                                                                           : std::string();
  };
  const std::string message = error_of(program);
  EXPECT_NE(message.find("reads words+96 unseen"), std::string::npos) << message;
  EXPECT_NE(message.find("check::read()"), std::string::npos) << message;
}

}  // namespace
}  // namespace holdfast::check
