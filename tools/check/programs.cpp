#include "programs.hpp"

#include <algorithm>
#include <map>

#include "program_makers.hpp"

namespace holdfast::check {

namespace {

using Maker = Program (*)(const ProgramOptions&);

struct Entry {
  ProgramInfo info;
  Maker make;
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {{"undo_log",
        "two transactions in which every thread logs and overwrites words of its own",
        {6, 1, 1}},  // the most with which every mutant is explored to its end
       undo_log_program},
      {{"undo_log_conventional",
        "the same with a log of a few partitions, which threads share under locks",
        {6, 1, 1}},
       undo_log_conventional_program},
      {{"gpkvs",
        "the key-value store: SET, ERASE and SET again, in buckets that operations share and not",
        {8, 0, 0}},
       gpkvs_program},
      {{"gpkvs_cached", "the same, reading a copy of the table in device memory", {8, 0, 0}},
       gpkvs_cached_program},
      {{"gpkvs_conventional", "the same with the conventional log", {8, 0, 0}},
       gpkvs_conventional_program},
      {{"gpkvs_set", "the key-value store: one SET of new keys", {8, 0, 0}}, gpkvs_set_program},
      {{"gpkvs_set_cached", "the same, reading a copy of the table in device memory", {8, 0, 0}},
       gpkvs_set_cached_program},
      {{"kv_lookups",
        "the key-value store: a kernel looks keys up beside a SET of some of them",
        {0, 0, 0}},
       kv_lookups_program},
      {{"kv_lookups_cached", "the same, reading a copy of the table in device memory", {0, 0, 0}},
       kv_lookups_cached_program},
      {{"gpdb_insert", "gpDB: two INSERTs, each a transaction", {3, 0, 0}}, gpdb_insert_program},
      {{"gpdb_update", "gpDB: two UPDATEs of every other row, each a transaction", {5, 0, 0}},
       gpdb_update_program},
      {{"gpdb_update_conventional",
        "the same with a log of two partitions, which threads share under locks",
        {5, 0, 0}},
       gpdb_update_conventional_program},
      {{"prefix_sum", "prefix sum (GPM, Figure 8), recovered by running again", {4, 2, 0}},
       prefix_sum_program},
      {{"bfs", "breadth-first search over six nodes, recovered by going on", {2, 0, 0}},
       bfs_program},
      {{"srad", "two iterations of the diffusion, recovered by going on", {4, 2, 0}}, srad_program},
      {{"reduction", "tree reduction (SBRP, Figure 3), recovered by running again", {4, 2, 0}},
       reduction_program},
      {{"reduction_block_scope",
        "the reduction with the scoped persistency bug of SBRP, section 5.3",
        {4, 2, 0},
        false,
        false,
        true},
       reduction_block_scope_program},
      {{"checkpoint", "a checkpoint of two buffers: saved twice, and restored", {0, 0, 0}},
       checkpoint_program},
      {{"lenet",
        "LeNet in training, a checkpoint after each pass, recovered by going on",
        {0, 0, 0}},
       lenet_program},
      {{"cfd",
        "two time steps of a flow through two cells, a checkpoint after each, recovered by going "
        "on",
        {0, 0, 0}},
       cfd_program},
      {{"black_scholes",
        "option prices over two scenarios, a checkpoint after each, recovered by going on",
        {0, 0, 0}},
       black_scholes_program},
      {{"hotspot",
        "two iterations of a chip's temperatures, a checkpoint after each, recovered by going on",
        {0, 0, 0}},
       hotspot_program},
      {{"region_metadata",
        "the directory of a region's objects: allocate, remove, grow",
        {0, 0, 0}},
       region_metadata_program},
  };
  return all;
}

// More than one size of what has sizes: one that is small enough for all of it to be explored, and
// one with more than one of everything.
std::vector<ProgramOptions> mutant_sizes_of(const std::string& name) {
  static const std::map<std::string, std::vector<ProgramOptions>> all = {
      {"undo_log", {{2, 1, 1}, {3, 2, 1}, {6, 1, 1}}},
      {"undo_log_conventional", {{2, 1, 1}, {3, 1, 1}}},
      {"gpkvs", {{2, 0, 0}, {5, 0, 0}}},
      {"gpkvs_cached", {{2, 0, 0}, {5, 0, 0}}},
      {"gpkvs_conventional", {{2, 0, 0}, {5, 0, 0}}},
      {"gpkvs_set", {{2, 0, 0}, {6, 0, 0}}},
      {"gpkvs_set_cached", {{2, 0, 0}, {6, 0, 0}}},
      {"prefix_sum", {{2, 2, 0}, {3, 3, 0}}},
      {"reduction", {{2, 1, 0}, {3, 2, 0}, {4, 2, 0}}},
      {"srad", {{2, 2, 0}, {3, 2, 0}}},
  };
  const auto found = all.find(name);
  return found == all.end() ? std::vector<ProgramOptions>{} : found->second;
}

std::uint32_t take(const ProgramInfo& info, const char* what, std::uint32_t given,
                   std::uint32_t usual, std::uint32_t least, std::uint32_t most) {
  using detail::concat;
  if (given == 0) return usual;
  if (usual == 0) {
    throw Error(Errc::invalid_argument,
                concat("program '", info.name, "' takes no number of ", what));
  }
  if (given < least || given > most) {
    throw Error(Errc::invalid_argument, concat("program '", info.name, "': ", given, " ", what,
                                               "; give ", least, " to ", most));
  }
  return given;
}

}  // namespace

const std::vector<ProgramInfo>& programs() {
  static const std::vector<ProgramInfo> all = [] {
    std::vector<ProgramInfo> infos;
    for (const Entry& entry : entries()) {
      infos.push_back(entry.info);
      infos.back().mutant_sizes = mutant_sizes_of(entry.info.name);
    }
    return infos;
  }();
  return all;
}

Program make_program(const std::string& name, const ProgramOptions& options) {
  const auto found = std::find_if(entries().begin(), entries().end(),
                                  [&](const Entry& entry) { return entry.info.name == name; });
  if (found == entries().end()) {
    std::string names;
    for (const Entry& entry : entries()) names += (names.empty() ? "" : ", ") + entry.info.name;
    throw Error(Errc::invalid_argument,
                detail::concat("there is no program '", name, "' to check; there are ", names));
  }
  const ProgramInfo& info = found->info;
  ProgramOptions filled;
  filled.threads = take(info, "threads", options.threads, info.defaults.threads, 2, 1024);
  filled.blocks = take(info, "blocks", options.blocks, info.defaults.blocks, 1, 64);
  filled.persists = take(info, "persists", options.persists, info.defaults.persists, 1, 64);
  Program program = found->make(filled);
  program.name = name;
  return program;
}

}  // namespace holdfast::check
