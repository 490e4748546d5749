#include "lender.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "holdfast/error.hpp"
#include "holdfast/partner_memory.hpp"
#include "peer.hpp"

extern char** environ;

namespace score {

namespace {

// The environment of a process that sees the second of this one's GPUs alone.
std::vector<std::string> environment_of_second_gpu() {
  constexpr std::string_view kName = "CUDA_VISIBLE_DEVICES=";
  std::string seen = "0,1";
  std::vector<std::string> variables;
  for (char** entry = environ; *entry; ++entry) {
    if (std::string_view(*entry).starts_with(kName)) {
      seen = *entry + kName.size();
    } else {
      variables.emplace_back(*entry);
    }
  }
  const std::string second = seen.substr(seen.find(',') + 1);
  variables.push_back(std::string(kName) + second.substr(0, second.find(',')));
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

void lend(const std::string& path, std::uint64_t bytes) {
  const holdfast::PartnerMemory memory(path, bytes);
  std::puts("lent");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
}

Lender::Lender(const std::string& path, std::uint64_t bytes) {
  std::vector<std::string> words = {"score_bench", "--disk=" + path,
                                    "--bytes=" + std::to_string(bytes), "lend"};
  std::vector<std::string> variables;
  if (gpus_in_sight() > 1) {
    variables = environment_of_second_gpu();
  } else {
    for (char** entry = environ; *entry; ++entry) variables.emplace_back(*entry);
  }
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) {
    throw holdfast::Error(holdfast::Errc::io, "no pipe to a lender");
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  const int error = ::posix_spawn(&process_, "/proc/self/exe", &actions, nullptr,
                                  pointers_to(words).data(), pointers_to(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  input_ = in[1];
  char said = 0;
  const bool lends = error == 0 && ::read(out[0], &said, 1) == 1;
  ::close(out[0]);
  if (lends) return;
  ::close(input_);
  if (error == 0) ::waitpid(process_, nullptr, 0);
  throw holdfast::Error(holdfast::Errc::io, "the process that was to lend memory did not");
}

Lender::~Lender() {
  ::close(input_);
  ::waitpid(process_, nullptr, 0);
}

}  // namespace score
