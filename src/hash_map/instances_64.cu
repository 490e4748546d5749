// The maps of keys of 8 bytes that the library has compiled.
#include "holdfast/hash_map.hpp"

namespace holdfast::detail {

template const MapKernels& map_kernels<std::uint64_t, MapConfig<4>>();
template const MapKernels& map_kernels<std::uint64_t, MapConfig<8>>();
template const MapKernels& map_kernels<std::uint64_t, MapConfig<16>>();
template const MapKernels& map_kernels<std::uint64_t, MapConfig<32>>();

}  // namespace holdfast::detail
