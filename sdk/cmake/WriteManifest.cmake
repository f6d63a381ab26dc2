# cmake -DNAME= -DVERSION= -DLICENSE= -DABI=1.0 -DARCH= -DLIBRARY= [-DSCHEMA=] [-DCAPABILITIES=A;B] [-DSYSTEM_CALLS=a;b] -P WriteManifest.cmake
# Writes NAME.backend.json beside LIBRARY. Run it again after anything that changes the library (strip, sign).
file(SHA256 ${LIBRARY} digest)
file(CHMOD ${LIBRARY} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
get_filename_component(directory ${LIBRARY} DIRECTORY)
get_filename_component(file ${LIBRARY} NAME)
if(SCHEMA)
  file(READ ${SCHEMA} schema)
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
set(manifest ${directory}/${NAME}.backend.json)
file(WRITE ${manifest}.part "{
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
file(CHMOD ${manifest}.part PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
file(RENAME ${manifest}.part ${manifest})
