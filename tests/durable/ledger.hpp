// The durable object that the tests make: balances, an array that is hashed, and two logs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "holdfast/durable.hpp"
#include "support/object_names.hpp"

namespace holdfast::test {

struct LedgerInfo {
  static constexpr const char* kTypeName = "ledger_info";
  std::uint64_t words[3];
};

struct LedgerParameters {
  static constexpr const char* kTypeName = "ledger";
  static constexpr std::uint32_t kVersion = 2;
  std::uint64_t accounts = 1000;
  std::uint64_t partitions = 4;
  std::vector<Part> parts() const;
};
using Ledger = Durable<LedgerParameters>;

}  // namespace holdfast::test

namespace holdfast::test {

inline std::vector<Part> LedgerParameters::parts() const {
  if (accounts == 0 || accounts > 1u << 24 || partitions > 1u << 20) {
    throw Error(Errc::invalid_argument, detail::concat("ledger of ", accounts, " accounts"));
  }
  return {Part::array<std::uint64_t>("balances", accounts),
          Part::array<LedgerInfo>("info", 1, Tracking::hashed), Part::transaction(),
          Part::undo_log("log", LogShape::coalesced(static_cast<std::uint32_t>(accounts), 16)),
          Part::undo_log("meta", LogShape::conventional(static_cast<std::uint32_t>(partitions),
                                                        sizeof(LedgerInfo)))};
}

// Its objects, the header first.
inline const std::vector<std::string>& ledger_objects() {
  static const std::vector<std::string> all = {"books.header", "books.balances", "books.info",
                                               "books.tx",     "books.log",      "books.meta"};
  return all;
}

}  // namespace holdfast::test
