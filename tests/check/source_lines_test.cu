#include "check/source_lines_test.hpp"

namespace holdfast::test {
namespace {

__device__ void store_both(unsigned* words) {
  words[0] = 1;  // line of the first
  words[1] = 2;  // line of the second
}

__global__ void store_unnamed(unsigned* words) {
  words[0] = 3;  // line of the unnamed
}

}  // namespace

void launch_unnamed(Stream& stream, unsigned* words) { launch(stream, 1, 1, store_unnamed, words); }

__global__ void store_two(unsigned* words) {
  store_both(words);  // line of the call
}

}  // namespace holdfast::test
