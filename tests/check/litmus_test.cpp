#include "check/litmus.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "check/litmus_run.hpp"
#include "check/litmus_support.hpp"
#include "check/tool_litmus.hpp"
#include "holdfast/error.hpp"
#include "support/scratch.hpp"

namespace holdfast::check {
namespace {

using test::all_litmus;
using test::error_of;
using test::litmus_folder;

std::string text_of(const std::string& path) {
  const std::vector<char> bytes = test::read_file(path);
  return {bytes.begin(), bytes.end()};
}

TEST(Litmus, AllPass) {
  const auto start = std::chrono::steady_clock::now();
  const LitmusReport report = run_litmus({litmus_folder()});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(report.tests, 70u);
  EXPECT_EQ(report.results.size(), 2 * report.tests) << "each says what it expects of both models";
  for (const LitmusResult& result : report.results) {
    EXPECT_TRUE(result.passed()) << result.file << ":" << result.line << ": " << result.name << " ("
                                 << to_string(result.model) << ")";
  }
  EXPECT_LT(took.count(), 10.0);
}

TEST(Litmus, LazyExplorationAgreesWithBruteForceInFarFewerRuns) {
  LitmusOptions options;
  options.brute = true;
  std::size_t large = 0;
  for (const LitmusResult& result : run_litmus({litmus_folder()}, options).results) {
    EXPECT_TRUE(result.engines_agree) << result.name << " (" << to_string(result.model) << ")";
    if (result.persists <= 12) continue;
    ++large;
    EXPECT_GE(*result.brute_runs, 10 * result.lazy_runs) << result.name;
  }
  EXPECT_GE(large, 2u * 6);
}

TEST(Litmus, StatesOfOneExecution) {
  const auto tests = parse_litmus(
      "test t { persistent u64 a, b thread T0 block 0 { a = 1; ofence; b = 2 }\n"
      "crash b == 2 && a == 1 sbrp: allowed }",
      "t");
  const LitmusOutcomes brute = run_brute(tests[0], Model::sbrp);
  EXPECT_EQ(brute.runs, 3u);  // neither, a, both
  EXPECT_EQ(brute.all, (std::set<LitmusOutcome>{{0}, {2, 1}}));
  EXPECT_TRUE(brute.reached);
  const LitmusOutcomes lazy = run_lazy(tests[0], Model::sbrp);
  EXPECT_EQ(lazy.all, brute.all);
  EXPECT_EQ(lazy.runs, 2u);
}

TEST(Litmus, ErrorsSayWhereAndWhat) {
  const std::string start = "test t {\n  persistent u64 a, b[4]\n  volatile u32 f\n";
  const std::string end = "\n  crash a == 1\n  sbrp: allowed\n}\n";
  const struct {
    std::string text;
    std::vector<std::string> words;
  } cases[] = {
      {"tset t { }", {"f:1:1: expected 'test', found 'tset'"}},
      {"test { }", {"f:1:6: expected a name, found '{'"}},
      {"test t {", {"f:1:9: expected", "found the end of the file"}},
      {"test t { }", {"f:1:10: expected a thread"}},
      {start + "  thread T0 block 0 { a = 1 }\n}", {"expected 'crash' with a condition"}},
      {start + "  thread T0 block 0 { a = 1 }\n  crash a == 1\n}", {"expected 'sbrp:' or"}},
      {start + "  thread T0 block 0 { c = 1 }" + end, {"f:4:23: expected an operation", "'c'"}},
      {start + "  thread T0 block 0 { a 1 }" + end, {"f:4:25: expected '=', found '1'"}},
      {start + "  thread T0 block 0 { a = r0 }" + end, {"expected a register that an operation"}},
      {start + "  thread T0 block 0 { b = 1 }" + end, {"expected '[' with an element of b"}},
      {start + "  thread T0 block 0 { b[4] = 1 }" + end, {"expected an element below 4"}},
      {start + "  thread T0 block 0 { b[3..1] = 1 }" + end, {"f:4:28: expected a last element"}},
      {start + "  thread T0 block 0 { f = 0x100000000 }" + end, {"at most 32 bits"}},
      {start + "  thread T0 block 0 { a = 99999999999999999999 }" + end, {"at most 64 bits"}},
      {start + "  thread T0 block 0 { fence.grid }" + end, {"expected 'block', 'device' or"}},
      {start + "  thread T0 block 0 { wait f == 1 }" + end, {"expected 'strong' or 'pacq'"}},
      {start + "  thread T0 block 0 { synchronize }" + end, {"an operation of a kernel's thread"}},
      {start + "  host { ofence }" + end, {"an operation of the host"}},
      {start + "  host { prel.system f = 1 }" + end, {"the host has no prel"}},
      {start + "  thread T0 block 0 { barrier }\n  thread T1 block 0 { a = 1 }" + end,
       {"as many barriers in thread T1"}},
      {start + "  thread T0 block 0 { r0 = a; if r0 == 0: barrier }" + end, {"no barrier inside"}},
      {start + "  thread T0 block 0 { a = 1 }\n  thread T0 block 1 { a = 1 }" + end,
       {"a name that no other thread has"}},
      {start + "  persistent u64 a\n" + end, {"a name that is not in use"}},
      {start + "  persistent u16 c\n" + end, {"expected 'u32' or 'u64'"}},
      {start + "  persistent u64 c[0]\n" + end, {"1 to 64 elements"}},
      {start + "  thread T0 block 0 { a = 1 }\n  crash f == 1" + end, {"a persistent variable"}},
      {start + "  thread T0 block 0 { a = 1 ?}" + end, {"f:4:29: expected", "found '?'"}},
      {start + "  thread T0 block 0 { a = 1 \x01}" + end, {"a byte of value 1"}},
      {"test t \"open\n{ }", {"f:1:8: expected '\"' at the end"}},
      {start + "  thread T0 block 0 { a = 1 }\n  sbrp: maybe" + end, {"'allowed' or 'forbidden'"}},
      {start + "  thread T0 block 0 { a = 1 }\n  sbrp: allowed" + end, {"each model once"}},
      {start + "  thread T0 block 0 { a = 1 }\n  synchronize S9" + end,
       {"f:5:15: expected a stream or an event that stands above, found 'S9'"}},
      {start + "  stream S { wait E }" + end, {"f:4:19: expected an event that is recorded above"}},
      {start + "  stream a { copy a = 1 }" + end, {"f:4:10: expected a name that is not in use"}},
      {start + "  stream S { copy a = 1; record S }" + end, {"a name that is not in use"}},
      {start + "  stream S { a = 1 }" + end, {"expected 'kernel', 'thread', 'copy', 'record'"}},
      {start + "  stream S { copy a = f }" + end, {"an element as wide as the one"}},
      {start + "  thread T0 block 0 { prel.device b[0..1] = 1 }" + end, {"one element, or two of"}},
      {start + "  thread T0 block 0 { a = 1 }\n  final a == 1\n  sc: allowed\n}",
       {"expected 'sc:' and 'ptx:'"}},
      {start + "  thread T0 block 0 { a = 1 }\n  final a == 1\n  sc: allowed ptx: allowed sbrp: "
               "allowed\n}",
       {"'sc:' and 'ptx:' with 'final'"}},
      {start + "  thread T0 block 0 { a = 1 }\n  final T1.r0 == 1" + end,
       {"a thread that stands above"}},
  };
  for (const auto& [text, words] : cases) {
    EXPECT_EQ(error_of([&, &text = text] { parse_litmus(text, "f"); }, words),
              Errc::invalid_argument)
        << text;
  }
  const std::string whole = start + "  thread T0 block 0 { a = 1 }" + end;
  EXPECT_EQ(parse_litmus(whole, "f").size(), 1u);
  error_of([&] { parse_litmus(whole + whole, "f"); }, {"f:8:1", "another name: 't' is on line 1"});
}

// Whatever is read, it ends with tests or with an error that names a place.
TEST(Litmus, AnythingMayBeParsed) {
  std::mt19937_64 random(test::test_seed());
  std::string seed_text;
  for (const char* file : {"/fences.litmus", "/strong_accesses.litmus", "/durability.litmus"}) {
    seed_text += text_of(litmus_folder() + file);
  }
  const std::regex place("^f:[0-9]+:[0-9]+: expected ");
  std::size_t parsed = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::size_t start = seed_text.find("\ntest ", random() % seed_text.size());
    std::string text = seed_text.substr(start == std::string::npos ? 0 : start, 700);
    if (random() % 8 == 0) text.assign(random() % 200, '\0');
    for (std::size_t edits = random() % 6; edits > 0 && !text.empty(); --edits) {
      const std::size_t where = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[where] = static_cast<char>(random());
          break;
        case 1:
          text.erase(where, random() % 12);
          break;
        case 2:
          text.insert(where, text.substr(random() % text.size(), random() % 12));
          break;
        default:
          text.resize(where);
      }
    }
    try {
      parse_litmus(text, "f");
      ++parsed;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::invalid_argument) << text;
      ASSERT_TRUE(std::regex_search(std::string(error.what()), place)) << error.what();
    }
  }
  EXPECT_GT(parsed, 0u);
  const std::string deep = "test t { persistent u64 a thread T block 0 { r0 = a " + [] {
    std::string all;
    for (int i = 0; i < 100000; ++i) all += "if r0 == 0 { ";
    return all;
  }();
  error_of([&] { parse_litmus(deep, "f"); }, {"at most 8 nested 'if'"});
}

