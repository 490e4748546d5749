// The name by which applications of the artifact include it.
#pragma once

#include "libgpm.cuh"
