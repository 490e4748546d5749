#include "object_store.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <tuple>
#include <utility>

namespace holdfast::python {

namespace nb = nanobind;

namespace {

// The code of a holdfast.Error; of any other exception io. REQUIRES: the interpreter's lock.
Errc code_of(const nb::python_error& error) {
  const nb::object code = nb::getattr(error.value(), "code", nb::none());
  if (!nb::isinstance<nb::str>(code)) return Errc::io;
  const auto name = nb::cast<std::string>(code);
  for (int i = 0; i <= static_cast<int>(Errc::io); ++i) {
    if (name == to_string(static_cast<Errc>(i))) return static_cast<Errc>(i);
  }
  return Errc::io;
}

[[noreturn]] void throw_error(const nb::python_error& error) {
  // Ctrl-C, on the program's own thread: the program gets it as soon as it is back in Python.
  if (error.matches(PyExc_KeyboardInterrupt)) {
    PyErr_SetInterrupt();
    throw Error(Errc::io, "interrupted");
  }
  const std::string text = nb::cast<std::string>(nb::str(error.value()));
  throw Error(code_of(error), text.empty() ? "an exception without a message" : text);
}

// The memory of an object of Python's.
class Memory {
 public:
  Memory(nb::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  ~Memory() { PyBuffer_Release(&view_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::span<std::byte> span() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

// Runs what asks Python. No object of Python's leaves it.
template <class Request>
auto call(Request&& request) {
  if (!nb::is_alive()) throw Error(Errc::closed, "the interpreter has ended");
  const nb::gil_scoped_acquire gil;
  try {
    return request();
  } catch (const nb::python_error& error) {
    throw_error(error);
  } catch (const nb::cast_error&) {
    throw Error(Errc::io, "the object store gave an answer of another type than expected");
  }
}

class PythonObjectStore : public ObjectStore {
 public:
  explicit PythonObjectStore(nb::object store)
      : store_(std::move(store)), path_(nb::cast<std::string>(store_.attr("path"))) {}
  ~PythonObjectStore() override {
    if (!nb::is_alive()) {  // an interpreter that has ended takes nothing back
      store_.release();
      return;
    }
    const nb::gil_scoped_acquire gil;
    store_.reset();
  }

  void put(const std::string& key, std::uint64_t bytes, const Source& source) override {
    // Outlives the call where the store keeps what it was given.
    struct Upload {
      const Source* source;
      std::exception_ptr error;
    };
    const auto upload = std::make_shared<Upload>(Upload{&source, nullptr});
    const auto fill = [upload](nb::object part) {
      const Memory memory(part, PyBUF_WRITABLE);
      if (upload->source == nullptr) throw nb::value_error("this upload has ended");
      const nb::gil_scoped_release no_gil;
      try {
        (*upload->source)(memory.span());
      } catch (...) {
        upload->error = std::current_exception();
        throw Error(Errc::io, "what was to be uploaded could not be read");
      }
    };
    try {
      call([&] { store_.attr("put")(key, bytes, nb::cpp_function(fill)); });
    } catch (...) {
      upload->source = nullptr;
      if (upload->error) std::rethrow_exception(std::exchange(upload->error, nullptr));
      throw;
    }
    upload->source = nullptr;
  }
  bool put_new(const std::string& key, std::span<const std::byte> bytes) override {
    return call([&] {
      return nb::cast<bool>(store_.attr("put_new")(key, nb::bytes(bytes.data(), bytes.size())));
    });
  }
  std::size_t read(const std::string& key, std::uint64_t offset,
                   std::span<std::byte> into) override {
    return call([&] {
      const nb::object bytes = store_.attr("read")(key, offset, into.size());
      const Memory memory(bytes, PyBUF_SIMPLE);
      const nb::gil_scoped_release no_gil;
      const std::size_t count = std::min(memory.span().size(), into.size());
      std::memcpy(into.data(), memory.span().data(), count);
      return count;
    });
  }
  std::optional<StoredObject> head(const std::string& key) override {
    return call([&]() -> std::optional<StoredObject> {
      const nb::object found = store_.attr("head")(key);
      if (found.is_none()) return std::nullopt;
      const auto [bytes, modified] = nb::cast<std::tuple<std::uint64_t, std::uint64_t>>(found);
      return StoredObject{key, bytes, modified};
    });
  }
  std::vector<StoredObject> list() override {
    return call([&] {
      using Row = std::tuple<std::string, std::uint64_t, std::uint64_t>;
      std::vector<StoredObject> all;
      for (auto& [key, bytes, modified] : nb::cast<std::vector<Row>>(store_.attr("list")())) {
        all.push_back({std::move(key), bytes, modified});
      }
      return all;
    });
  }
  void remove(const std::string& key) override {
    call([&] { store_.attr("remove")(key); });
  }
  const std::string& path() const override { return path_; }

 private:
  nb::object store_;
  const std::string path_;
};

}  // namespace

std::shared_ptr<ObjectStore> object_store_of(nb::object store) {
  if (store.is_none()) return nullptr;
  return std::make_shared<PythonObjectStore>(std::move(store));
}

}  // namespace holdfast::python
