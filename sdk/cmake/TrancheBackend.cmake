# tranche_add_backend(NAME vnic_tc VERSION 1.0.0 SOURCES vnic_tc.cc ... [LIBRARIES ...] [CONFIG_SCHEMA config.schema.json]
#                     [LICENSE Apache-2.0] [ABI 1.0] [CAPABILITIES NET_ADMIN ...] [SYSTEM_CALLS bpf ...])
# One vendor backend: NAME.so, which exports tranche_backend_v* and nothing else, and NAME.backend.json beside it (the
# manifest that the host reads before it opens the library). Both land in TRANCHE_BACKEND_DIRECTORY (default: the current
# binary directory). CONFIG_SCHEMA is a JSON schema (draft 7) of the backend's `config`; without one any object is accepted.
# CAPABILITIES and SYSTEM_CALLS are what it needs in a process of its own, where it has none and the dangerous calls are denied (docs/backend-abi.md).
# ABI is the lowest version that the backend needs: members that came later do not exist for it. Sources in C need nothing but the SDK's
# header; with one in C++ Boost.JSON is linked. The sources have NAME and VERSION as TRANCHE_BACKEND_NAME and TRANCHE_BACKEND_VERSION, for the table.
#
# tranche_add_conformance_test(NAME vnic_tc [CONFIG config.json] [PARAMETERS parameters.json])
# Two tests: NAME_load opens the library as the host does and shows every step (tranchectl backend inspect --load), NAME_conformance runs tranche-conform.
set(TRANCHE_SDK_CMAKE_DIRECTORY ${CMAKE_CURRENT_LIST_DIR})

function(tranche_add_backend)
  cmake_parse_arguments(BACKEND "" "NAME;VERSION;CONFIG_SCHEMA;LICENSE;ABI" "SOURCES;LIBRARIES;CAPABILITIES;SYSTEM_CALLS" ${ARGN})
  if(NOT BACKEND_NAME MATCHES "^[a-z0-9_]+$" OR NOT BACKEND_VERSION)
    message(FATAL_ERROR "tranche_add_backend: NAME must match [a-z0-9_]+ and VERSION must be given (NAME ${BACKEND_NAME})")
  endif()
  if(NOT BACKEND_LICENSE)
    set(BACKEND_LICENSE Apache-2.0)
  endif()
  if(NOT BACKEND_ABI)
    set(BACKEND_ABI 1.0)
  endif()
  if(NOT BACKEND_ABI MATCHES "^1\\.([0-9]+)$")
    message(FATAL_ERROR "tranche_add_backend: ABI ${BACKEND_ABI} is not 1.MINOR")
  endif()
  set(minor ${CMAKE_MATCH_1})
  if(NOT TRANCHE_BACKEND_DIRECTORY)
    set(TRANCHE_BACKEND_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  set(schema "")
  if(BACKEND_CONFIG_SCHEMA)
    get_filename_component(schema ${BACKEND_CONFIG_SCHEMA} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  endif()
  set(plain_c ${BACKEND_SOURCES})
  list(FILTER plain_c EXCLUDE REGEX "\\.[ch]$")

  set(exports ${TRANCHE_SDK_CMAKE_DIRECTORY}/backend.exports)
  add_library(${BACKEND_NAME} MODULE ${BACKEND_SOURCES})
  set_target_properties(${BACKEND_NAME} PROPERTIES
    PREFIX "" SUFFIX ".so" LIBRARY_OUTPUT_DIRECTORY ${TRANCHE_BACKEND_DIRECTORY}
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON SKIP_BUILD_RPATH ON LINK_DEPENDS "${exports};${schema}")
  target_link_libraries(${BACKEND_NAME} PRIVATE TrancheSDK::sdk ${BACKEND_LIBRARIES})
  target_compile_definitions(${BACKEND_NAME} PRIVATE TRANCHE_TARGET_MINOR=${minor}
    TRANCHE_BACKEND_NAME="${BACKEND_NAME}" TRANCHE_BACKEND_VERSION="${BACKEND_VERSION}")
  if(plain_c)
    target_compile_features(${BACKEND_NAME} PRIVATE cxx_std_20)
    target_link_libraries(${BACKEND_NAME} PRIVATE Boost::json)
  endif()
  if(TARGET tranche_warnings)
    target_link_libraries(${BACKEND_NAME} PRIVATE tranche_warnings)
  endif()
  target_link_options(${BACKEND_NAME} PRIVATE -Wl,--version-script=${exports} -Wl,-z,now)
  if(NOT TRANCHE_SANITIZER AND NOT CMAKE_C_FLAGS MATCHES "fsanitize" AND NOT CMAKE_CXX_FLAGS MATCHES "fsanitize") # a sanitizer's symbols are the program's
    target_link_options(${BACKEND_NAME} PRIVATE -Wl,-z,defs)
  endif()
  add_custom_command(TARGET ${BACKEND_NAME} POST_BUILD VERBATIM
    COMMAND ${CMAKE_COMMAND} -DNAME=${BACKEND_NAME} -DVERSION=${BACKEND_VERSION} -DLICENSE=${BACKEND_LICENSE} -DABI=${BACKEND_ABI}
            -DARCH=${CMAKE_SYSTEM_PROCESSOR} -DLIBRARY=$<TARGET_FILE:${BACKEND_NAME}> -DSCHEMA=${schema}
            "-DCAPABILITIES=${BACKEND_CAPABILITIES}" "-DSYSTEM_CALLS=${BACKEND_SYSTEM_CALLS}"
            -P ${TRANCHE_SDK_CMAKE_DIRECTORY}/WriteManifest.cmake)
endfunction()

function(tranche_add_conformance_test)
  cmake_parse_arguments(KIT "" "NAME;CONFIG;PARAMETERS" "" ${ARGN})
  set(command ${TRANCHE_CONFORM_PROGRAM} $<TARGET_FILE:${KIT_NAME}>)
  if(KIT_CONFIG)
    list(APPEND command --config ${KIT_CONFIG})
  endif()
  if(KIT_PARAMETERS)
    list(APPEND command --parameters ${KIT_PARAMETERS})
  endif()
  add_test(NAME ${KIT_NAME}_load COMMAND ${TRANCHE_CTL_PROGRAM} backend inspect --load $<TARGET_FILE:${KIT_NAME}>)
  add_test(NAME ${KIT_NAME}_conformance COMMAND ${command})
endfunction()

# The name within the project.
macro(tranche_backend)
  tranche_add_backend(${ARGN})
endmacro()
