// Runs the command line within a test.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "check/command/report_json.hpp"
#include "checked_append/append.hpp"
#include "holdfast/check_command.hpp"

namespace holdfast::check {

// What a command prints to stdout, and its exit status.
struct Said {
  int status;
  Json json;
};

inline Said say(std::vector<std::string> words, const std::vector<Offer>& offers) {
  words.insert(words.begin(), "tool");
  words.emplace_back("--json");
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  ::testing::internal::CaptureStdout();
  const int status = command_line(static_cast<int>(argv.size()), argv.data(), offers);
  return {status, Json::parse(::testing::internal::GetCapturedStdout())};
}

inline Program example(const std::string& name, const Sizes& sizes = {}) {
  for (const Offer& offer : checked_append::offers()) {
    if (offer.name == name) return offer.make(sizes);
  }
  return {};
}

}  // namespace holdfast::check
