// A check program that is listed, and nothing else.
#include "holdfast/check_command.hpp"

namespace added {

std::vector<holdfast::check::Offer> check_programs() {
  return {{"added", "is listed", true,
           [](const holdfast::check::Sizes&) { return holdfast::check::Program{}; }}};
}

}  // namespace added
