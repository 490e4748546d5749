#include "check_command/ending_test.hpp"

namespace holdfast::test {

__global__ void spin(std::uint32_t* words) {
  bool on = true;
  while (on) asm volatile("" : "+r"(on));  // which the compiler does not know to be no end
  words[0] = 1;
}

}  // namespace holdfast::test
