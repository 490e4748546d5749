#include "core/whole_lines_kernels.hpp"

#include "holdfast/kernel.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::test {
namespace {

// [lines]
// A thread for each task.
__global__ void store_tasks(LineCell* cells, const LineCell* copy, const LineTask* tasks,
                            std::uint32_t count, std::uint8_t* stored) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  const LineTask task = i < count ? tasks[i] : LineTask{};
  const bool mine =
      store_by_lines(cells, copy, static_cast<LineChange>(task.change), task.at, task.value,
                     [](LineCell* place, const LineCell& cell) { *place = cell; });
  if (mine) persist();
  if (i < count) stored[i] = mine;
}
// [end]

template <class T>
DeviceBuffer<T> on_device(Stream& stream, const std::vector<T>& values) {
  DeviceBuffer<T> buffer(values.size());
  copy_async(stream, buffer.data(), values.data(), buffer.bytes());
  return buffer;
}

}  // namespace

std::vector<std::uint8_t> store_by_lines_of(std::span<LineCell> cells,
                                            const std::vector<LineCell>& copy,
                                            const std::vector<LineTask>& tasks, unsigned threads) {
  Stream stream;
  const auto count = static_cast<std::uint32_t>(tasks.size());
  const DeviceBuffer<LineCell> copied = on_device(stream, copy);
  const DeviceBuffer<LineTask> given = on_device(stream, tasks);
  DeviceBuffer<std::uint8_t> stored(count);
  launch(stream, dim3(blocks_for(count, threads)), dim3(threads), store_tasks, cells.data(),
         copied.data(), given.data(), count, stored.data());
  std::vector<std::uint8_t> result(count);
  copy_async(stream, result.data(), stored.data(), stored.bytes());
  stream.synchronize();
  return result;
}

}  // namespace holdfast::test
