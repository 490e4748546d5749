#include "deposits.hpp"

int main(int argc, char** argv) {
  return holdfast::check::command_line(argc, argv, bank::offers());
}
