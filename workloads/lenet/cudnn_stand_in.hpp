// A stand-in for cuDNN and cuBLAS on the CPU backend: what their documentation says that each
// function does, in loops over host memory. So the calls that the trainer makes, their operands,
// layouts and shapes are tested without a GPU; the libraries themselves are not.
#pragma once

#include <string>
#include <vector>

#include "lenet/cudnn_api.hpp"

namespace lenet::stand_in {

// Shapes that do not fit one another, and algorithms that are not deterministic, are refused as
// CUDNN_STATUS_BAD_PARAM.
const CudnnApi& api();
// The functions of the api, by name.
std::vector<std::string> functions();
// Has one function fail from now on; empty: none.
void fail(const std::string& function);
// Handles and descriptors that were made and not destroyed.
int alive();

}  // namespace lenet::stand_in
