// A DRA driver without hardware for tests of dra-conform: right in everything, but for one fault that it is asked for by name. Served from this process
// over real sockets; with a kubeconfig it reads claims and publishes slices: whole-0 … whole-3 are exclusive, share-0 allows several allocations.
#pragma once

#include <memory>
#include <string>

namespace tranche::test {

class FakeDriver {
 public:
  // Files and sockets lie in `directory`, which outlives it. Empty kubeconfig: no claim exists. Empty fault: none.
  FakeDriver(const std::string& directory, const std::string& fault, const std::string& kubeconfig = "");
  ~FakeDriver();

  static constexpr char kName[] = "fake.example.com", kNode[] = "fake-node";
  std::string registration_socket() const;
  std::string cdi_directory() const;
  // For sh: the driver's servers are stopped and started, with the state that it keeps.
  std::string restart_command() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tranche::test
