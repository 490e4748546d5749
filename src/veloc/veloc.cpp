#include "holdfast/compat/veloc.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/checksum.hpp"
#include "holdfast/history.hpp"

// A history knows numbers; VELOC names and versions. A checkpoint's number has 31 bits of the
// name's hash and the version. The name stands in it as the name of one more array, so that two
// names of one hash are told apart before anything is restored.

namespace {

using holdfast::BufferMemory;
using holdfast::Errc;
using holdfast::Error;
using holdfast::History;
using holdfast::HistoryOptions;
using holdfast::Stream;
using holdfast::Ticket;
using holdfast::Tier;
using holdfast::detail::concat;

std::string name_part(const std::string& name) { return "name " + name; }

struct Settings {
  HistoryOptions options;
  std::uint64_t max_versions = 0;
};

struct Session {
  explicit Session(const Settings& settings)
      : history(History::open(settings.options)),
        ranks(settings.options.ranks != nullptr),
        max_versions(settings.max_versions) {}
  History history;
  const bool ranks;  // a version counts once every rank has it
  Stream stream;
  std::uint64_t max_versions;
  char mark = 'V';               // the array that is named after the name
  std::string name;              // that was used last
  std::vector<int> early_hints;  // before there was a name
  std::optional<Ticket> last;
  std::string last_name;  // of what was restored or tested last
  int last_version = 0;
  std::set<int> pieces;  // protected
};

std::unique_ptr<Session> session;
[[maybe_unused]] Session* left_open = nullptr;  // at the program's end

// A program may end without VELOC_Finalize(). At its end ranks can no longer be spoken to.
void end_session() {
  if (session && session->ranks) left_open = session.release();
  session.reset();
}

void begin_session(const Settings& settings) {
  session = std::make_unique<Session>(settings);
  // Behind the first session, so that what it stands on is still there when this is called.
  [[maybe_unused]] static const int registered = std::atexit(end_session);
}

Session& current() {
  if (session) return *session;
  throw Error(Errc::closed, "VELOC_Init() comes first");
}

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// "4G", "512M", "1048576".
std::uint64_t parse_bytes(const std::string& key, const std::string& text) {
  std::size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0) {
    ++digits;
  }
  std::string unit = trimmed(text.substr(digits));
  if (unit.size() > 1 && (unit.back() == 'B' || unit.back() == 'b')) unit.pop_back();
  if (unit.size() > 1 && unit.back() == 'i') unit.pop_back();
  const std::string units = " KMGT";
  const std::size_t power =
      unit.empty()
          ? 0
          : units.find(static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0]))));
  if (digits == 0 || digits > 15 || unit.size() > 1 || power == units.npos) {
    throw Error(Errc::invalid_argument,
                concat("'", key, " = ", text, "': give bytes, such as 1048576, 512M or 4G"));
  }
  const std::uint64_t number = std::stoull(text.substr(0, digits));
  if (number > std::numeric_limits<std::uint64_t>::max() >> (10 * power)) {
    throw Error(Errc::invalid_argument, concat("'", key, " = ", text, "': too many bytes"));
  }
  return number << (10 * power);
}

std::uint64_t parse_count(const std::string& key, const std::string& text) {
  const bool digits =
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!text.empty() && digits && text.size() <= 15) return std::stoull(text);
  throw Error(Errc::invalid_argument,
              concat("'", key, " = ", text, "': give a number, 0 for all of them"));
}

// `folder`: of the checkpoints, in `scratch`.
Settings read_config(const char* file, const std::string& folder) {
  std::ifstream in(file ? file : "");
  if (!file || !in) {
    throw Error(Errc::not_found, concat("cannot read the configuration file '", file ? file : "",
                                        "': it has lines such as 'scratch = /tmp/run'"));
  }
  Settings settings;
  std::string line;
  while (std::getline(in, line)) {
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty() || line[0] == '[') continue;
    const std::size_t equals = line.find('=');
    if (equals == line.npos) {
      throw Error(Errc::invalid_argument, concat("'", file, "': '", line, "' is no 'key = value'"));
    }
    const std::string key = trimmed(line.substr(0, equals));
    const std::string value = trimmed(line.substr(equals + 1));
    if (key == "scratch") settings.options.disk = value;
    if (key == "gpu_cache") settings.options.gpu_bytes = parse_bytes(key, value);
    if (key == "host_cache") settings.options.host_bytes = parse_bytes(key, value);
    if (key == "max_versions") settings.max_versions = parse_count(key, value);
  }
  if (settings.options.disk.empty()) {
    throw Error(Errc::invalid_argument,
                concat("'", file, "' has no 'scratch': the folder that checkpoints are kept in"));
  }
  settings.options.disk += "/" + folder;
  return settings;
}

