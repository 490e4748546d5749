#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "srad/diffusion.hpp"
#include "srad/srad.hpp"
#include "workload/inputs.hpp"

namespace srad {
namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;
using workload::Array;
using workload::Backing;
using workload::Mode;
using workload::Settings;
using workload::Size;

constexpr const char* kRealInput = "srad/image.pgm";

struct Defaults {
  std::uint32_t rows;
  std::uint32_t columns;
  std::uint64_t iterations;
};

Defaults defaults(Size size) {
  switch (size) {
    case Size::test:
      return {64, 60, 8};
    case Size::real:
      return {502, 458, 100};
    case Size::paper:
      break;
  }
  // Three arrays of 1 GiB: the 3 GB of Table 1, whose 128 K x 1 K pixels are with the four
  // differences that GPM's artifact keeps as well.
  return {256 * 1024, 1024, 10};
}

Image generated_input(const Settings& settings, std::string& words) {
  const Defaults usual = defaults(settings.size);
  const auto side = [&](const char* name, std::uint32_t otherwise) {
    return static_cast<std::uint32_t>(
        workload::number_option(settings, name, otherwise, 1, kMostSide));
  };
  const std::uint32_t rows = side("rows", usual.rows);
  const std::uint32_t columns = side("columns", usual.columns);
  if (std::uint64_t{rows} * columns > kMostPixels) {
    throw Error(Errc::invalid_argument, concat("options rows=", rows, " and columns=", columns,
                                               ": give at most ", kMostPixels, " pixels"));
  }
  words = "generated: speckled discs";
  return make_speckled(rows, columns, settings.seed);
}

Image read_or_make(const Settings& settings, std::string& words) {
  if (const auto named = workload::read_named_input(
          settings, "image", "a PGM in text form (P2), such as data/srad/image.pgm of Rodinia")) {
    words = named->path;
    return parse_pgm(named->text, named->path);
  }
  if (settings.size == Size::real) {
    if (const auto text = workload::read_input(settings.data_folder, kRealInput)) {
      words = "ultrasound image";
      return parse_pgm(*text, kRealInput);
    }
  }
  return generated_input(settings, words);
}

class Srad final : public workload::Workload {
 public:
  explicit Srad(const Settings& settings) : mode_(settings.mode) {
    image_ = read_or_make(settings, words_);
    frame_.rows = image_.rows;
    frame_.columns = image_.columns;
    frame_.tile = usual_tile(frame_.pixels());
    lambda_ = static_cast<double>(workload::number_option(settings, "lambda", 50, 1, 100)) / 100;
    const std::uint64_t region = workload::number_option(settings, "region", 32, 1, 4096);
    frame_.region_rows = static_cast<std::uint32_t>(std::min<std::uint64_t>(region, image_.rows));
    frame_.region_columns =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(region, image_.columns));
    frame_.lambda = static_cast<float>(lambda_);
    steps_ = settings.steps ? settings.steps : defaults(settings.size).iterations;
    if (steps_ > UINT32_MAX / 2 - 1) {
      throw Error(Errc::invalid_argument,
                  concat(steps_, " steps of srad: give at most ", UINT32_MAX / 2 - 1));
    }
    words_ += concat(", ", image_.columns, " x ", image_.rows, " pixels");
  }

  std::string input() const override { return words_; }
  std::uint64_t steps() const override { return steps_; }
  std::uint64_t medium_bytes() const override {
    return 3 * frame_.pixels() * sizeof(float) + frame_.tiles() * sizeof(std::uint32_t);
  }
  std::uint64_t kernel_bytes() const override {
    if (by_kernels_) return by_kernels_->bytes_stored();
    return iterations_ * 2 * frame_.pixels() * sizeof(float);
  }

