// Every store of a kernel is delivered, in the order, of the size and as often as the source says,
// whatever the compiler would have made of it.
#include "cpu/stores.hpp"

#include <array>
#include <set>
#include <string>
#include <vector>

#include "cpu/recorder.hpp"
#include "cpu/support.hpp"

namespace holdfast::test {
namespace {

using Texts = std::vector<std::string>;

// Runs kernels on memory of its own and keeps their stores to it.
class Stores : public ::testing::Test {
 protected:
  alignas(64) std::array<std::uint64_t, 64> words{};
  std::set<const void*> places;  // of the stores, in the code

  template <class T>
  T* at(std::size_t word) {
    return reinterpret_cast<T*>(&words[word]);
  }

  // Like "0:8=7": offset, bytes, and the first eight of them as a number.
  template <class... Parameters, class... Arguments>
  Texts of(void (*kernel)(Parameters...), Arguments... arguments) {
    Recorder recorder;
    Stream stream;
    launch(stream, 1, 1, kernel, arguments...);
    stream.synchronize();
    Texts texts;
    for (const Recorded& record : recorder.events) {
      const cpu::Event& event = record.event;
      const auto offset =
          static_cast<const char*>(event.address) - reinterpret_cast<const char*>(words.data());
      if (event.kind != cpu::EventKind::store || offset < 0 ||
          offset >= static_cast<long>(sizeof words)) {
        continue;
      }
      places.insert(event.pc);
      texts.push_back(std::to_string(offset) + ":" + std::to_string(event.size) + "=" +
                      std::to_string(record.number()));
    }
    return texts;
  }
};

TEST_F(Stores, StayInTheirLoop) {
  EXPECT_EQ(of(count_every_turn, at<Counted>(0), at<std::uint64_t>(8), 3u),
            (Texts{"64:8=10", "0:8=1", "72:8=11", "0:8=2", "80:8=12", "0:8=3"}));
}

TEST_F(Stores, StayInTheirLoopWhateverTheTypes) {
  EXPECT_EQ(of(count_beside_floats, at<std::uint32_t>(0), at<float>(8), 2u),
            (Texts{"64:4=1065353216", "0:4=1", "68:4=1065353216", "0:4=2"}));
}

TEST_F(Stores, AreMadeAgainEveryTurn) {
  EXPECT_EQ(of(same_every_turn, at<std::uint64_t>(0), at<std::uint64_t>(8), 2u),
            (Texts{"0:8=7", "64:8=0", "0:8=7", "72:8=1"}));
}

TEST_F(Stores, ThatAreOverwrittenAreMade) {
  EXPECT_EQ(of(overwritten, at<std::uint64_t>(0), at<std::uint64_t>(1)),
            (Texts{"0:8=1", "0:8=2", "8:8=3", "0:8=4"}));
}

TEST_F(Stores, OfWhatIsThereAlreadyAreMade) {
  words[0] = 5;
  EXPECT_EQ(of(written_back, at<std::uint64_t>(0)), (Texts{"0:8=5"}));
  EXPECT_EQ(of(written_again, at<std::uint64_t>(0), at<std::uint64_t>(1)),
            (Texts{"0:8=7", "8:8=3", "0:8=7"}));
}

TEST_F(Stores, StayBeforeTheirBranch) {
  EXPECT_EQ(of(overwritten_if, at<std::uint64_t>(0), 1u), (Texts{"0:8=1", "0:8=2"}));
  EXPECT_EQ(of(overwritten_if, at<std::uint64_t>(0), 0u), (Texts{"0:8=1"}));
}

TEST_F(Stores, StayInTheirBranch) {
  EXPECT_EQ(of(both_branches, at<std::uint64_t>(0), at<std::uint64_t>(1), 1u),
            (Texts{"8:8=5", "0:8=9"}));
  EXPECT_EQ(of(both_branches, at<std::uint64_t>(0), at<std::uint64_t>(1), 0u),
            (Texts{"8:8=6", "0:8=9"}));
  EXPECT_EQ(places.size(), 4u) << "stores of two lines were made one";
  places.clear();
  EXPECT_EQ(of(either_value, at<std::uint64_t>(0), 1u), (Texts{"0:8=1"}));
  EXPECT_EQ(of(either_value, at<std::uint64_t>(0), 0u), (Texts{"0:8=2"}));
  EXPECT_EQ(places.size(), 2u) << "stores of two lines were made one";
}

TEST_F(Stores, AreNotInvented) {
  EXPECT_EQ(of(only_if, at<std::uint64_t>(0), std::uint64_t{3}, 0u), Texts{});
  EXPECT_EQ(of(only_if, at<std::uint64_t>(0), std::uint64_t{3}, 1u), (Texts{"0:8=3"}));
}

TEST_F(Stores, OfNeighboursAreNotMerged) {
  EXPECT_EQ(of(neighbours, at<std::uint16_t>(0)), (Texts{"0:2=1", "2:2=2", "4:2=3", "6:2=4"}));
  EXPECT_EQ(of(bytes_in_turn, at<std::uint8_t>(0)),
            (Texts{"0:1=1", "1:1=2", "2:1=3", "3:1=4", "4:1=5", "5:1=6", "6:1=7", "7:1=8"}));
}

TEST_F(Stores, OfALoopAreNotMadeALibraryCall) {
  words[8] = 3;
  words[9] = 4;
  EXPECT_EQ(of(cleared_in_turn, at<std::uint32_t>(0), 3u), (Texts{"0:4=0", "4:4=0", "8:4=0"}));
  EXPECT_EQ(of(copied_in_turn, at<std::uint64_t>(0), at<std::uint64_t>(8), 2u),
            (Texts{"0:8=3", "8:8=4"}));
}

TEST_F(Stores, OfAStructAreThoseOfItsMembers) {
  EXPECT_EQ(of(small_struct, at<Small>(0), 1u, 2u), (Texts{"0:4=1", "4:4=2"}));
}

TEST_F(Stores, AreNotTrimmed) {
  words[0] = words[7] = 1;
  EXPECT_EQ(of(cleared_then_stored, at<Wide>(0)), (Texts{"0:64=0", "0:8=4"}));
}

TEST_F(Stores, OfAVectorAreThoseOfItsMembers) {
  EXPECT_EQ(of(one_vector, at<uint4>(0)), (Texts{"0:4=1", "4:4=2", "8:4=3", "12:4=4"}));
}

}  // namespace
}  // namespace holdfast::test
