# tranche_backend(NAME vnic_tc VERSION 1.0.0 SOURCES vnic_tc.cc ... [LIBRARIES ...] [CONFIG_SCHEMA config.schema.json]
#                 [LICENSE Apache-2.0] [CAPABILITIES NET_ADMIN ...] [SYSTEM_CALLS bpf ...])
# One vendor backend: NAME.so, which exports tranche_backend_v* and nothing else, and NAME.backend.json beside it (the
# manifest that the host reads before it opens the library). Both land in TRANCHE_BACKEND_DIRECTORY (default: the current
# binary directory). CONFIG_SCHEMA is a JSON schema (draft 7) of the backend's `config`; without one any object is accepted. CAPABILITIES and
# SYSTEM_CALLS are what it needs in a process of its own, where it has none and the dangerous calls are denied (docs/backend-abi.md).
set(TRANCHE_SDK_CMAKE_DIRECTORY ${CMAKE_CURRENT_LIST_DIR})

function(tranche_backend)
  cmake_parse_arguments(BACKEND "" "NAME;VERSION;CONFIG_SCHEMA;LICENSE" "SOURCES;LIBRARIES;CAPABILITIES;SYSTEM_CALLS" ${ARGN})
  if(NOT BACKEND_NAME MATCHES "^[a-z0-9_]+$" OR NOT BACKEND_VERSION)
    message(FATAL_ERROR "tranche_backend: NAME must match [a-z0-9_]+ and VERSION must be given (NAME ${BACKEND_NAME})")
  endif()
  if(NOT BACKEND_LICENSE)
    set(BACKEND_LICENSE Apache-2.0)
  endif()
  if(NOT TRANCHE_BACKEND_DIRECTORY)
    set(TRANCHE_BACKEND_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  set(schema "")
  if(BACKEND_CONFIG_SCHEMA)
    get_filename_component(schema ${BACKEND_CONFIG_SCHEMA} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  endif()

  set(exports ${TRANCHE_SDK_CMAKE_DIRECTORY}/backend.exports)
  add_library(${BACKEND_NAME} MODULE ${BACKEND_SOURCES})
  target_compile_features(${BACKEND_NAME} PRIVATE cxx_std_20)
  set_target_properties(${BACKEND_NAME} PROPERTIES
    PREFIX "" SUFFIX ".so" LIBRARY_OUTPUT_DIRECTORY ${TRANCHE_BACKEND_DIRECTORY}
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON SKIP_BUILD_RPATH ON LINK_DEPENDS "${exports};${schema}")
  target_link_libraries(${BACKEND_NAME} PRIVATE tranche_sdk Boost::json ${BACKEND_LIBRARIES})
  if(TARGET tranche_warnings)
    target_link_libraries(${BACKEND_NAME} PRIVATE tranche_warnings)
  endif()
  target_link_options(${BACKEND_NAME} PRIVATE -Wl,--version-script=${exports} -Wl,-z,now)
  if(NOT TRANCHE_SANITIZER) # a sanitizer's symbols are the program's
    target_link_options(${BACKEND_NAME} PRIVATE -Wl,-z,defs)
  endif()
  add_custom_command(TARGET ${BACKEND_NAME} POST_BUILD VERBATIM
    COMMAND ${CMAKE_COMMAND} -DNAME=${BACKEND_NAME} -DVERSION=${BACKEND_VERSION} -DLICENSE=${BACKEND_LICENSE}
            -DARCH=${CMAKE_SYSTEM_PROCESSOR} -DLIBRARY=$<TARGET_FILE:${BACKEND_NAME}> -DSCHEMA=${schema}
            "-DCAPABILITIES=${BACKEND_CAPABILITIES}" "-DSYSTEM_CALLS=${BACKEND_SYSTEM_CALLS}"
            -P ${TRANCHE_SDK_CMAKE_DIRECTORY}/WriteManifest.cmake)
endfunction()