  void prepare(Backing& backing) override {
    backing_ = &backing;
    images_[0] = backing.array<float>("image.even", frame_.pixels());
    images_[1] = backing.array<float>("image.odd", frame_.pixels());
    coefficients_ = backing.array<float>("coefficients", frame_.pixels());
    stamps_ = backing.array<std::uint32_t>("stamps", frame_.tiles());
    durable_ = {{images_[0].data, images_[1].data}, coefficients_.data, stamps_.data};
    if (mode_ == Mode::cpu) return;
    by_kernels_.emplace(backing.stream(), frame_, durable_, workload::kernel_persists(mode_),
                        !workload::stores_directly(mode_));
  }

  std::uint64_t resume() override {
    std::uint64_t done = backing_->progress();
    if (workload::kernel_persists(mode_)) {
      done = by_kernels_->iterations_done();  // and more of the next one
    }
    if (by_kernels_) {
      by_kernels_->load(done, done == 0 ? intensities(image_) : std::vector<float>());
    } else if (done == 0) {
      backing_->fill(images_[0], intensities(image_));
    }
    return done;
  }

  void step(std::uint64_t number) override {
    if (!by_kernels_) {
      iterate_on_cpu(frame_, durable_, number, backing_->cpu_threads());
    } else {
      by_kernels_->iterate(number);
    }
    ++iterations_;
    backing_->publish(coefficients_);
    backing_->publish(images_[(number + 1) % 2]);
    if (!workload::kernel_persists(mode_)) backing_->set_progress(number + 1);
  }

  workload::Digest digest() override {
    workload::Digester all;
    for (const auto* pixels : {&images_[steps_ % 2], &coefficients_}) {
      backing_->for_durable(
          *pixels, [&](const unsigned char* bytes, std::uint64_t count) { all.add(bytes, count); });
    }
    return all.finish();
  }
  std::string verify() override;

 private:
  Mode mode_;
  Image image_;
  Frame frame_;
  std::string words_;
  double lambda_ = 0;
  std::uint64_t steps_ = 0;

  Backing* backing_ = nullptr;
  Array<float> images_[2];
  Array<float> coefficients_;
  Array<std::uint32_t> stamps_;
  Durable durable_;
  std::optional<Diffusion> by_kernels_;
  std::uint64_t iterations_ = 0;  // by this process
};

std::string Srad::verify() {
  const Diffused expected =
      oracle(image_, steps_, lambda_, std::max(frame_.region_rows, frame_.region_columns));
  const std::vector<float> image = backing_->durable(images_[steps_ % 2]);
  for (std::size_t i = 0; i < image.size(); ++i) {
    // Written so that what is no number fails.
    if (!(std::abs(image[i] - expected.image[i]) <= kImageTolerance * expected.image[i])) {
      return concat("pixel ", i, " is ", image[i], ", and should be ", expected.image[i]);
    }
  }
  const std::vector<float> coefficients = backing_->durable(coefficients_);
  for (std::size_t i = 0; i < coefficients.size(); ++i) {
    if (!(std::abs(coefficients[i] - expected.coefficients[i]) <= kCoefficientTolerance)) {
      return concat("the coefficient of pixel ", i, " is ", coefficients[i], ", and should be ",
                    expected.coefficients[i]);
    }
  }
  return {};
}

}  // namespace

workload::Info info() {
  return {
      .name = "srad",
      .summary = "speckle-reducing anisotropic diffusion with persistent image and coefficients",
      .kind = workload::Info::Class::native,
      .table_row = 8,
      .options = {{"image",
                   "file with a PGM in text form, .gz and .xz too (default: an ultrasound image)"},
                  {"region",
                   "side of the even square in the first corner that shows speckle (default 32)"},
                  {"lambda", "step size of the diffusion in percent, 1 to 100 (default 50)"},
                  {"rows", "of a generated image (default 64, 502 or 262,144 by size)"},
                  {"columns", "of a generated image (default 60, 458 or 1,024 by size)"}},
      .make = [](const Settings& settings) { return std::make_unique<Srad>(settings); },
  };
}

std::vector<workload::Info> workloads() { return {info()}; }

}  // namespace srad
