#include <bit>
#include <cmath>
#include <utility>

#include "holdfast/error.hpp"
#include "lenet/lenet.hpp"
#include "lenet/lenet_oracle.hpp"
#include "workload/inputs.hpp"

namespace lenet {
namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;
using workload::number_option;
using workload::Settings;
using workload::Size;

constexpr std::uint32_t kHoldBack = 5;  // every fifth
constexpr const char* kImages = "mnist/t10k-images-idx3-ubyte.gz";
constexpr const char* kLabels = "mnist/t10k-labels-idx1-ubyte.gz";
constexpr double kAccuracy = 0.95;

// What the size says, where options do not.
struct Defaults {
  Shape shape;
  std::uint32_t batch;
  std::uint64_t rate;  // in 1/10,000
  std::uint64_t passes, steps;
  std::uint32_t digits;  // at most
};

Defaults defaults(Size size) {
  switch (size) {
    case Size::test:
      return {{6, 16, 120}, 8, 1000, 2, 4, 200};
    case Size::real:
      return {{6, 16, 120}, 16, 1000, 10, 150, 10'000};
    default:
      return {{20, 50, 500}, 64, 1000, 10, 100, 10'000};
  }
}

Digits read_digits(const Settings& settings, std::uint32_t most) {
  workload::check_together(settings, {"images", "labels"});
  const auto images = workload::read_named_input(
      settings, "images",
      "an idx file of 28 x 28 images, such as MNIST's t10k-images-idx3-ubyte.gz");
  const auto labels = workload::read_named_input(
      settings, "labels", "an idx file of labels, such as MNIST's t10k-labels-idx1-ubyte.gz");
  if (images) return parse_idx(images->text, images->path, labels->text, labels->path);
  const auto found = workload::read_input(settings.data_folder, kImages);
  const auto found_labels = workload::read_input(settings.data_folder, kLabels);
  if (found && found_labels) return parse_idx(*found, kImages, *found_labels, kLabels);
  return draw_digits(most, settings.seed);
}

// |a - b| / |b|, as vectors [first, last).
template <class A>
double difference(const std::vector<A>& a, const std::vector<double>& b, std::size_t first,
                  std::size_t last) {
  double apart = 0, length = 0;
  for (std::size_t i = first; i < last; ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    length += b[i] * b[i];
  }
  return apart == 0 ? 0 : std::sqrt(apart / length);
}

Kernels kernels_of(const Settings& settings) {
  const Kernels kernels = workload::choice_option<Kernels>(
      settings, "kernels", {{"own", Kernels::own}, {"cudnn", Kernels::cudnn}});
  if (kernels != Kernels::cudnn) return kernels;
  if (settings.mode == workload::Mode::cpu) {
    throw Error(Errc::invalid_argument,
                "option kernels=cudnn: in mode cpu host threads train; leave it out");
  }
  std::string why;
  if (!cudnn_usable(&why)) throw Error(Errc::unsupported, concat("option kernels=cudnn: ", why));
  return kernels;
}

double share_right(const std::vector<std::uint8_t>& classes, const Digits& digits,
                   const std::vector<std::uint32_t>& places) {
  std::size_t right = 0;
  for (std::size_t i = 0; i < places.size(); ++i) right += classes[i] == digits.labels[places[i]];
  return static_cast<double>(right) / static_cast<double>(places.size());
}

}  // namespace

LeNet::LeNet(const Settings& settings)
    : size_(settings.size),
      mode_(settings.mode),
      seed_(settings.seed),
      copied_by_(workload::copied_by_option(settings)),
      kernels_(kernels_of(settings)) {
  const Defaults usual = defaults(settings.size);
  const auto option = [&](const char* name, std::uint64_t otherwise, std::uint64_t least,
                          std::uint64_t most) {
    return static_cast<std::uint32_t>(number_option(settings, name, otherwise, least, most));
  };
  shape_.channels1 = option("channels1", usual.shape.channels1, 1, 64);
  shape_.channels2 = option("channels2", usual.shape.channels2, 1, 128);
  shape_.hidden = option("hidden", usual.shape.hidden, 4, 2048);
  if (shape_.hidden % 4 != 0) {
    throw Error(Errc::invalid_argument,
                concat("option hidden=", shape_.hidden, ": give a multiple of 4"));
  }
  first_rate_ = static_cast<float>(option("rate", usual.rate, 1, 10'000)) / 10'000;
  descent_.batch = option("batch", usual.batch, 1, 4096);
  passes_ = option("passes", usual.passes, 1, 100'000);
  steps_ = settings.steps != 0 ? settings.steps : usual.steps;
  usual_passes_ = usual.passes * usual.steps;
  constexpr std::uint64_t kMostSteps = 1'000'000'000;
  if (steps_ > kMostSteps) {
    throw Error(Errc::invalid_argument, concat(steps_, " steps: give at most ", kMostSteps));
  }
  const std::uint32_t most = option("digits", usual.digits, 2 * kHoldBack, 100'000);
  digits_ = read_digits(settings, most);
  digits_.shorten(most);
  for (std::uint32_t i = 0; i < digits_.count(); ++i) {
    (i % kHoldBack == kHoldBack - 1 ? held_back_ : trained_on_).push_back(i);
  }
  if (held_back_.empty() || descent_.batch > trained_on_.size()) {
    throw Error(Errc::invalid_argument,
                concat("a batch of ", descent_.batch, " from ", trained_on_.size(),
                       " digits to train on: give a smaller batch, or more digits"));
  }
}

std::string LeNet::input() const {
  return concat(digits_.source, "; ", held_back_.size(), " of them held back; network ",
                shape_.channels1, "-", shape_.channels2, "-", shape_.hidden, "-", kClasses, ", ",
                shape_.parameters(), " weights and biases");
}

std::uint64_t LeNet::medium_bytes() const {
  return workload::Saver::medium_bytes(sizeof(float) * shape_.parameters(), 1) +
         sizeof(std::uint32_t);
}

std::unique_ptr<Trainer> LeNet::make_trainer(workload::Backing& backing) {
  if (mode_ == workload::Mode::cpu) {
    return make_host_trainer(backing.cpu_threads(), shape_, descent_, digits_);
  }
  if (kernels_ == Kernels::cudnn) {
    return make_cudnn_trainer(backing.stream(), shape_, descent_, digits_);
  }
  return make_kernel_trainer(backing.stream(), shape_, descent_, digits_);
}

std::map<std::string, std::string> LeNet::facts() const {
  const char* const kernels = mode_ == workload::Mode::cpu ? "host threads"
                              : kernels_ == Kernels::cudnn ? "cudnn"
                                                           : "own";
  return {{"kernels", kernels}, {"checkpoint", workload::copied_by_fact(mode_, copied_by_)}};
}

void LeNet::prepare(workload::Backing& backing) {
  backing_ = &backing;
  trainer_ = make_trainer(backing);
  kept_kernels_ = backing.array<std::uint32_t>("kernels", 1);
  const std::uint64_t bytes = sizeof(float) * shape_.parameters();
  saver_ =
      workload::Saver::make(backing, {{"parameters", trainer_->parameters(), bytes}}, copied_by_);
}

std::uint64_t LeNet::load() {
  const std::uint64_t done = saver_->restore();
  if (done == 0) trainer_->start(first_parameters());
  return done;
}

std::uint64_t LeNet::resume() {
  const std::uint64_t done = load();
  keep_kernels(done == 0);
  return done;
}

// What is kept stands before the first checkpoint does.
void LeNet::keep_kernels(bool is_new) {
  const bool by_cudnn = kernels_ == Kernels::cudnn;
  const std::uint32_t kept = backing_->read(kept_kernels_).front();
  if (kept == by_cudnn) return;
  if (!is_new) {
    const auto name = [](bool cudnn) { return cudnn ? "cudnn" : "own"; };
    throw Error(Errc::invalid_argument,
                concat("region '", backing_->region().path(), "' is of a training by kernels=",
                       name(kept != 0), ", and this is one by kernels=", name(by_cudnn),
                       ": give option kernels=", name(kept != 0), ", or another region"));
  }
  backing_->fill(kept_kernels_, {by_cudnn ? 1u : 0u});
}

void LeNet::step(std::uint64_t number) {
  train_step(number);
  saver_->save(number + 1);
}

void LeNet::train_step(std::uint64_t number) {
  std::vector<float> rates;
  rates.reserve(passes_);
  for (std::uint64_t i = 0; i < passes_; ++i) rates.push_back(rate(number * passes_ + i));
  trainer_->train(batches(number * passes_, passes_), rates);
}

float LeNet::rate(std::uint64_t number) const {
  const double done = static_cast<double>(number) / static_cast<double>(steps_ * passes_);
  return static_cast<float>(first_rate_ * (1 - done));
}

// Uniform, with a variance of one over the numbers that a sum takes in; biases 0.
std::vector<float> LeNet::first_parameters() const {
  Random random(seed_);
  std::vector<float> values(shape_.parameters(), 0.0f);
  const auto layer = [&](std::uint32_t first, std::uint32_t last, std::uint32_t inputs) {
    const float bound = std::sqrt(3.0f / static_cast<float>(inputs));
    for (std::uint32_t i = first; i < last; ++i) values[i] = random.between(-bound, bound);
  };
  layer(shape_.conv1(), shape_.conv1_bias(), kWindow);
  layer(shape_.conv2(), shape_.conv2_bias(), shape_.channels1 * kWindow);
  layer(shape_.dense1(), shape_.dense1_bias(), shape_.features());
  layer(shape_.dense2(), shape_.dense2_bias(), shape_.hidden);
  return values;
}

// Every epoch takes all digits once, in an order of its own.
std::vector<std::uint32_t> LeNet::batches(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint32_t> places;
  places.reserve(count * descent_.batch);
  for (std::uint64_t i = first * descent_.batch; i < (first + count) * descent_.batch; ++i) {
    const std::uint64_t epoch = i / trained_on_.size();
    if (epoch != epoch_) {
      epoch_ = epoch;
      order_ = trained_on_;
      Random random(seed_ + 0x9d5 * (epoch + 1));
      for (std::size_t k = order_.size(); k > 1; --k) {
        std::swap(order_[k - 1], order_[random.below(static_cast<std::uint32_t>(k))]);
      }
    }
    places.push_back(order_[i % trained_on_.size()]);
  }
  return places;
}

std::vector<std::uint32_t> LeNet::batch(std::uint64_t number) { return batches(number, 1); }

std::vector<float> LeNet::parameters() {
  load();
  return trainer_->read_parameters();
}

workload::Digest LeNet::digest() { return workload::digest_of(parameters()); }

double LeNet::accuracy() {
  load();
  return share_right(trainer_->classify(held_back_), digits_, held_back_);
}

std::string LeNet::verify_gradient(const std::vector<float>& parameters) {
  const std::vector<std::uint32_t> digits = batch(0);
  const std::vector<float> found = trainer_->gradient(digits);
  std::vector<double> expected;
  oracle::loss(shape_, {parameters.begin(), parameters.end()},
               {digits_.normalised(), digits_.labels}, digits, &expected);
  // A pooled maximum that single precision takes for another moves a share of one digit in one
  // place: far below what any fault of a layer does.
  constexpr double kTolerance = 5e-3;
  const std::pair<const char*, std::uint32_t> layers[] = {
      {"the first convolution", shape_.conv1()},
      {"the second convolution", shape_.conv2()},
      {"the first fully connected layer", shape_.dense1()},
      {"the second fully connected layer", shape_.dense2()},
      {"", shape_.parameters()}};
  for (std::size_t i = 0; i + 1 < std::size(layers); ++i) {
    const double apart = difference(found, expected, layers[i].second, layers[i + 1].second);
    // Written so that a NaN fails.
    if (!(apart <= kTolerance)) {
      return concat("the gradient of ", layers[i].first, " is off by ", apart,
                    " of its length; at most ", kTolerance, " is rounding");
    }
  }
  return "";
}

// The oracle's accuracy may differ where two classes are as good as equal.
std::string LeNet::verify_verdicts(const std::vector<float>& parameters) {
  constexpr std::size_t kMost = 200;  // the oracle is slow
  std::vector<std::uint32_t> some = held_back_;
  if (some.size() > kMost) some.resize(kMost);
  const std::vector<std::uint8_t> found = trainer_->classify(some);
  const std::vector<std::uint8_t> expected = oracle::classify(
      shape_, {parameters.begin(), parameters.end()}, {digits_.normalised(), digits_.labels}, some);
  std::size_t apart = 0;
  for (std::size_t i = 0; i < some.size(); ++i) apart += found[i] != expected[i];
  if (apart > some.size() / 100 + 1) {
    return concat(apart, " of ", some.size(), " digits are taken for others than by the oracle");
  }
  return "";
}

// The oracle trains, too, from the start.
std::string LeNet::verify_training(const std::vector<float>& parameters) {
  constexpr std::uint64_t kMost = 200;  // digits passed over; more would take long, and drift apart
  const std::uint64_t passes = steps_ * passes_;
  if (passes * descent_.batch > kMost) return "";
  const std::vector<float> first = first_parameters();
  const oracle::Examples examples{digits_.normalised(), digits_.labels};
  std::vector<double> expected(first.begin(), first.end());
  std::vector<double> gradient;
  for (std::uint64_t pass = 0; pass < passes; ++pass) {
    oracle::loss(shape_, expected, examples, batch(pass), &gradient);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] -= rate(pass) * gradient[i];
    }
  }
  std::vector<double> moved(first.size()), expected_moved(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    moved[i] = double{parameters[i]} - first[i];
    expected_moved[i] = expected[i] - first[i];
  }
  constexpr double kTolerance = 0.02;
  const double apart = difference(moved, expected_moved, 0, moved.size());
  if (!(apart <= kTolerance)) {
    return concat("the parameters moved otherwise than the oracle's, by ", apart,
                  " of the way; at most ", kTolerance, " is rounding");
  }
  return "";
}

std::string LeNet::verify_replay(const std::vector<float>& parameters) {
  trainer_->start(first_parameters());
  for (std::uint64_t step = 0; step < steps_; ++step) train_step(step);
  const std::vector<float> again = trainer_->read_parameters();
  for (std::size_t i = 0; i < again.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(again[i]) == std::bit_cast<std::uint32_t>(parameters[i])) {
      continue;
    }
    return concat("parameter ", i, " is ", parameters[i], ", and of the same training without ",
                  "checkpoints ", again[i]);
  }
  return "";
}

std::string LeNet::verify() {
  const std::uint64_t done = load();
  if (done != steps_) return concat("the last checkpoint is of step ", done, ", not ", steps_);
  const std::vector<float> durable = trainer_->read_parameters();
  std::string wrong = verify_gradient(durable);
  if (wrong.empty()) wrong = verify_verdicts(durable);
  if (wrong.empty()) wrong = verify_training(durable);
  if (wrong.empty()) wrong = verify_replay(durable);
  const bool trained =
      digits_.handwritten && size_ != Size::test && steps_ * passes_ >= usual_passes_;
  if (wrong.empty() && trained && accuracy() < kAccuracy) {
    wrong = concat("of the digits held back ", accuracy() * 100, " % are told right, fewer than ",
                   kAccuracy * 100, " %");
  }
  return wrong;
}

workload::Info info() {
  return {
      .name = "lenet",
      .summary = "LeNet trained on handwritten digits, with checkpoints of weights and biases",
      .kind = workload::Info::Class::checkpointing,
      .table_row = 3,
      .options = {{"checkpoint", workload::kCopiedByWords},
                  {"batch", "digits in a pass (default 8, 16 or 64, by size)"},
                  {"passes", "forward and backward passes between checkpoints (default 2 or 10)"},
                  {"rate", "learning rate at the start, in 1/10,000 (default 1,000); falls to 0"},
                  {"channels1", "outputs of the first convolution (default 6; paper 20)"},
                  {"channels2", "outputs of the second convolution (default 16; paper 50)"},
                  {"hidden",
                   "outputs of the first fully connected layer, a multiple of 4 (default 120; "
                   "paper 500)"},
                  {"kernels",
                   "own (default) or cudnn (CUDA backend): what trains, in all modes but cpu"},
                  {"digits", "digits at most, every fifth held back (default 200 or 10,000)"},
                  {"images", "idx file of 28 x 28 images, .gz or not; with labels"},
                  {"labels", "idx file of their labels"}},
      .make = [](const Settings& settings) { return std::make_unique<LeNet>(settings); },
  };
}

std::vector<workload::Info> workloads() { return {info()}; }

}  // namespace lenet
