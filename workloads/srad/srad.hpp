// Speckle-reducing anisotropic diffusion, whose image and diffusion coefficients are persistent and
// which resumes within an iteration. Source: Yu and Acton, "Speckle Reducing Anisotropic
// Diffusion", IEEE Transactions on Image Processing 11(11), 2002;
// GPM (ASPLOS '22) Table 1 and section 6.1 ("native persistence").
#pragma once

#include <cstdint>
#include <vector>

#include "srad/image.hpp"
#include "workload/workload.hpp"

namespace srad {

workload::Info info();

// How far single precision may be from the oracle, at any pixel, after any number of iterations
// that a Size asks for.
inline constexpr double kImageTolerance = 5e-5;        // of the value
inline constexpr double kCoefficientTolerance = 2e-3;  // absolute; coefficients are 0 to 1

struct Diffused {
  std::vector<double> image;
  std::vector<double> coefficients;  // of the last iteration
};

// The oracle: in double precision, by host threads. Shares no code with what it checks. The
// variance of the `region` x `region` pixels in the first corner is that of speckle, over their
// squared mean at least 1e-6.
Diffused oracle(const Image& image, std::uint64_t iterations, double lambda, std::uint32_t region);

}  // namespace srad
