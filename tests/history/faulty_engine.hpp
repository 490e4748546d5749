// A history's engine over a folder whose operations fail when they are told to.
#pragma once

#include <filesystem>
#include <memory>
#include <utility>

#include "faulty_folder.hpp"
#include "history/engine.hpp"
#include "history/folder_store.hpp"

namespace holdfast::test {

// Steps move page by page, by one thread: a fixed sequence of operations.
inline std::unique_ptr<history::Engine> open_engine(const HistoryOptions& options,
                                                    std::shared_ptr<Faults> faults) {
  std::filesystem::create_directory(options.disk);
  auto folder =
      std::make_unique<FaultyFolder>(history::open_folder(options.disk), std::move(faults));
  return std::make_unique<history::Engine>(
      options, history::open_folder_store(std::move(folder), {}, {4096, 1}));
}

}  // namespace holdfast::test
