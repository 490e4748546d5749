#include "check/command/report_json.hpp"

#include <algorithm>

#include "check/command/source.hpp"
#include "holdfast/error.hpp"

namespace holdfast::check {

namespace {

// The enumerator with this name. REQUIRES: enumerators count from 0 up to `last`.
template <class Enum>
Enum from_name(const Json& json, Enum last) {
  const auto name = json.get<std::string>();
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (name == to_string(static_cast<Enum>(i))) return static_cast<Enum>(i);
  }
  throw Error(Errc::invalid_argument, detail::concat("'", name, "' is not a name of this kind"));
}

Json place_json(const Place& place) {
  return {{"file", place.file},
          {"line", place.line},
          {"function", place.function},
          {"context", place.context}};
}

Place place_from(const Json& json) {
  return {json["file"], json["line"], json["function"], json["context"]};
}

Json persist_json(const PersistInfo& info) {
  return {{"number", info.number},
          {"thread", info.thread},
          {"object", info.object},
          {"value", info.value},
          {"bytes", info.bytes},
          {"durable", info.durable},
          {"place", place_json(info.place)}};
}

PersistInfo persist_from(const Json& json) {
  return {place_from(json["place"]), json["thread"], json["object"], json["value"], json["bytes"],
          json["durable"],           json["number"]};
}

Json failure_json(const Failure& failure) {
  Json json = {{"message", failure.message},
               {"cause", to_string(failure.cause)},
               {"state", failure.state},
               {"model", to_string(failure.model)},
               {"nested", failure.nested},
               {"has_pair", failure.has_pair},
               {"lost", persist_json(failure.lost)},
               {"kept", persist_json(failure.kept)},
               {"fix", place_json(failure.fix)},
               {"advice", failure.advice},
               {"suggestion", failure.suggestion},
               {"persists", Json::array()}};
  for (const PersistInfo& info : failure.persists) json["persists"].push_back(persist_json(info));
  return json;
}

Failure failure_from(const Json& json) {
  Failure failure;
  failure.message = json["message"];
  failure.cause = from_name(json["cause"], CauseKind::not_a_crash_matter);
  failure.state = json["state"];
  failure.model = from_name(json["model"], Model::epoch);
  failure.nested = json["nested"];
  failure.has_pair = json["has_pair"];
  failure.lost = persist_from(json["lost"]);
  failure.kept = persist_from(json["kept"]);
  failure.fix = place_from(json["fix"]);
  failure.advice = json["advice"];
  failure.suggestion = json["suggestion"];
  for (const Json& info : json["persists"]) failure.persists.push_back(persist_from(info));
  return failure;
}

// Each number of a report under its name: visit(name, number).
template <class Any, class Visit>
void for_numbers(Any& report, Visit&& visit) {
  visit("complete", report.complete);
  visit("nested_complete", report.nested_complete);
  visit("states", report.states);
  visit("nested_states", report.nested_states);
  visit("runs", report.runs);
  visit("memoised", report.memoised);
  visit("schedules", report.schedules);
  visit("schedules_complete", report.schedules_complete);
  visit("schedules_share", report.schedules_share);
  visit("recovery_complete", report.recovery_complete);
  visit("recovery_schedules", report.recovery_schedules);
  visit("recovery_raced", report.recovery_raced);
  visit("races_sought", report.races_sought);
  visit("shares", report.shares);
  visit("share_of", report.share_of);
  visit("barrier_orders", report.barrier_orders);
  visit("persists", report.persists);
  visit("threads", report.threads);
  visit("crash_points", report.crash_points);
  visit("seconds", report.seconds);
  visit("peak_bytes", report.peak_bytes);
}

template <class Any, class Visit>
void for_numbers_of_model(Any& part, Visit&& visit) {
  visit("complete", part.complete);
  visit("nested_complete", part.nested_complete);
  visit("failed", part.failed);
  visit("states", part.states);
  visit("nested_states", part.nested_states);
  visit("runs", part.runs);
  visit("memoised", part.memoised);
  visit("components", part.components);
  visit("pairs", part.pairs);
  visit("pairs_tried", part.pairs_tried);
}

// Adds the text of the line to a place that says which line it is.
void quote(Json& place) { place["text"] = source_line({place["file"], place["line"], "", ""}); }

void quote_all(Json& report) {
  for (Json& failure : report["failures"]) {
    for (const char* part : {"lost", "kept"}) quote(failure[part]["place"]);
    quote(failure["fix"]);
    for (Json& info : failure["persists"]) quote(info["place"]);
  }
  for (Json& race : report["races"]) {
    quote(race["first"]);
    quote(race["second"]);
  }
  for (Json& hint : report["hints"]) quote(hint["place"]);
}

void explain_all(Json& report, const Report& from, const Arguments& arguments,
                 const Mutation& mutation) {
  report["rung_in_words"] = describe(from.rung);
  for (std::size_t i = 0; i < from.models.size(); ++i) {
    report["models"][i]["rung_in_words"] = describe(from.models[i].rung);
  }
  for (std::size_t i = 0; i < from.failures.size(); ++i) {
    report["failures"][i]["cause_in_words"] = describe(from.failures[i].cause);
    report["failures"][i]["replay"] = replay_arguments(arguments, mutation, from.failures[i].state);
  }
  quote_all(report);
}

}  // namespace

