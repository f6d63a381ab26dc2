# One thin function per kind of target. Sources are always explicit.

# tranche_room(NAME base DEPENDS telemetry ... SOURCES a.cc ... LIBRARIES absl::status ...)
# A room of framework/: one static library. DEPENDS names other rooms and is what tools/check_includes.py holds
# every #include against; LIBRARIES are third-party targets.
function(tranche_room)
  cmake_parse_arguments(ROOM "" "NAME" "DEPENDS;SOURCES;LIBRARIES" ${ARGN})
  set(target tranche_${ROOM_NAME})
  add_library(${target} STATIC ${ROOM_SOURCES})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/framework)
  target_link_libraries(${target} PRIVATE tranche_warnings)
  foreach(dependency IN LISTS ROOM_DEPENDS)
    target_link_libraries(${target} PUBLIC tranche_${dependency})
  endforeach()
  target_link_libraries(${target} PUBLIC ${ROOM_LIBRARIES})
endfunction()

# tranche_program(NAME tranched SOURCES main.cc DEPENDS host ... LIBRARIES ...)
function(tranche_program)
  cmake_parse_arguments(PROGRAM "" "NAME" "DEPENDS;SOURCES;LIBRARIES" ${ARGN})
  add_executable(${PROGRAM_NAME} ${PROGRAM_SOURCES})
  target_include_directories(${PROGRAM_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/framework)
  foreach(dependency IN LISTS PROGRAM_DEPENDS)
    target_link_libraries(${PROGRAM_NAME} PRIVATE tranche_${dependency})
  endforeach()
  target_link_libraries(${PROGRAM_NAME} PRIVATE tranche_warnings ${PROGRAM_LIBRARIES})
endfunction()

# What `make test-tsan` and `make fuzz` build: the tests labelled threads, the fuzz targets.
add_custom_target(threads_tests)
add_custom_target(fuzz_targets)

# tranche_test(NAME capacity_test LABELS unit SOURCES x_test.cc DEPENDS capacity ... [TIMEOUT 60] [SERIAL])
# One GoogleTest executable, registered as one ctest test (its own cases are listed in its output). LABELS:
#   unit     no privileges, no kernel state, fast
#   kernel   needs root; makes its own network namespaces
#   threads  also run under ThreadSanitizer
#   e2e      starts programs of this build
function(tranche_test)
  cmake_parse_arguments(TEST "SERIAL" "NAME;TIMEOUT" "LABELS;DEPENDS;SOURCES;LIBRARIES;NEEDS" ${ARGN})
  add_executable(${TEST_NAME} ${TEST_SOURCES})
  set_target_properties(${TEST_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
  target_include_directories(${TEST_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/framework ${PROJECT_SOURCE_DIR}/test)
  foreach(dependency IN LISTS TEST_DEPENDS)
    target_link_libraries(${TEST_NAME} PRIVATE tranche_${dependency})
  endforeach()
  target_link_libraries(${TEST_NAME} PRIVATE tranche_warnings ${TEST_LIBRARIES} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${TEST_NAME} PRIVATE
    TRANCHE_BINARY_DIRECTORY="${CMAKE_BINARY_DIR}" TRANCHE_SOURCE_DIRECTORY="${PROJECT_SOURCE_DIR}")
  if(TEST_NEEDS) # programs and backends that the test starts or loads
    add_dependencies(${TEST_NAME} ${TEST_NEEDS})
  endif()
  add_test(NAME ${TEST_NAME} COMMAND ${TEST_NAME})
  if("threads" IN_LIST TEST_LABELS)
    add_dependencies(threads_tests ${TEST_NAME})
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  set_tests_properties(${TEST_NAME} PROPERTIES LABELS "${TEST_LABELS}" TIMEOUT ${TEST_TIMEOUT})
  if(TEST_SERIAL)
    set_tests_properties(${TEST_NAME} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# tranche_fuzz(NAME quantity_fuzz SOURCES x_fuzz.cc DEPENDS base)
# A target with LLVMFuzzerTestOneInput. With TRANCHE_FUZZ it is linked with libFuzzer; always it becomes a test that replays
# test/fuzz/corpus/<NAME>/ (every committed input must return without a crash).
function(tranche_fuzz)
  cmake_parse_arguments(FUZZ "" "NAME" "DEPENDS;SOURCES;LIBRARIES" ${ARGN})
  add_executable(${FUZZ_NAME} ${FUZZ_SOURCES})
  set_target_properties(${FUZZ_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
  target_include_directories(${FUZZ_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/framework)
  foreach(dependency IN LISTS FUZZ_DEPENDS)
    target_link_libraries(${FUZZ_NAME} PRIVATE tranche_${dependency})
  endforeach()
  target_link_libraries(${FUZZ_NAME} PRIVATE tranche_warnings ${FUZZ_LIBRARIES})
  add_dependencies(fuzz_targets ${FUZZ_NAME})
  set(corpus ${PROJECT_SOURCE_DIR}/test/fuzz/corpus/${FUZZ_NAME})
  if(TRANCHE_FUZZ)
    target_link_options(${FUZZ_NAME} PRIVATE -fsanitize=fuzzer)
    add_test(NAME ${FUZZ_NAME} COMMAND ${FUZZ_NAME} -runs=0 ${corpus})
  else()
    target_sources(${FUZZ_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/test/fuzz/replay_main.cc)
    add_test(NAME ${FUZZ_NAME} COMMAND ${FUZZ_NAME} ${corpus})
  endif()
  set_tests_properties(${FUZZ_NAME} PROPERTIES LABELS "fuzz;unit" TIMEOUT 120)
endfunction()

# tranche_backend(NAME vnic_tc SOURCES ... LIBRARIES ... MANIFEST file.json.in) lives in sdk/cmake/TrancheBackend.cmake: vendors use it too.
