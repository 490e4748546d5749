// The bytes of a log by docs/format.md, read and written without the library's own code for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "holdfast/region.hpp"

namespace holdfast::test {

using Words = std::vector<std::uint64_t>;

class LogMedium {
 public:
  static constexpr std::uint32_t kHeader = 10;  // words of a header

  explicit LogMedium(const Region& region)
      : records_(words_of(region, "kvs.records")),
        snapshots_(words_of(region, "kvs.snapshots")),
        commit_(words_of(region, "kvs.commit")) {
    const std::span<std::uint64_t> header = words_of(region, "kvs.header");
    // Behind the magic, checksum, format, version, type, sizes: the parameters.
    std::memcpy(&segment_records_, reinterpret_cast<const char*>(header.data()) + 64 + 12, 4);
    std::memcpy(&segments_, reinterpret_cast<const char*>(header.data()) + 64 + 16, 4);
  }

  static std::uint64_t mixed(std::uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
  }
  static std::uint64_t word_for(std::uint64_t run) {
    return run << 16 | (mixed(run ^ 0x6b76636f6d6d6974ull) & 0xffff);
  }

  struct Piece {
    std::size_t at;  // word of the header
    std::uint64_t run;
    std::uint32_t piece, pieces, records, tombstones;
  };

  std::uint64_t run() const { return commit_[0] >> 16; }
  std::span<std::uint64_t> records() const { return records_; }
  std::uint64_t& commit() const { return commit_[0]; }
  std::uint32_t segments() const { return segments_; }
  std::size_t words_of_segment() const { return std::size_t{segment_records_} * 2; }

  std::uint64_t check_of(std::size_t at, std::uint64_t chain) const {
    std::uint64_t h = 0x31474f4c56464c48ull;
    const auto take = [&](std::uint64_t word) { h = mixed(h ^ word) * 0x9e3779b97f4a7c15ull + 1; };
    for (std::size_t i = 0; i < 9; ++i) take(records_[at + i]);
    take(chain);
    take(at / 2);
    return mixed(h) == 0 ? 1 : mixed(h);
  }

  // Every piece with a whole header, of runs that count and not.
  std::vector<Piece> pieces() const {
    std::vector<Piece> found;
    for (std::size_t segment = 0; segment < segments_; ++segment) {
      const std::size_t end = (segment + 1) * words_of_segment();
      std::uint64_t chain = 0;
      for (std::size_t at = segment * words_of_segment(); at + kHeader < end;) {
        const std::uint64_t* const words = &records_[at];
        if (words[9] == 0 || words[9] != check_of(at, chain)) break;
        const Piece piece{at,
                          words[0],
                          static_cast<std::uint32_t>(words[7]),
                          static_cast<std::uint32_t>(words[7] >> 32),
                          static_cast<std::uint32_t>(words[6]),
                          static_cast<std::uint32_t>(words[6] >> 32)};
        found.push_back(piece);
        chain = words[9];
        at += kHeader + std::size_t{piece.records} * 2;
      }
    }
    return found;
  }

