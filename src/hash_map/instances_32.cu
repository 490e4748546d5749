// The maps of keys of 4 bytes that the library has compiled.
#include "holdfast/hash_map.hpp"

namespace holdfast::detail {

template const MapKernels& map_kernels<std::uint32_t, MapConfig<4>>();
template const MapKernels& map_kernels<std::uint32_t, MapConfig<8>>();
template const MapKernels& map_kernels<std::uint32_t, MapConfig<16>>();
template const MapKernels& map_kernels<std::uint32_t, MapConfig<32>>();

}  // namespace holdfast::detail
