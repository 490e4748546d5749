// The kernels of a shape that the library has not compiled: a host file cannot with the CUDA
// backend.
#include "holdfast/hash_map.hpp"

namespace holdfast::detail {

template const MapKernels& map_kernels<std::uint64_t, MapConfig<8, 4, 2>>();

}  // namespace holdfast::detail
