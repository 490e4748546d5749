// Checks the example's programs: `checked_append` all of them, as a test would; with arguments, as
// holdfast-check does.
#include <cstdio>
#include <exception>

#include "checked_append/append.hpp"

using holdfast::check::Offer;
using holdfast::check::Report;
using holdfast::check::Verdict;

namespace {

// Returns whether the checker finds what there is to find.
bool as_expected(const Offer& offer) {
  // [check]
  const Report report = holdfast::check::check(offer.make({}));
  std::printf("%s: %s, %llu states\n", offer.name.c_str(), to_string(report.verdict),
              static_cast<unsigned long long>(report.states));
  if (!report.failures.empty()) std::printf("  %s\n", report.failures[0].advice.c_str());
  const bool fails = report.verdict != Verdict::passed && report.verdict != Verdict::none_found;
  return fails != offer.correct;
  // [end]
}

int check_all() {
  int wrong = 0;
  for (const Offer& offer : checked_append::offers()) wrong += as_expected(offer) ? 0 : 1;
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 1) return check_all();
    return holdfast::check::command_line(argc, argv, checked_append::offers());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checked_append: %s\n", error.what());
    return 1;
  }
}
