// A history in the order of a stream that another library made.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/history.hpp"
#include "support/error_of.hpp"

namespace {

using holdfast::copy_async;
using holdfast::DeviceBuffer;
using holdfast::Errc;
using holdfast::fill_async;
using holdfast::History;
using holdfast::PinnedBuffer;
using holdfast::Stream;
using holdfast::test::error_of;

bool is_cuda() { return std::string(holdfast::backend::name()) == "cuda"; }

TEST(BorrowedStream, IsRefusedWhereThereAreNoOthers) {
  if (is_cuda()) GTEST_SKIP() << "CUDA has streams of other libraries";
  EXPECT_EQ(error_of([] { Stream::borrow(nullptr); }, {"make a Stream"}), Errc::unsupported);
}

TEST(BorrowedStream, OrdersSavesAndRestoresAmongTheWorkOfItsOwner) {
  if (!is_cuda()) GTEST_SKIP() << "the CPU backend has no streams of other libraries";
  constexpr std::size_t kBytes = 8 << 20;
  Stream owner;
  DeviceBuffer<std::uint8_t> array(kBytes);
  PinnedBuffer<std::uint8_t> seen(kBytes);
  History history = History::open({.gpu_bytes = 4 * kBytes});
  history.protect("array", array.data(), kBytes);
  {
    Stream borrowed = Stream::borrow(owner.native());
    EXPECT_EQ(borrowed.native(), owner.native());
    for (const int value : {1, 2, 3}) {
      fill_async(owner, array.data(), value, kBytes);
      history.save(static_cast<std::uint64_t>(value), borrowed);
    }
  }  // the owner's goes on
  for (const int value : {2, 1, 3}) {
    Stream borrowed = Stream::borrow(owner.native());
    history.restore(static_cast<std::uint64_t>(value), borrowed);
    copy_async(owner, seen.data(), array.data(), kBytes);
    owner.synchronize();
    EXPECT_EQ(std::vector<std::uint8_t>(seen.data(), seen.data() + kBytes),
              std::vector<std::uint8_t>(kBytes, static_cast<std::uint8_t>(value)));
  }
}

}  // namespace
