// Reverse-time migration on one GPU, or on the CPU backend: docs/adjoint.md.
#include <cstdio>
#include <exception>
#include <iostream>
#include <string_view>

#include "adjoint/job.hpp"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::fputs(adjoint::kUsage, stdout);
    return 0;
  }
  try {
    return adjoint::run(adjoint::parse(argc, argv), std::cout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
