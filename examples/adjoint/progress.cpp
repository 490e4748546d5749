#include "adjoint/progress.hpp"

#include "holdfast/error.hpp"

namespace adjoint {

using holdfast::Checkpoint;
using holdfast::Errc;
using holdfast::Error;
using holdfast::Region;
using holdfast::Stream;
using holdfast::detail::concat;

Region Progress::open(const std::string& path, std::uint64_t sum_bytes) {
  holdfast::RegionOptions options;
  options.size =
      Checkpoint::region_bytes(3 * sum_bytes, 3) + Checkpoint::region_bytes(sizeof(RunSettings), 1);
  return Region::open_or_create(path, options);
}

Progress::Progress(const std::string& path, const RunSettings& settings, SumBuffers<float>& sums,
                   Stream& stream)
    : region_(open(path, sums.sensitivity.bytes())), checkpoint_(region_, "adjoint") {
  checkpoint_.add("settings", "settings", &stored_, 1, holdfast::BufferMemory::host);
  checkpoint_.add("sums", "sensitivity", sums.sensitivity.data(), sums.sensitivity.size());
  checkpoint_.add("sums", "correlation", sums.correlation.data(), sums.correlation.size());
  checkpoint_.add("sums", "illumination", sums.illumination.data(), sums.illumination.size());
  check_settings(settings, stream);
}

// The settings are saved before anything else is.
void Progress::check_settings(const RunSettings& settings, Stream& stream) {
  const bool used = !region_.objects().empty();
  if (used && checkpoint_.stored("settings").empty()) {
    throw Error(Errc::conflict, concat("adjoint: the region ", region_.path(),
                                       " holds something else: give --region another path"));
  }
  if (!used || !checkpoint_.restore(stream, "settings")) {
    stored_ = settings;
    checkpoint_.save(stream, "settings");
    stream.synchronize();
    return;
  }
  const auto check = [&](const char* what, std::uint64_t then, std::uint64_t now) {
    if (then == now) return;
    throw Error(Errc::conflict, concat("adjoint: the region ", region_.path(), " is of a run with ",
                                       what, " ", then, ", and this one has ", now,
                                       ": run with the same, or give --region another path"));
  };
  check("--nx", stored_.nx, settings.nx);
  check("--nz", stored_.nz, settings.nz);
  check("--steps", stored_.steps, settings.steps);
  check("--shots", stored_.shots, settings.shots);
  check("--compress", stored_.compress, settings.compress);
  check("GPUs", stored_.gpu, settings.gpu);
}

std::uint64_t Progress::restore(Stream& stream) {
  return checkpoint_.restore(stream, "sums").value_or(0);
}

void Progress::save(Stream& stream, std::uint64_t shots_done) {
  checkpoint_.save(stream, "sums", shots_done);
  region_.commit(stream).wait();
}

}  // namespace adjoint
