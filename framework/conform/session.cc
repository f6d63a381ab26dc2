#include "conform/session.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/ids.h"
#include "base/text.h"

namespace tranche::dra_conform {

namespace {

// An allocation's (pool, device, base request), and an answer's, once per request name.
using Line = std::tuple<std::string, std::string, std::string>;

std::string Name(const ClaimReference& claim) { return Cat("claim ", claim.namespace_name, "/", claim.name); }

std::multiset<DeviceKey> Addresses(const std::vector<Device>& devices) {
  std::multiset<DeviceKey> addresses;
  for (const Device& device : devices) addresses.emplace(device.pool, device.device);
  return addresses;
}

std::string RequestProblem(const ClaimSpec& spec, const std::string& driver, const std::vector<Device>& devices) {
  std::set<Line> allocated;
  for (const Want& want : spec.wants) {
    if (want.driver == driver) allocated.emplace(want.pool, want.device, std::string(BaseRequest(want.request)));
  }
  for (const Device& device : devices) {
    for (const std::string& name : device.request_names) {
      if (name.find('/') != std::string::npos) return Cat("device ", device.device, " has request name ", name, ", which is no base name");
      if (!allocated.contains(Line(device.pool, device.device, name))) return Cat("device ", device.device, " was not allocated for request ", name);
    }
  }
  return "";
}

}  // namespace

Said WhatWasSaid(const Reply& reply, const std::string& uid) {
  if (reply.Ok(uid)) return Said::kGranted;
  switch (reply.status.code()) {
    case absl::StatusCode::kOk: return reply.entries.contains(uid) ? Said::kRefused : Said::kNothing;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnimplemented: return Said::kNothing;
    default: return Said::kRefused;
  }
}

bool SameDevices(std::vector<Device> left, std::vector<Device> right) {
  for (Device& device : left) device.share_id.reset();
  for (Device& device : right) device.share_id.reset();
  std::sort(left.begin(), left.end());
  std::sort(right.begin(), right.end());
  return left == right;
}

std::string Describe(const std::vector<Device>& devices) {
  std::string text;
  for (const Device& device : devices) {
    Append(text, text.empty() ? "" : ", ", device.pool, "/", device.device);
    for (const std::string& id : device.cdi_ids) Append(text, " ", id);
  }
  return text.empty() ? "no devices" : text;
}

void Session::Connect() { plugin = std::make_unique<Plugin>(endpoint); }

void Session::LookAtEntries(const std::vector<ClaimReference>& claims, const Reply& reply, std::string_view method) {
  if (!reply.status.ok()) return;
  std::set<std::string> asked;
  for (const ClaimReference& claim : claims) asked.insert(claim.uid);
  std::string problem;
  for (const std::string& uid : asked) {
    if (!reply.entries.contains(uid)) problem = Cat(method, " left out claim UID ", uid);
  }
  for (const auto& [uid, entry] : reply.entries) {
    if (!asked.contains(uid)) problem = Cat(method, " answered UID \"", uid, "\", which was not asked for");
  }
  report.Judge("D-11", problem);
}

void Session::LookAtDevices(const ClaimReference& claim, const ClaimSpec& spec, const std::vector<Device>& granted, Version version) {
  std::multiset<DeviceKey> allocated;
  std::set<std::string> share_ids, answered_ids;
  for (const Want& want : spec.wants) {
    if (want.driver != info.name) continue;
    allocated.emplace(want.pool, want.device);
    if (!want.share_id.empty()) share_ids.insert(want.share_id);
  }
  for (const Device& device : granted) {
    if (device.share_id.has_value() && !device.share_id->empty()) answered_ids.insert(*device.share_id);
  }
  if (Addresses(granted) == allocated) {
    report.Pass("D-22");
  } else {
    std::string wanted;
    for (const auto& [pool, device] : allocated) Append(wanted, wanted.empty() ? "" : ", ", pool, "/", device);
    report.Fail("D-22", Cat("allocated: ", wanted, "; answered: ", Describe(granted)));
  }
  const std::string requests = RequestProblem(spec, info.name, granted);
  report.Judge("D-23", requests);
  if (version == Version::kV1 && !(share_ids.empty() && answered_ids.empty())) {
    report.Judge("D-31", share_ids == answered_ids ? "" : Cat(Name(claim), ": ", answered_ids.empty() ? "no shareID" : "another shareID"));
  }
}

void Session::LookAtCdi(const ClaimReference& claim, const std::vector<Device>& granted) {
  for (const Device& device : granted) {
    for (const std::string& id : device.cdi_ids) {
      const std::string problem = CdiIdProblem(id);
      report.Judge("D-34", problem.empty() ? "" : Cat("\"", id, "\" ", problem));
      if (!IsTaken(claim)) report.Judge("D-36", std::string(cdi.Find(id).status().message()));
    }
    if (device.cdi_ids.empty()) continue;
    const auto place = std::tuple(claim.uid, device.pool, device.device, device.share_id.value_or(""));
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = first_ids_.emplace(device.cdi_ids.front(), place);
    // v1beta1 says no share: the claim and the device have to do.
    const bool same = std::get<0>(known->second) == claim.uid && std::get<1>(known->second) == device.pool && std::get<2>(known->second) == device.device;
    report.Judge("D-35", is_new || same ? ""
                                        : Cat(device.cdi_ids.front(), " is that of device ", std::get<2>(known->second), " of claim UID ",
                                              std::get<0>(known->second), " and of device ", device.device, " of claim UID ", claim.uid));
  }
}

Reply Session::Prepare(const std::vector<ClaimReference>& claims, Version version) {
  const Reply reply = plugin->Prepare(version, claims, DeadlineIn(kCallTime));
  LookAtEntries(claims, reply, "NodePrepareResources");
  for (const ClaimReference& claim : claims) {
    if (!reply.Ok(claim.uid)) continue;
    ClaimSpec spec;
    {
      const std::lock_guard lock(mutex_);
      const auto known = specs_.find(claim.uid);
      if (known == specs_.end() || !known->second.is_allocated) continue;  // another rule judges that
      spec = known->second;
    }
    const std::vector<Device> granted = reply.Devices(claim.uid);
    LookAtDevices(claim, spec, granted, version);
    LookAtCdi(claim, granted);
  }
  return reply;
}

Reply Session::Unprepare(const std::vector<ClaimReference>& claims, Version version) {
  const Reply reply = plugin->Unprepare(version, claims, DeadlineIn(kCallTime));
  LookAtEntries(claims, reply, "NodeUnprepareResources");
  return reply;
}

std::string Session::StillServes() const {
  const absl::StatusOr<Info> again = Registration(registration_socket).GetInfo(DeadlineIn(std::chrono::seconds(10)));
  if (!again.ok()) return std::string(again.status().message());
  const absl::Status called = Plugin(endpoint).Unprepare(preferred(), {}, DeadlineIn(std::chrono::seconds(10))).status;
  // A driver may refuse a call without claims (D-12), as long as it answers.
  return absl::IsUnavailable(called) || absl::IsDeadlineExceeded(called) ? std::string(called.message()) : "";
}

ClaimReference Session::Absent() const { return {options.namespace_name, Cat("dra-conform-absent-", NewUuid().substr(0, 8)), NewUuid()}; }

Want Session::WantOf(const Candidate& candidate, const std::string& request) const {
  const bool several = candidate.device.allow_multiple_allocations;
  const std::string device_class = options.device_class.empty() ? info.name : options.device_class;
  Want want{request, info.name, candidate.pool, candidate.device.name, device_class, "", {}};
  if (!several) return want;
  if (!options.share_class.empty()) want.device_class = options.share_class;
  want.share_id = NewUuid();
  want.consumed = Least(candidate);
  return want;
}

std::vector<Want> Session::Wants(std::size_t most) const {
  std::vector<Want> wants;
  for (const Candidate& candidate : Exclusive(devices, most)) wants.push_back(WantOf(candidate, Cat("r", wants.size())));
  if (!wants.empty()) return wants;
  for (const Candidate& candidate : Shareable(devices, most)) {
    const std::size_t room = Room(candidate, Least(candidate), most - wants.size());
    for (std::size_t i = 0; i < room; ++i) wants.push_back(WantOf(candidate, Cat("r", wants.size())));
  }
  return wants;
}

void Session::SpecsAreTaken(const ClaimReference& claim) {
  const std::lock_guard lock(mutex_);
  specs_taken_.insert(claim.uid);
}

bool Session::IsTaken(const ClaimReference& claim) {
  const std::lock_guard lock(mutex_);
  return specs_taken_.contains(claim.uid);
}

void Session::Remember(const ClaimReference& claim, const ClaimSpec& spec) {
  const std::lock_guard lock(mutex_);
  specs_[claim.uid] = spec;
}

void Session::Skip(std::initializer_list<std::string_view> rules, const std::string& why) {
  for (const std::string_view rule : rules) report.Skip(rule, why);
}

Claims::~Claims() {
  for (const ClaimReference& claim : std::vector<ClaimReference>(made_)) {
    (void)Unprepare(claim);
    (void)session_.cluster->Remove(claim);
  }
}

absl::StatusOr<ClaimReference> Claims::Make(const ClaimSpec& spec, const std::string& name) {
  absl::StatusOr<ClaimReference> claim = session_.cluster->Make(spec, name);
  if (!claim.ok()) return claim;
  made_.push_back(*claim);
  session_.Remember(*claim, spec);
  return claim;
}

Reply Claims::Prepare(const ClaimReference& claim, Version version) {
  Reply reply = session_.Prepare({claim}, version);
  if (reply.Ok(claim.uid)) Granted(claim, reply.Devices(claim.uid));
  return reply;
}

std::string Claims::Unprepare(const ClaimReference& claim) { return Unprepare(claim, session_.preferred()); }

std::string Claims::Unprepare(const ClaimReference& claim, Version version) {
  const std::string problem = session_.Unprepare({claim}, version).Why(claim.uid);
  const auto granted = granted_.find(claim.uid);
  if (granted == granted_.end()) return problem;
  session_.report.Judge("D-39", problem.empty() ? "" : Cat(Name(claim), ": ", problem));
  for (const std::string& id : OwnCdiIds(claim, granted->second)) {
    const absl::StatusOr<std::string> file = session_.cdi.Find(id);
    session_.report.Judge("D-38", file.ok() ? Cat(id, " is still in ", *file) : "");
  }
  if (problem.empty()) granted_.erase(granted);
  return problem;
}

std::vector<std::string> OwnCdiIds(const ClaimReference& claim, const std::vector<Device>& devices) {
  std::vector<std::string> own;
  for (const Device& device : devices) {
    std::copy_if(device.cdi_ids.begin(), device.cdi_ids.end(), std::back_inserter(own),
                 [&](const std::string& id) { return id.find(claim.uid) != std::string::npos; });
  }
  return own;
}

}  // namespace tranche::dra_conform
