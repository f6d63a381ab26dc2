# cmake -DNAME=x -DVERSION=1.0.0 -DLIBRARY=x.so [-DLICENSE=Apache-2.0] [-DABI=1.0] [-DARCH=x86_64] [-DSCHEMA=config.schema.json] [-DCAPABILITIES=A;B]
#       [-DSYSTEM_CALLS=a;b] -P WriteManifest.cmake
# Writes NAME.backend.json beside LIBRARY. Run it again after anything that changes the library (strip, sign), with everything that it was given before:
# what is left out is dropped. Relative paths are from the current directory. Without LICENSE, ABI and ARCH: Apache-2.0, 1.0 and this machine's.
foreach(name NAME VERSION LIBRARY)
  if("${${name}}" STREQUAL "")
    message(FATAL_ERROR "WriteManifest: ${name} is missing: cmake -DNAME=x -DVERSION=1.0.0 -DLIBRARY=x.so ... -P WriteManifest.cmake, and -P comes last")
  endif()
endforeach()
if("${LICENSE}" STREQUAL "")
  set(LICENSE Apache-2.0)
endif()
if("${ABI}" STREQUAL "")
  set(ABI 1.0)
endif()
if("${ARCH}" STREQUAL "")
  cmake_host_system_information(RESULT ARCH QUERY OS_PLATFORM)
endif()
foreach(name LIBRARY SCHEMA)
  if(NOT "${${name}}" STREQUAL "")
    get_filename_component(${name} "${${name}}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
    if(NOT EXISTS "${${name}}" OR IS_DIRECTORY "${${name}}")
      message(FATAL_ERROR "WriteManifest: ${name} ${${name}} is no file; nothing was written")
    endif()
  endif()
endforeach()
file(SHA256 "${LIBRARY}" digest)
file(CHMOD "${LIBRARY}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
get_filename_component(directory "${LIBRARY}" DIRECTORY)
get_filename_component(file "${LIBRARY}" NAME)
if(SCHEMA)
  file(READ "${SCHEMA}" schema)
  string(STRIP "${schema}" schema)
else()
  set(schema "{\"type\": \"object\"}")
endif()
set(process "")
if(CAPABILITIES)
  string(REPLACE ";" "\", \"" names "${CAPABILITIES}")
  set(process "\"capabilities\": [\"${names}\"]")
endif()
if(SYSTEM_CALLS)
  string(REPLACE ";" "\", \"" names "${SYSTEM_CALLS}")
  if(process)
    string(APPEND process ", ")
  endif()
  string(APPEND process "\"systemCalls\": [\"${names}\"]")
endif()
if(process)
  set(process "\n  \"process\": {${process}},")
endif()
set(manifest "${directory}/${NAME}.backend.json")
file(WRITE "${manifest}.part" "{
  \"manifestVersion\": 1,
  \"name\": \"${NAME}\",
  \"version\": \"${VERSION}\",
  \"library\": \"${file}\",
  \"abi\": \"${ABI}\",
  \"arch\": \"${ARCH}\",
  \"sha256\": \"${digest}\",
  \"licence\": \"${LICENSE}\",${process}
  \"configSchema\": ${schema}
}
")
file(CHMOD "${manifest}.part" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
file(RENAME "${manifest}.part" "${manifest}")
