#include "holdfast/kernel.hpp"
#include "trap.hpp"

namespace holdfast::test {
namespace {

__global__ void trap_at_once() { __trap(); }

}  // namespace

void trap(Stream& stream) { launch(stream, dim3(1), dim3(1), trap_at_once); }

}  // namespace holdfast::test
