// A listener that keeps every event with its bytes, of kernels alone or of the host as well.
#pragma once

#include <cstring>
#include <vector>

#include "holdfast/cpu/listener.hpp"

namespace holdfast::test {

struct Recorded {
  cpu::Event event;  // its pointers to values are not valid any more
  std::vector<unsigned char> value, new_value;

  std::uint64_t number() const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, value.data(), std::min(value.size(), sizeof bits));
    return bits;
  }
};

// Records while it lives.
class Recorder : public cpu::Listener {
 public:
  enum class Of { kernels, everything };
  explicit Recorder(Of of = Of::kernels) : of_(of) { cpu::set_listener(this); }
  ~Recorder() override { cpu::set_listener(nullptr); }

  void on_event(const cpu::Event& event) override {
    if (event.host && of_ == Of::kernels) return;
    Recorded record{event, {}, {}};
    if (event.value) record.value = bytes(event.value, event.size);
    if (event.new_value) record.new_value = bytes(event.new_value, event.size);
    events.push_back(std::move(record));
  }

  std::vector<Recorded> events;

 private:
  Of of_;
  static std::vector<unsigned char> bytes(const void* from, std::size_t size) {
    const auto* first = static_cast<const unsigned char*>(from);
    return {first, first + size};
  }
};

}  // namespace holdfast::test
