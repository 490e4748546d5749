# Finds libpmem2 (PMDK): HOLDFAST_PMEM2_FOUND, and the target holdfast::pmem2.
find_path(HOLDFAST_PMEM2_INCLUDE libpmem2.h)
find_library(HOLDFAST_PMEM2_LIBRARY pmem2)
mark_as_advanced(HOLDFAST_PMEM2_INCLUDE HOLDFAST_PMEM2_LIBRARY)
if(HOLDFAST_PMEM2_INCLUDE AND HOLDFAST_PMEM2_LIBRARY)
  set(HOLDFAST_PMEM2_FOUND ON)
  if(NOT TARGET holdfast::pmem2)
    add_library(holdfast::pmem2 UNKNOWN IMPORTED)
    set_target_properties(
      holdfast::pmem2
      PROPERTIES IMPORTED_LOCATION "${HOLDFAST_PMEM2_LIBRARY}"
                 INTERFACE_INCLUDE_DIRECTORIES "${HOLDFAST_PMEM2_INCLUDE}"
                 INTERFACE_COMPILE_DEFINITIONS HOLDFAST_WITH_PMEM2=1)
  endif()
else()
  set(HOLDFAST_PMEM2_FOUND OFF)
endif()
