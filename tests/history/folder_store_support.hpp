// What the tests of histories in folders share.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "history/folder_store.hpp"
#include "step_ledger.hpp"
#include "support/scratch.hpp"

namespace holdfast::test {

class FolderStoreTest : public Scratch {
 protected:
  ~FolderStoreTest() override { history::use_page_cache = false; }

  std::string home() const { return path("history"); }
  std::string file_of(history::Step step) const {
    return home() + "/" + history::step_file_name(step);
  }
  static std::unique_ptr<history::StepStore> open(const std::string& path, bool read_only = false) {
    return history::open_folder_store(path, {read_only, {}});
  }
  // With chunks of a page, so that a small step has several.
  static std::unique_ptr<history::StepStore> open_small(const std::string& path) {
    open(path).reset();
    return history::open_folder_store(history::open_folder(path), {}, {4096, 1});
  }
  static bool write(history::StepStore& store, const SavedStep& saved,
                    const history::StepStore::Pace& pace = {}) {
    return store.write(saved.info, saved.blob, pace);
  }
  static std::map<std::string, std::vector<char>> files_in(const std::string& folder) {
    std::map<std::string, std::vector<char>> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      files[entry.path().filename()] =
          entry.is_regular_file() ? read_file(entry.path()) : std::vector<char>{};
    }
    return files;
  }
};

}  // namespace holdfast::test
