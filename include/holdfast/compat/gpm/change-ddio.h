/* ddio_on() and ddio_off() of the artifact. Applications include it within extern "C". */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif
/* Between 1 and 0 what kernels persist by-passes the processor's caches. */
void holdfast_gpm_window(int open);
#ifdef __cplusplus
}
#endif

__attribute__((unused)) static inline void ddio_off(void) { holdfast_gpm_window(1); }
__attribute__((unused)) static inline void ddio_on(void) { holdfast_gpm_window(0); }
