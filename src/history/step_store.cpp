#include "history/step_store.hpp"

#include <map>

#include "holdfast/error.hpp"

namespace holdfast::history {

using detail::concat;

std::string difference(std::span<const Part> stored, std::span<const Part> wanted) {
  std::map<std::string_view, std::uint64_t> there;
  for (const Part& part : stored) there.emplace(part.name, part.bytes);
  for (const Part& part : wanted) {
    const auto found = there.find(part.name);
    if (found == there.end()) {
      return concat("it has no part '", part.name, "', which the program protects");
    }
    if (found->second != part.bytes) {
      return concat("its part '", part.name, "' has ", found->second,
                    " bytes, and the program's has ", part.bytes);
    }
    there.erase(found);
  }
  if (there.empty()) return {};
  return concat("it has a part '", there.begin()->first, "', which the program does not protect");
}

void check_parts(const StepInfo& stored, std::span<const Part> wanted, const std::string& where) {
  const std::string words = difference(stored.parts, wanted);
  if (words.empty()) return;
  throw Error(Errc::invalid_argument,
              concat("step ", stored.step, " of '", where, "' does not fit this program: ", words,
                     "; protect the arrays that it was saved from"));
}

}  // namespace holdfast::history
