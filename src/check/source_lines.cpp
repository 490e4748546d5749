#include "check/source_lines.hpp"

#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

extern "C" char** environ;

namespace holdfast::check {
namespace {

struct Location {
  std::string module;  // path
  std::uintptr_t offset = 0;
};

std::string program_path() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

// The instruction before the return address, which is of the call.
std::optional<Location> locate(const void* pc) {
  struct Search {
    std::uintptr_t address;
    std::optional<Location> found;
  } search{reinterpret_cast<std::uintptr_t>(pc) - 1, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* module, std::size_t, void* data) {
        auto& [address, found] = *static_cast<Search*>(data);
        for (int i = 0; i < module->dlpi_phnum; ++i) {
          const auto& segment = module->dlpi_phdr[i];
          const std::uintptr_t start = module->dlpi_addr + segment.p_vaddr;
          if (segment.p_type != PT_LOAD || address - start >= segment.p_memsz) continue;
          const bool is_program = module->dlpi_name == nullptr || *module->dlpi_name == '\0';
          found = {is_program ? program_path() : module->dlpi_name, address - module->dlpi_addr};
          return 1;
        }
        return 0;
      },
      &search);
  return search.found;
}

std::string hex(std::uintptr_t number) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(number));
  return text.data();
}

SourceLine unknown(const Location& location) {
  const auto name = location.module.rfind('/') + 1;  // 0 where there is none
  return {"", 0, location.module.substr(name) + "+" + hex(location.offset)};
}

// A file descriptor, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  bool ok() const { return number_ >= 0; }
  void reset() {
    if (number_ >= 0) close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

bool write_all(int descriptor, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = write(descriptor, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

// What addr2line prints when it is asked for `input`, an address a line; empty if there is none.
std::string run_addr2line(const std::string& module, const std::string& input) {
  // A file and not a pipe: addr2line answers while it reads, and two full pipes wait for ever.
  const Descriptor in(memfd_create("addresses", MFD_CLOEXEC));
  if (!in.ok() || !write_all(in.get(), input) || lseek(in.get(), 0, SEEK_SET) != 0) return "";
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  const Descriptor out(ends[0]);
  Descriptor child_out(ends[1]);
  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0) return "";
  posix_spawn_file_actions_adddup2(&actions, in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::array<std::string, 7> words = {"addr2line", "-a", "-i", "-f", "-C", "-e", module};
  std::array<char*, words.size() + 1> arguments{};
  std::transform(words.begin(), words.end(), arguments.begin(),
                 [](std::string& word) { return word.data(); });
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, "addr2line", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return "";
  child_out.reset();
  std::string text = read_all(out.get());
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

// "/path/file.cu:12 (discriminator 3)", or "??:0".
void read_place(std::string_view text, SourceLine& line) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || text.substr(0, colon) == "??") return;
  const std::string_view digits = text.substr(colon + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), line.line);
  if (line.line == 0) return;
  line.file = std::filesystem::path(text.substr(0, colon)).lexically_normal().string();
}

using Chain = std::vector<SourceLine>;

// For each address a line with it, and then two for each function: its name, and its place.
std::vector<Chain> read_answers(const std::string& text) {
  std::vector<Chain> chains;
  std::string_view rest = text;
  const auto next = [&rest] {
    const auto end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return line;
  };
  while (!rest.empty()) {
    const std::string_view line = next();
    if (line.starts_with("0x")) {
      chains.emplace_back();
    } else if (!chains.empty()) {
      SourceLine& frame = chains.back().emplace_back();
      frame.function = line;
      read_place(next(), frame);
    }
  }
  return chains;
}

}  // namespace

void SourceLines::look_up(std::span<const void* const> pcs) {
  struct Question {
    const void* pc;
    Location location;
  };
  std::map<std::string, std::vector<Question>> modules;
  for (const void* const pc : pcs) {
    Chain& chain = known_[pc];
    if (!chain.empty()) continue;
    const auto location = locate(pc);
    chain = {location ? unknown(*location)
                      : SourceLine{"", 0, hex(reinterpret_cast<std::uintptr_t>(pc))}};
    if (location) modules[location->module].push_back({pc, *location});
  }
  for (const auto& [module, questions] : modules) {
    std::string input;
    for (const Question& question : questions) input += hex(question.location.offset) + "\n";
    // Asked twice: addr2line 2.40 gives the first answer from a compilation unit the name of the
    // enclosing symbol in place of the inlined function's.
    std::vector<Chain> answers = read_answers(run_addr2line(module, input + input));
    if (answers.size() != 2 * questions.size()) continue;
    for (std::size_t i = 0; i < questions.size(); ++i) {
      Chain& answer = answers[questions.size() + i];
      if (answer.empty() || answer[0].file.empty()) continue;
      known_[questions[i].pc] = std::move(answer);
    }
  }
}

const std::vector<SourceLine>& SourceLines::resolve(const void* pc) {
  if (const auto found = known_.find(pc); found != known_.end()) return found->second;
  look_up({&pc, 1});
  return known_.at(pc);
}

}  // namespace holdfast::check
