# Backends and hosts of every released minor, and the gate.
set(TRANCHE_BACKEND_DIRECTORY ${CMAKE_BINARY_DIR}/abi)
set(fakes ${PROJECT_SOURCE_DIR}/test/fakes/backends)
set(plain_c ${PROJECT_SOURCE_DIR}/examples/backends/plain_c)
set(TRANCHE_ABI_MATRIX "")
foreach(minor 0 1)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/matrix_cc_1${minor}.c)
  file(CONFIGURE OUTPUT ${source} CONTENT "const char tranche_fault[] = \"none\";\nconst char tranche_fault_name[] = \"matrix_cc_1${minor}\";\n")
  tranche_backend(NAME matrix_cc_1${minor} VERSION 1.0.0 ABI 1.${minor} SOURCES ${source} ${fakes}/good.cc ${fakes}/faulty.cc)
  tranche_backend(NAME matrix_c_1${minor} VERSION 1.0.0 ABI 1.${minor} SOURCES ${plain_c}/plain_c.c ${plain_c}/json.c)
  target_compile_definitions(matrix_c_1${minor} PRIVATE PLAIN_C_NAME="matrix_c_1${minor}")
  target_include_directories(matrix_cc_1${minor} PRIVATE ${fakes})
  add_executable(abi_host_1${minor} ${CMAKE_CURRENT_LIST_DIR}/abi_matrix_host.cc)
  set_target_properties(abi_host_1${minor} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/abi)
  target_link_libraries(abi_host_1${minor} PRIVATE tranche_warnings ${CMAKE_DL_LIBS} Boost::json)
  list(APPEND TRANCHE_ABI_MATRIX matrix_cc_1${minor} matrix_c_1${minor} abi_host_1${minor})
endforeach()
# 1.0 is what was released, not what the present headers make of it.
foreach(target matrix_cc_10 matrix_c_10 abi_host_10)
  target_include_directories(${target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/sdk/abi/1.0)
endforeach()
target_include_directories(abi_host_11 PRIVATE ${PROJECT_SOURCE_DIR}/sdk/include)
tranche_test(NAME abi_matrix_test LABELS e2e TIMEOUT 300
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/abi_matrix_test.cc DEPENDS test_support LIBRARIES Boost::json
  NEEDS tranched tranche-runner tranchectl ${TRANCHE_ABI_MATRIX})
set(TRANCHE_BACKEND_DIRECTORY ${CMAKE_BINARY_DIR}/backends)

add_test(NAME abi_gate_test COMMAND ${CMAKE_CURRENT_LIST_DIR}/abi_gate_test.sh ${PROJECT_SOURCE_DIR})
set_tests_properties(abi_gate_test PROPERTIES LABELS "e2e" TIMEOUT 120)
if(NOT TRANCHE_SANITIZER) # a vendor's library without a sanitizer does not fit into programs with one
  add_test(NAME vendor_hour_test COMMAND ${CMAKE_CURRENT_LIST_DIR}/vendor_hour_test.sh ${CMAKE_BINARY_DIR} ${PROJECT_SOURCE_DIR})
  set_tests_properties(vendor_hour_test PROPERTIES LABELS "e2e" TIMEOUT 600)
endif()