std::uint64_t step_of(const std::string& name, int version) {
  return (holdfast::core::hash_bytes(name.data(), name.size()) >> 33) << 32 |
         static_cast<std::uint32_t>(version);
}

void use_name(Session& now, const char* name, int version) {
  if (!name || *name == 0 || std::string(name).size() >= VELOC_MAX_NAME) {
    throw Error(Errc::invalid_argument,
                concat("a name has 1 to ", VELOC_MAX_NAME - 1, " characters"));
  }
  if (version < 0) throw Error(Errc::invalid_argument, "versions are 0 or more");
  if (now.name == name) return;
  if (!now.name.empty()) now.history.unprotect(name_part(now.name));
  now.name = name;
  now.history.protect(name_part(now.name), &now.mark, 1, BufferMemory::host);
  for (const int hinted : now.early_hints) now.history.hint(step_of(now.name, hinted));
  now.early_hints.clear();
}

const std::string& used_name(const Session& now) {
  if (!now.name.empty()) return now.name;
  throw Error(Errc::not_found, "no name is known: VELOC_Checkpoint() or VELOC_Restart() gives it");
}

std::vector<int> versions_of(const Session& now, const std::string& name) {
  std::vector<int> versions;
  for (const std::uint64_t step : now.history.steps()) {
    if (step >> 32 != step_of(name, 0) >> 32) continue;
    try {
      now.history.size(step, name_part(name));
    } catch (const Error&) {  // another name's, or discarded since
      continue;
    }
    versions.push_back(static_cast<int>(step & 0x7fffffff));
  }
  return versions;  // ascending
}

// What is behind the last `max_versions` that are durable. Collective where there are ranks.
void discard_old(Session& now) {
  std::vector<std::uint64_t> agreed;
  if (now.ranks) agreed = now.history.agree(Tier::disk);
  const auto is_durable = [&](std::uint64_t step) {
    return now.ranks ? std::binary_search(agreed.begin(), agreed.end(), step)
                     : now.history.is_in(step, Tier::disk);
  };
  const std::vector<int> versions = versions_of(now, now.name);
  std::uint64_t durable = 0;
  for (auto version = versions.rbegin(); version != versions.rend(); ++version) {
    const std::uint64_t step = step_of(now.name, *version);
    if (durable >= now.max_versions) {
      now.history.discard(step);
    } else if (is_durable(step)) {
      ++durable;
    }
  }
}

std::string part_name(int id) { return "veloc." + std::to_string(id); }

template <class Body>
int guarded(const char* function, Body&& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "holdfast: %s: %s\n", function, error.what());
    return VELOC_FAILURE;
  }
}

int restart(Session& now, int version) {
  holdfast::backend::synchronize();
  try {
    now.history.restore(step_of(now.name, version), now.stream);
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    throw Error(Errc::not_found, concat("there is no version ", version, " of '", now.name,
                                        "': VELOC_Restart_test() tells the newest"));
  }
  now.stream.synchronize();
  now.last_name = now.name;
  now.last_version = version;
  return VELOC_SUCCESS;
}

long long recover_size(const std::string& name, int version, int id) {
  long long bytes = -1;
  guarded("VELOC_Recover_size", [&] {
    // A number that another name has too does not have this name's array.
    History& history = current().history;
    try {
      history.size(step_of(name, version), name_part(name));
      bytes = static_cast<long long>(history.size(step_of(name, version), part_name(id)));
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;
      throw Error(Errc::not_found,
                  concat("version ", version, " of '", name, "' has no piece ", id));
    }
    return VELOC_SUCCESS;
  });
  return bytes;
}

}  // namespace

int VELOC_Init_single(unsigned int id, const char* config_file) {
  return guarded("VELOC_Init", [&] {
    if (session) throw Error(Errc::in_use, "VELOC_Finalize() comes before another VELOC_Init()");
    begin_session(read_config(config_file, concat("veloc-", id)));
    return VELOC_SUCCESS;
  });
}

int VELOC_Init_ranks(const std::shared_ptr<holdfast::RankGroup>& ranks, const char* config_file) {
  return guarded("VELOC_Init", [&] {
    if (session) throw Error(Errc::in_use, "VELOC_Finalize() comes before another VELOC_Init()");
    if (!ranks) throw Error(Errc::invalid_argument, "there is no group of ranks");
    Settings settings = read_config(config_file, "veloc");
    settings.options.ranks = ranks;
    begin_session(settings);
    return VELOC_SUCCESS;
  });
}

