// Object stores that Python code speaks to (python/holdfast/_objects.py).
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "holdfast/object_store.hpp"

namespace holdfast::python {

// `store` is None, or a holdfast._objects.Objects: null, or an object store whose functions call
// its methods. The interpreter's lock is taken around each call alone, and given back while bytes
// move. REQUIRES: the interpreter's lock.
std::shared_ptr<ObjectStore> object_store_of(nanobind::object store);

}  // namespace holdfast::python
