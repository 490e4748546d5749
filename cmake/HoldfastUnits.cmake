# holdfast_units(TARGET [ALONE FILE...]): host files of the target are compiled eight at a time: headers
# that all of them read are half of what they cost. Files ALONE have a name that another one has, too.
#
# CMAKE_UNITY_BUILD=OFF compiles each file by itself, as clang-tidy reads them: there a file has to name
# what it uses. The units are not CMake's own: those name their files by absolute paths, by which no
# compiler's cache knows another checkout's again.
function(holdfast_units target)
  cmake_parse_arguments(arg "" "" "ALONE" ${ARGN})
  if(DEFINED CMAKE_UNITY_BUILD AND NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  get_target_property(files ${target} SOURCES)
  list(FILTER files INCLUDE REGEX "\\.cpp$")
  list(REMOVE_ITEM files ${arg_ALONE})
  set_source_files_properties(${files} PROPERTIES HEADER_FILE_ONLY ON)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  set(number 0)
  while(files)
    list(SUBLIST files 0 8 some)
    list(REMOVE_ITEM files ${some})
    set(text "")
    foreach(file IN LISTS some)
      get_filename_component(file ${file} ABSOLUTE)
      file(RELATIVE_PATH file ${PROJECT_SOURCE_DIR}/src ${file})
      string(APPEND text "#include \"${file}\"\n")
    endforeach()
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/units/${target}_${number}.cpp)
    file(CONFIGURE OUTPUT ${unit} CONTENT "${text}" @ONLY)
    target_sources(${target} PRIVATE ${unit})
    math(EXPR number "${number} + 1")
  endwhile()
  # It takes the files of one such unit for headers.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()
