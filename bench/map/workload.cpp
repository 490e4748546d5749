#include "workload.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <utility>

#include "draws.hpp"

namespace maps {
namespace {

constexpr std::uint64_t kChunk = 1 << 14;  // requests that a thread draws at a time

// Keys 0 to count - 1.
class Draw {
 public:
  Draw(Distribution distribution, double theta, std::uint64_t count)
      : distribution_(distribution), zipf_(count, theta), scrambled_(count) {}
  std::uint64_t operator()(Random& random) const {
    switch (distribution_) {
      case Distribution::uniform:
        return random.whole(zipf_.items());
      case Distribution::zipf:
        return zipf_.draw(random);
      case Distribution::scrambled:
        break;
    }
    return scrambled_.draw(random);
  }

 private:
  Distribution distribution_;
  Zipf zipf_;
  ScrambledZipf scrambled_;
};

class Ycsb : public Source {
 public:
  explicit Ycsb(const YcsbOptions& options)
      : options_(options),
        draw_(options.distribution, options.theta, std::max<std::uint64_t>(options.keys, 1)),
        inserted_(options.mix == Mix::load ? 0 : options.keys) {}

  std::uint64_t keys() const override { return options_.mix == Mix::load ? 0 : options_.keys; }
  bool keeps_keys() const override { return !inserts() && options_.mix != Mix::erase; }
  std::uint64_t most_keys(std::uint64_t operations) const override {
    return keys() + (inserts() ? operations : 0);
  }

  void next(workload::Team& team, std::vector<Request>& requests) override {
    if (options_.mix == Mix::d) {
      next_latest(team, requests);
    } else {
      team.for_chunks(requests.size(), kChunk,
                      [&](unsigned, std::uint64_t first, std::uint64_t count) {
                        for (std::uint64_t i = first; i < first + count; ++i) {
                          Random random(options_.seed, done_ + i);
                          requests[i] = request(random, done_ + i);
                        }
                      });
    }
    done_ += requests.size();
  }

 private:
  bool inserts() const {
    return options_.mix == Mix::load || options_.mix == Mix::insert || options_.mix == Mix::d;
  }
  Request request(Random& random, std::uint64_t number) const {
    const double share = random.real();
    switch (options_.mix) {
      case Mix::a:
        return {draw_(random), share < 0.5 ? Op::find : Op::update};
      case Mix::b:
        return {draw_(random), share < 0.95 ? Op::find : Op::update};
      case Mix::f:
        return {draw_(random), share < 0.5 ? Op::find : Op::read_modify_write};
      case Mix::search_absent:
        return {options_.keys + draw_(random), Op::find};
      case Mix::update:
        return {draw_(random), Op::update};
      case Mix::load:
        return {number, Op::insert};
      case Mix::insert:
        return {options_.keys + number, Op::insert};
      case Mix::erase:
        return {number % options_.keys, Op::erase};
      case Mix::c:
      case Mix::d:
      case Mix::search_present:
        break;
    }
    return {draw_(random), Op::find};
  }

  void next_latest(workload::Team& team, std::vector<Request>& requests) {
    const std::uint64_t there = inserted_;  // of earlier batches
    const Draw ago(options_.distribution, options_.theta, there);
    for (std::uint64_t i = 0; i < requests.size(); ++i) {
      Random random(options_.seed, done_ + i);
      requests[i] = random.real() < 0.95 ? Request{0, Op::find} : Request{inserted_++, Op::insert};
    }
    team.for_chunks(requests.size(), kChunk,
                    [&](unsigned, std::uint64_t first, std::uint64_t count) {
                      for (std::uint64_t i = first; i < first + count; ++i) {
                        if (requests[i].op != Op::find) continue;
                        Random random(~options_.seed, done_ + i);
                        requests[i].key = there - 1 - ago(random);
                      }
                    });
  }

  YcsbOptions options_;
  Draw draw_;
  std::uint64_t inserted_;
  std::uint64_t done_ = 0;
};

class Dlrm : public Source {
 public:
  Dlrm(const DlrmFit& fit, std::uint64_t keys, std::uint64_t seed) : keys_(keys), seed_(seed) {
    std::uint64_t base = 0;
    for (const FittedColumn& column : fit.scaled(keys)) {
      columns_.push_back({base, Zipf(column.keys, column.theta)});
      base += column.keys;
    }
  }
  std::uint64_t keys() const override { return keys_; }
  bool keeps_keys() const override { return true; }
  std::uint64_t most_keys(std::uint64_t) const override { return keys_; }

