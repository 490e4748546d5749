#include "check/checker.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "check/race.hpp"
#include "check/sampler.hpp"

namespace holdfast::check {

using detail::concat;

namespace {

// What the first rung may cost before the next one is tried.
constexpr std::uint64_t kTrial = 2'000;
// What tells which words are read at all, where that rung is left out.
constexpr std::uint64_t kGlance = 8;
// Crashes inside recovery, for each state of the program where states are only sampled.
constexpr std::uint64_t kSampledNested = 64;

}  // namespace

Checker::Checker(const Program& program, const Options& options)
    : program_(program), options_(options), machine_(program, options) {
  if (options.workers == 0 || options.worker >= options.workers) {
    throw OptionError(concat("check: worker ", options.worker, " of ", options.workers,
                             ": count workers from 0"));
  }
}

Checker::~Checker() = default;

std::vector<Model> Checker::models() const {
  if (options_.model) return {*options_.model};
  return {Model::sbrp, Model::epoch};
}

void Checker::begin_report() {
  begun_ = Clock::now();
  seen_.clear();
  report_ = Report{};
  report_.program = program_.name;
  report_.races_sought = options_.races;
  report_.share_of = options_.workers;
  report_.barrier_orders = options_.barrier_orders;
  for (const Model model : models()) {
    ModelReport& part = report_.models.emplace_back();
    part.model = model;
    part.complete = true;
    part.nested_complete = options_.nested;
  }
}

void Checker::start(ModelReport& part) {
  model_ = part.model;
  order_ = std::make_unique<Order>(trace_, order_options(moments_));
  order_->find_constant(machine_.before(), trace_.persistent.begin);
  if (options_.robust) robustness_ = std::make_unique<Robustness>(*order_);
  findings_.clear();
  ever_read_.clear();
  states_ = nested_states_ = 0;
  components_ = pairs_ = pairs_tried_ = 0;
  nested_cut_ = false;
  budget_ = options_.max_states - std::min(options_.max_states, part.states);
  deadline_.reset();
  if (options_.max_seconds > 0) {  // each model has its share of what is left
    const auto left = std::chrono::duration<double>(options_.max_seconds) - (Clock::now() - begun_);
    const auto others = &report_.models.back() - &part + 1;
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(left / others);
  }
  report_.persists = std::max<std::uint64_t>(report_.persists, order_->writes().size());
  report_.crash_points = std::max<std::uint64_t>(report_.crash_points, order_->points().size());
  report_.threads = std::max<std::uint64_t>(report_.threads, trace_.threads.size() - 2);
}

bool Checker::out_of_budget() const {
  if (states_ >= most_states_ || !findings_.empty()) return true;
  return deadline_ && Clock::now() > *deadline_;
}

bool Checker::is_spent(const ModelReport& part) const {
  if (part.states >= options_.max_states) return true;
  return options_.max_seconds > 0 &&
         Clock::now() - begun_ > std::chrono::duration<double>(options_.max_seconds);
}

std::uint32_t Checker::note(Finding finding) {
  findings_.push_back(std::move(finding));
  return static_cast<std::uint32_t>(findings_.size());
}

std::string Checker::not_robust(const Bitset& durable, const CrashPoint& point) const {
  if (!options_.robust) return {};
  return robustness_->violation(
      durable, point, machine_.footprint().sure_reads(),
      [this](std::uint64_t address) { return machine_.name_of(address); });
}

Checker::CellFilter Checker::filter_for(const Order& order,
                                        std::optional<std::uint32_t> group) const {
  if (!group) return nullptr;
  std::vector<bool> in(order.cells().size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Cell& cell = order.cells()[i];
    for (const std::uint64_t byte : {cell.address, cell.address + cell.size - 1}) {
      const std::uint32_t of = groups_.of(half_of(byte));
      if (of == Groups::kShared || of == *group) in[i] = true;
    }
  }
  return [in = std::move(in)](std::uint32_t cell) { return in[cell]; };
}

std::unique_ptr<Explorer> Checker::make_explorer(std::optional<std::uint32_t> group) {
  auto explorer = std::make_unique<Explorer>(
      *order_, [this, group](const Bitset& durable, const CrashPoint& point) {
        return run_state(durable, point, group);
      });
  explorer->stop_when([this] { return out_of_budget(); });
  explorer->on_state([this](const StateSeen& seen) {
    for (const std::uint32_t cell : seen.outcome.reads) {
      if (cell >= ever_read_.size()) ever_read_.resize(cell + 1);
      ever_read_[cell] = 1;
    }
    return seen.outcome.verdict == 0;
  });
  return explorer;
}

bool Checker::explore_all(std::uint64_t most) {
  machine_.follow_flows(false);
  most_states_ = std::min(budget_, most);
  most_nested_ = most_states_;
  nested_cut_ = false;
  const auto explorer = make_explorer(std::nullopt);
  return explorer->explore();
}

// Some states far apart from each other, to see who looks at what.
void Checker::look_around() {
  const std::size_t points = order_->points().size();
  for (const std::size_t number : {points - 1, points / 2, std::size_t{0}}) {
    const CrashPoint& point = order_->points()[number];
    for (const Bitset& durable : {point.durable, Bitset::below(point.executed)}) {
      if (out_of_budget()) return;
      run_state(durable, point, Groups::kShared);
    }
  }
}

bool Checker::explore_groups() {
  most_states_ = budget_ - budget_ / 4;  // the rest is for samples
  most_nested_ = budget_;
  nested_cut_ = false;
  machine_.follow_flows(true);
  look_around();
  groups_.form();
  for (bool again = true; again;) {
    again = false;
    components_ = groups_.all().size();
    if (components_ < 2) return false;
    const std::vector<std::uint32_t> groups = groups_.all();  // as they are in this pass
    for (const std::uint32_t group : groups) {
      const std::size_t variable = machine_.variable();
      if (!make_explorer(group)->explore(filter_for(*order_, group))) return false;
      // What was read while it was taken for a constant has not been noted.
      again = groups_.form() || machine_.variable() != variable;
      if (again) break;  // from the start, with the groups as they are now
    }
  }
  return true;
}

void Checker::climb() {
  rung_ = Rung::exhaustive;
  complete_ = first_rung_ == Rung::exhaustive && explore_all(kTrial);
  // An execution's states are one worker's, under one model: who explored some of its groups alone
  // would not learn what links them to others'. The trial takes no longer than sharing it out
  // would.
  if (!complete_ && findings_.empty() && part_number_ % options_.workers != options_.worker) {
    complete_ = true;
    nested_cut_ = false;
    return;
  }
  if (first_rung_ == Rung::sampled) explore_all(kGlance);
  if (!complete_ && findings_.empty() && first_rung_ != Rung::sampled) {
    rung_ = Rung::components;
    complete_ = explore_groups();
  }
  if (!complete_ && findings_.empty() && groups_.all().size() < 2 && first_rung_ != Rung::sampled) {
    rung_ = Rung::exhaustive;
    complete_ = explore_all(budget_ - budget_ / 4);
  }
  if (!complete_ && findings_.empty()) {
    rung_ = Rung::sampled;  // whatever it tries, there are states that it does not
    machine_.follow_flows(false);
    most_states_ = budget_;
    most_nested_ = kSampledNested;
    const auto explorer = make_explorer(Groups::kShared);
    Sampler sampler(*explorer, options_, ever_read_, [this] { return out_of_budget(); });
    sampler.run();
    pairs_ = sampler.pairs();
    pairs_tried_ = sampler.pairs_tried();
  }
}

namespace {

// The models may differ in why.
bool is_same(const Failure& a, const Failure& b) {
  return a.nested == b.nested && to_string(a.lost.place) == to_string(b.lost.place) &&
         to_string(a.kept.place) == to_string(b.kept.place);
}

}  // namespace

// What comes before a state in its name.
std::string Checker::prefix_of(const std::string& execution) const {
  return model_ == Model::sbrp ? execution : concat(execution, to_string(model_), "@");
}

// The states of the execution that is at hand, under one model.
void Checker::explore(ModelReport& part, const std::string& execution, bool find_causes) {
  ++part_number_;
  const std::uint64_t runs = machine_.runs();
  const std::uint64_t memoised = machine_.memoised();
  start(part);
  const std::string prefix = prefix_of(execution);
  machine_.name_states(prefix);
  // Executions that differ in what nobody's crash can show need be explored once.
  if (moments_ == Moments::cuts && !options_.robust &&
      !seen_.insert({model_, signature(*order_)}).second) {
    return;
  }
  climb();
  if (!findings_.empty()) {
    sites_of_failure_ = trace_.sites;
    if (const Recovery* const recovery = findings_.front().recovery.get()) {
      const auto& sites = recovery->trace.sites;
      sites_of_failure_.insert(sites_of_failure_.end(), sites.begin(), sites.end());
    }
    Failure failure = explain(findings_.front(), find_causes);
    failure.state = concat(prefix, failure.state);
    failure.model = model_;
    const bool known = std::any_of(report_.failures.begin(), report_.failures.end(),
                                   [&](const Failure& other) { return is_same(failure, other); });
    if (!known) report_.failures.push_back(std::move(failure));
    part.failed = true;
  }
  part.rung = std::max(part.rung, rung_);
  part.complete = part.complete && complete_;
  part.nested_complete = part.nested_complete && complete_ && !nested_cut_;
  part.states += states_;
  part.nested_states += nested_states_;
  part.runs += machine_.runs() - runs;
  part.memoised += machine_.memoised() - memoised;
  part.components = std::max(part.components, components_);
  part.pairs += pairs_;
  part.pairs_tried += pairs_tried_;
}

Report Checker::check(bool find_causes) {
  begin_report();
  Executions executions(machine_, options_);
  const auto is_enough = [&] {
    if (!report_.failures.empty()) return true;
    return std::any_of(report_.models.begin(), report_.models.end(),
                       [&](const ModelReport& part) { return is_spent(part); });
  };
  std::optional<RaceDetector> detector;  // of the last run
  executions.before_run([&] {
    if (options_.races) machine_.let_hear(&detector.emplace());
  });
  for (bool first = true; first || !is_enough(); first = false) {
    run_failed_ = true;
    std::optional<Trace> trace = executions.next();
    run_failed_ = false;
    machine_.let_hear(nullptr);
    if (!trace) break;
    trace_ = std::move(*trace);
    moments_ = executions.moments();
    if (detector) add_races(*detector);
    add_weak(trace_);
    for (ModelReport& part : report_.models) {
      explore(part, executions.name(), find_causes);
      if (first && &part == &report_.models.front() && findings_.empty()) add_hints(report_);
    }
  }
  machine_.check_clean();
  report_.schedules = executions.made();
  report_.schedules_complete = executions.complete();
  report_.schedules_share = executions.share();
  const RecoverySchedules recovery = machine_.recovery_schedules();
  report_.recovery_schedules = recovery.most;
  report_.recovery_raced = recovery.have_raced;
  report_.recovery_complete = recovery.complete && !recovery.have_raced;
  finish_report();
  return report_;
}

void Checker::finish_report() {
  report_.seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  report_.peak_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  conclude(report_);
  if (report_.verdict == Verdict::failed || report_.verdict == Verdict::racy) {
    report_.hints.clear();
  }
}

void Checker::add_hints(Report& report) const {
  Places& places = const_cast<Places&>(places_);
  const auto& sites = trace_.sites;
  std::vector<const char*> fence_at(sites.size(), nullptr);
  std::vector<bool> wide_release(sites.size());
  for (const Op& op : trace_.ops) {
    if (op.kind == OpKind::durability_fence) fence_at[op.site] = "durability fence";
    if (op.kind == OpKind::ordering_fence) fence_at[op.site] = "ordering fence";
    if (op.kind == OpKind::release && op.scope != Scope::block) wide_release[op.site] = true;
  }
  for (std::size_t site = 0; site < sites.size(); ++site) {
    const auto& use = order_->fence_uses()[site];
    if (fence_at[site] != nullptr && use.executed > 0 && use.useful == 0) {
      report.hints.push_back({concat("this ", fence_at[site],
                                     " orders nothing: no store came before "
                                     "it, or what came before was durable already"),
                              places.place(sites[site])});
    }
    const auto& release = order_->release_uses()[site];
    if (wide_release[site] && release.acquired && !release.other_block) {
      report.hints.push_back(
          {"the scope is wider than needed: all that acquire from this release "
           "are in its block",
           places.place(sites[site])});
    }
  }
  if (!complete_ || rung_ == Rung::sampled) return;
  std::vector<int> read_at(sites.size(), -1);  // -1: no store; 0: none is read; 1: some are
  for (std::uint32_t cell = 0; cell < order_->cells().size(); ++cell) {
    const bool read = cell < ever_read_.size() && ever_read_[cell] != 0;
    for (const std::uint32_t write : order_->cells()[cell].writes) {
      int& known = read_at[trace_.ops[order_->writes()[write].op].site];
      known = std::max(known, read ? 1 : 0);
    }
  }
  for (std::size_t site = 0; site < sites.size(); ++site) {
    if (read_at[site] == 0) {
      report.hints.push_back(
          {"neither recovery nor verification reads what is stored here: it "
           "need not be durable, or it is not verified",
           places.place(sites[site])});
    }
  }
}

}  // namespace holdfast::check