TEST(Litmus, TooMuchIsAnErrorThatSaysSo) {
  std::string text = "test t { volatile u32 f persistent u64 a[16] ";
  for (int i = 0; i < 6; ++i) {
    text += "thread T" + std::to_string(i) + " block 0 { ";
    for (int j = 0; j < 6; ++j) text += "add.device f, 1; ";
    text += "} ";
  }
  text += "crash a[0] == 1 sbrp: forbidden }";
  const auto many = parse_litmus(text, "f");
  EXPECT_EQ(error_of([&] { run_lazy(many[0], Model::sbrp); }, {"f:1", "executions"}),
            Errc::unsupported);
  const auto wide = parse_litmus(
      "test t { persistent u64 a[32] thread T0 block 0 { a[0..31] = 1 } crash a[0] == 1 "
      "sbrp: allowed }",
      "f");
  LitmusOptions options;
  options.max_runs = 1000;
  EXPECT_EQ(error_of([&] { run_brute(wide[0], Model::sbrp, options); }, {"crash states"}),
            Errc::unsupported);
  EXPECT_EQ(run_lazy(wide[0], Model::sbrp, options).runs, 2u);
  const auto stuck = parse_litmus(
      "test t { volatile u32 f persistent u64 a thread T0 block 0 {\n"
      "  wait strong.device f == 3; a = 1 } crash a == 1 sbrp: forbidden }",
      "f");
  error_of([&] { run_lazy(stuck[0], Model::sbrp); }, {"f:2", "T0 waits for a value"});
  const auto branch = parse_litmus(
      "test t { volatile u32 f thread T0 block 0 {\n  r0 = f; if r0 == 0: f = 1 } final f == 1 "
      "sc: allowed ptx: allowed }",
      "f");
  EXPECT_EQ(error_of([&] { run_memory(branch[0], Memory::ptx); }, {"f:2", "'final'"}),
            Errc::unsupported);
}