Json to_json(const Report& report) {
  Json json = {{"program", report.program},      {"verdict", to_string(report.verdict)},
               {"limits", report.limits},        {"void_reasons", report.void_reasons},
               {"rung", to_string(report.rung)}, {"models", Json::array()}};
  for (const ModelReport& part : report.models) {
    Json& entry = json["models"].emplace_back();
    entry = {{"model", to_string(part.model)}, {"rung", to_string(part.rung)}};
    for_numbers_of_model(part, [&](const char* name, const auto& value) { entry[name] = value; });
  }
  for_numbers(report, [&](const char* name, const auto& value) { json[name] = value; });
  json["failures"] = Json::array();
  json["races"] = Json::array();
  json["hints"] = Json::array();
  for (const Failure& failure : report.failures) json["failures"].push_back(failure_json(failure));
  for (const RaceReport& race : report.races) {
    json["races"].push_back({{"what", race.what},
                             {"first", place_json(race.first)},
                             {"second", place_json(race.second)}});
  }
  for (const Hint& hint : report.hints) {
    json["hints"].push_back({{"what", hint.what}, {"place", place_json(hint.place)}});
  }
  return json;
}

Report report_from_json(const Json& json) {
  Report report;
  report.program = json["program"];
  for (const Json& entry : json["models"]) {
    ModelReport& part = report.models.emplace_back();
    part.model = from_name(entry["model"], Model::epoch);
    part.rung = from_name(entry["rung"], Rung::replay);
    for_numbers_of_model(part, [&](const char* name, auto& value) { entry[name].get_to(value); });
  }
  report.verdict = from_name(json["verdict"], Verdict::void_);
  json["limits"].get_to(report.limits);
  json["void_reasons"].get_to(report.void_reasons);
  report.rung = from_name(json["rung"], Rung::replay);
  for_numbers(report, [&](const char* name, auto& value) { json[name].get_to(value); });
  for (const Json& failure : json["failures"]) report.failures.push_back(failure_from(failure));
  for (const Json& race : json["races"]) {
    report.races.push_back({race["what"], place_from(race["first"]), place_from(race["second"])});
  }
  for (const Json& hint : json["hints"]) {
    report.hints.push_back({hint["what"], place_from(hint["place"])});
  }
  return report;
}

Json to_json(const Mutant& mutant) {
  return {{"kind", to_string(mutant.mutation.kind)},
          {"scope", to_string(mutant.mutation.scope)},
          {"mutated", mutant.mutation.place},
          {"place", place_json(mutant.place)},
          {"in_recovery", mutant.in_recovery},
          {"fate", to_string(mutant.fate)},
          {"killer", to_string(mutant.killer)},
          {"sizes", mutant.sizes},
          {"killed_at", mutant.killed_at},
          {"schedule", mutant.schedule},
          {"message", mutant.message},
          {"report", to_json(mutant.report)}};
}

Mutant mutant_from_json(const Json& json) {
  Mutant mutant;
  mutant.mutation.kind = from_name(json["kind"], Mutation::Kind::early);
  mutant.mutation.scope = from_name(json["scope"], Scope::system);
  mutant.mutation.place = json["mutated"];
  mutant.place = place_from(json["place"]);
  mutant.in_recovery = json["in_recovery"];
  mutant.fate = from_name(json["fate"], Mutant::Fate::not_killed);
  mutant.killer = from_name(json["killer"], Mutant::Killer::executor);
  json["sizes"].get_to(mutant.sizes);
  mutant.killed_at = json["killed_at"];
  mutant.schedule = json["schedule"];
  mutant.message = json["message"];
  mutant.report = report_from_json(json["report"]);
  return mutant;
}

const char* describe(Rung rung) noexcept {
  switch (rung) {
    case Rung::exhaustive:
      return "every state that recovery can tell apart";
    case Rung::components:
      return "every state of each group of bytes that recovery looks at together";
    case Rung::sampled:
      return "pairs of persists in both orders, few deviations, and random states";
    case Rung::replay:
      return "the one state that was asked for";
  }
  return "";
}

