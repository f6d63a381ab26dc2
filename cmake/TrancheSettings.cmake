# Compiler settings that hold for every target of the project.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Programs and backends of one build lie side by side, where demo, tests and packaging look for them.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(TRANCHE_BACKEND_DIRECTORY ${CMAKE_BINARY_DIR}/backends)

find_program(TRANCHE_CCACHE ccache)
if(TRANCHE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${TRANCHE_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TRANCHE_CCACHE})
endif()
find_program(TRANCHE_MOLD mold)
if(TRANCHE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# What is shipped keeps only what is called: what a program maps is most of its memory.
add_compile_options($<$<CONFIG:RelWithDebInfo>:-ffunction-sections> $<$<CONFIG:RelWithDebInfo>:-fdata-sections>)
add_link_options($<$<CONFIG:RelWithDebInfo>:-Wl,--gc-sections>)

# Warnings for our own code only: generated and third-party headers are SYSTEM.
add_library(tranche_warnings INTERFACE)
target_compile_options(tranche_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow
                       $<$<BOOL:${TRANCHE_WERROR}>:-Werror>)
# g++ 12 sees overlapping copies inside std::string::insert and replace when it optimises (its bug 105651).
target_compile_options(tranche_warnings INTERFACE $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:RelWithDebInfo>>:-Wno-restrict>)

if(TRANCHE_SANITIZER)
  add_compile_options(-fsanitize=${TRANCHE_SANITIZER} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TRANCHE_SANITIZER})
endif()
if(TRANCHE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link) # libFuzzer steers by coverage of our code, not only of the target's
endif()
if(TRANCHE_SANITIZER MATCHES "thread")
  # g++ warns that TSan does not model fences; none of our code uses one.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
endif()
if(TRANCHE_FAULT_POINTS)
  add_compile_definitions(TRANCHE_FAULT_POINTS=1)
endif()
add_compile_definitions(BOOST_DLL_USE_STD_FS=1)
