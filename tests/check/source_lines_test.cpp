// Source lines of return addresses.
#include "check/source_lines_test.hpp"

#include "check/source_lines.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>

#include "cpu/recorder.hpp"

namespace holdfast::test {
namespace {

using check::SourceLine;
using check::SourceLines;

// The number of the line of source_lines_test.cu that holds `text`.
unsigned line_with(const std::string& text) {
  std::ifstream file(std::string(__FILE__).substr(0, std::string(__FILE__).rfind('.')) + ".cu");
  unsigned number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.find(text) != std::string::npos) return number;
  }
  return 0;
}

void launch_two(Stream& stream, unsigned* words) { launch(stream, 1, 1, store_two, words); }

std::vector<const void*> stores(void (*launch_kernel)(Stream&, unsigned*) = launch_two) {
  Recorder recorder;
  std::array<unsigned, 2> words{};
  Stream stream;
  launch_kernel(stream, words.data());
  stream.synchronize();
  std::vector<const void*> pcs;
  for (const Recorded& record : recorder.events) {
    if (record.event.kind == cpu::EventKind::store) pcs.push_back(record.event.pc);
  }
  return pcs;
}

void expect_chain(const std::vector<SourceLine>& chain, const std::string& text) {
  ASSERT_EQ(chain.size(), 2u);
  for (const SourceLine& line : chain) {
    EXPECT_TRUE(line.file.ends_with("/check/source_lines_test.cu")) << line.file;
  }
  EXPECT_EQ(chain[0].line, line_with(text));
  EXPECT_NE(chain[0].function.find("store_both"), std::string::npos) << chain[0].function;
  EXPECT_EQ(chain[1].line, line_with("line of the call"));
  EXPECT_NE(chain[1].function.find("store_two"), std::string::npos) << chain[1].function;
}

TEST(SourceLines, InlinedFramesInnermostFirst) {
  const auto pcs = stores();
  ASSERT_EQ(pcs.size(), 2u);
  SourceLines lines;
  lines.look_up(pcs);
  expect_chain(lines.resolve(pcs[0]), "line of the first");
  expect_chain(lines.resolve(pcs[1]), "line of the second");
  SourceLines alone;
  expect_chain(alone.resolve(pcs[1]), "line of the second");
}

TEST(SourceLines, KernelsInAnonymousNamespacesAreNamed) {
  const auto pcs = stores(launch_unnamed);
  ASSERT_EQ(pcs.size(), 1u);
  const auto chain = SourceLines().resolve(pcs[0]);
  ASSERT_EQ(chain.size(), 1u);
  EXPECT_EQ(chain[0].line, line_with("line of the unnamed"));
  EXPECT_NE(chain[0].function.find("::store_unnamed"), std::string::npos) << chain[0].function;
}

TEST(SourceLines, ManyAtOnce) {
  std::vector<const void*> pcs = stores();
  const auto* const code = static_cast<const char*>(pcs[0]);
  for (int i = 0; i < 20'000; ++i) pcs.push_back(code - 10'000 + i);
  SourceLines lines;
  lines.look_up(pcs);
  expect_chain(lines.resolve(pcs[1]), "line of the second");
  for (const void* const pc : pcs) EXPECT_FALSE(lines.resolve(pc).empty());
}

TEST(SourceLines, WhatIsNotKnownIsNamedByModuleAndOffset) {
  SourceLines lines;
  static int datum = 0;  // in the program, and not in a function
  const auto program = lines.resolve(&datum);
  ASSERT_EQ(program.size(), 1u);
  EXPECT_EQ(program[0].file, "");
  EXPECT_TRUE(program[0].function.starts_with("check_source_lines_test+0x")) << program[0].function;
  // Of a library it depends on the machine what is known.
  ASSERT_FALSE(lines.resolve(reinterpret_cast<const void*>(&std::qsort)).empty());
  EXPECT_NE(lines.resolve(reinterpret_cast<const void*>(&std::qsort))[0].function, "");
  int local = 0;
  for (const void* const nowhere :
       {static_cast<const void*>(nullptr), static_cast<const void*>(&local)}) {
    const auto chain = lines.resolve(nowhere);
    ASSERT_EQ(chain.size(), 1u);
    EXPECT_EQ(chain[0].file, "");
    EXPECT_TRUE(chain[0].function.starts_with("0x")) << chain[0].function;
  }
}

TEST(SourceLines, WithoutAddr2lineNothingIsKnown) {
  const auto pcs = stores();
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  SourceLines lines;
  const auto chain = lines.resolve(pcs[0]);
  setenv("PATH", path.c_str(), 1);
  ASSERT_EQ(chain.size(), 1u);
  EXPECT_EQ(chain[0].file, "");
  EXPECT_TRUE(chain[0].function.starts_with("check_source_lines_test+0x")) << chain[0].function;
}

}  // namespace
}  // namespace holdfast::test
