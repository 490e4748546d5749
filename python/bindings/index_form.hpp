// The form of an index in device memory, by its name in Python.
#pragma once

#include <string>

#include "holdfast/kv_store.hpp"

namespace holdfast::python {

// Throws invalid_argument.
KvStore::Index index_named(const std::string& name);

}  // namespace holdfast::python
