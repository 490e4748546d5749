// Places in the source.
#include <algorithm>

#include "check/checker.hpp"
#include "check/mutate.hpp"

namespace holdfast::check {

using detail::concat;

namespace {

// Code of ours that programs call: where it stands is told, and then who called it.
bool is_library(const std::string& file) {
  return file.find("/include/holdfast/") != std::string::npos;
}

}  // namespace

void Places::look_up(const std::vector<Site>& sites) {
  std::vector<const void*> fresh;
  for (const Site& site : sites) {
    if (site.pc != nullptr && places_.count(site.pc) == 0) fresh.push_back(site.pc);
  }
  if (!fresh.empty()) lines_.look_up(fresh);
}

Place Places::place(const Site& site) {
  if (site.pc == nullptr) return {site.file == nullptr ? "" : site.file, site.line, "", ""};
  const auto known = places_.find(site.pc);
  if (known != places_.end()) return known->second;
  const std::vector<SourceLine> chain = lines_.resolve(site.pc);
  Place place;
  if (!chain.empty()) place = {chain[0].file, chain[0].line, chain[0].function, ""};
  const auto caller = std::find_if(chain.begin(), chain.end(),
                                   [](const SourceLine& line) { return !is_library(line.file); });
  if (caller != chain.begin() && caller != chain.end()) {
    place.context = concat(caller->file.substr(caller->file.rfind('/') + 1), ":", caller->line);
  }
  return places_[site.pc] = place;
}

std::string Places::name(const Site& site) {
  const Place where = place(site);
  if (where.file.empty()) return where.function;
  return concat(where.file.substr(where.file.rfind('/') + 1), ":", where.line);
}

void Checker::add_unseen(Report& report) {
  if (const Site* const site = machine_.unseen()) {
    report.hints.push_back(
        {"recovery or verification reads persistent memory here in code that is not instrumented: "
         "it was seen by protecting pages, which is slow; name the file in holdfast_kernels(), or "
         "read through check::read()",
         places_.place(*site)});
  }
}

}  // namespace holdfast::check
