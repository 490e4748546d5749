// Changes of a program: one fence less, or a narrower one. They are made to the events of its
// kernels on their way to whoever records them, and to the barriers that its threads meet at.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "check/event_site.hpp"
#include "check/source_lines.hpp"
#include "check/trace.hpp"
#include "holdfast/check.hpp"
#include "holdfast/cpu/listener.hpp"

namespace holdfast::check {

// Places of a trace's sites as text, such as "undo_log_ref.inl:87", resolved as they are asked for.
class Places {
 public:
  // Resolves all sites at once, which takes far less than one by one.
  void look_up(const std::vector<Site>& sites);
  Place place(const Site& site);
  std::string name(const Site& site);  // "file:line", what Mutation::place holds

 private:
  SourceLines lines_;
  std::map<const void*, Place> places_;
};

// Gathers what there is to change from the events of a program's runs.
class Census : public cpu::Listener {
 public:
  void on_event(const cpu::Event& event) override;
  // The host begins an operation; it acknowledges one.
  void started() { waited_ = false; }
  void acknowledged();
  // Pairs of stores that a fence keeps apart, which a recording shows.
  void add_pairs(const Trace& trace);

  struct Change {
    Mutation::Kind kind = Mutation::Kind::none;
    Scope scope = Scope::system;
    Site site;
  };
  // Each change of each site once, in the order in which they were met.
  const std::vector<Change>& changes() const { return changes_; }

 private:
  void add(Mutation::Kind kind, const Site& site, Scope scope = Scope::system);

  std::vector<Change> changes_;
  std::set<std::tuple<Mutation::Kind, Scope, const void*, const char*, unsigned>> known_;
  bool waited_ = false;  // the last event was the end of a wait of the host
  Site wait_;
};

// Passes events on as the changed program would have made them. While it listens, its threads do
// not wait at the barriers that it drops.
class Mutator : public cpu::Listener {
 public:
  // `sites`: where the mutation's place is.
  Mutator(const Mutation& mutation, std::vector<Site> sites);
  ~Mutator() override;

  void begin(cpu::Listener& to);
  void end();
  void on_event(const cpu::Event& event) override;

  // Whether the change was met in any run so far.
  bool met() const { return met_; }
  // Whether it has taken away a wait of the host, which it waits for all the same: what it might do
  // earlier without it is not run.
  bool dropped_wait() const { return dropped_wait_; }
  // Whether what the host acknowledges now is to be acknowledged before its work.
  bool acknowledges_early() const { return early_; }
  // A recording of the changed program, where that takes a change of it: stores swapped.
  void change(Trace& trace);

 private:
  bool is_meant(const Site& site) const;
  bool adds(const cpu::Event& event);

  Mutation mutation_;
  std::vector<Site> sites_;
  std::set<const void*> pcs_;
  std::function<bool(const char*, unsigned)> leaves_out_;
  cpu::Listener* to_ = nullptr;
  bool met_ = false;
  bool dropped_wait_ = false;
  bool early_ = false;
};

// Moves the acknowledgement that would come next to before the work that the host has waited for
// last.
void acknowledge_early(Trace& trace);

}  // namespace holdfast::check
