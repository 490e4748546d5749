#include "core/domain.hpp"

#include <algorithm>
#include <utility>

namespace holdfast {

namespace core {

using detail::concat;

namespace {

constexpr const DomainKind* kKinds[] = {&kFileDomain, &kDaxDomain, &kDeviceDomain,
                                        &kEmulatedDomain};

Directory::Flush flush_of(Medium& medium) {
  return [&medium](const void* address, std::size_t bytes) { medium.flush(address, bytes); };
}

}  // namespace

const DomainKind* kind_of(Domain domain) noexcept {
  for (const DomainKind* const kind : kKinds) {
    if (kind->domain == domain) return kind;
  }
  return nullptr;
}

const DomainKind& kind_at(const std::string& path) {
  for (const DomainKind* const kind : kKinds) {
    if (kind != &kFileDomain && kind->has && kind->has(path)) return *kind;
  }
  return kFileDomain;
}

void check_kind(const std::string& path, const DomainKind& wanted) {
  for (const DomainKind* const kind : kKinds) {
    if (kind == &wanted || !kind->has || !kind->has(path)) continue;
    throw Error(Errc::invalid_argument,
                concat("'", path, "' is of the ", kind->name, " domain, not of the ", wanted.name,
                       " domain: ask for that one, or choose another path"));
  }
}

Domain domain_for(const std::string& path) {
  return path.rfind("/dev/dax", 0) == 0 ? Domain::dax : Domain::file;
}

std::uint64_t checked_max_size(std::uint64_t size, std::uint64_t wanted) {
  if (wanted == 0) return std::min(size, kMaxRegionBytes / 4) * 4;
  const std::uint64_t rounded = pages_of(std::min(wanted, kMaxRegionBytes)) * kPage;
  if (wanted > kMaxRegionBytes || rounded < size) {
    throw Error(Errc::invalid_argument,
                concat("max_size ", wanted, " must lie between the region's size ", size, " and ",
                       kMaxRegionBytes, " bytes"));
  }
  return rounded;
}

testing::MediumModel model_of(const Model& model) {
  return model ? *model : testing::MediumModel();
}

void RegionDomain::hand_out(std::uint64_t from, std::uint64_t to) {
  if (from < zero_from_) medium().zero(from, std::min(to, zero_from_) - from);
  zero_from_ = std::max(zero_from_, to);
  // What the image holds there is another object's, or an earlier one's.
  if (MarkMap* const map = marks()) map->mark(from / kPage, to / kPage - 1);
}

void RegionDomain::settle() {
  // What a writer that failed has stored it may not have marked.
  if (pending_.wait()) compare_everything();
}

InPlaceDomain::InPlaceDomain(Domain domain, std::string path, std::unique_ptr<Medium> medium,
                             const Model& model)
    : RegionDomain(model),
      domain_(domain),
      path_(std::move(path)),
      medium_(std::move(medium)),
      directory_(std::make_unique<Directory>(
          Directory::load(medium_->metadata(), medium_->size(), path_, flush_of(*medium_)))) {}

Commit InPlaceDomain::commit(Stream&) {
  throw Error(Errc::unsupported, concat("'", path_, "' is of the ", to_string(domain_),
                                        " domain, which keeps nothing: there is no commit()"));
}

CommitStats InPlaceDomain::commit() {
  if (!stream_) stream_ = std::make_unique<Stream>();
  return commit(*stream_).wait();
}

std::unique_ptr<Medium> formatted(std::unique_ptr<Medium> medium) {
  Directory::format(medium->metadata(), new_uuid(), medium->size(), flush_of(*medium));
  return medium;
}

}  // namespace core

const char* to_string(Domain domain) noexcept {
  const core::DomainKind* const kind = core::kind_of(domain);
  return kind ? kind->name : "unknown";
}

}  // namespace holdfast
