# `cmake --install BUILD --component sdk --prefix P`: all that a vendor needs to write, test and try a backend.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/TrancheSDK)
set(SDK_VERSION 1.0.0) # major and minor are those of the ABI

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/cmake/TrancheSDKConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/TrancheSDKConfig.cmake
  INSTALL_DESTINATION ${package} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_BINDIR CMAKE_INSTALL_DATADIR)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/TrancheSDKConfigVersion.cmake VERSION ${SDK_VERSION} COMPATIBILITY SameMajorVersion)
file(RELATIVE_PATH SDK_PREFIX_FROM_PC /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix) # the SDK may be moved
configure_file(${CMAKE_CURRENT_LIST_DIR}/cmake/tranche-sdk.pc.in ${CMAKE_CURRENT_BINARY_DIR}/tranche-sdk.pc @ONLY)

install(DIRECTORY ${CMAKE_CURRENT_LIST_DIR}/include/tranche DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT sdk)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/TrancheSDKConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/TrancheSDKConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/cmake/TrancheBackend.cmake ${CMAKE_CURRENT_LIST_DIR}/cmake/WriteManifest.cmake
              ${CMAKE_CURRENT_LIST_DIR}/cmake/backend.exports
  DESTINATION ${package} COMPONENT sdk)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tranche-sdk.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT sdk)
install(DIRECTORY ${CMAKE_CURRENT_LIST_DIR}/schema ${CMAKE_CURRENT_LIST_DIR}/template DESTINATION ${CMAKE_INSTALL_DATADIR}/tranche COMPONENT sdk)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/backends/plain_c DESTINATION ${CMAKE_INSTALL_DATADIR}/tranche/examples COMPONENT sdk)
install(FILES ${PROJECT_SOURCE_DIR}/docs/write-a-backend.md ${PROJECT_SOURCE_DIR}/docs/backend-rules.md ${PROJECT_SOURCE_DIR}/docs/backend-abi.md
              ${PROJECT_SOURCE_DIR}/docs/abi-changelog.md
  DESTINATION ${CMAKE_INSTALL_DATADIR}/tranche/doc COMPONENT sdk)
install(PROGRAMS $<TARGET_FILE:tranche-conform> DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT sdk)
# Local mode is how a backend is tried without a cluster: host, runner and tranchectl come along.
install(PROGRAMS ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/tranched ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/tranchectl ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/tranche-runner
  DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT sdk)
add_custom_target(sdk_package DEPENDS tranche-conform tranched tranchectl tranche-runner)
