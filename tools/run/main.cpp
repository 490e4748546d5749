// holdfast-run: runs one workload in one mode. `holdfast run`, `crash` and `bench` drive it.
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "arguments.hpp"
#include "holdfast/testing/transaction.hpp"
#include "workload/step.hpp"

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void print(const Json& line) {
  std::printf("%s\n", line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  std::fflush(stdout);
}

void print_list() {
  static const char* const kKinds[] = {"transactional", "checkpointing", "native"};
  Json all = Json::array();
  for (const workload::Info& info : workload::workloads()) {
    all.push_back({{"name", info.name},
                   {"class", kKinds[static_cast<int>(info.kind)]},
                   {"summary", info.summary},
                   {"kernel_access", holdfast::testing::to_string(info.kernel_access)},
                   {"options", info.options}});
  }
  print({{"workloads", all}});
}

// A region's path, of the caller's or of a folder that is removed in the end.
class Place {
 public:
  explicit Place(const std::string& given) : path_(given) {
    if (!given.empty()) return;
    folder_ = "/tmp/holdfast-run-XXXXXX";
    if (::mkdtemp(folder_.data()) == nullptr) {
      throw holdfast::Error(holdfast::Errc::io, "no folder can be made in /tmp: use --region");
    }
    path_ = folder_ + "/region";
  }
  ~Place() {
    if (folder_.empty()) return;
    try {
      workload::Backing::destroy(path_);
    } catch (const holdfast::Error& error) {
      std::fprintf(stderr, "holdfast-run: %s\n", error.what());
    }
    ::rmdir(folder_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string folder_;
  std::string path_;
};

// What steps took, one by one.
struct Steps {
  Json seconds = Json::array();
  Json persists = Json::array();
  Json waits = Json::array();
  std::uint64_t bytes = 0;
  std::uint64_t streamed = 0;
  std::uint64_t unchanged = 0;
  void add(const workload::StepCost& cost) {
    seconds.push_back(cost.seconds);
    persists.push_back(cost.persist_seconds);
    waits.push_back(cost.medium_seconds);
    bytes += cost.bytes;
    streamed += cost.streamed_bytes;
    unchanged += cost.unchanged_bytes;
  }
};

// Looks at what the run ended with. Returns what is wrong; empty if nothing is.
std::string check(workload::Workload& work, const holdfast_run::Arguments& arguments, Json& done) {
  const auto begun = Clock::now();
  const std::string digest = work.digest().text();
  const std::string answers = work.answers();
  // All that has to be alike in another run; without the answers of a run that was resumed.
  const std::string state = answers.empty() ? digest : digest + ":" + answers;
  done["digest"] = digest;
  done["state"] = state;
  done["digest_seconds"] = since(begun);
  const auto asked = Clock::now();
  std::string wrong;
  const char* by = "";
  if (!arguments.expect.empty()) {
    by = "digest";
    if (state != arguments.expect) {
      wrong = "the state is " + state + ", and should be " + arguments.expect;
    }
  } else if (arguments.verify) {
    by = "oracle";
    wrong = work.verify();
  }
  done["verified"] = *by != '\0';
  done["verified_by"] = by;
  done["verify_seconds"] = since(asked);
  return wrong;
}

// Two runs that may go on from one another, and have the same data.
std::string identity_of(const workload::Workload& work, const holdfast_run::Arguments& arguments) {
  std::string words = work.input() + "\nseed " + std::to_string(arguments.settings.seed);
  for (const auto& [name, value] : arguments.settings.options) words += "\n" + name + "=" + value;
  const workload::Digest digest = workload::digest_of(words.data(), words.size());
  return arguments.name + " " + digest.text();
}

int run(const holdfast_run::Arguments& arguments) {
  const workload::Info& info = workload::find_workload(arguments.name);
  const Place place(arguments.region);
  const auto begun = Clock::now();
  const std::unique_ptr<workload::Workload> work = info.make(arguments.settings);
  workload::BackingOptions options;
  options.mode = arguments.settings.mode;
  options.path = place.path();
  options.capacity = work->medium_bytes();
  options.cpu_threads = arguments.cpu_threads;
  options.files = arguments.files;
  options.direct_io = arguments.direct_io;
  options.medium = arguments.medium;
  options.last_commit = arguments.last_commit;
  options.run = identity_of(*work, arguments);
  workload::Backing backing(options);
  work->prepare(backing);
  backing.stream().synchronize();
  const double setup = since(begun);
  print({{"event", "ready"},
         {"input", work->input()},
         {"steps", work->steps()},
         {"arena_set_aside", backing.arena_set_aside()},
         {"setup_seconds", setup}});

  const auto recovering = Clock::now();
  const std::uint64_t first = work->resume();
  if (first > work->steps()) {
    throw holdfast::Error(holdfast::Errc::invalid_argument,
                          "region '" + place.path() + "' has " + std::to_string(first) +
                              " steps done, and this run has " + std::to_string(work->steps()) +
                              ": give it as many, or name another region");
  }
  backing.stream().synchronize();
  const double recovery = since(recovering);
  Steps steps;
  for (std::uint64_t step = first; step < work->steps(); ++step) {
    if (step + 1 == arguments.die_in_step) {
      holdfast::testing::die_before_commit(1);
      backing.die_before_save();
    }
    steps.add(workload::run_step(*work, backing, info.kernel_access, step));
  }
  Json done{{"event", "done"},
            {"workload", info.name},
            {"mode", workload::to_string(arguments.settings.mode)},
            {"backend", holdfast::backend::name()},
            {"device", holdfast::backend::device_name()},
            {"input", work->input()},
            {"medium", arguments.medium.name()},
            {"kernel_access", holdfast::testing::to_string(info.kernel_access)},
            {"cpu_threads", backing.cpu_threads()},
            {"steps", work->steps()},
            {"first_step", first},
            {"arena_set_aside", backing.arena_set_aside()},
            {"setup_seconds", setup},
            {"recovery_seconds", recovery},
            {"step_seconds", steps.seconds},
            {"persist_seconds", steps.persists},
            {"medium_seconds", steps.waits},
            {"bytes_written", steps.bytes},
            {"bytes_streamed", steps.streamed},
            {"bytes_unchanged", steps.unchanged},
            {"facts", work->facts()}};
  if (const std::string file_io = backing.file_io(); !file_io.empty()) done["file_io"] = file_io;
  const std::string wrong = check(*work, arguments, done);
  done["wrong"] = wrong;
  done["ok"] = wrong.empty();
  print(done);
  return wrong.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const holdfast_run::Arguments arguments = holdfast_run::parse(argc, argv);
    if (arguments.list) {
      print_list();
      return 0;
    }
    if (arguments.remove) {
      workload::Backing::destroy(arguments.region);
      return 0;
    }
    return run(arguments);
  } catch (const holdfast::Error& error) {
    print({{"event", "error"},
           {"ok", false},
           {"error", {{"code", holdfast::to_string(error.code())}, {"message", error.what()}}}});
  } catch (const std::exception& error) {
    print({{"event", "error"},
           {"ok", false},
           {"error", {{"code", "io"}, {"message", error.what()}}}});
  }
  return 2;
}
