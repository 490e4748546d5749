// What programs over the key-value store give it.
#pragma once

#include <cstdint>
#include <vector>

#include "holdfast/kv_store.hpp"

namespace holdfast::check {

struct KvBatch {
  std::vector<KvStore::Op> operations;  // one: of all keys
  std::vector<std::uint64_t> keys;
  std::vector<std::uint64_t> values;  // of a batch of ERASEs alone: none

  KvStore::Op operation(std::size_t i) const {
    return operations.size() == 1 ? operations[0] : operations[i];
  }
  void give_to(KvStore& store) const {
    if (operations.size() > 1) {
      store.apply(operations.data(), keys.data(), values.data(), keys.size());
    } else if (operations[0] == KvStore::Op::erase) {
      store.erase(keys.data(), keys.size());
    } else {
      store.set(keys.data(), values.data(), keys.size());
    }
  }
};

}  // namespace holdfast::check
