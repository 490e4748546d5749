// [bank]
#include "holdfast/kernel.hpp"
#include "holdfast/region.hpp"

__global__ void deposit(double* balance, double amount) {
  balance[blockIdx.x * blockDim.x + threadIdx.x] += amount;
  holdfast::persist();  // from here on the deposit survives kill -9
}

int main() {
  auto region = holdfast::Region::create("bank.hf", {.size = 1 << 20});
  auto balance = region.allocate<double>("balance", 256);
  holdfast::Stream stream;
  holdfast::launch(stream, dim3(1), dim3(256), deposit, balance.data(), 10.0);
  stream.synchronize();
  region.commit();  // from here on it survives a power cut
}
// [end]
