// Two iterations of the diffusion, each an operation: recovery goes on where they were cut off.
#include <memory>
#include <vector>

#include "checking/sized_offer.hpp"
#include "holdfast/kernel.hpp"
#include "srad/diffusion.hpp"

namespace holdfast::check {
namespace {

constexpr std::uint64_t kIterations = 2;

struct Expected {
  srad::Frame frame;
  std::vector<float> input;
  std::vector<float> image;
  std::vector<float> coefficients;
};

void diffuse(Stream& stream, const srad::Durable& durable, const Expected& expected,
             Session* session) {
  srad::Diffusion diffusion(stream, expected.frame, durable, true, false);
  const std::uint64_t done = diffusion.iterations_done();
  diffusion.load(done, expected.input);
  for (std::uint64_t i = done; i < kIterations; ++i) {
    if (session) session->start();
    diffusion.iterate(i);
    stream.synchronize();
    if (session) session->acknowledge();
  }
}

// Each block has two tiles, and each of its threads a quad of either: two persists, so that half as
// many threads as asked for make as many states. What a run that is not cut off ends in.
std::shared_ptr<Expected> expect(const Sizes& sizes) {
  auto expected = std::make_shared<Expected>();
  srad::Frame& frame = expected->frame;
  frame.rows = 2 * sizes.blocks;
  frame.threads = (sizes.threads + 1) / 2;
  frame.columns = frame.threads * srad::kQuad;
  frame.region_rows = frame.rows;
  frame.region_columns = 2;
  frame.tile = frame.columns;
  frame.most_blocks = sizes.blocks;
  const std::uint64_t pixels = frame.pixels();
  for (std::uint64_t i = 0; i < pixels; ++i) {
    expected->input.push_back(1.0f + static_cast<float>(i * 7 % 5) / 4);
  }
  const PinnedBuffer<float> buffers[] = {PinnedBuffer<float>(pixels), PinnedBuffer<float>(pixels),
                                         PinnedBuffer<float>(pixels)};
  for (const auto& buffer : buffers) std::fill_n(buffer.data(), pixels, 0.0f);
  const PinnedBuffer<std::uint32_t> stamps(frame.tiles());
  std::fill_n(stamps.data(), stamps.size(), 0u);
  Stream stream;
  diffuse(stream, {{buffers[0].data(), buffers[1].data()}, buffers[2].data(), stamps.data()},
          *expected, nullptr);
  const float* const image = buffers[kIterations % 2].data();
  expected->image.assign(image, image + pixels);
  expected->coefficients.assign(buffers[2].data(), buffers[2].data() + pixels);
  return expected;
}

template <class T>
T* object(Region& region, const char* name) {
  return static_cast<T*>(region.address(region.object(name)));
}

srad::Durable durable_of(Region& region) {
  return {{object<float>(region, "image.even"), object<float>(region, "image.odd")},
          object<float>(region, "coefficients"),
          object<std::uint32_t>(region, "stamps")};
}

// An item is a pixel, and then a coefficient.
std::string verify(Region& region, const Expected& expected, const History& history,
                   std::uint64_t item) {
  const std::uint64_t pixels = expected.frame.pixels();
  const bool is_pixel = item < pixels;
  const std::uint64_t i = is_pixel ? item : item - pixels;
  const srad::Durable durable = durable_of(region);
  const float stored = is_pixel ? durable.images[kIterations % 2][i] : durable.coefficients[i];
  const float wanted = is_pixel ? expected.image[i] : expected.coefficients[i];
  if (stored == wanted) return {};
  return detail::concat(is_pixel ? "pixel " : "coefficient ", i, " is ", stored, ", and should be ",
                        wanted, ", ", history.acknowledged, " iterations promised");
}

Program make(const Sizes& sizes) {
  const auto expected = expect(sizes);
  const std::uint64_t pixels = expected->frame.pixels();
  Program program;
  program.set_up = [=](Region& region) {
    region.allocate<float>("image.even", pixels);
    region.allocate<float>("image.odd", pixels);
    region.allocate<float>("coefficients", pixels);
    region.allocate<std::uint32_t>("stamps", expected->frame.tiles());
  };
  program.run = [=](Region& region, Session& session) {
    Stream stream;
    diffuse(stream, durable_of(region), *expected, &session);
  };
  program.recover = [=](Region& region) {
    Stream stream;
    diffuse(stream, durable_of(region), *expected, nullptr);
  };
  program.items = 2 * pixels;
  program.verify = [=](Region& region, const History& history, std::uint64_t item) {
    return verify(region, *expected, history, item);
  };
  return program;
}

}  // namespace
}  // namespace holdfast::check

namespace srad {

std::vector<holdfast::check::Offer> check_programs() {
  return {holdfast::check::sized_offer("srad",
                                       "two iterations of the diffusion, recovered by going on",
                                       {4, 2, 0}, holdfast::check::make, {{2, 2, 0}, {3, 2, 0}})};
}

}  // namespace srad
