// The code of the Error that a function throws.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "holdfast/error.hpp"

namespace holdfast::test {

// Fails the test if `body` throws no Error, or one whose message lacks one of `words`.
template <class Body>
Errc error_of(Body&& body, const std::vector<std::string>& words = {}) {
  try {
    body();
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const std::string& word : words) {
      EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' not in: " << message;
    }
    return error.code();
  }
  ADD_FAILURE() << "no error was thrown";
  return static_cast<Errc>(-1);
}

}  // namespace holdfast::test
