#define HOLDFAST_TEST_LEVEL o0
#include "cpu/accesses.inl"
