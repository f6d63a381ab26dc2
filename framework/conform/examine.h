// Examines a driver by the numbered rules: plays the kubelet at its sockets, and the scheduler at the API server.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "conform/report.h"

namespace tranche::dra_conform {

// How long is waited for what a driver does by itself.
struct Patience {
  std::chrono::milliseconds publish = std::chrono::seconds(30);        // the first slices, complete
  std::chrono::milliseconds quiet = std::chrono::seconds(3);           // D-49
  std::chrono::milliseconds slice_return = std::chrono::seconds(120);  // D-50
  std::chrono::milliseconds quick_return = std::chrono::seconds(5);    // D-51
  std::chrono::milliseconds retries = std::chrono::seconds(10);        // D-19
  std::chrono::milliseconds ready = std::chrono::seconds(30);          // granted again after a restart
};

struct Options {
  std::string registration_socket;       // or both of the next two
  std::string plugins_registry, driver;  // the socket of the directory that answers with this name
  std::string kubeconfig, context;       // empty kubeconfig: what needs an API server is skipped
  std::string node;                      // whose slices are read
  std::string namespace_name = "default";
  std::string device_class, share_class;  // of the claims' requests; empty: the driver's name, the device class
  std::string parameters;                 // JSON text of an object: the claims' opaque configuration; empty: none
  std::string restart_command;            // for sh -c; returns when the old process has ended. Empty: what needs it is skipped
  std::vector<std::string> cdi_directories = {"/etc/cdi", "/var/run/cdi"};
  bool leave_slices = false;  // delete none
  Patience patience;
  std::function<bool()> is_interrupted = [] { return false; };  // asked between cases
};

// What was found is in the report; every rule is reached unless it was interrupted. An error: the examination could not begin (no socket of that name,
// no API server where one was named).
absl::Status Examine(const Options& options, Report& report);

}  // namespace tranche::dra_conform
