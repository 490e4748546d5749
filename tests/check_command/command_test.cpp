// The checker's command line: arguments, workers that end badly, merging, JSON.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "check/command/arguments.hpp"
#include "check/command/report_json.hpp"
#include "check/command/workers.hpp"
#include "check_command/command_support.hpp"
#include "holdfast/error.hpp"

namespace holdfast::check {
namespace {

// A program whose recovery ends the process in one of two workers.
Offer deadly(void (*end)()) {
  return {"deadly", "", false, [end](const Sizes&) {
            Program program = example("append");
            program.recover = [end](Region&) { end(); };
            return program;
          }};
}

TEST(CheckCommand, ExitStatusSaysWhatWasFound) {
  const std::vector<Offer> offers = checked_append::offers();
  EXPECT_EQ(say({"append", "--threads", "1"}, offers).status, 0);
  EXPECT_EQ(say({"append_naive"}, offers).status, 1);
  EXPECT_EQ(say({"append", "--threads", "1", "--model", "sbrp"}, offers).status, 3);
  EXPECT_EQ(say({"append", "--max-states", "3"}, offers).status, 3);
  EXPECT_EQ(say({"append_blocks_naive", "--model", "epoch"}, offers).status, 4);
  EXPECT_EQ(say({"append", "--mutants", "--threads", "2"}, offers).status, 0);
  EXPECT_EQ(say({"append_naive", "--mutants"}, offers).status, 1);
  EXPECT_EQ(say({"nonsense"}, offers).status, 2);
  EXPECT_EQ(say({"append", "--threads", "many"}, offers).status, 2);
  EXPECT_EQ(say({"append", "--replay", "no state"}, offers).status, 2);
  EXPECT_EQ(say({}, offers).status, 2);
  EXPECT_EQ(say({"list"}, offers).status, 0);
}

TEST(CheckCommand, OnlyPassedIsOk) {
  const std::vector<Offer> offers = checked_append::offers();
  EXPECT_EQ(say({"append", "--threads", "1"}, offers).json["ok"], true);
  const Said some = say({"append", "--threads", "1", "--max-states", "3"}, offers);
  EXPECT_EQ(some.json["ok"], false);
  EXPECT_EQ(some.json["verdict"], "no failure found");
  EXPECT_EQ(some.json["budget"], true);
  EXPECT_FALSE(some.json["limits"].empty());
  const Said both = say({"append", "--threads", "1"}, offers);
  ASSERT_EQ(both.json["models"].size(), 2u);
  EXPECT_EQ(both.json["models"][0]["model"], "sbrp");
  EXPECT_EQ(both.json["models"][1]["model"], "epoch");
  EXPECT_EQ(both.json["states"].get<int>(),
            both.json["runs"].get<int>() + both.json["memoised"].get<int>());
}

TEST(CheckCommand, MutantsAreCheckedAtEachSize) {
  const Said said = say({"append_sum", "--mutants", "--sizes", "1,3"}, checked_append::offers());
  ASSERT_FALSE(said.json["mutants"].empty());
  int both = 0;
  for (const Json& mutant : said.json["mutants"]) {
    both += mutant["sizes"].size() == 2;
    if (mutant["fate"] == "killed") {
      EXPECT_FALSE(mutant["killed_at"].get<std::string>().empty()) << mutant["mutation"];
    }
  }
  EXPECT_GT(both, 0);
  EXPECT_EQ(said.json["score"]["mutants"], said.json["mutants"].size());
}

TEST(CheckCommand, WorkersFindWhatOneFinds) {
  const std::vector<Offer> offers = checked_append::offers();
  for (const char* name : {"append", "append_naive", "append_sum_naive"}) {
    const Said one = say({name}, offers);
    const Said three = say({name, "--jobs", "3"}, offers);
    EXPECT_EQ(one.status, three.status) << name;
    EXPECT_EQ(one.json["verdict"], three.json["verdict"]) << name;
    EXPECT_EQ(one.json["cause"], three.json["cause"]) << name;
    EXPECT_EQ(one.json["persists"], three.json["persists"]) << name;
  }
}

TEST(CheckCommand, WorkerThatDiesIsAFailure) {
  const Said killed = say({"deadly", "--jobs", "2"}, {deadly([] { ::raise(SIGKILL); })});
  EXPECT_EQ(killed.status, 1);
  EXPECT_EQ(killed.json["verdict"], "failed");
  ASSERT_EQ(killed.json["dead_workers"].size(), 2u);
  EXPECT_NE(killed.json["dead_workers"][0].get<std::string>().find("signal 9"), std::string::npos);
  const Said ended = say({"deadly"}, {deadly([] { ::_exit(7); })});
  EXPECT_EQ(ended.status, 1);
  ASSERT_EQ(ended.json["dead_workers"].size(), 1u);
  EXPECT_NE(ended.json["dead_workers"][0].get<std::string>().find("status 7"), std::string::npos);
}

TEST(CheckCommand, ErrorOfAWorkerIsTheCommands) {
  const Offer broken{"broken", "", true,
                     [](const Sizes&) -> Program { throw Error(Errc::no_space, "no room"); }};
  const Said said = say({"broken", "--jobs", "2"}, {broken});
  EXPECT_EQ(said.status, 1);
  EXPECT_EQ(said.json["error"]["code"], "no_space");
  EXPECT_EQ(said.json["error"]["message"], "no room");
}

TEST(CheckCommand, MergingAddsAndTakesTheWorst) {
  Report a;
  a.models = {{}, {}};
  a.models[1].model = Model::epoch;
  for (ModelReport& part : a.models) {
    part.states = 3;
    part.complete = part.nested_complete = true;
  }
  a.races_sought = a.recovery_complete = a.schedules_complete = true;
  conclude(a);
  EXPECT_EQ(a.verdict, Verdict::passed);
  a.hints = {{"everywhere", {"f", 1, "", ""}}, {"here", {"f", 2, "", ""}}};
  Report b = a;
  b.models[1].states = 4;
  b.models[1].rung = Rung::sampled;
  b.models[1].complete = false;
  b.races.emplace_back();
  b.hints.pop_back();
  const Report both = merge(std::vector<Report>{a, b});
  EXPECT_EQ(both.states, 13u);
  EXPECT_EQ(both.rung, Rung::sampled);
  EXPECT_EQ(both.verdict, Verdict::racy);
  EXPECT_FALSE(both.complete);
  EXPECT_TRUE(both.nested_complete);
  EXPECT_EQ(both.hints.size(), 1u);
}

TEST(CheckCommand, AShareAloneHasNotPassed) {
  Sizes one_thread;
  one_thread.threads = 1;
  Options options;
  options.workers = 2;
  std::vector<Report> shares;
  for (options.worker = 0; options.worker < options.workers; ++options.worker) {
    shares.push_back(check(example("append", one_thread), options));
    EXPECT_EQ(shares.back().verdict, Verdict::none_found);
    EXPECT_EQ(shares.back().limits, std::vector<std::string>{"the share of 1 of 2 workers"});
  }
  EXPECT_EQ(merge(shares).verdict, Verdict::passed);
}

TEST(CheckCommand, MergingPutsTheSmallestStateFirst) {
  const auto failing = [](unsigned line, unsigned durable) {
    Report report;
    Failure& failure = report.failures.emplace_back();
    failure.lost.place = {"f", line, "", ""};
    for (unsigned i = 0; i < durable; ++i) failure.persists.emplace_back().durable = true;
    return report;
  };
  const Report all = merge(std::vector<Report>{failing(1, 5), failing(2, 3), failing(1, 4)});
  ASSERT_EQ(all.failures.size(), 2u);
  EXPECT_EQ(all.failures[0].lost.place.line, 2u);
  EXPECT_EQ(all.failures[1].persists.size(), 4u);
}

TEST(CheckCommand, ReportsGoThereAndBackAsJson) {
  const Report report = check(example("append_naive"));
  ASSERT_FALSE(report.failures.empty());
  const Json json = to_json(report);
  EXPECT_EQ(to_json(report_from_json(Json::parse(print(json)))), json);
  for (const Mutant& mutant : check_mutants(example("append"))) {
    EXPECT_EQ(to_json(mutant_from_json(to_json(mutant))), to_json(mutant));
  }
  Report odd;
  odd.program = "not UTF-8: \xff";
  EXPECT_NE(print(to_json(odd)).find("not UTF-8"), std::string::npos);
}

TEST(CheckCommand, MutationsAreWrittenAsTheyAreRead) {
  for (const char* text : {"0x2", "3", "3x2x1", "default"}) {
    EXPECT_EQ(to_string(parse_sizes(text)), text);
  }
  for (const char* text : {"", "x", "3x", "1x2x3x4", "a"}) {
    EXPECT_THROW(parse_sizes(text), Error) << text;
  }
  for (const char* text : {"drop@k.cu:1", "early@k.cu:7", "weaken@k.cu:20", "swap@k.cu:3",
                           "narrow=block@k.cu:4", "narrow=device@k.cu:5"}) {
    EXPECT_EQ(to_string(parse_mutation(text)), text);
  }
  for (const char* text :
       {"", "drop", "drop@", "narrow@k.cu:1", "narrow=system@k.cu:1", "@k.cu:1"}) {
    EXPECT_THROW(parse_mutation(text), Error) << text;
  }
}

TEST(CheckCommand, ReplayKeepsWhatMakesTheProgram) {
  const Arguments arguments = parse_arguments(
      {"p", "--threads=3", "--blocks", "2", "--model", "epoch", "--schedule", "9", "--jobs", "4"});
  const std::vector<std::string> words = replay_arguments(arguments, {}, "1:2");
  const Arguments again = parse_arguments(words);
  EXPECT_EQ(again.program, "p");
  EXPECT_EQ(again.sizes.threads, 3u);
  EXPECT_EQ(again.sizes.blocks, 2u);
  EXPECT_EQ(again.options.model, Model::epoch);
  EXPECT_EQ(again.options.schedule, 9u);
  EXPECT_EQ(again.options.replay, "1:2");
  EXPECT_EQ(again.jobs, 1u);
}

}  // namespace
}  // namespace holdfast::check
