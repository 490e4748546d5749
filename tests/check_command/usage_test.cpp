// What a person can type wrongly, and what a program under check can do wrongly: told apart.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "check_command/command_support.hpp"
#include "holdfast/error.hpp"

namespace holdfast::check {
namespace {

std::string message_of(const Said& said) {
  return said.json.contains("error") ? said.json["error"]["message"].get<std::string>() : "";
}

void expect_refused(const std::vector<std::string>& words,
                    const std::vector<std::string>& expected) {
  const Said said = say(words, checked_append::offers());
  std::string line;
  for (const std::string& word : words) line += word + " ";
  EXPECT_EQ(said.status, 2) << line << said.json;
  for (const std::string& word : expected) {
    EXPECT_NE(message_of(said).find(word), std::string::npos) << line << said.json;
  }
}

// "append", changed.
Said say_of(const std::function<void(Program&)>& change) {
  return say({"changed"}, {{"changed", "", true, [change](const Sizes&) {
                              Program program = example("append");
                              program.name = "changed";
                              change(program);
                              return program;
                            }}});
}

void expect_blamed(const std::function<void(Program&)>& change,
                   const std::vector<std::string>& expected) {
  const Said said = say_of(change);
  EXPECT_EQ(said.status, 1) << said.json;
  for (const std::string& word : expected) {
    EXPECT_NE(message_of(said).find(word), std::string::npos) << said.json;
  }
}

TEST(CheckUsage, AReplayThatIsNoStateIsRefusedWithTheForm) {
  for (const char* text : {"x",
                           "s",
                           "sbrp@",
                           "@",
                           "1",
                           ":",
                           "1:2@",
                           "sbrp@epoch@1:0.1",
                           "epoch@epoch@1:0",
                           "01:00.01",
                           "1:00",
                           "1:0.",
                           "1:.0",
                           "1:0..1",
                           "1:0.1x",
                           "1:0.1 ",
                           " 1:0",
                           "1:0-1",
                           "1:0/",
                           "1:0//2:1",
                           "1:0/2:1/3:1",
                           "1:1.0",
                           "1:1.1",
                           "r@1:0",
                           "r1",
                           "r1@",
                           "@1:0",
                           "epoch@s1@1:0",
                           "x1@x2@1:0",
                           "nonsense@1:0",
                           "1:99999999999999999999"}) {
    expect_refused({"append_naive", "--replay", text}, {text, "[EXECUTION@][MODEL@]POINT:STORES"});
  }
}

TEST(CheckUsage, AReplayOfWhatIsNotThereIsRefused) {
  for (const char* text : {"s01@1:0", "s1x@1:0", "s@1:0", "x!@1:0", "x@1:0", "xzzz@1:0", "99:0",
                           "1:99", "rzz@1:0", "r_@1:0"}) {
    expect_refused({"append_naive", "--replay", text}, {"a report"});
  }
}

TEST(CheckUsage, AStateOfAnotherModelIsRefused) {
  const auto with = [&](const char* model, const char* state) {
    return std::vector<std::string>{"append_naive", "--model", model, "--replay", state};
  };
  expect_refused(with("epoch", "sbrp@1:0.1.2.4"), {"under sbrp", "--model is epoch"});
  expect_refused(with("sbrp", "epoch@1:0.1.2.4"), {"under epoch", "--model is sbrp"});
  for (const char* state : {"1:0.1.2.4", "sbrp@1:0.1.2.4"}) {
    EXPECT_EQ(say(with("sbrp", state), checked_append::offers()).status, 1);
    EXPECT_EQ(say(with("both", state), checked_append::offers()).status, 1);
  }
}

TEST(CheckUsage, ListTakesNoOptionsOfChecks) {
  expect_refused({"list", "--replay", "1:0"}, {"--replay", "--json"});
  expect_refused({"list", "--threads", "2"}, {"--threads"});
  expect_refused({"--mutants", "list"}, {"--mutants"});
}

TEST(CheckUsage, AMutationOfNothingNamesWhatThereIs) {
  const auto refused = [](const char* mutation, const std::vector<std::string>& expected) {
    expect_refused({"append", "--mutation", mutation}, expected);
  };
  refused("drop@append.cu:1", {"append.cu:1", "there is drop@append.cu:"});
  refused("persist@append.cu:1", {"append.cu:1", "there is persist@append.cu:"});
  refused("widen=device@append.cu:1", {"append.cu:1", "nor is there elsewhere", "'append'"});
  refused("narrow=block@nowhere.cu:1", {"nowhere.cu:1"});
}

TEST(CheckUsage, PersistIsForStoresAndWidenForNarrowScopes) {
  const auto offered = [](const char* program, const std::string& mutation) {
    const std::string text =
        message_of(say({program, "--mutation", mutation + "@x.cu:1"}, checked_append::offers()));
    const std::size_t at = text.find("there is " + mutation + "@append.cu:");
    if (at == std::string::npos) return std::string();
    const std::string rest = text.substr(at + 9);
    return rest.substr(0, rest.find(','));
  };
  const std::string store = offered("append", "persist");
  ASSERT_FALSE(store.empty());
  EXPECT_NE(say({"append", "--mutation", store}, checked_append::offers()).status, 2);
  // A fence is none.
  const std::string fence = offered("append", "drop");
  ASSERT_FALSE(fence.empty());
  expect_refused({"append", "--mutation", "persist" + fence.substr(4)}, {"there is persist@"});
}

TEST(CheckUsage, WhatAProgramThrowsIsNotWrongUsage) {
  const auto refuse = [] { throw Error(Errc::invalid_argument, "no such thing"); };
  const auto complain = [] { throw std::invalid_argument("not like this"); };
  expect_blamed([&](Program& program) { program.set_up = [=](Region&) { refuse(); }; },
                {"set_up() of program 'changed'", "no such thing"});
  expect_blamed([&](Program& program) { program.set_up = [=](Region&) { complain(); }; },
                {"set_up() of program 'changed'", "not like this"});
  expect_blamed([&](Program& program) { program.run = [=](Region&, Session&) { refuse(); }; },
                {"run() of program 'changed'", "no such thing"});
  expect_blamed([&](Program& program) { program.run = [=](Region&, Session&) { complain(); }; },
                {"run() of program 'changed'", "not like this"});
  for (const Said& said :
       {say_of([&](Program& program) { program.recover = [=](Region&) { refuse(); }; }),
        say_of([&](Program& program) {
          program.verify = [=](Region&, const History&, std::uint64_t) -> std::string {
            throw Error(Errc::invalid_argument, "no such thing");
          };
        })}) {
    EXPECT_EQ(said.status, 1);
    EXPECT_EQ(said.json["verdict"], "failed");
    EXPECT_NE(said.json["failures"][0]["message"].get<std::string>().find("no such thing"),
              std::string::npos);
  }
}

TEST(CheckUsage, SizesThatAProgramRefusesAreWrongUsage) {
  const Offer offer{"small", "", true, [](const Sizes&) -> Program {
                      throw Error(Errc::invalid_argument, "at most 3 threads");
                    }};
  const Said said = say({"small", "--threads", "4"}, {offer});
  EXPECT_EQ(said.status, 2);
  EXPECT_EQ(message_of(said), "at most 3 threads");
}

TEST(CheckUsage, TheFailureIsThatOfTheStateThatIsNamed) {
  const auto message = [](const Said& said) {
    return said.json["failures"][0]["message"].get<std::string>();
  };
  const Said said = say({"append_naive"}, checked_append::offers());
  const Json& words = said.json["failures"][0]["replay"];
  const Said again = say(words.get<std::vector<std::string>>(), checked_append::offers());
  EXPECT_EQ(message(again), message(said));
}

TEST(CheckUsage, WhatAProgramSaysIsNoCommandToATerminal) {
  const Said said = say_of([](Program& program) {
    program.verify = [](Region&, const History&, std::uint64_t) { return "\x1b[31mred\n"; };
  });
  EXPECT_EQ(said.status, 1);
  EXPECT_EQ(said.json["failures"][0]["message"], "\\x1b[31mred\n");
}

TEST(CheckUsage, AProgramThatCannotBeNamedIsRefused) {
  for (const char* const name : {"list", "", "--json"}) {
    const Said said = say({"list"}, {{name, "", true, [](const Sizes&) { return Program(); }}});
    EXPECT_EQ(said.status, 2) << name;
    EXPECT_NE(message_of(said).find(std::string("cannot be named '") + name + "'"),
              std::string::npos);
  }
}

TEST(CheckUsage, AProgramThatLacksSomethingIsToldSo) {
  expect_blamed([](Program& program) { program.set_up = nullptr; }, {"'changed' needs set_up"});
  expect_blamed([](Program& program) { program.recover = nullptr; }, {"'changed' needs"});
  expect_blamed([](Program& program) { program.items = std::uint64_t{1} << 40; },
                {"items", "'changed'", "1048576 at most"});
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    expect_blamed([&](Program& program) { program.region_bytes = bytes; },
                  {"region_bytes", "'changed'", std::to_string(bytes)});
  }
  expect_blamed(
      [](Program& program) {
        program.region_bytes = 128 << 10;
        program.set_up = [](Region& region) { region.allocate<char>("large", 1 << 20); };
      },
      {"region_bytes", "'changed'", "is 131072: give more"});
}

TEST(CheckUsage, WhatAProgramPrintsIsNotInTheReport) {
  ::testing::internal::CaptureStderr();
  const Said said = say_of([](Program& program) {  // which parses what is on standard output
    program.recover = [recover = program.recover](Region& region) {
      std::puts("recover() says this");
      std::cout << "and this\n";
      recover(region);
    };
    program.run = [run = program.run](Region& region, Session& session) {
      std::puts("run() says this");
      run(region, session);
    };
  });
  const std::string err = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.json.contains("verdict"));
  for (const char* words : {"recover() says this\n", "and this\n", "run() says this\n"}) {
    EXPECT_NE(err.find(words), std::string::npos) << words;
  }
}

}  // namespace
}  // namespace holdfast::check
