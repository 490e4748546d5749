#include "holdfast/launch.hpp"

#include <algorithm>

namespace holdfast {

unsigned blocks_for(std::uint64_t items, std::uint64_t per_block) {
  constexpr std::uint64_t kMostBlocks = 0x7fffffff;  // CUDA's limit of a grid's first extent
  if (per_block == 0) {
    throw Error(Errc::invalid_argument,
                "blocks_for: a block takes 0 items; give it the threads of a block");
  }
  const std::uint64_t blocks = items / per_block + (items % per_block != 0 ? 1 : 0);
  if (blocks > kMostBlocks) {
    throw Error(Errc::invalid_argument,
                detail::concat("blocks_for: ", items, " items, ", per_block, " to a block, are ",
                               blocks, " blocks, and a grid has ", kMostBlocks,
                               " at most: give a thread several items, or launch in parts"));
  }
  return static_cast<unsigned>(std::max<std::uint64_t>(blocks, 1));
}

}  // namespace holdfast
