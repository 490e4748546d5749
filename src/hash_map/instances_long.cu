// The maps of keys of 16 bytes and more that the library has compiled.
#include "holdfast/hash_map.hpp"

namespace holdfast::detail {

template const MapKernels& map_kernels<MapLongKey, MapConfig<4>>();
template const MapKernels& map_kernels<MapLongKey, MapConfig<8>>();
template const MapKernels& map_kernels<MapLongKey, MapConfig<16>>();
template const MapKernels& map_kernels<MapLongKey, MapConfig<32>>();

}  // namespace holdfast::detail
