// What calls that only ask whether something is done tell the backend.
#pragma once

namespace holdfast::core {

// The host asks: a loop that does so waits. Where kernels take turns with the host (an Exploration
// on the CPU backend) they must get one. May throw livelock there.
void host_asks();

}  // namespace holdfast::core
