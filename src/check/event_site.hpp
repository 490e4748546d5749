// Where in the source an event stands.
#pragma once

#include "check/trace.hpp"
#include "holdfast/cpu/listener.hpp"

namespace holdfast::check {

inline Site site_of(const cpu::Event& event) {
  if (event.pc != nullptr) return {event.pc, nullptr, 0};
  return {nullptr, event.file, event.line};
}

}  // namespace holdfast::check
