// Applications of the artifact watch the link with these: here nothing is watched. They also count
// on what the artifact's header brings with it.
#pragma once

#include <fstream>
#include <iostream>
#include <thread>

using namespace std;  // NOLINT(google-build-using-namespace): as the artifact's

#define START_BW_MONITOR
#define START_BW_MONITOR2(file)
#define STOP_BW_MONITOR
