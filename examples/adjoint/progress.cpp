#include "adjoint/progress.hpp"

#include <optional>
#include <random>

#include "holdfast/error.hpp"

namespace adjoint {

using holdfast::Checkpoint;
using holdfast::Errc;
using holdfast::Error;
using holdfast::Region;
using holdfast::Stream;
using holdfast::detail::concat;

namespace {

constexpr std::uint64_t kRoom = 1u << 20;  // for a region's own tables

// The settings of the run that the region is of, which have to be these. It is not changed.
std::optional<RunSettings> held(Region& region, const RunSettings& settings) {
  if (region.objects().empty()) return std::nullopt;
  if (!region.contains("adjoint/settings")) {
    throw Error(Errc::conflict, concat("adjoint: the region ", region.path(),
                                       " holds something else: give --region another path"));
  }
  RunSettings stored;
  Checkpoint checkpoint(region, "adjoint");
  checkpoint.add("settings", "settings", &stored, 1, holdfast::BufferMemory::host);
  Stream stream;
  if (!checkpoint.restore(stream, "settings")) return std::nullopt;  // killed before it saved them
  const auto check = [&](const char* what, std::uint64_t then, std::uint64_t now) {
    if (then == now) return;
    throw Error(Errc::conflict, concat("adjoint: the region ", region.path(), " is of a run with ",
                                       what, " ", then, ", and this one has ", now,
                                       ": run with the same, or give --region another path"));
  };
  check("--nx", stored.nx, settings.nx);
  check("--nz", stored.nz, settings.nz);
  check("--steps", stored.steps, settings.steps);
  check("--shots", stored.shots, settings.shots);
  check("--compress", stored.compress, settings.compress);
  check("GPUs", stored.gpu, settings.gpu);
  check("--every", stored.every, settings.every);
  check("a velocity model of checksum", stored.model, settings.model);
  return stored;
}

// A refused region must stay as it is, and one that was opened to be written to does not.
void look_before(const std::string& path, const RunSettings& settings) {
  holdfast::OpenOptions options;
  options.mode = holdfast::OpenMode::read_only;
  try {
    Region region = Region::open(path, options);
    held(region, settings);
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
  }
}

}  // namespace

Region Progress::open(const std::string& path, const RunSettings& settings,
                      std::uint64_t sum_bytes) {
  look_before(path, settings);
  holdfast::RegionOptions options;
  options.size = Checkpoint::region_bytes(3 * sum_bytes, 3) +
                 Checkpoint::region_bytes(sizeof(RunSettings), 1) + kRoom;
  return Region::open_or_create(path, options);
}

// The settings are saved before anything else is.
Progress::Progress(const std::string& path, const RunSettings& settings, SumBuffers<float>& sums,
                   Stream& stream)
    : settings_(settings),
      region_(open(path, settings, sums.sensitivity.bytes())),
      checkpoint_(region_, "adjoint") {
  checkpoint_.add("settings", "settings", &settings_, 1, holdfast::BufferMemory::host);
  checkpoint_.add("sums", "sensitivity", sums.sensitivity.data(), sums.sensitivity.size());
  checkpoint_.add("sums", "correlation", sums.correlation.data(), sums.correlation.size());
  checkpoint_.add("sums", "illumination", sums.illumination.data(), sums.illumination.size());
  if (const auto stored = held(region_, settings)) {
    settings_ = *stored;
    return;
  }
  std::random_device random;
  settings_.run = std::uint64_t{random()} << 32 | random();
  checkpoint_.save(stream, "settings");
  stream.synchronize();
}

std::uint64_t Progress::restore(Stream& stream) {
  return checkpoint_.restore(stream, "sums").value_or(0);
}

void Progress::save(Stream& stream, std::uint64_t shots_done) {
  checkpoint_.save(stream, "sums", shots_done);
  region_.commit(stream).wait();
}

}  // namespace adjoint