  void next(workload::Team& team, std::vector<Request>& requests) override {
    team.for_chunks(
        requests.size(), kChunk, [&](unsigned, std::uint64_t first, std::uint64_t count) {
          for (std::uint64_t i = first; i < first + count; ++i) {
            const Column& column = columns_[(done_ + i) % columns_.size()];
            Random random(seed_, done_ + i);
            requests[i] = {column.base + column.zipf.draw(random), Op::read_modify_write};
          }
        });
    done_ += requests.size();
  }

 private:
  struct Column {
    std::uint64_t base;
    Zipf zipf;
  };
  std::vector<Column> columns_;
  std::uint64_t keys_, seed_;
  std::uint64_t done_ = 0;
};

class PageRank : public Source {
 public:
  PageRank(const PageRankFit& fit, std::uint64_t keys, std::uint64_t seed)
      : read_(keys, fit.theta), in_degrees_(fit.in_degrees), seed_(seed) {}
  std::uint64_t keys() const override { return read_.items(); }
  bool keeps_keys() const override { return true; }
  std::uint64_t most_keys(std::uint64_t) const override { return read_.items(); }

  // Which vertices are read is drawn in several threads; whose turn it is, in one.
  void next(workload::Team& team, std::vector<Request>& requests) override {
    for (Request& request : requests) {
      if (left_ == 0) {
        request = {vertex_, Op::update};
        vertex_ = (vertex_ + 1) % read_.items();
        start();
      } else {
        request = {0, Op::find};
        --left_;
      }
    }
    team.for_chunks(requests.size(), kChunk,
                    [&](unsigned, std::uint64_t first, std::uint64_t count) {
                      for (std::uint64_t i = first; i < first + count; ++i) {
                        if (requests[i].op != Op::find) continue;
                        Random random(seed_, done_ + i);
                        requests[i].key = read_.draw(random);
                      }
                    });
    done_ += requests.size();
  }

 private:
  // A vertex has as many edges in each round.
  void start() {
    Random random(~seed_, vertex_);
    left_ = in_degrees_[random.whole(in_degrees_.size())];
  }

  Zipf read_;
  std::vector<std::uint32_t> in_degrees_;
  std::uint64_t seed_;
  std::uint64_t vertex_ = 0, done_ = 0;
  std::uint32_t left_ = 0;
};

template <class Value, std::size_t N>
Value named(const std::pair<const char*, Value> (&all)[N], const std::string& name,
            const char* what) {
  std::string there;
  for (const auto& [word, value] : all) {
    if (name == word) return value;
    there += std::string(there.empty() ? "" : ", ") + word;
  }
  throw std::invalid_argument(std::string(what) + " '" + name + "': give one of " + there);
}

}  // namespace

std::unique_ptr<Source> make_ycsb(const YcsbOptions& options) {
  if (options.keys == 0 && options.mix != Mix::load) {
    throw std::invalid_argument("YCSB: no keys are loaded; give one or more");
  }
  if (options.theta < 0 || options.theta > 8) {
    throw std::invalid_argument("YCSB: theta is to be from 0 to 8");
  }
  if (options.distribution == Distribution::scrambled) {
    if (options.mix == Mix::d) {
      throw std::invalid_argument("YCSB D reads the latest, which is not scrambled: give zipf");
    }
    if (options.theta != ScrambledZipf::kTheta) {
      throw std::invalid_argument("YCSB's scrambled distribution has a theta of .99 and no other");
    }
  }
  return std::make_unique<Ycsb>(options);
}

std::unique_ptr<Source> make_dlrm(const DlrmFit& fit, std::uint64_t keys, std::uint64_t seed) {
  return std::make_unique<Dlrm>(fit, keys, seed);
}

std::unique_ptr<Source> make_pagerank(const PageRankFit& fit, std::uint64_t keys,
                                      std::uint64_t seed) {
  if (keys == 0) throw std::invalid_argument("PageRank: no vertices; give one or more");
  return std::make_unique<PageRank>(fit, keys, seed);
}

Mix mix_of(const std::string& name) {
  static constexpr std::pair<const char*, Mix> kMixes[] = {{"load", Mix::load},
                                                           {"a", Mix::a},
                                                           {"b", Mix::b},
                                                           {"c", Mix::c},
                                                           {"d", Mix::d},
                                                           {"f", Mix::f},
                                                           {"search-present", Mix::search_present},
                                                           {"search-absent", Mix::search_absent},
                                                           {"insert", Mix::insert},
                                                           {"update", Mix::update},
                                                           {"erase", Mix::erase}};
  return named(kMixes, name, "workload");
}

Distribution distribution_of(const std::string& name) {
  static constexpr std::pair<const char*, Distribution> kDistributions[] = {
      {"uniform", Distribution::uniform},
      {"zipf", Distribution::zipf},
      {"scrambled", Distribution::scrambled}};
  return named(kDistributions, name, "distribution");
}

}  // namespace maps