class LitmusFiles : public test::Scratch {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    test::write_file(path(name), {text.begin(), text.end()});
    return path(name);
  }
  // The exit status; `out` and `err` receive what was printed.
  static int command(const std::vector<std::string>& args, std::string* out = nullptr,
                     std::string* err = nullptr) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int status = litmus_command(args);
    const std::string printed = ::testing::internal::GetCapturedStdout();
    const std::string complained = ::testing::internal::GetCapturedStderr();
    if (out != nullptr) *out = printed;
    if (err != nullptr) *err = complained;
    EXPECT_EQ(status == 2, !complained.empty()) << complained;
    return status;
  }
  const std::string body_ =
      " { persistent u64 a thread T0 block 0 { a = 1 } crash a == 1 sbrp: allowed }\n";
};

TEST_F(LitmusFiles, CommandLine) {
  std::string out;
  std::string err;
  EXPECT_EQ(command({litmus_folder()}, &out), 0);
  EXPECT_NE(out.find("mp.device"), std::string::npos);
  EXPECT_EQ(command({"--brute", "--model", "sbrp", litmus_folder() + "/words.litmus"}, &out), 0);
  EXPECT_EQ(out.find("epoch"), std::string::npos);
  EXPECT_EQ(command({"--help"}, &out), 0);
  EXPECT_NE(out.find("usage"), std::string::npos);

  const std::string wrong =
      write("wrong.litmus",
            "test w \"a \\\" says\" { persistent u64 a thread T0 block 0 { a = 1 } crash a == 1 "
            "sbrp: forbidden }");
  EXPECT_EQ(command({wrong}, nullptr, &err), 2) << "a quote ends the text";
  const std::string failing = write("failing.litmus",
                                    "test w { persistent u64 a thread T0 block 0 { a = 1 } crash "
                                    "a == 1 sbrp: forbidden }");
  EXPECT_EQ(command({failing}, &out), 1);
  EXPECT_NE(out.find("FAILED"), std::string::npos);
  EXPECT_EQ(command({"--json", failing}, &out), 1);
  EXPECT_NE(out.find("\"passed\": false"), std::string::npos);
  EXPECT_NE(out.find("\"brute_runs\": null"), std::string::npos);

  EXPECT_EQ(command({}, nullptr, &err), 2);
  EXPECT_EQ(command({"--modle", failing}, nullptr, &err), 2);
  EXPECT_NE(err.find("'--modle'"), std::string::npos);
  EXPECT_EQ(command({failing, "--model", "tso"}, nullptr, &err), 2);
  EXPECT_EQ(command({failing, "--model"}, nullptr, &err), 2);
  EXPECT_EQ(command({"--model=epoch", failing}, nullptr, &err), 2);
  EXPECT_NE(err.find("no test"), std::string::npos);
  EXPECT_EQ(command({path("missing.litmus")}, nullptr, &err), 2);
  EXPECT_NE(err.find("cannot open"), std::string::npos);
  EXPECT_EQ(command({arenas()}, nullptr, &err), 2);
  EXPECT_NE(err.find("no .litmus file"), std::string::npos);
}

