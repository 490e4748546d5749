#include "check/command/workers.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <tuple>

#include "check/vigil.hpp"
#include "holdfast/error.hpp"

namespace holdfast::check {

using detail::concat;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTickMs = 200;
constexpr double kQuietSeconds = 1;  // no progress line before

[[noreturn]] void fail(const char* call) {
  throw Error(Errc::io, concat(call, " failed: ", std::strerror(errno)));
}

struct Child {
  pid_t pid = -1;
  int pipe = -1;
  std::string text;
  int status = 0;
};

void write_all(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) ::_exit(3);  // nobody listens any more
    done += static_cast<std::size_t>(count);
  }
}

// The error's code goes with it, and whether it is of what was asked for, for the exit status.
Json error_json(Errc code, const char* message, bool of_option = false) {
  return {{"error",
           {{"code", static_cast<int>(code)}, {"message", message}, {"of_option", of_option}}}};
}

[[noreturn]] void throw_error(const Json& error) {
  const std::string message = error["message"];
  if (error["of_option"]) throw OptionError(message);
  throw Error(static_cast<Errc>(error["code"].get<int>()), message);
}

// What the program prints goes to standard error: on standard output, the report is alone.
void keep_output_apart() {
  if (::dup2(STDERR_FILENO, STDOUT_FILENO) >= 0) return;
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0 && nowhere != STDOUT_FILENO) ::dup2(nowhere, STDOUT_FILENO);
}

[[noreturn]] void be_worker(int pipe, const std::function<Json()>& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  keep_output_apart();
  tell_also(pipe);
  Json answer;
  try {
    answer = {{"answer", work()}};
  } catch (const OptionError& error) {
    answer = error_json(error.code(), error.what(), true);
  } catch (const Error& error) {
    answer = error_json(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    answer = error_json(Errc::no_memory, "out of memory: lower --max-states, --threads or --jobs");
  } catch (const std::exception& error) {
    answer = error_json(Errc::io, error.what());
  }
  std::fflush(nullptr);  // what the program has printed
  write_all(pipe, print(answer));
  ::_exit(0);
}

class Crew {
 public:
  Crew() {
    void* const memory = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("mmap");
    progress_ = new (memory) Progress;
  }
  ~Crew() {
    for (const Child& child : children_) {
      if (child.pipe >= 0) ::close(child.pipe);
      if (child.pid < 0) continue;
      ::kill(child.pid, SIGKILL);
      ::waitpid(child.pid, nullptr, 0);
    }
    ::munmap(progress_, sizeof(Progress));
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void start(const std::function<Json(Progress&)>& work) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("pipe2");
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid < 0) fail("fork");
    if (pid == 0) {
      ::close(ends[0]);
      be_worker(ends[1], [&] { return work(*progress_); });
    }
    ::close(ends[1]);
    children_.push_back({pid, ends[0], {}, 0});
  }

  // Reads until every worker has closed its pipe, and waits for them.
  void collect(const std::string& title) {
    const bool on_terminal = ::isatty(STDERR_FILENO) == 1;
    const auto begun = Clock::now();
    bool shown = false;
    while (read_some()) {
      const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
      if (!on_terminal || seconds < kQuietSeconds) continue;
      const auto states = static_cast<unsigned long long>(progress_->recoveries.load());
      std::fprintf(stderr, "\r\033[K%s: %llu recoveries, %.0f s", title.c_str(), states, seconds);
      shown = true;
    }
    if (shown) std::fputs("\r\033[K", stderr);
    for (Child& child : children_) {
      ::waitpid(child.pid, &child.status, 0);
      child.pid = -1;
    }
  }

  const std::vector<Child>& children() const { return children_; }

 private:
  // Returns whether a pipe is still open.
  bool read_some() {
    std::vector<pollfd> fds;
    for (const Child& child : children_) {
      if (child.pipe >= 0) fds.push_back({child.pipe, POLLIN, 0});
    }
    if (fds.empty()) return false;
    if (::poll(fds.data(), fds.size(), kTickMs) < 0 && errno != EINTR) fail("poll");
    for (const pollfd& ready : fds) {
      if ((ready.revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      const auto child = std::find_if(children_.begin(), children_.end(),
                                      [&](const Child& one) { return one.pipe == ready.fd; });
      char buffer[65536];
      const ssize_t count = ::read(ready.fd, buffer, sizeof(buffer));
      if (count > 0) {
        child->text.append(buffer, static_cast<std::size_t>(count));
      } else if (count == 0 || errno != EINTR) {
        ::close(child->pipe);
        child->pipe = -1;
      }
    }
    return true;
  }

  Progress* progress_ = nullptr;
  std::vector<Child> children_;
};

// What a worker said as it was ended in a recovery.
std::string last_words(const std::string& text) {
  const std::size_t end = text.find('\n');
  return text.rfind("check: ", 0) == 0 ? text.substr(7, end - 7) : std::string();
}

std::string obituary(const Child& child, std::size_t worker, std::size_t workers) {
  const std::string who = concat("worker ", worker + 1, " of ", workers);
  if (const std::string words = last_words(child.text); !words.empty()) {
    return concat(who, ": ", words);
  }
  if (!WIFSIGNALED(child.status)) {
    return concat(who, " ended with exit status ", WEXITSTATUS(child.status),
                  " before it reported: does the program under check call exit()?");
  }
  const int signal = WTERMSIG(child.status);
  const char* const remedy =
      signal == SIGKILL ? "the system may have run out of memory: lower --jobs, --threads or "
                          "--max-states"
                        : "the program under check crashes in host code: run it with --jobs 1 in "
                          "gdb, with 'set follow-fork-mode child'";
  return concat(who, " was ended by signal ", signal, " (", ::strsignal(signal), "); ", remedy);
}

// How much a person has to look at in a failing state.
std::size_t extent(const Failure& failure) {
  return static_cast<std::size_t>(
      std::count_if(failure.persists.begin(), failure.persists.end(),
                    [](const PersistInfo& info) { return info.durable; }));
}

std::string key(const Failure& failure) {
  return concat(to_string(failure.cause), to_string(failure.lost.place), "|",
                to_string(failure.kept.place));
}

std::string key(const RaceReport& race) {
  return concat(race.what, to_string(race.first), "|", to_string(race.second));
}

std::string key(const std::string& reason) { return reason; }

std::string key(const Hint& hint) {
  return concat(hint.what, "|", hint.place.file, to_string(hint.place));
}

template <class T>
void keep_first_of_each(std::vector<T>& list) {
  std::vector<std::string> seen;
  std::erase_if(list, [&](const T& one) {
    const std::string name = key(one);
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) return true;
    seen.push_back(name);
    return false;
  });
}

void add(ModelReport& whole, const ModelReport& part) {
  whole.rung = std::max(whole.rung, part.rung);
  whole.complete = whole.complete && part.complete;
  whole.nested_complete = whole.nested_complete && part.nested_complete;
  whole.failed = whole.failed || part.failed;
  whole.states += part.states;
  whole.nested_states += part.nested_states;
  whole.runs += part.runs;
  whole.memoised += part.memoised;
  whole.components = std::max(whole.components, part.components);
  whole.pairs = std::max(whole.pairs, part.pairs);
  whole.pairs_tried = std::min(whole.pairs_tried + part.pairs_tried, whole.pairs);
}

// The workers make the same executions, and share out whose states each explores, by model.
void add(Report& whole, const Report& part) {
  for (std::size_t i = 0; i < whole.models.size() && i < part.models.size(); ++i) {
    add(whole.models[i], part.models[i]);
  }
  whole.schedules = std::max(whole.schedules, part.schedules);
  whole.schedules_complete = whole.schedules_complete && part.schedules_complete;
  whole.schedules_share = std::min(whole.schedules_share, part.schedules_share);
  whole.recovery_complete = whole.recovery_complete && part.recovery_complete;
  whole.recovery_schedules = std::max(whole.recovery_schedules, part.recovery_schedules);
  whole.recovery_raced = whole.recovery_raced || part.recovery_raced;
  whole.shares += part.shares;
  whole.races_sought = whole.races_sought && part.races_sought;
  whole.persists = std::max(whole.persists, part.persists);
  whole.threads = std::max(whole.threads, part.threads);
  whole.crash_points = std::max(whole.crash_points, part.crash_points);
  whole.seconds = std::max(whole.seconds, part.seconds);
  whole.peak_bytes += part.peak_bytes;
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(whole.failures, part.failures);
  append(whole.races, part.races);
  append(whole.void_reasons, part.void_reasons);
  // A worker's hints are of its share of the states: only what all of them say holds.
  std::erase_if(whole.hints, [&](const Hint& hint) {
    return std::none_of(part.hints.begin(), part.hints.end(),
                        [&](const Hint& other) { return key(hint) == key(other); });
  });
}

}  // namespace

