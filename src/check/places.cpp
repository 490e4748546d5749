// Places in the source.
#include <algorithm>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "check/mutate.hpp"

namespace holdfast::check {

using detail::concat;

namespace {

// Until source_lines.hpp is there.
struct SourceLine {
  std::string file;
  unsigned line = 0;
  std::string function;
};
std::vector<SourceLine> resolve(const void* pc) {
  std::vector<SourceLine> result;
  unsigned long base = 0;
  if (FILE* maps = std::fopen("/proc/self/maps", "r")) {
    if (std::fscanf(maps, "%lx", &base) != 1) base = 0;
    std::fclose(maps);
  }
  char command[200];
  std::snprintf(command, sizeof command, "addr2line -i -f -C -e /proc/%d/exe 0x%lx", ::getpid(),
                reinterpret_cast<unsigned long>(pc) - base - 1);
  FILE* out = ::popen(command, "r");
  char name[500], line[500];
  while (out != nullptr && std::fgets(name, sizeof name, out) &&
         std::fgets(line, sizeof line, out)) {
    SourceLine known;
    known.function = name;
    known.function.pop_back();
    if (char* colon = std::strrchr(line, ':')) {
      *colon = 0;
      known.line = static_cast<unsigned>(std::atoi(colon + 1));
    }
    known.file = line;
    result.push_back(known);
  }
  if (out != nullptr) ::pclose(out);
  return result;
}

// Code of ours that programs call: where it stands is told, and then who called it.
bool is_library(const std::string& file) {
  return file.find("/include/holdfast/") != std::string::npos;
}

}  // namespace

Place Places::place(const Site& site) {
  if (site.pc == nullptr) return {site.file == nullptr ? "" : site.file, site.line, "", ""};
  const auto known = places_.find(site.pc);
  if (known != places_.end()) return known->second;
  const std::vector<SourceLine> chain = resolve(site.pc);
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

}  // namespace holdfast::check
