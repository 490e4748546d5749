# What `cmake --install` puts into a prefix: headers, archives, the CMake package `holdfast` and a
# file for pkg-config. docs/install.md says how each is used.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(targets holdfast)
if(HOLDFAST_CHECKER)
  list(APPEND targets holdfast_check)
  if(TARGET holdfast_intercepted)
    list(APPEND targets holdfast_intercepted)
  endif()
  set_target_properties(holdfast_check PROPERTIES EXPORT_NAME check)
endif()
install(
  TARGETS ${targets}
  EXPORT holdfast-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT holdfast
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(
  DIRECTORY ${PROJECT_SOURCE_DIR}/include/holdfast
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT holdfast)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/holdfast)
install(
  EXPORT holdfast-targets
  NAMESPACE holdfast::
  DESTINATION ${package}
  COMPONENT holdfast)
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/holdfast-config.cmake.in ${PROJECT_BINARY_DIR}/holdfast-config.cmake
  INSTALL_DESTINATION ${package} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/holdfast-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(
  FILES ${PROJECT_BINARY_DIR}/holdfast-config.cmake
        ${PROJECT_BINARY_DIR}/holdfast-config-version.cmake
        ${PROJECT_SOURCE_DIR}/cmake/HoldfastCheck.cmake
        ${PROJECT_SOURCE_DIR}/cmake/HoldfastCheckRun.cmake
        ${PROJECT_SOURCE_DIR}/cmake/HoldfastKernels.cmake
        ${PROJECT_SOURCE_DIR}/cmake/HoldfastPmem2.cmake
  DESTINATION ${package}
  COMPONENT holdfast)

# For host code. Kernels need the flags of holdfast_kernels().
set(HOLDFAST_PC_LIBS "-lboost_context -ldl")
if(HOLDFAST_WITH_PMEM2)
  string(APPEND HOLDFAST_PC_LIBS " -lpmem2")
endif()
if(HOLDFAST_BACKEND STREQUAL "cuda")
  find_package(CUDAToolkit REQUIRED)
  set(HOLDFAST_PC_LIBS "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
  list(TRANSFORM CUDAToolkit_INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE HOLDFAST_PC_FLAGS)
  list(JOIN HOLDFAST_PC_FLAGS " " HOLDFAST_PC_FLAGS)
endif()
string(TOUPPER ${HOLDFAST_BACKEND} HOLDFAST_PC_BACKEND)
file(RELATIVE_PATH HOLDFAST_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${PROJECT_SOURCE_DIR}/cmake/holdfast.pc.in ${PROJECT_BINARY_DIR}/holdfast.pc @ONLY)
install(
  FILES ${PROJECT_BINARY_DIR}/holdfast.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT holdfast)
