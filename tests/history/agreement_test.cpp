// What ranks agree on, beside an oracle that looks at every version of every rank.
#include "history/agreement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/error_of.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast::history {
namespace {

std::vector<Version> some_versions(std::mt19937_64& random) {
  std::vector<Version> versions;
  for (std::uint64_t left = random() % 9; left > 0; --left) {
    const Version version{random() % 5, {random() % 3, random() % 2}};
    if (std::find(versions.begin(), versions.end(), version) == versions.end()) {
      versions.push_back(version);
    }
  }
  return versions;
}

bool has(const std::vector<Version>& versions, const Version& version) {
  return std::find(versions.begin(), versions.end(), version) != versions.end();
}

bool all_have(const std::vector<Offer>& offers, const Version& version, bool stored) {
  return std::all_of(offers.begin(), offers.end(), [&](const Offer& offer) {
    return has(stored ? offer.stored : offer.versions, version);
  });
}

std::map<Step, Stamp> expected(const std::vector<Offer>& offers) {
  std::map<Step, Stamp> result;
  for (Step step = 0; step < 5; ++step) {
    for (std::uint64_t run = offers.size() == 1 ? 0 : 1; run < 3; ++run) {
      for (std::uint64_t save = 0; save < 2; ++save) {
        if (all_have(offers, {step, {run, save}}, false)) result[step] = {run, save};
      }
    }
  }
  return result;
}

TEST(AgreementTest, IsWhatEveryRankHasOfOneSave) {
  std::mt19937_64 random(test::test_seed());
  std::size_t agreed_on = 0;
  const std::uint64_t trials = test::some_of(20'000, 500);
  for (std::uint64_t trial = 0; trial < trials; ++trial) {
    std::vector<Offer> offers(1 + random() % 3);
    for (Offer& offer : offers) {
      offer.versions = some_versions(random);
      for (const Version& version : offer.versions) {
        if (random() % 4 != 0) offer.stored.push_back(version);
      }
      if (random() % 2 == 0) offer.dropped = Version{random() % 2, {1, 1}};
      const Offer copy = decode(encode(offer));
      ASSERT_EQ(copy.versions, offer.versions);
      ASSERT_EQ(copy.stored, offer.stored);
      ASSERT_EQ(copy.dropped, offer.dropped);
    }
    const auto complete = expected(offers);
    agreed_on += complete.size();
    for (std::size_t rank = 0; rank < offers.size(); ++rank) {
      const Agreed agreed = agree(offers, static_cast<int>(rank));
      ASSERT_EQ(agreed.complete, complete);
      ASSERT_EQ(agreed.order.size(), complete.size());
      for (std::size_t i = 1; i < agreed.order.size(); ++i) {
        const auto place = [&](Step step) {
          return std::find(offers[0].versions.begin(), offers[0].versions.end(),
                           Version{step, complete.at(step)});
        };
        ASSERT_LT(place(agreed.order[i - 1]), place(agreed.order[i]));
      }
      for (const auto& [step, stamp] : complete) {
        ASSERT_EQ(agreed.stored.contains(step), all_have(offers, {step, stamp}, true));
      }
      for (const Version& version : offers[rank].versions) {
        ASSERT_NE(agreed.lacks.contains(version.step), complete.contains(version.step));
      }
      const bool same = std::all_of(offers.begin(), offers.end(), [&](const Offer& offer) {
        return offer.dropped == offers[0].dropped;
      });
      ASSERT_EQ(agreed.dropped, same ? offers[0].dropped : std::nullopt);
    }
  }
  EXPECT_GT(agreed_on, trials / 20);
}

TEST(AgreementTest, SaysWhoLacksWhat) {
  std::vector<Offer> offers(3);
  offers[0].versions = {{1, {7, 1}}, {2, {7, 1}}, {3, {8, 1}}};
  offers[1].versions = {{1, {7, 1}}, {2, {7, 1}}, {3, {7, 1}}};
  offers[2].versions = {{1, {7, 1}}, {3, {7, 1}}};
  const Agreed agreed = agree(offers, 0);
  EXPECT_EQ(agreed.complete.size(), 1u);
  EXPECT_EQ(agreed.lacks.at(2), "rank 2 does not have it");
  EXPECT_EQ(agreed.lacks.at(3), "the ranks have it of different saves");
  EXPECT_EQ(agreed.last_run, 8u);
}

TEST(AgreementTest, AMillionStepsAreAFewBytes) {
  Offer offer;
  for (Step step = 0; step < 10'000'000; step += 10) offer.versions.push_back({step, {5, 1}});
  std::reverse(offer.versions.begin(), offer.versions.end());
  EXPECT_LT(encode(offer).size(), 100u);
  EXPECT_EQ(decode(encode(offer)).versions, offer.versions);
}

TEST(AgreementTest, NoBytesAreBelieved) {
  Offer offer;
  offer.versions = {{1, {7, 1}}, {5, {7, 1}}, {6, {7, 2}}};
  offer.stored = offer.versions;
  const std::vector<std::byte> whole = encode(offer);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_EQ(test::error_of([&] { decode(std::span(whole).first(bytes)); }),
              Errc::invalid_argument);
  }
  std::mt19937_64 random(test::test_seed());
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::byte> bytes = whole;
    bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (random() % 4 == 0) bytes.resize(random() % 100);
    try {
      decode(bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
    }
  }
}

TEST(SaveCountsTest, CountAsAMapDoes) {
  std::mt19937_64 random(test::test_seed());
  SaveCounts counts;
  std::map<Step, std::uint64_t> oracle;
  const Step bases[] = {0, 1000, ~Step{0} - 30};
  for (int trial = 0; trial < 3000; ++trial) {
    const Step step = bases[random() % 3] + random() % 30;
    counts.add(step);
    ++oracle[step];
    for (const Step base : bases) {
      for (Step at = base; at < base + 30; ++at) {
        const auto found = oracle.find(at);
        ASSERT_EQ(counts.of(at), found == oracle.end() ? 0 : found->second);
      }
    }
  }
  SaveCounts run;
  for (Step step = 0; step < 100'000; ++step) run.add(step);
  EXPECT_EQ(run.ranges(), 1u);
}

}  // namespace
}  // namespace holdfast::history
