// Persistent memory that is mapped directly: a commit flushes it.
#include <atomic>
#include <optional>

#include "core/commit.hpp"
#include "core/dax_medium.hpp"
#include "core/domain.hpp"

namespace holdfast::core {

using detail::concat;

namespace {

class DaxDomain : public InPlaceDomain {
 public:
  DaxDomain(const std::string& path, std::unique_ptr<Medium> medium, const Model& model)
      : InPlaceDomain(Domain::dax, path, std::move(medium), model) {
    set_zero_from(this->medium().size());  // a device holds anything
  }
  ~DaxDomain() override { queued_.drain(); }  // they flush the mapping

  using InPlaceDomain::commit;
  Commit commit(Stream& stream) override {
    pending().hold(stream, std::make_shared<std::atomic<bool>>());
    const auto state = std::make_shared<Commit::State>();
    state->stats.generation = ++commits_;
    queued_.add(state);
    state->queue(stream, [medium = &medium()](Commit::State& commit) {
      try {
        medium->flush(medium->base(), medium->size());
        commit.finish(std::nullopt);
      } catch (const Error& error) {
        commit.finish(error);
      }
    });
    return Commit(state);
  }

  std::uint64_t generation() const override { return commits_; }

  void close() override {
    queued_.drain();
    medium().flush(medium().base(), medium().size());
  }

 private:
  QueuedCommits queued_;
  std::uint64_t commits_ = 0;
};

// A device has room for its own size and no more, whatever is left to be chosen.
std::unique_ptr<RegionDomain> create(const NewRegion& region) {
  const RegionOptions& options = region.options;
  auto medium = make_dax_medium(region.path, true, region.size, options.max_size);
  return std::make_unique<DaxDomain>(region.path, formatted(std::move(medium)), options.medium);
}

std::unique_ptr<RegionDomain> open(const FoundRegion& region) {
  const OpenOptions& options = region.options;
  if (options.mode == OpenMode::read_only) {
    throw Error(Errc::unsupported,
                concat("'", region.path,
                       "' is of the dax domain, which cannot be opened for reading alone"));
  }
  return std::make_unique<DaxDomain>(
      region.path, make_dax_medium(region.path, false, 0, options.max_size), options.medium);
}

void destroy(const std::string& path, const OpenOptions&) { destroy_dax_region(path); }

}  // namespace

const DomainKind kDaxDomain{.domain = Domain::dax,
                            .name = "dax",
                            .create = create,
                            .has = is_dax_region,
                            .open = open,
                            .destroy = destroy};

}  // namespace holdfast::core
