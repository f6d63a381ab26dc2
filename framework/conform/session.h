// What the cases of an examination share: the driver's sockets, the API server, the report; and calls that look at every answer by the rules that hold
// for all of them.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "conform/cdi_files.h"
#include "conform/cluster.h"
#include "conform/driver.h"
#include "conform/examine.h"
#include "conform/report.h"

namespace tranche::dra_conform {

inline constexpr std::chrono::milliseconds kCallTime = std::chrono::seconds(45);  // the kubelet's deadline

enum class Said { kGranted, kRefused, kNothing };
// kNothing: the driver could not be reached, did not answer in time, or left the claim out.
Said WhatWasSaid(const Reply& reply, const std::string& uid);

// Equal but for what v1beta1 cannot say.
bool SameDevices(std::vector<Device> left, std::vector<Device> right);
std::string Describe(const std::vector<Device>& devices);

class Session {
 public:
  Session(const Options& the_options, Report& the_report) : options(the_options), report(the_report), cdi(the_options.cdi_directories) {}

  const Options& options;
  Report& report;
  const CdiFiles cdi;
  std::string registration_socket, endpoint;
  Info info;
  std::vector<Version> versions;  // listed, v1 first
  std::unique_ptr<Plugin> plugin;
  std::unique_ptr<Cluster> cluster;  // null: `no_claims` says why
  std::vector<Candidate> devices;    // free ones
  std::string no_claims;             // why no claim can be prepared; empty: one can

  void Connect();  // a new connection to the endpoint
  Version preferred() const { return versions.front(); }

  // Calls with the kubelet's deadline. What was granted is compared with the allocation and the CDI directories.
  Reply Prepare(const std::vector<ClaimReference>& claims, Version version);
  Reply Prepare(const std::vector<ClaimReference>& claims) { return Prepare(claims, preferred()); }
  Reply Unprepare(const std::vector<ClaimReference>& claims, Version version);
  Reply Unprepare(const std::vector<ClaimReference>& claims) { return Unprepare(claims, preferred()); }
  // Whether the driver answers a call without claims and GetInfo: "" or what it says instead.
  std::string StillServes() const;

  ClaimReference Absent() const;  // a claim that does not exist
  Want WantOf(const Candidate& candidate, const std::string& request) const;
  // Up to `most` results that can be granted side by side: exclusive devices, or shares where there is none.
  std::vector<Want> Wants(std::size_t most) const;
  // D-36 asks no more for the specs of this claim: another rule does.
  void SpecsAreTaken(const ClaimReference& claim);
  void Remember(const ClaimReference& claim, const ClaimSpec& spec);

  void Skip(std::initializer_list<std::string_view> rules, const std::string& why);

 private:
  void LookAtEntries(const std::vector<ClaimReference>& claims, const Reply& reply, std::string_view method);
  void LookAtDevices(const ClaimReference& claim, const ClaimSpec& spec, const std::vector<Device>& devices, Version version);
  bool IsTaken(const ClaimReference& claim);
  void LookAtCdi(const ClaimReference& claim, const std::vector<Device>& devices);

  std::mutex mutex_;
  std::set<std::string> specs_taken_;                                                                // claim UIDs
  std::map<std::string, ClaimSpec> specs_;                                                           // by UID
  std::map<std::string, std::tuple<std::string, std::string, std::string, std::string>> first_ids_;  // first CDI id → UID, pool, device, share
};

// The claims of one case: at its end unprepared, looked for in the CDI directories, and removed.
class Claims {
 public:
  explicit Claims(Session& session) : session_(session) {}
  ~Claims();
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  // An error is the API server's: the rules of the case are skipped with it.
  absl::StatusOr<ClaimReference> Make(const ClaimSpec& spec, const std::string& name = "");
  Reply Prepare(const ClaimReference& claim) { return Prepare(claim, session_.preferred()); }
  Reply Prepare(const ClaimReference& claim, Version version);
  // Judges by D-39 and D-38 what was granted before. "" or what went wrong.
  std::string Unprepare(const ClaimReference& claim);
  std::string Unprepare(const ClaimReference& claim, Version version);
  void Granted(const ClaimReference& claim, const std::vector<Device>& devices) { granted_[claim.uid] = devices; }
  absl::Status Remove(const ClaimReference& claim) { return session_.cluster->Remove(claim); }

 private:
  Session& session_;
  std::vector<ClaimReference> made_;
  std::map<std::string, std::vector<Device>> granted_;  // by UID
};

// The CDI ids of the claim's devices which name it by UID: those that prepare must have made. Others may come from a spec that is always there.
std::vector<std::string> OwnCdiIds(const ClaimReference& claim, const std::vector<Device>& devices);

}  // namespace tranche::dra_conform