const char* describe(CauseKind cause) noexcept {
  switch (cause) {
    case CauseKind::missing_order:
      return "nothing orders the two stores";
    case CauseKind::narrow_scope:
      return "the scope that should order the two stores is too narrow";
    case CauseKind::barrier_only:
      return "only a barrier stands between the two stores, which orders no persists";
    case CauseKind::torn_store:
      return "a store wider than 8 bytes was torn";
    case CauseKind::lost_acknowledged:
      return "a store was lost that had been promised";
    case CauseKind::not_idempotent:
      return "recovery fails on what it has itself left behind";
    case CauseKind::not_atomic:
      return "a crash between the two stores cannot be undone";
    case CauseKind::not_a_crash_matter:
      return "it fails with everything durable";
  }
  return "";
}

Json checked(const Report& report, const Arguments& arguments,
             const std::vector<std::string>& dead) {
  Json json = {{"ok", report.verdict == Verdict::passed && dead.empty()}};
  json.update(to_json(report));
  json["budget"] = arguments.budget;
  json["sizes"] = to_string(arguments.sizes);
  json["cause"] = report.failures.empty() ? Json() : Json(to_string(report.failures[0].cause));
  json["jobs"] = arguments.jobs;
  json["dead_workers"] = dead;
  explain_all(json, report, arguments, arguments.options.mutation);
  return json;
}

namespace {

Json score_of(const std::vector<Mutant>& mutants) {
  const auto count = [&](auto&& is) { return std::count_if(mutants.begin(), mutants.end(), is); };
  const auto fate = [&](Mutant::Fate wanted) {
    return count([=](const Mutant& mutant) { return mutant.fate == wanted; });
  };
  const auto killer = [&](Mutant::Killer wanted) {
    return count([=](const Mutant& mutant) { return mutant.killer == wanted; });
  };
  return {{"mutants", mutants.size()},
          {"killed", fate(Mutant::Fate::killed)},
          {"by_state", killer(Mutant::Killer::state)},
          {"by_race", killer(Mutant::Killer::race)},
          {"by_executor", killer(Mutant::Killer::executor)},
          {"not_needed", fate(Mutant::Fate::not_needed)},
          {"not_killed", fate(Mutant::Fate::not_killed)}};
}

// Where a fence, release, acquire or barrier stands that what threads see needs, and no state that
// was tried.
Json only_for_visibility(const std::vector<Mutant>& mutants) {
  Json places = Json::array();
  for (const Mutant& mutant : mutants) {
    if (mutant.mutation.kind != Mutation::Kind::drop) continue;
    if (mutant.killer == Mutant::Killer::race) places.push_back(mutant.mutation.place);
  }
  return places;
}

}  // namespace

Json checked_mutants(const Report& plain, const std::vector<Mutant>& mutants,
                     const Arguments& arguments, const std::vector<std::string>& dead) {
  Json json = {{"ok", is_sound(plain) && is_good(mutants) && dead.empty()},
               {"program", plain.program},
               {"score", score_of(mutants)},
               {"only_for_visibility", only_for_visibility(mutants)},
               {"jobs", arguments.jobs},
               {"dead_workers", dead},
               {"mutants", Json::array()}};
  Arguments same = arguments;
  same.options.mutation = {};
  json["unchanged"] = checked(plain, same, {});
  json["unchanged"]["sound"] = is_sound(plain);
  for (const Mutant& mutant : mutants) {
    Json entry = to_json(mutant);
    entry["mutation"] = to_string(mutant.mutation);
    quote(entry["place"]);
    if (!mutant.killed_at.empty()) same.sizes = parse_sizes(mutant.killed_at);
    explain_all(entry["report"], mutant.report, same, mutant.mutation);
    // A mutant's state is one of many: its persists are for whoever replays it.
    for (Json& failure : entry["report"]["failures"]) failure.erase("persists");
    json["mutants"].push_back(std::move(entry));
  }
  return json;
}

int status_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::passed:
      return 0;
    case Verdict::failed:
      return 1;
    case Verdict::none_found:
      return 3;
    case Verdict::racy:
      return 4;
    case Verdict::void_:
      return 5;
  }
  return 1;
}

bool is_sound(const Report& report) {
  return report.verdict == Verdict::passed || report.verdict == Verdict::none_found;
}

bool is_good(const std::vector<Mutant>& mutants) {
  return std::none_of(mutants.begin(), mutants.end(),
                      [](const Mutant& mutant) { return mutant.fate == Mutant::Fate::not_killed; });
}

std::string print(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace holdfast::check