Answers run_workers(const std::string& title, unsigned workers,
                    const std::function<Json(unsigned, unsigned, Progress&)>& work) {
  Crew crew;
  for (unsigned worker = 0; worker < workers; ++worker) {
    crew.start([&](Progress& progress) { return work(worker, workers, progress); });
  }
  crew.collect(title);
  Answers result;
  for (std::size_t i = 0; i < workers; ++i) {
    const Child& child = crew.children()[i];
    const Json message = Json::parse(child.text, nullptr, false);
    if (message.is_discarded() || !WIFEXITED(child.status)) {
      result.dead.push_back(obituary(child, i, workers));
    } else if (message.contains("error")) {
      throw_error(message["error"]);
    } else {
      result.answers.push_back(message["answer"]);
    }
  }
  return result;
}

Report merge(const std::vector<Report>& reports) {
  Report whole = reports.at(0);
  for (std::size_t i = 1; i < reports.size(); ++i) add(whole, reports[i]);
  std::stable_sort(whole.failures.begin(), whole.failures.end(),
                   [](const Failure& a, const Failure& b) { return extent(a) < extent(b); });
  keep_first_of_each(whole.failures);
  keep_first_of_each(whole.races);
  keep_first_of_each(whole.void_reasons);
  conclude(whole);
  return whole;
}

std::vector<Mutant> merge(std::vector<std::vector<Mutant>> shares) {
  std::vector<Mutant> all;
  for (std::vector<Mutant>& share : shares) {
    std::move(share.begin(), share.end(), std::back_inserter(all));
  }
  const auto order = [](const Mutant& mutant) {
    return std::tuple(mutant.in_recovery, mutant.place.file, mutant.place.line,
                      mutant.mutation.kind, mutant.mutation.scope);
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const Mutant& a, const Mutant& b) { return order(a) < order(b); });
  return all;
}

}  // namespace holdfast::check
