// vnic-attach: OCI createRuntime hook. One line on standard error when it fails; the runtime shows it and the container does not start.
#include <chrono>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "plugins/vnic_tc/attach/attach.h"

namespace {

int Fail(const vnic::Failure& failure) {
  std::cerr << "vnic-attach: " << failure.message << std::endl;
  return 1;
}

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> arguments(values + (count > 0 ? 1 : 0), values + count);
  const vnic::Result<vnic::AttachRequest> request = vnic::ParseAttachArguments(arguments);
  if (!request.ok()) return Fail(request.failure());
  const std::string state{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  const vnic::Result<int> pid = vnic::PidOfState(state);
  if (!pid.ok()) return Fail(pid.failure());
  const vnic::Status status = vnic::Attach(request.value(), "/proc/" + std::to_string(pid.value()) + "/ns/net", std::chrono::seconds(5));
  return status.ok() ? 0 : Fail(status.failure());
}
