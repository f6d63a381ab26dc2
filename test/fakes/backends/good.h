// A backend of two devices without hardware that keeps every rule, and breaks the one that `tranche_fault` names. Shares are files in the runtime
// directory: they outlive the process, as what hardware holds does.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <tranche/backend.hpp>

extern "C" const char tranche_fault[];

namespace faulty {

namespace sdk = tranche::sdk;
namespace json = boost::json;

inline bool Is(std::string_view fault) { return fault == tranche_fault; }

class Good {
 public:
  static constexpr const char* kName = "";  // the table's name is set by faulty.cc
  static constexpr const char* kVersion = "1.0.0";
  static constexpr bool kConcurrent = true;

  Good(sdk::Host host, const json::object& config, const std::string& runtime_directory);
  ~Good();
  Good(const Good&) = delete;
  Good& operator=(const Good&) = delete;

  std::vector<sdk::Device> Discover(sdk::Call& call);
  void Prepare(sdk::Call& call, const std::vector<sdk::PrepareRequest>& requests);
  void Unprepare(sdk::Call& call, const std::vector<sdk::ShareRef>& shares);
  std::vector<sdk::Share> ListPrepared(sdk::Call& call);
  sdk::Share Verify(sdk::Call& call, const sdk::ShareRef& share);
  void CheckHealth(sdk::Call& call);
  void Recover(sdk::Call& call, std::string_view device);
  void ReleaseHandles(sdk::Call& call);
  void SelfTest(sdk::Call& call);
#if TRANCHE_ABI_MINOR >= 1
  void Sweep(sdk::Call& call);
#endif

 private:
  sdk::Share PrepareOne(sdk::Call& call, const sdk::PrepareRequest& request);
  void UnprepareOne(const sdk::ShareRef& share);
  std::string Path(const sdk::Key& key) const;
  sdk::Share Load(const std::string& path) const;
  void Store(const sdk::Share& share) const;

  const sdk::Host host_;
  const std::string directory_;
  std::mutex mutex_;
  std::uint64_t sequence_ = 0;
  std::map<sdk::Key, int> prepared_, released_;  // by this instance, how often
  std::set<sdk::Key> inherited_;                 // prepared by an instance before this one
};

}  // namespace faulty
