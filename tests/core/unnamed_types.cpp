// What must not compile: objects of types that have no name on the medium, or no possible one.
// unnamed_types.cmake compiles this file once for each CASE, and for 0, which is right.
#include "holdfast/checkpoint.hpp"
#include "holdfast/region.hpp"

struct Named {
  static constexpr const char* kTypeName = "a name of 23 characters";
  double x;
};
struct Unnamed {
  double x;
};
struct Hidden {
  double x;

 private:
  static constexpr const char* kTypeName = "hidden";
};
struct Empty {
  static constexpr const char* kTypeName = "";
  double x;
};
struct Long {
  static constexpr const char* kTypeName = "a name of 24 characters.";
  double x;
};
struct Reserved {
  static constexpr const char* kTypeName = "struct";
  double x;
};
struct Taken {
  static constexpr const char* kTypeName = "undo_log";
  double x;
};
struct Foreign {
  double x;
};
template <>
struct holdfast::TypeName<Foreign> {
  static constexpr const char* value = "a specialisation of 31 letters.";
};
enum class Colour { red };

void use(holdfast::Region& region, holdfast::Checkpoint& checkpoint, Unnamed* data) {
  region.allocate<Named>("a", 1);
  region.find<const Named>("a");
#if CASE == 1
  region.allocate<Unnamed>("a", 1);
#elif CASE == 2
  region.find<Unnamed>("a");
#elif CASE == 3
  checkpoint.add("g", "a", data, 1);
#elif CASE == 4
  region.allocate<double*>("a", 1);
#elif CASE == 5
  region.allocate<Colour>("a", 1);
#elif CASE == 6
  region.allocate<Hidden>("a", 1);
#elif CASE == 7
  region.allocate<Empty>("a", 1);
#elif CASE == 8
  region.allocate<Long>("a", 1);
#elif CASE == 9
  region.allocate<Foreign>("a", 1);
#elif CASE == 10
  region.allocate<Reserved>("a", 1);
#elif CASE == 11
  checkpoint.add("g", "a", reinterpret_cast<Long*>(data), 1);
#elif CASE == 12
  region.find<const Taken>("a");
#endif
  (void)checkpoint;
  (void)data;
}
