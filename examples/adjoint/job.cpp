#include "adjoint/job.hpp"

#include <bit>
#include <charconv>
#include <iomanip>
#include <memory>
#include <optional>
#include <ostream>
#include <string_view>
#include <utility>

#include "adjoint/image.hpp"
#include "adjoint/progress.hpp"
#include "adjoint/stores.hpp"
#include "adjoint/velocity_file.hpp"
#include "holdfast/error.hpp"

namespace adjoint {

using holdfast::Errc;
using holdfast::Error;
using holdfast::Stream;
using holdfast::detail::concat;

const char* const kUsage =
    "usage: adjoint [--nx CELLS] [--nz CELLS] [--steps N] [--shots N] [--every N]\n"
    "               [--store memory|revolve|history] [--snapshots N]\n"
    "               [--gpu-cache MIB] [--host-cache MIB] [--host-region FILE] [--folder FOLDER]\n"
    "               [--compress] [--image FILE.pgm] [--region FILE] [--points N] [--verbose]\n"
    "               [--check-gradient]\n"
    "               [--velocity FILE --spacing METRES]\n"
    "Migrates shots over a layered model and writes the image.\n"
    "--velocity: takes the model from a file, float32 in m/s, row by row from the top; --spacing "
    "is\n"
    "the side of its cells, 10.\n"
    "--every: makes the image of every N-th time step, and keeps only those.\n"
    "--store: what keeps the forward wavefields; revolve keeps --snapshots of them, and computes\n"
    "the others again; history keeps all, in caches of the GPU and the host and in a folder.\n"
    "--compress: keeps them in 16 bits a value, and nothing of what is still.\n"
    "--host-region: keeps the host's cache there, which then outlives the process.\n"
    "--region: keeps what is done there; a killed run with the same region goes on from it; also\n"
    "within a shot, with a history in a folder or a host region, from every N-th step of the "
    "image\n"
    "(--points, 50).\n"
    "--verbose: prints those points as they are saved.\n"
    "--check-gradient: compares the gradient of one shot with finite differences instead.\n";

namespace {

constexpr double kBlur = 6.0;  // cells, of the model that is migrated with

std::uint64_t number(const std::string& option, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  throw Error(Errc::invalid_argument, concat(option, " ", text, ": give a whole number"));
}

double metres(const std::string& option, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 1e-3 && value <= 1e6) {
    return value;
  }
  throw Error(Errc::invalid_argument, concat(option, " ", text, ": give metres, 0.001 to 10^6"));
}

std::uint64_t mebibytes(const std::string& option, const std::string& text) {
  const std::uint64_t value = number(option, text);
  if (value <= 1 << 24) return value;
  throw Error(Errc::invalid_argument, concat(option, " ", text, ": give MiB, at most ", 1 << 24));
}

// A survey and the models that go with it.
struct Setting {
  explicit Setting(const Options& options) {
    const std::vector<double> velocity =
        options.velocity.empty() ? layered_velocity(options.nx, options.nz)
                                 : read_velocity(options.velocity, options.nx, options.nz);
    const Scale scale = options.velocity.empty()
                            ? Scale{}
                            : scale_of(velocity, options.spacing == 0 ? 10.0 : options.spacing);
    survey =
        make_survey(options.nx, options.nz, options.steps, options.shots, options.every, scale);
    truth = courant2(survey, velocity);
    model = courant2(survey, smoothed(velocity, options.nx, options.nz, kBlur));
  }
  // FNV-1a (Fowler, Noll, Vo) of the model, a word at a time.
  std::uint64_t checksum() const {
    std::uint64_t sum = 0xcbf29ce484222325;
    for (const double value : truth) {
      sum = (sum ^ std::bit_cast<std::uint64_t>(value)) * 0x100000001b3;
    }
    return sum;
  }
  Survey survey;
  std::vector<double> truth, model;  // courant2
};

template <class Real>
std::unique_ptr<SnapshotStore> store_for(const Options& options, Solver<Real>& solver,
                                         std::optional<Resumption> resumption = std::nullopt) {
  auto store =
      make_store({options.store, options.snapshots,
                  [&solver](std::uint64_t step, Stream& stream) { solver.advance(step, stream); },
                  options.gpu_cache << 20, options.host_cache << 20, options.folder,
                  options.host_region, std::move(resumption)});
  solver.check(*store);
  return store;
}

std::string megabytes(std::uint64_t bytes) {
  return concat(std::fixed, std::setprecision(1), static_cast<double>(bytes) / 1e6, " MB");
}

// Whoever reads it may kill the program at once.
void say(std::ostream& out, const std::string& head, Pass pass, std::uint64_t step) {
  out << head << (pass == Pass::forward ? "forward" : "backward") << " pass, step " << step << "\n"
      << std::flush;
}

int migrate(const Options& options, std::ostream& out) {
  Setting setting(options);
  Stream stream;
  Misfit<float> misfit(stream, setting.survey, setting.truth, options.compress);
  SumBuffers<float> sums(setting.survey.grid.cells);
  std::optional<Progress> progress;
  std::optional<Resumption> resumption;
  std::uint64_t shot = 0;
  if (!options.region.empty()) {
    const bool on_gpu = holdfast::backend::name() == std::string_view("cuda");
    const RunSettings settings{options.nx,       options.nz, options.steps, options.shots,
                               options.compress, on_gpu,     options.every, setting.checksum()};
    progress.emplace(options.region, settings, sums, stream);
    shot = progress->restore(stream);
    if (shot != 0) out << shot << " of " << options.shots << " shots were done\n" << std::flush;
    resumption = Resumption{progress->run(), options.points, {}};
    if (options.verbose) {
      resumption->on_point = [&](Pass pass, std::uint64_t step) {
        say(out, "point: ", pass, step);
      };
    }
  }
  const auto store = store_for(options, misfit.solver(), std::move(resumption));
  misfit.on_place([&](std::uint64_t number, const ShotPlace& place) {
    const std::string head = concat("shot ", number + 1, " goes on from the ");
    if (place.left < setting.survey.imaged()) {
      say(out, head, Pass::backward, place.left);
    } else if (place.from != 0) {
      say(out, head, Pass::forward, place.from);
    }
  });
  for (; shot < options.shots; ++shot) {
    const double value = misfit.gradient(stream, setting.model, shot, *store, sums.sums());
    if (progress) progress->save(stream, shot + 1);
    if (ShotPoints* const points = store->points()) points->forget();
    out << "shot " << shot + 1 << " of " << options.shots << ": misfit " << std::scientific
        << std::setprecision(3) << value << ", snapshots " << megabytes(store->most_bytes()) << "\n"
        << std::flush;
  }
  const Image image =
      migrated(setting.survey, to_host(stream, sums.correlation.data(), sums.correlation.size()),
               to_host(stream, sums.illumination.data(), sums.illumination.size()));
  if (!options.image.empty()) {
    write_file(options.image, greymap(image));
    out << "image: " << options.image << ", " << image.nx << " x " << image.nz << " cells\n";
  }
  if (ShotPoints* const points = store->points()) points->forget();
  if (progress) progress->close();
  return 0;
}

// The sensitivity of the first shot.
template <class Real>
std::vector<double> sensitivity(const Options& options, const Setting& setting, Stream& stream,
                                bool compress, std::uint64_t& most_bytes) {
  Misfit<Real> misfit(stream, setting.survey, setting.truth, compress);
  SumBuffers<Real> sums(setting.survey.grid.cells);
  const auto store = store_for(options, misfit.solver());
  misfit.gradient(stream, setting.model, 0, *store, sums.sums());
  most_bytes = store->most_bytes();
  return to_host(stream, sums.sensitivity.data(), sums.sensitivity.size());
}

int check_gradient(const Options& options, std::ostream& out) {
  constexpr double kOrder = 1.95;
  const Setting setting(options);
  Stream stream;
  std::uint64_t exact_bytes = 0, bytes = 0;
  const std::vector<double> exact =
      sensitivity<double>(options, setting, stream, false, exact_bytes);
  Misfit<double> misfit(stream, setting.survey, setting.truth);
  const TaylorTest test =
      taylor_test([&](const std::vector<double>& model) { return misfit.of(stream, model, 0); },
                  setting.model, exact, 1);
  out << "in double precision, c^2 changed by up to h of itself in every cell:\n"
      << "       h   without the gradient   with it\n"
      << std::scientific << std::setprecision(2);
  for (const TaylorLine& line : test.lines) {
    out << std::setw(8) << line.h << std::setw(23) << line.without << std::setw(10) << line.with
        << "\n";
  }
  out << std::fixed << "order         " << std::setw(14) << test.order_without << std::setw(10)
      << test.order_with << "\n";
  const auto compare = [&](const char* what, bool compress) {
    const double error =
        relative_error(sensitivity<float>(options, setting, stream, compress, bytes), exact);
    out << what << ": relative error " << std::scientific << std::setprecision(1) << error
        << ", snapshots " << megabytes(bytes) << "\n";
  };
  compare("in single precision", false);
  if (options.compress) compare("compressed", true);
  const bool holds = test.order_with >= kOrder;
  out << (holds ? "the gradient holds\n" : "the gradient does not hold\n");
  return holds ? 0 : 1;
}

}  // namespace

