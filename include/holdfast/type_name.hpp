// The name by which an element type is known on the medium. It is what keeps find() from taking one
// struct for another of the same size.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

namespace holdfast {

inline constexpr std::size_t kMaxTypeName = 23;  // characters; what the format has room for

namespace detail {

// What structs were called before they had names of their own; no type is called so any more.
inline constexpr std::string_view kUnnamedType = "struct";

template <class T, class... Of>
inline constexpr bool kIsOneOf = (std::is_same_v<T, Of> || ...);

// What the library calls its own objects, and finds them by.
inline constexpr std::string_view kReservedTypes[] = {"transaction", "undo_log", "durable",
                                                      "checkpoint"};
constexpr bool is_reserved(std::string_view type) {
  for (const std::string_view reserved : kReservedTypes) {
    if (type == reserved) return true;
  }
  return false;
}
template <class T>
inline constexpr bool kIsOfLibrary = false;

// By size: `long` and `long long` are one type on the medium.
template <class T>
constexpr const char* number_name() {
  if constexpr (kIsOneOf<T, signed char, short, int, long, long long>) {
    return sizeof(T) == 1 ? "i8" : sizeof(T) == 2 ? "i16" : sizeof(T) == 4 ? "i32" : "i64";
  } else if constexpr (kIsOneOf<T, unsigned char, unsigned short, unsigned, unsigned long,
                                unsigned long long>) {
    return sizeof(T) == 1 ? "u8" : sizeof(T) == 2 ? "u16" : sizeof(T) == 4 ? "u32" : "u64";
  } else if constexpr (kIsOneOf<T, float, double>) {
    return sizeof(T) == 4 ? "f32" : "f64";
  } else if constexpr (kIsOneOf<T, char, bool>) {
    return std::is_same_v<T, bool> ? "bool" : "char";
  } else {
    return nullptr;
  }
}

template <class T>
constexpr const char* declared_name() {
  if constexpr (requires { T::kTypeName; }) {
    return T::kTypeName;
  } else {
    constexpr const char* kNumber = number_name<T>();
    static_assert(kNumber != nullptr,
                  "this type has no name on the medium: add a public member to it, such as "
                  "`static constexpr const char* kTypeName = \"kvs_bucket\";`, or specialise "
                  "holdfast::TypeName if it cannot be changed");
    return kNumber == nullptr ? "unnamed" : kNumber;  // one error is enough
  }
}

}  // namespace detail

// Numbers, char and bool have names. A struct says its own:
//   struct Bucket {
//     static constexpr const char* kTypeName = "kvs_bucket";
//     ...
//   };
// For a type that cannot be changed, such as one of CUDA's vectors or an enumeration:
//   template <>
//   struct holdfast::TypeName<float4> {
//     static constexpr const char* value = "f32x4";  // as Python calls it
//   };
// A name stands for a layout: who changes the members changes the name. A struct that derives from
// a named one has that one's name until it declares another. The names of the library's own objects
// are taken: transaction, undo_log, durable, checkpoint.
template <class T>
struct TypeName {
  static constexpr const char* value = detail::declared_name<T>();
};

// TypeName<T>, checked.
template <class T>
constexpr const char* type_name() {
  constexpr std::string_view kName = TypeName<std::remove_cv_t<T>>::value;
  static_assert(!kName.empty(), "the name of this type on the medium is empty: give it one");
  static_assert(kName.size() <= kMaxTypeName,
                "the name of this type on the medium is over 23 characters: shorten it");
  static_assert(kName != detail::kUnnamedType,
                "no type may be called \"struct\" on the medium, as all once were: name it");
  static_assert(!detail::is_reserved(kName) || detail::kIsOfLibrary<std::remove_cv_t<T>>,
                "this name on the medium is of the library's own objects (transaction, undo_log, "
                "durable, checkpoint): choose another");
  return TypeName<std::remove_cv_t<T>>::value;
}

}  // namespace holdfast
