// The code of the Error that a function throws.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "holdfast/error.hpp"

namespace holdfast::test {

// Fails the test if none is thrown. `what` receives the message.
template <class Function>
Errc code_of(Function&& function, std::string* what = nullptr) {
  try {
    function();
  } catch (const Error& error) {
    if (what) *what = error.what();
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return Errc::io;
}

}  // namespace holdfast::test
