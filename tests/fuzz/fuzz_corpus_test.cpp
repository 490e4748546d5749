// The fuzz targets without a fuzzer: every input of the corpus, then random changes of them for
// some seconds. An input that breaks a promise is kept beside the test program, under the name
// printed.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "fuzz/fuzz.hpp"
#include "support/scratch.hpp"

namespace holdfast::fuzz {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;
using Random = std::mt19937_64;

constexpr std::chrono::milliseconds kFor{1600};  // for each target
constexpr std::size_t kMostBytes = 6000;

struct Target {
  const char* name;
  void (*run)(std::span<const std::uint8_t>);
};

std::vector<Bytes> corpus_of(const std::string& target) {
  std::vector<fs::path> paths;
  for (const auto& entry :
       fs::directory_iterator(std::string(HOLDFAST_FUZZ_CORPUS) + "/" + target)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> inputs;
  for (const fs::path& path : paths) {
    const auto bytes = test::read_file(path.string());
    inputs.emplace_back(bytes.begin(), bytes.end());
  }
  return inputs;
}

// Runs an input, kept in a file meanwhile, in case the program crashes. False if it broke a
// promise.
bool runs(const Target& target, const Bytes& input) {
  const std::string path = std::string("broke_") + target.name;
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(input.data()),
             static_cast<std::streamsize>(input.size()));
  try {
    target.run(input);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what() << ": " << fs::absolute(path).string();
    return false;
  }
  fs::remove(path);
  return true;
}

Bytes changed(Random& random, const std::vector<Bytes>& corpus) {
  const auto below = [&](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  Bytes input = corpus[below(corpus.size())];
  for (std::size_t i = 1 + below(5); i > 0; --i) {
    const std::size_t at = below(input.size());
    switch (below(6)) {
      case 0:
        if (!input.empty()) input[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 1:
        if (!input.empty()) input[at] = static_cast<std::uint8_t>(random());
        break;
      case 2: {  // a number at an edge
        const std::uint64_t value = (std::uint64_t{1} << below(64)) - below(2);
        const std::size_t bytes = std::min<std::size_t>(input.size() - at, 1u << below(4));
        std::memcpy(input.data() + at, &value, bytes);
        break;
      }
      case 3:
        input.erase(input.begin() + static_cast<std::ptrdiff_t>(at),
                    input.begin() + static_cast<std::ptrdiff_t>(
                                        at + below(std::min<std::size_t>(input.size() - at, 40))));
        break;
      case 4:
        for (std::size_t n = below(12); n > 0; --n) {
          input.insert(input.begin() + static_cast<std::ptrdiff_t>(at),
                       static_cast<std::uint8_t>(random()));
        }
        break;
      default: {  // the end of another
        const Bytes& other = corpus[below(corpus.size())];
        input.resize(at);
        const std::size_t from = below(other.size());
        input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      }
    }
  }
  if (input.size() > kMostBytes) input.resize(kMostBytes);
  return input;
}

class FuzzCorpusTest : public ::testing::TestWithParam<Target> {};

TEST_P(FuzzCorpusTest, KeptInputsKeepEveryPromise) {
  const auto corpus = corpus_of(GetParam().name);
  ASSERT_FALSE(corpus.empty());
  for (const Bytes& input : corpus) runs(GetParam(), input);
}

TEST_P(FuzzCorpusTest, SoDoChangesOfThem) {
  const auto corpus = corpus_of(GetParam().name);
  ASSERT_FALSE(corpus.empty());
  Random random(test::test_seed());
  const auto end = std::chrono::steady_clock::now() + kFor;
  std::uint64_t inputs = 0;
  while (std::chrono::steady_clock::now() < end) {
    if (!runs(GetParam(), changed(random, corpus))) return;
    ++inputs;
  }
  std::printf("%llu inputs\n", static_cast<unsigned long long>(inputs));
}

INSTANTIATE_TEST_SUITE_P(, FuzzCorpusTest,
                         ::testing::Values(Target{"image", image}, Target{"arena", arena},
                                           Target{"directory", directory}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace holdfast::fuzz
