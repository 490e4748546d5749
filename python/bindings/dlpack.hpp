// DLPack's structures, by which frameworks hand memory to each other: version 1.0, and the form
// before it, which knows no version. Source: https://dmlc.github.io/dlpack/latest/c_api.html
#pragma once

#include <cstdint>

namespace holdfast::python::dlpack {

inline constexpr std::int32_t kCpu = 1;
inline constexpr std::int32_t kCuda = 2;
inline constexpr std::uint64_t kReadOnly = 1;

struct Device {
  std::int32_t type;
  std::int32_t number;
};

struct DataType {
  std::uint8_t code;  // 0: signed, 1: unsigned, 2: floating
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  DataType type;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements
  std::uint64_t byte_offset;
};

// In a capsule "dltensor". Who takes it renames the capsule, and calls `deleter` when done.
struct Managed {
  static constexpr const char* kName = "dltensor";
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

// In a capsule "dltensor_versioned".
struct ManagedVersioned {
  static constexpr const char* kName = "dltensor_versioned";
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;  // kReadOnly; 2: a copy
  Tensor tensor;
};

}  // namespace holdfast::python::dlpack
