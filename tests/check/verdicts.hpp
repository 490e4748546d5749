// What tests say of reports.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "holdfast/check.hpp"

namespace holdfast::check {

inline void PrintTo(Verdict verdict, std::ostream* out) { *out << to_string(verdict); }
inline void PrintTo(CauseKind kind, std::ostream* out) { *out << to_string(kind); }
inline void PrintTo(Rung rung, std::ostream* out) { *out << to_string(rung); }
inline void PrintTo(Mutant::Fate fate, std::ostream* out) { *out << to_string(fate); }
inline void PrintTo(Mutant::Killer killer, std::ostream* out) { *out << to_string(killer); }

inline bool nothing_fails(const Report& report) {
  return report.verdict == Verdict::passed || report.verdict == Verdict::none_found;
}

inline std::string all_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

// Of what was tried, nothing fails.
// `is_void`: whether its verdict is void all the same, for what weak memory may make of it.
inline void expect_none_found(const Report& report, bool is_void = false) {
  EXPECT_EQ(report.verdict == Verdict::void_, is_void) << all_of(report.void_reasons);
  EXPECT_TRUE(is_void || nothing_fails(report)) << to_string(report.verdict);
  for (const Failure& failure : report.failures) {
    ADD_FAILURE() << failure.message << "\nlost: " << to_string(failure.lost.place)
                  << "\nkept: " << to_string(failure.kept.place) << "\n"
                  << failure.advice;
  }
  for (const RaceReport& race : report.races) {
    ADD_FAILURE() << race.what << "\n" << to_string(race.first) << "\n" << to_string(race.second);
  }
}

// And every state of the executions that were made was tried.
inline void expect_nothing_fails(const Report& report, bool is_void = false) {
  expect_none_found(report, is_void);
  EXPECT_NE(report.rung, Rung::sampled);
  EXPECT_TRUE(report.complete) << all_of(report.limits);
  EXPECT_TRUE(report.nested_complete) << all_of(report.limits);
}

}  // namespace holdfast::check