  // ---- Snapshots ----
  static constexpr std::size_t kSnapshotHeader = 8;  // words
  std::span<std::uint64_t> snapshot(std::size_t segment) const {
    const std::size_t words = kSnapshotHeader + segment_records_ / 32;
    return snapshots_.subspan(segment * words, words);
  }
  std::span<std::uint64_t> snapshots() const { return snapshots_; }
  void forget_snapshots() const { std::fill(snapshots_.begin(), snapshots_.end(), 0); }
  std::uint64_t snapshot_check_of(std::size_t segment) const {
    const std::span<std::uint64_t> words = snapshot(segment);
    std::uint64_t h = 0x31504e5356464c48ull;
    const auto take = [&](std::uint64_t word) { h = mixed(h ^ word) * 0x9e3779b97f4a7c15ull + 1; };
    for (std::size_t i = 0; i < 5; ++i) take(words[i]);
    take(words[5] & 0xffffffff);
    take(segment);
    return mixed(h) == 0 ? 1 : mixed(h);
  }
  std::uint64_t bits_sum_of(std::size_t segment) const {
    const std::span<std::uint64_t> bits = snapshot(segment).subspan(kSnapshotHeader);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < bits.size() / 2; ++i) {
      sum += mixed(mixed(bits[2 * i] ^ (i + 1) * 0x9e3779b97f4a7c15ull) +
                   bits[2 * i + 1] * 0xd6e8feb86659fd93ull);
    }
    return sum;
  }
  // The segments whose snapshots count.
  std::vector<std::size_t> snapshots_that_count() const {
    std::vector<std::size_t> found;
    for (std::size_t segment = 0; segment < segments_; ++segment) {
      const std::span<std::uint64_t> words = snapshot(segment);
      const std::size_t at = segment * words_of_segment();
      const std::uint64_t check = records_[at + 9];
      if (words[7] == 0 || words[7] != snapshot_check_of(segment) || words[1] > run()) continue;
      if (check == 0 || check != check_of(at, 0) || check != words[0]) continue;
      if (records_[at] == words[2] && (records_[at + 7] & 0xffffffff) == (words[5] & 0xffffffff)) {
        found.push_back(segment);
      }
    }
    return found;
  }
  // As contents(), by what the snapshots say where they count.
  std::map<std::uint64_t, std::uint64_t> contents_by_snapshots() const {
    struct Held {
      std::uint64_t run;
      bool by_snapshot;
      std::uint32_t piece;
      std::size_t at;
      bool tombstone;
      auto order() const { return std::tuple(run, by_snapshot, piece, at); }
    };
    const std::vector<std::size_t> counting = snapshots_that_count();
    std::vector<Held> all;
    std::uint64_t digest = 0;
    for (const Piece& piece : pieces()) {
      if (piece.run > run()) continue;
      if (piece.run == run() && piece.piece == piece.pieces - 1) digest = records_[piece.at + 4];
      const std::size_t segment = piece.at / words_of_segment();
      if (std::find(counting.begin(), counting.end(), segment) != counting.end()) continue;
      for (std::uint32_t i = 0; i < piece.records; ++i) {
        all.push_back({piece.run, false, piece.piece, piece.at + kHeader + 2 * i,
                       i >= piece.records - piece.tombstones});
      }
    }
    for (const std::size_t segment : counting) {
      const std::span<std::uint64_t> words = snapshot(segment);
      if (words[4] != bits_sum_of(segment)) throw std::runtime_error("a snapshot's sum is wrong");
      for (std::size_t i = 0; i < segment_records_; ++i) {
        const std::size_t word = kSnapshotHeader + i / 64 * 2;
        if ((words[word] >> i % 64 & 1) == 0) continue;
        all.push_back({words[1], true, 0, segment * words_of_segment() + 2 * i,
                       (words[word + 1] >> i % 64 & 1) != 0});
      }
    }
    std::sort(all.begin(), all.end(),
              [](const Held& a, const Held& b) { return a.order() < b.order(); });
    std::map<std::uint64_t, std::uint64_t> pairs;
    for (const Held& held : all) {
      const std::uint64_t key = records_[held.at];
      if (key == 0) continue;
      if (held.tombstone) {
        pairs.erase(~key);
      } else {
        pairs[~key] = records_[held.at + 1];
      }
    }
    check_digest(pairs, digest);
    return pairs;
  }

  // What the log says that the store holds. Throws where a sum or the digest is wrong.
  std::map<std::uint64_t, std::uint64_t> contents() const {
    std::vector<Piece> all = pieces();
    std::erase_if(all, [&](const Piece& piece) { return piece.run > run(); });
    std::sort(all.begin(), all.end(), [](const Piece& a, const Piece& b) {
      return std::pair(a.run, a.piece) < std::pair(b.run, b.piece);
    });
    std::map<std::uint64_t, std::uint64_t> pairs;
    std::uint64_t digest = 0;
    for (const Piece& piece : all) {
      std::uint64_t sum = 0;
      for (std::uint32_t i = 0; i < piece.records; ++i) {
        const std::uint64_t key = records_[piece.at + kHeader + 2 * i];
        const std::uint64_t value = records_[piece.at + kHeader + 2 * i + 1];
        sum += mixed(mixed(key ^ (i + 1) * 0x9e3779b97f4a7c15ull) + value * 0xd6e8feb86659fd93ull);
        if (key == 0) continue;
        if (i >= piece.records - piece.tombstones) {
          pairs.erase(~key);
        } else {
          pairs[~key] = value;
        }
      }
      if (sum != records_[piece.at + 5]) throw std::runtime_error("a sum is wrong");
      digest = records_[piece.at + 4];
    }
    check_digest(pairs, digest);
    return pairs;
  }

  // All that a crash could leave of: the log, its snapshots, and last the commit word.
  Words copy() const {
    Words words(records_.begin(), records_.end());
    words.insert(words.end(), snapshots_.begin(), snapshots_.end());
    words.push_back(commit_[0]);
    return words;
  }
  void put(const Words& words) const {
    const auto behind = words.begin() + static_cast<std::ptrdiff_t>(records_.size());
    std::copy(words.begin(), behind, records_.begin());
    std::copy(behind, words.end() - 1, snapshots_.begin());
    commit_[0] = words.back();
  }

 private:
  static std::span<std::uint64_t> words_of(const Region& region, const char* name) {
    const ObjectInfo info = region.object(name);
    return {static_cast<std::uint64_t*>(region.address(info)), info.bytes() / 8};
  }
  static void check_digest(const std::map<std::uint64_t, std::uint64_t>& pairs,
                           std::uint64_t digest) {
    std::uint64_t made = 0;
    for (const auto& [key, value] : pairs) {
      made += mixed(mixed(~key ^ 0x2545f4914f6cdd1dull) + value * 0xd6e8feb86659fd93ull);
    }
    if (made != digest) throw std::runtime_error("the digest is wrong");
  }
  std::span<std::uint64_t> records_, snapshots_, commit_;
  std::uint32_t segment_records_ = 0;
  std::uint32_t segments_ = 0;
};

}  // namespace holdfast::test
