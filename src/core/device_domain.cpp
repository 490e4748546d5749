// Memory of the device, standing in for persistent memory on board the GPU.
#include <vector>

#include "core/domain.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::core {

namespace {

class DeviceMedium : public Medium {
 public:
  explicit DeviceMedium(std::uint64_t size)
      : memory_(size), metadata_(kMetadataBytes / sizeof(Page)) {}

  std::byte* base() const override { return memory_.data(); }
  std::uint64_t size() const override { return memory_.size(); }
  std::uint64_t max_size() const override { return memory_.size(); }
  // The host cannot reach device memory with plain stores, and nothing would find a directory
  // there again: it is kept beside.
  std::byte* metadata() const override { return const_cast<Page&>(metadata_.front()).bytes; }

  void grow(std::uint64_t) override {
    throw Error(Errc::unsupported,
                "a device region cannot grow: its memory cannot be enlarged in place; create it "
                "with the size that it needs");
  }

  void zero(std::uint64_t offset, std::uint64_t bytes) override {
    Stream stream;
    fill_async(stream, memory_.data() + offset, 0, bytes);
    stream.synchronize();
  }

  Guarantee guarantee() const override {
    return {Rung::none, Rung::none,
            "a device region is volatile memory of the GPU: it ends with the process"};
  }

 private:
  struct alignas(kPage) Page {
    std::byte bytes[kPage];
  };
  DeviceBuffer<std::byte> memory_;
  std::vector<Page> metadata_;
};

std::unique_ptr<RegionDomain> create(const NewRegion& region) {
  return std::make_unique<InPlaceDomain>(Domain::device, region.path,
                                         formatted(std::make_unique<DeviceMedium>(region.size)),
                                         region.options.medium);
}

}  // namespace

const DomainKind kDeviceDomain{.domain = Domain::device, .name = "device", .create = create};

}  // namespace holdfast::core
