// verify(): the whole map read by the host, with none of the kernels.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "bytes_map/host.hpp"

namespace holdfast::detail {
namespace {

using namespace bytes_map;

struct Terms {
  std::uint64_t sum = 0;
  std::uint64_t digest[2] = {};
};

// Of a record's grains behind the head; the digest, of those of the key.
Terms terms_of(const std::byte* record, const RecordHead& head) {
  Terms terms;
  const std::uint64_t of_key = grains_for(head.key_bytes);
  for (std::uint64_t i = 0; i < of_key + grains_for(head.value_bytes); ++i) {
    std::uint64_t words[2];
    std::memcpy(words, record + (1 + i) * kGrain, sizeof(words));
    terms.sum += sum_term(i, words[0], words[1]);
    for (unsigned half = 0; half < 2 && i < of_key; ++half) {
      terms.digest[half] += digest_term(half, i, words[0], words[1]);
    }
  }
  return terms;
}

std::string judge(const std::byte* record, const Extent& at, const Digest& digest,
                  unsigned digest_bits) {
  RecordHead head;
  std::memcpy(&head, record, sizeof(head));
  if (!is_head(head, at)) return "has lengths that are none of its size";
  const Terms terms = terms_of(record, head);
  if (sum_of(terms.sum, head.key_bytes, head.value_bytes, at.first) != head.sum) {
    return "is not as it was written";
  }
  std::uint64_t expected[2];
  for (unsigned half = 0; half < 2; ++half) {
    expected[half] = digest_of(half, terms.digest[half], head.key_bytes, digest_bits);
  }
  return std::memcmp(expected, &digest, sizeof(expected)) == 0
             ? ""
             : "has a key that its digest is not of";
}

}  // namespace

std::string BytesMapHost::verify() {
  if (std::string wrong = index_.verify(); !wrong.empty()) return "the index: " + wrong;
  const Pairs pairs = all_pairs();
  std::vector<std::size_t> order(pairs.words.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return extent_of(pairs.words[a]).first < extent_of(pairs.words[b]).first;
  });
  // What is used, what is free and what is between chunks, in turn, has to be all there is.
  std::vector<Extent> all = records_.gaps();
  all.insert(all.end(), free_.extents().begin(), free_.extents().end());
  constexpr std::uint64_t kWindow = (std::uint64_t{64} << 20) / kGrain;
  std::vector<std::byte> window;
  Extent seen;
  for (const std::size_t i : order) {
    const Extent at = extent_of(pairs.words[i]);
    const Chunk* const chunk = records_.chunk_of(at);
    if (!is_word(pairs.words[i]) || chunk == nullptr) {
      return concat("the word ", pairs.words[i], " is none");
    }
    if (at.first < seen.first || at.end() > seen.end()) {
      seen = {at.first, std::min(std::max(kWindow, at.grains), chunk->end() - at.first)};
      window.resize(seen.grains * kGrain);
      copy_async(stream(), window.data(), chunk->at(at.first), window.size());
      stream().synchronize();
    }
    const std::string wrong = judge(window.data() + (at.first - seen.first) * kGrain, at,
                                    pairs.digests[i], object_.parameters().digest_bits);
    if (!wrong.empty()) return concat("the record at ", at.first * kGrain, " ", wrong);
    all.push_back(at);
  }
  std::sort(all.begin(), all.end(),
            [](const Extent& a, const Extent& b) { return a.first < b.first; });
  std::uint64_t end = 0;
  for (const Extent& each : all) {
    if (each.first < end) return concat("the place ", each.first * kGrain, " is taken twice");
    if (each.first > end && !refs_out_) {
      return concat((each.first - end) * kGrain, " bytes at ", end * kGrain,
                    " are neither free nor a record's");
    }
    end = each.end();
  }
  if (end == records_.end() || refs_out_) return {};
  return concat((records_.end() - end) * kGrain,
                " bytes at the end are neither free nor a record's");
}

}  // namespace holdfast::detail
