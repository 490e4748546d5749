// Run by mpirun with 3 or more ranks: MPI's group, histories over it, and VELOC's interface. The
// exit status is 0 if all of it holds. Arguments: a folder.
#include <mpi.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/compat/veloc.h"
#include "holdfast/history.hpp"
#include "holdfast/mpi.hpp"

namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::History;
using holdfast::HistoryOptions;
using std::chrono::milliseconds;

constexpr milliseconds kLong{30'000};

void expect(bool holds, const char* what, int line) {
  if (holds) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "rank %d: line %d: %s\n", rank, line, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}
#define EXPECT(condition) expect(condition, #condition, __LINE__)

std::string content(int rank, int round) {
  return std::string(static_cast<std::size_t>((rank + round) % 4) * 10'000,
                     static_cast<char>('a' + (rank + round) % 26));
}

void test_group() {
  const auto group = holdfast::mpi_ranks(MPI_COMM_WORLD);
  for (int round = 0; round < 20; ++round) {
    const std::string own = content(group->rank(), round);
    const auto all = group->all_gather(std::as_bytes(std::span(own)), kLong);
    EXPECT(all.size() == static_cast<std::size_t>(group->size()));
    for (int rank = 0; rank < group->size(); ++rank) {
      const auto& bytes = all[static_cast<std::size_t>(rank)];
      EXPECT(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) ==
             content(rank, round));
    }
  }
  EXPECT(holdfast::map_ranks(*group, kLong).node_size == group->size());
}

void test_history(const std::string& folder) {
  HistoryOptions options;
  options.ranks = holdfast::mpi_ranks(MPI_COMM_WORLD);
  options.disk = folder + "/history";
  options.node_host_bytes = 4 << 20;
  const auto rank = static_cast<std::uint64_t>(options.ranks->rank());
  std::vector<std::uint64_t> field(1000);
  holdfast::Stream stream;
  for (std::uint64_t life = 0; life < 3; ++life) {
    History history = History::open(options);
    history.protect("field", field.data(), field.size(), holdfast::BufferMemory::host);
    EXPECT(history.steps().size() == life);
    if (life > 0) {
      history.restore(life - 1, stream, true);
      EXPECT(field[999] == 100 * (life - 1) + rank);
    }
    field.assign(field.size(), 100 * life + rank);
    history.wait_for_all(history.save(life, stream));
    EXPECT(history.latest_of_all() == life);
    if (rank == 1) history.save(1000 + life, stream);  // that the others lack
    history.close();
  }
}

// As a program of VELOC's has it.
void test_veloc(const std::string& folder) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::string config = folder + "/veloc-" + std::to_string(rank) + ".cfg";
  std::ofstream(config) << "scratch = " << folder << "\nhost_cache = 1M\nmax_versions = 2\n";
  std::vector<double> field(1000);
  for (int life = 0; life < 2; ++life) {
    EXPECT(VELOC_Init(MPI_COMM_WORLD, config.c_str()) == VELOC_SUCCESS);
    EXPECT(VELOC_Mem_protect(0, field.data(), field.size(), sizeof(double)) == VELOC_SUCCESS);
    const int newest = VELOC_Restart_test("run", VELOC_RECOVER_ALL);
    EXPECT(newest == (life == 0 ? VELOC_FAILURE : 5));
    if (life > 0) {
      EXPECT(VELOC_Restart("run", newest) == VELOC_SUCCESS);
      EXPECT(field[7] == 5.0 + rank);
      EXPECT(VELOC_Restart_test("run", 5) == 4);
      EXPECT(VELOC_Restart_test("run", 4) == VELOC_FAILURE);  // the last two stay
    }
    for (int version = life == 0 ? 1 : 6; version <= (life == 0 ? 5 : 7); ++version) {
      field.assign(field.size(), version + rank);
      EXPECT(VELOC_Checkpoint("run", version) == VELOC_SUCCESS);
      EXPECT(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
    }
    EXPECT(VELOC_Finalize(1) == VELOC_SUCCESS);
  }
}

// One rank does not come: the others go on without waiting for it.
void test_late() {
  const auto group = holdfast::mpi_ranks(MPI_COMM_WORLD);
  if (group->rank() == 1) {
    std::this_thread::sleep_for(milliseconds(1500));
    return;
  }
  for (int twice = 0; twice < 2; ++twice) {
    try {
      group->all_gather({}, milliseconds(200));
      EXPECT(false);
    } catch (const Error& error) {
      EXPECT(error.code() == Errc::rank_lost);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 2) return 2;
  test_group();
  test_history(argv[1]);
  test_veloc(argv[1]);
  test_late();
  MPI_Finalize();
  return 0;
}
