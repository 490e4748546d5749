// The name by which applications of the artifact include it.
#pragma once

#include "holdfast/compat/libgpm.cuh"

#include "gpm-annotations.cuh"
#include "gpm-helper.cuh"
