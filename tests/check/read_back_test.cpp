// What recovery reads back of its own stores is no read of what the crash left; what a struct
// copied onto itself holds is. A vote waits, and orders nothing.
#include "check/read_back_test.hpp"

#include "check/verdicts.hpp"

namespace holdfast::check {
namespace {

using test::By;

Verdict verdict_of(const Program& program, bool robust = false) {
  Options options;
  options.robust = robust;
  return check(program, options).verdict;
}

TEST(ReadBackTest, AStoreOfWhatIsThereMayBeReadBack) {
  for (const By by : {By::kernel, By::host}) {
    for (const auto sized : {test::Sized::words, test::Sized::halves_read_whole}) {
      EXPECT_EQ(verdict_of(test::recomputes_a_total(by, sized)), Verdict::passed);
    }
  }
}

TEST(ReadBackTest, AStructCopiedOntoItselfIsRead) {
  for (const By by : {By::kernel, By::host}) {
    EXPECT_EQ(verdict_of(test::moves_a_record_onto_itself(by, false)), Verdict::passed);
    EXPECT_EQ(verdict_of(test::moves_a_record_onto_itself(by, true)), Verdict::failed);
  }
}

TEST(ReadBackTest, WhatIsReadBackIsNotWhatRecoveryReliesOn) {
  Program program = test::recomputes_a_total(By::kernel, test::Sized::words);
  program.verify = nullptr;
  EXPECT_NE(verdict_of(program, true), Verdict::failed);
}

TEST(ReadBackTest, AVoteWaitsForTheOthers) {
  using test::Exchange;
  for (const auto exchange : {Exchange::ballot, Exchange::shuffle, Exchange::reduction}) {
    EXPECT_EQ(verdict_of(test::hears_by_vote(exchange, false)), Verdict::passed);
    EXPECT_EQ(verdict_of(test::hears_by_vote(exchange, true)), Verdict::failed);
  }
}

}  // namespace
}  // namespace holdfast::check
