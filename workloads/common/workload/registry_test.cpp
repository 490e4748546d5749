// What is listed: each workload once, the paper's in the order of its table.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "workload/registry.hpp"

namespace {

using workload::Info;

TEST(Registry, ListsThePapersWorkloadsInTheOrderOfItsTable) {
  const std::vector<std::string> papers = {"gpkvs", "gpkvs_95_5", "gpdb_insert",   "gpdb_update",
                                           "lenet", "cfd",        "black_scholes", "hotspot",
                                           "bfs",   "srad",       "prefix_sum"};
  std::vector<std::string> listed;
  for (const Info& info : workload::workloads()) listed.push_back(info.name);
  ASSERT_GE(listed.size(), papers.size());
  EXPECT_TRUE(
      std::is_sorted(listed.begin() + static_cast<std::ptrdiff_t>(papers.size()), listed.end()));
  listed.resize(papers.size());
  EXPECT_EQ(listed, papers);
}

TEST(Registry, HasWhatEachFolderDefinesUnderANameOfItsOwn) {
  std::set<std::string> names;
  for (const Info& info : workload::infos_of_folders()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name << " twice";
    EXPECT_EQ(workload::find_workload(info.name).summary, info.summary);
  }
  EXPECT_EQ(names.size(), workload::workloads().size());
}

}  // namespace
