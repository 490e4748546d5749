#include "checking/sized_offer.hpp"

#include <utility>

namespace holdfast::check {

namespace {

std::uint32_t take(const std::string& program, const char* what, std::uint32_t given,
                   std::uint32_t usual, std::uint32_t least, std::uint32_t most) {
  using detail::concat;
  if (given == 0) return usual;
  if (usual == 0) {
    throw Error(Errc::invalid_argument,
                concat("program '", program, "' takes no number of ", what));
  }
  if (given < least || given > most) {
    throw Error(Errc::invalid_argument, concat("program '", program, "': ", given, " ", what,
                                               "; give ", least, " to ", most));
  }
  return given;
}

}  // namespace

Offer sized_offer(const std::string& name, const std::string& summary, const Sizes& usual,
                  std::function<Program(const Sizes& sizes)> make,
                  std::vector<Sizes> mutant_sizes) {
  const auto make_sized = [=, make = std::move(make)](const Sizes& given) {
    Sizes sizes;
    sizes.threads = take(name, "threads", given.threads, usual.threads, 2, 1024);
    sizes.blocks = take(name, "blocks", given.blocks, usual.blocks, 1, 64);
    sizes.persists = take(name, "persists", given.persists, usual.persists, 1, 64);
    Program program = make(sizes);
    program.name = name;
    return program;
  };
  return {name, summary, true, make_sized, std::move(mutant_sizes)};
}

}  // namespace holdfast::check
