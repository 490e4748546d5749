# holdfast_units(TARGET [ALONE FILE...]): host files of the target are compiled eight at a time: headers
# that all of them read are half of what they cost. Files ALONE have a name that another one has, too.
#
# CMAKE_UNITY_BUILD=OFF compiles each file by itself, as clang-tidy reads them: there a file has to name
# what it uses.
function(holdfast_units target)
  cmake_parse_arguments(arg "" "" "ALONE" ${ARGN})
  if(DEFINED CMAKE_UNITY_BUILD AND NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  get_target_property(alone ${target} SOURCES)
  list(FILTER alone INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${alone} ${arg_ALONE} TARGET_DIRECTORY ${target}
                              PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # It takes the files of one such unit for headers.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()
