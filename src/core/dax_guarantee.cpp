// How durable a write to a mapped DAX device is. DESIGN: docs/architecture.md, "Domains".
#include "core/dax.hpp"

namespace holdfast::core {

using detail::concat;

namespace {

// The path of a GPU's writes behind an ADR memory controller decides: DDIO stops them in the cache.
Guarantee behind_ddio(const DaxFacts& facts, const Platform& platform) {
  constexpr char kCommit[] = "; commit() flushes the processor's caches and survives a power cut";
  if (facts.gpu.empty()) {
    return {Rung::process, Rung::power,
            concat("the GPU's PCI address is not known, so where its writes to ", facts.path,
                   " rest is not known", kCommit)};
  }
  try {
    if (const auto ddio = platform.ddio(facts.gpu)) {
      if (!ddio->enabled) {
        return {Rung::power, Rung::power,
                concat("DDIO is off for root port ", ddio->root_port, " above the GPU, so its ",
                       "writes reach the memory controller, which is in the persistence domain")};
      }
      return {Rung::process, Rung::power,
              concat("DDIO is on for root port ", ddio->root_port, " above the GPU, so its writes ",
                     "may rest in the processor's cache, which a power cut loses; call ",
                     "persist_begin() around the kernels (as root)", kCommit)};
    }
  } catch (const Error&) {
    // ddio_reason() below says the same in words.
  }
  return {Rung::process, Rung::power,
          concat("where the GPU's writes to ", facts.path,
                 " rest is not known: ", platform.ddio_reason(facts.gpu), kCommit)};
}

Guarantee on_known_domain(const DaxFacts& facts, const Platform& platform) {
  if (facts.persistence_domain == "cpu_cache") {
    return {Rung::power, Rung::power,
            "the platform has eADR: the processor's caches are in the persistence domain"};
  }
  if (!facts.cuda) {
    return {Rung::process, Rung::power,
            "a kernel's persist() on the processor is a fence and flushes no cache; commit() "
            "flushes them through libpmem2 and survives a power cut"};
  }
  return behind_ddio(facts, platform);
}

}  // namespace

std::string dax_pin_hint(DaxKind kind, bool cuda) {
  if (kind != DaxKind::file || !cuda) return "";
  return "Linux refuses to pin the pages of a DAX file system for a device for long (from 6.5 on): "
         "give the GPU a device-DAX instead (ndctl create-namespace --mode=devdax)";
}

Guarantee dax_guarantee(const DaxFacts& facts, const Platform& platform) {
  if (facts.kind == DaxKind::plain_file) {
    return {Rung::process, Rung::process,
            concat("'", facts.path,
                   "' is an ordinary file that stands for a DAX device, for tests; nothing is "
                   "promised beyond the process. Use Domain::file for durable data")};
  }
  if (!DaxFlush::available()) {
    return {Rung::process, Rung::process,
            "this build has no libpmem2 to flush with; install libpmem2-dev and build again"};
  }
  Guarantee guarantee;
  if (facts.persistence_domain == "cpu_cache" || facts.persistence_domain == "memory_controller") {
    guarantee = on_known_domain(facts, platform);
  } else {
    guarantee = {Rung::process, Rung::process,
                 concat("the system states no persistence domain for '", facts.path,
                        "': it may be volatile (much CXL and high-bandwidth memory is), or lie "
                        "behind a device mapper; use a namespace that 'ndctl list -R' shows with a "
                        "persistence_domain")};
  }
  const std::string hint = dax_pin_hint(facts.kind, facts.cuda);
  if (!hint.empty()) guarantee.reason += ". " + hint;
  return guarantee;
}

}  // namespace holdfast::core
