// Prints what the registries have.
#include <cstdio>

#include "workload/registry.hpp"
#if HOLDFAST_INTERCEPT
#include "checking/registry.hpp"
#endif

int main() {
  for (const auto& info : workload::infos_of_folders()) {
    std::printf("workload %s\n", info.name.c_str());
  }
#if HOLDFAST_INTERCEPT
  for (const auto& offer : holdfast::check::programs_of_folders()) {
    std::printf("check program %s\n", offer.name.c_str());
  }
#endif
}