TEST_F(LitmusFiles, NamesAreUniqueOverFiles) {
  write("one.litmus", "test t" + body_);
  EXPECT_EQ(load_litmus({folder()}).size(), 1u);
  write("two.litmus", "test u" + body_ + "test t" + body_);
  EXPECT_EQ(error_of([&] { load_litmus({folder()}); }, {"two.litmus:2", "one.litmus"}),
            Errc::invalid_argument);
}

std::vector<std::string> pages() {
  std::vector<std::string> paths = {test::repository() + "/README.md"};
  for (const auto& entry : std::filesystem::directory_iterator(test::repository() + "/docs")) {
    if (entry.path().extension() == ".md") paths.push_back(entry.path().string());
  }
  return paths;
}

// Every ```litmus block of the pages is run.
TEST(Litmus, BlocksInThePages) {
  const std::string fence = "```litmus\n";
  std::size_t blocks = 0;
  for (const std::string& path : pages()) {
    const std::string page = text_of(path);
    for (std::size_t at = page.find(fence); at != std::string::npos;
         at = page.find(fence, at + 1)) {
      const std::size_t begin = at + fence.size();
      const std::string text = page.substr(begin, page.find("```", begin) - begin);
      LitmusOptions options;
      options.brute = true;
      const LitmusReport report = run_litmus(parse_litmus(text, path), options);
      EXPECT_TRUE(report.passed()) << text;
      EXPECT_FALSE(report.results.empty()) << text;
      ++blocks;
    }
  }
  EXPECT_GT(blocks, 0u);
}

// The tests that docs/model.md names are there.
TEST(Litmus, NamesInTheModelPage) {
  std::set<std::string> names;
  std::set<std::string> groups;
  for (const LitmusTest& test : all_litmus()) {
    names.insert(test.name);
    groups.insert(test.name.substr(0, test.name.find('.')));
  }
  const std::string page = text_of(test::repository() + "/docs/model.md");
  const std::regex name("`([a-z]+)\\.([a-z0-9_.]+|\\*)`");
  std::size_t named = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), name), end; at != end; ++at) {
    if (!groups.contains((*at)[1])) continue;
    const std::string whole = (*at)[1].str() + "." + (*at)[2].str();
    EXPECT_TRUE((*at)[2] == "*" || names.contains(whole)) << whole;
    ++named;
  }
  EXPECT_GT(named, 30u);
}

}  // namespace
}  // namespace holdfast::check
