#include "check/command/report_text.hpp"

#include <iomanip>
#include <sstream>

namespace holdfast::check {

namespace {

// The function without its result, namespace, parameters and template arguments.
std::string short_name(std::string function) {
  const std::string anonymous = "(anonymous namespace)::";
  for (std::size_t at = function.find(anonymous); at != std::string::npos;
       at = function.find(anonymous)) {
    function.erase(at, anonymous.size());
  }
  std::string bare;
  int depth = 0;
  for (const char c : function) {
    if (c == '<') ++depth;
    if (depth == 0 && c == '(') break;
    if (depth == 0) bare += c;
    if (c == '>') --depth;
  }
  return bare.substr(bare.find_last_of(" :") + 1);
}

std::string place_text(const Json& place) {
  const auto file = place["file"].get<std::string>();
  const auto function = place["function"].get<std::string>();
  if (file.empty()) return function.empty() ? "an unknown place" : function;
  std::string text =
      file.substr(file.rfind('/') + 1) + ":" + std::to_string(place["line"].get<unsigned>());
  if (!function.empty()) text += " in " + short_name(function);
  const auto context = place["context"].get<std::string>();
  return context.empty() ? text : text + ", called at " + context;
}

void quote(std::ostream& out, const Json& place) {
  const auto text = place["text"].get<std::string>();
  if (!text.empty()) out << "             | " << text << "\n";
}

void row(std::ostream& out, const char* name, const std::string& value) {
  if (!value.empty()) out << "  " << std::left << std::setw(11) << name << value << "\n";
}

void persist(std::ostream& out, const char* name, const Json& info) {
  if (info["bytes"] == 0) return;
  std::ostringstream text;
  text << "#" << info["number"] << " " << info["thread"].get<std::string>() << ": "
       << info["object"].get<std::string>() << " = 0x" << std::hex
       << info["value"].get<std::uint64_t>() << std::dec << " (" << info["bytes"] << " bytes)";
  row(out, name, text.str());
  out << "             " << place_text(info["place"]) << "\n";
  quote(out, info["place"]);
}

std::string replay_text(const Json& failure, const std::string& command) {
  std::string text = command;
  for (const Json& word : failure["replay"]) text.append(" ").append(word.get<std::string>());
  return text;
}

void failure_text(std::ostream& out, const Json& failure, const std::string& command) {
  out << "\n";
  row(out, "failure", failure["message"]);
  if (failure["nested"]) row(out, "", "after a second crash, inside recovery");
  persist(out, "lost", failure["lost"]);
  persist(out, "kept", failure["kept"]);
  row(out, "cause", failure["cause_in_words"]);
  if (!failure["fix"]["file"].get<std::string>().empty()) {
    row(out, "change", place_text(failure["fix"]));
    quote(out, failure["fix"]);
  }
  row(out, "advice", failure["advice"]);
  row(out, "suggested", failure["suggestion"]);
  row(out, "replay", replay_text(failure, command));
}

std::string explored_text(const Json& part) {
  std::ostringstream out;
  if (part["failed"])
    return "failed; stopped at a failure, after " + part["states"].dump() + " states";
  out << part["rung_in_words"].get<std::string>();
  if (part["rung"] == "sampled") {
    out << ": " << part["pairs_tried"] << " of " << part["pairs"] << " pairs";
  } else if (part["rung"] == "components") {
    out << " (" << part["components"] << " groups)";
  }
  if (part["rung"] == "replay") return out.str();
  if (!part["complete"]) {
    out << "; not all of them";
  } else if (!part["nested_complete"]) {
    out << "; of second crashes, not all";
  }
  return out.str();
}

std::string states_text(const Json& report) {
  std::ostringstream out;
  out << report["states"] << " (" << report["nested_states"] << " of them after a second crash); "
      << report["runs"] << " recoveries run, " << report["memoised"] << " known from before";
  return out.str();
}

std::string schedules_text(const Json& report) {
  std::ostringstream out;
  out << report["schedules"];
  if (report["schedules_complete"]) {
    out << ", which is all";
  } else if (report["schedules_share"] > 0) {
    out << ", about " << report["schedules_share"].get<double>() * 100 << " % of all";
  } else {
    out << " of unknown many";
  }
  return out.str();
}

void list(std::ostream& out, const char* name, const Json& lines) {
  for (const Json& line : lines) {
    row(out, name, line);
    name = "";
  }
}

}  // namespace

std::string report_text(const Json& report, const std::string& command) {
  std::ostringstream out;
  out << report["program"].get<std::string>() << ": " << report["verdict"].get<std::string>()
      << "\n";
  if (report["verdict"] == "no failure found") list(out, "explored", report["limits"]);
  list(out, "void", report["void_reasons"]);
  for (const Json& part : report["models"]) {
    row(out, part["model"].get<std::string>().c_str(), explored_text(part));
  }
  row(out, "schedules", schedules_text(report));
  row(out, "states", states_text(report));
  std::ostringstream size;
  size << report["persists"] << " persists of " << report["threads"] << " threads, "
       << report["crash_points"] << " crash points";
  row(out, "program", size.str());
  row(out, "sizes", report["sizes"]);
  std::ostringstream cost;
  cost << std::fixed << std::setprecision(2) << report["seconds"].get<double>() << " s, "
       << report["peak_bytes"].get<std::uint64_t>() / (1 << 20) << " MiB";
  row(out, "cost", cost.str());
  for (const Json& failure : report["failures"]) failure_text(out, failure, command);
  for (const Json& race : report["races"]) {
    out << "\n";
    row(out, "race", race["what"]);
    row(out, "", place_text(race["first"]));
    row(out, "", place_text(race["second"]));
  }
  if (!report["races"].empty()) {
    row(out, "void", "with a race, what was explored promises nothing");
  }
  if (!report["hints"].empty()) out << "\n";
  for (const Json& hint : report["hints"]) {
    row(out, "hint", place_text(hint["place"]));
    quote(out, hint["place"]);
    row(out, "", hint["what"]);
  }
  for (const Json& dead : report["dead_workers"]) row(out, "died", dead);
  return out.str();
}

std::string mutants_text(const Json& result, const std::string& command) {
  std::ostringstream out;
  if (!result["unchanged"]["sound"]) {
    out << report_text(result["unchanged"], command)
        << "\nThe program fails as it is, so its mutants say nothing: mend it first.\n";
    return out.str();
  }
  const Json& score = result["score"];
  out << result["program"].get<std::string>() << ": " << score["mutants"]
      << " mutants: " << score["killed"] << " killed, " << score["not_needed"] << " not needed, "
      << score["not_killed"] << " not killed\n";
  for (const Json& mutant : result["mutants"]) {
    std::string fate = mutant["fate"];
    if (mutant["fate"] == "killed") fate += " by " + mutant["killer"].get<std::string>();
    std::string sizes;
    for (const Json& size : mutant["sizes"]) {
      sizes += (sizes.empty() ? " at sizes " : ", ") + size.get<std::string>();
    }
    out << "  " << std::left << std::setw(20) << fate << mutant["mutation"].get<std::string>()
        << sizes << "\n";
    quote(out, mutant["place"]);
  }
  for (const Json& place : result["only_for_visibility"]) {
    row(out, "visibility",
        place.get<std::string>() + ": what threads see needs it, and no state that was tried");
  }
  for (const Json& dead : result["dead_workers"]) row(out, "died", dead);
  return out.str();
}

}  // namespace holdfast::check