int VELOC_Finalize(int) {
  return guarded("VELOC_Finalize", [&] {
    current();
    const std::unique_ptr<Session> ended = std::move(session);
    ended->history.close();
    return VELOC_SUCCESS;
  });
}

int VELOC_Mem_protect(int id, void* address, std::size_t count, std::size_t element_bytes) {
  return guarded("VELOC_Mem_protect", [&] {
    if (element_bytes != 0 && count > std::numeric_limits<std::size_t>::max() / element_bytes) {
      throw Error(Errc::invalid_argument, "more bytes than can be addressed");
    }
    // Copies are waited for anyway, so it does not matter which memory it is.
    current().history.protect_raw(part_name(id), address, count * element_bytes,
                                  BufferMemory::host);
    current().pieces.insert(id);
    return VELOC_SUCCESS;
  });
}

int VELOC_Mem_protect(int id, void* address, std::size_t bytes) {
  return VELOC_Mem_protect(id, address, bytes, 1);
}

int VELOC_Mem_unprotect(int id) {
  return guarded("VELOC_Mem_unprotect", [&] {
    current().history.unprotect(part_name(id));
    current().pieces.erase(id);
    return VELOC_SUCCESS;
  });
}

int VELOC_Checkpoint(const char* name, int version) {
  return guarded("VELOC_Checkpoint", [&] {
    Session& now = current();
    use_name(now, name, version);
    if (now.pieces.empty()) {
      throw Error(Errc::invalid_argument, "there is nothing to save: VELOC_Mem_protect() it first");
    }
    holdfast::backend::synchronize();
    now.last = now.history.save(step_of(now.name, version), now.stream);
    now.last->wait_staged();
    if (now.max_versions > 0) discard_old(now);
    return VELOC_SUCCESS;
  });
}

int VELOC_Checkpoint_wait() {
  return guarded("VELOC_Checkpoint_wait", [&] {
    Session& now = current();
    if (now.last && now.ranks) {
      now.history.wait_for_all(*now.last);
    } else if (now.last) {
      now.last->wait();
    }
    if (now.max_versions > 0 && !now.name.empty()) discard_old(now);
    return VELOC_SUCCESS;
  });
}

int VELOC_Restart_test(const char* name, int before) {
  return guarded("VELOC_Restart_test", [&] {
    Session& now = current();
    use_name(now, name, before);
    std::vector<std::uint64_t> agreed;
    if (now.ranks) agreed = now.history.agree(Tier::gpu);  // anywhere
    int newest = VELOC_FAILURE;
    for (const int version : versions_of(now, now.name)) {
      const std::uint64_t step = step_of(now.name, version);
      if (now.ranks && !std::binary_search(agreed.begin(), agreed.end(), step)) continue;
      if (before == VELOC_RECOVER_ALL || version < before) newest = std::max(newest, version);
    }
    if (newest != VELOC_FAILURE) {
      now.last_name = now.name;
      now.last_version = newest;
    }
    return newest;
  });
}

int VELOC_Restart(const char* name, int version) {
  return guarded("VELOC_Restart", [&] {
    use_name(current(), name, version);
    return restart(current(), version);
  });
}

int VELOC_Restart(int version) {
  return guarded("VELOC_Restart", [&] {
    used_name(current());
    return restart(current(), version);
  });
}

long long VELOC_Recover_size(int version, int id) {
  std::string name;
  const int known = guarded("VELOC_Recover_size", [&] {
    name = used_name(current());
    return VELOC_SUCCESS;
  });
  return known == VELOC_SUCCESS ? recover_size(name, version, id) : -1;
}

long long VELOC_Recover_size(int id) {
  int version = 0;
  std::string name;
  const int known = guarded("VELOC_Recover_size", [&] {
    const Session& now = current();
    if (now.last_name.empty()) {
      throw Error(Errc::not_found, "no version was restored or tested yet");
    }
    name = now.last_name;
    version = now.last_version;
    return VELOC_SUCCESS;
  });
  return known == VELOC_SUCCESS ? recover_size(name, version, id) : -1;
}

int VELOC_Prefetch_enqueue(int version) {
  return guarded("VELOC_Prefetch_enqueue", [&] {
    Session& now = current();
    if (version < 0) throw Error(Errc::invalid_argument, "versions are 0 or more");
    if (now.name.empty()) {
      now.early_hints.push_back(version);
    } else {
      now.history.hint(step_of(now.name, version));
    }
    return VELOC_SUCCESS;
  });
}

int VELOC_Prefetch_start() {
  return guarded("VELOC_Prefetch_start", [&] {
    current().history.prefetch_start();
    return VELOC_SUCCESS;
  });
}
