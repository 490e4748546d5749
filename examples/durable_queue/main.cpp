// Checks the example's program, as holdfast-check does.
#include <vector>

#include "holdfast/check_command.hpp"

namespace durable_queue {
std::vector<holdfast::check::Offer> offers();
}

int main(int argc, char** argv) {
  return holdfast::check::command_line(argc, argv, durable_queue::offers());
}
