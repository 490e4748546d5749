// A program that the project ships, by its name.
#pragma once

#include <string>

#include "holdfast/error.hpp"
#include "shipped.hpp"

namespace holdfast::check {

inline Program shipped_program(const std::string& name, const Sizes& sizes = {}) {
  for (const Offer& offer : shipped_programs()) {
    if (offer.name == name) return offer.make(sizes);
  }
  throw Error(Errc::not_found, detail::concat("the project ships no program '", name, "'"));
}

}  // namespace holdfast::check
