#define HOLDFAST_TEST_LEVEL o2
#include "cpu/accesses.inl"
