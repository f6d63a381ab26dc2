# Kernel tests of vnic_tc: root, network namespaces of their own, the real vnic_tc.so through its entry symbol.
foreach(name share attach isolation)
  tranche_test(NAME vnic_${name}_test LABELS kernel SERIAL TIMEOUT 300
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/vnic_${name}_test.cc ${CMAKE_CURRENT_LIST_DIR}/vnic_harness.cc
    DEPENDS test_support LIBRARIES vnic_attach PkgConfig::NL3 Boost::json dl
    NEEDS vnic_tc vnic-attach)
  # The tests' own veth and routes reach the kernel through the plugin's kernel layer.
  target_include_directories(vnic_${name}_test PRIVATE ${PROJECT_SOURCE_DIR})
endforeach()