Options parse(int argc, const char* const* argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--compress") {
      options.compress = true;
      continue;
    }
    if (option == "--verbose") {
      options.verbose = true;
      continue;
    }
    if (option == "--check-gradient") {
      options.check_gradient = true;
      continue;
    }
    if (i + 1 == argc) {
      throw Error(Errc::invalid_argument,
                  concat(option, " is no option, or has no value\n", kUsage));
    }
    const std::string value = argv[++i];
    if (option == "--nx") {
      options.nx = number(option, value);
    } else if (option == "--nz") {
      options.nz = number(option, value);
    } else if (option == "--steps") {
      options.steps = number(option, value);
    } else if (option == "--every") {
      options.every = number(option, value);
    } else if (option == "--shots") {
      options.shots = number(option, value);
    } else if (option == "--store") {
      options.store = value;
    } else if (option == "--snapshots") {
      options.snapshots = number(option, value);
      if (options.snapshots == 0) {
        throw Error(Errc::invalid_argument, "--snapshots 0: give one or more");
      }
    } else if (option == "--gpu-cache") {
      options.gpu_cache = mebibytes(option, value);
    } else if (option == "--host-cache") {
      options.host_cache = mebibytes(option, value);
    } else if (option == "--host-region") {
      options.host_region = value;
    } else if (option == "--velocity") {
      options.velocity = value;
    } else if (option == "--spacing") {
      options.spacing = metres(option, value);
    } else if (option == "--points") {
      options.points = number(option, value);
      if (options.points == 0) throw Error(Errc::invalid_argument, "--points 0: give 1 or more");
    } else if (option == "--folder") {
      options.folder = value;
    } else if (option == "--image") {
      options.image = value;
    } else if (option == "--region") {
      options.region = value;
    } else {
      throw Error(Errc::invalid_argument, concat("there is no option ", option, "\n", kUsage));
    }
  }
  return options;
}

int run(const Options& options, std::ostream& out) {
  if (options.spacing != 0 && options.velocity.empty()) {
    throw Error(Errc::invalid_argument,
                "--spacing without --velocity: the layered model has cells of 10 m: leave it away");
  }
  if (options.check_gradient && options.every != 1) {
    throw Error(Errc::invalid_argument,
                "--check-gradient with --every: the gradient takes every step: leave --every away");
  }
  return options.check_gradient ? check_gradient(options, out) : migrate(options, out);
}

}  // namespace adjoint
