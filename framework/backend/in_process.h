// A vendor's library behind the Backend interface, in this process: calls its table, collects what it pushes, and believes nothing. Every
// payload is bounded, parsed, checked against its schema and decoded; what is wrong is an error of that item.
//
// CreateBackend is the seam for other places to run a library: callers know only backend.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "backend/backend.h"
#include "backend/loader.h"

namespace tranche::backend {

struct PayloadLimits {
  std::size_t device_bytes = 64 * 1024;  // one device, share, key or verdict
  std::size_t call_bytes = 1024 * 1024;  // everything that one call pushes
};

struct CreateOptions {
  std::string name = {};                     // as configured; messages and log lines carry it
  std::string config = "{}";                 // the operator's JSON, checked here against the manifest's schema
  std::string runtime_directory = {};        // made when absent, 0700
  std::chrono::milliseconds timeout{30000};  // for create itself
  PayloadLimits limits = {};
};

// InvalidArgument for a configuration that the manifest's schema refuses (nothing of the backend has run then); otherwise what create says.
// Events may arrive before this returns and stop when the backend is destroyed.
absl::StatusOr<std::shared_ptr<Backend>> CreateBackend(const LoadedLibrary& library, const CreateOptions& options, Events events);

}  // namespace tranche::backend
