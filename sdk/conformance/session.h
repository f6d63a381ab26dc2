// A library opened in a case's process, and calls on one instance of it. Every call is judged by the rules that hold for all calls.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include <tranche/backend.hpp>

#include "conformance/conform.h"
#include "conformance/host.h"
#include "conformance/sandbox.h"

namespace tranche::conform {

using Limits = std::map<std::pair<std::string, std::string>, std::int64_t>;  // (capacity, direction) → amount

struct SeenShare {
  std::string key;  // canonical text of the key
  boost::json::object value;
  Limits limits, requested;  // of the same places
  std::string state;
};

struct SeenResult {
  tranche_code code = TRANCHE_OK;
  std::string message;
};

struct Reply {
  tranche_code code = TRANCHE_INTERNAL;
  std::string message;
  bool threw = false, dropped = false;  // dropped: a payload was invalid and is left out below
  std::vector<boost::json::object> devices;
  std::vector<SeenShare> shares;
  std::multimap<std::string, SeenResult> results;
  bool ok() const { return code == TRANCHE_OK && !threw; }
  const SeenShare* Find(const std::string& key) const;
  bool Ok(const std::string& key) const;  // exactly this key's result is OK
};

// How inputs lie in memory.
enum class Inputs { kPlain, kGuarded, kUnmapped };

// What the kit asks for.
struct Wanted {
  sdk::Key key;
  std::string text;  // canonical text of the key
  std::string physical, mode, state;
  std::map<std::string, std::int64_t> consumed;
};
std::string KeyText(const sdk::Key& key);
// A share of `device`; nullopt when the device has not that mode.
std::optional<Wanted> Want(const boost::json::object& device, std::string_view mode);
// Of the first device that has one: a share, else a whole device, else a partition.
std::optional<Wanted> WantAny(const std::vector<boost::json::object>& devices);
std::string_view TextOf(const boost::json::object& object, std::string_view name);

// The bare table, for the examination of opening itself.
struct Opened {
  void* handle = nullptr;
  tranche_backend_entry entry = nullptr;
  std::string why;
};
Opened OpenLibrary(const std::string& path);

class Session {
 public:
  Session(Reporter& reporter, const Options& options, std::string library_path);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // False when the library cannot be used: the case of loading says why.
  bool Load();
  const tranche_backend_api& table() const { return table_; }
  Host& host() { return *host_; }
  void Use(Inputs inputs) { inputs_ = inputs; }
  void AddUnknownMembers() { unknown_members_ = true; }
  void SetDeadline(std::chrono::milliseconds deadline) { deadline_ = deadline; }

  // False when create failed; `text` replaces the envelope.
  bool Create(std::optional<std::string> text = {});
  Reply last_create() const { return created_; }
  void Destroy();
  bool alive() const { return instance_ != nullptr; }

  Reply Discover();
  Reply Prepare(const std::vector<Wanted>& wanted);
  Reply Unprepare(const std::vector<Wanted>& wanted);
  Reply ListPrepared();
  Reply Verify(const Wanted& wanted);
  Reply CheckHealth();
  Reply Recover(const std::string& device);
  Reply ReleaseHandles();
  Reply SelfTest();
  Reply Sweep();

  // Hands what the host's services noted to the reporter.
  void Flush();
  // Passes of the rules that hold for every call, once enough was called.
  void PassCallRules();

 private:
  template <class Function>
  Reply Call(const std::string& name, const Function& function);
  Reply Read(Record& record, tranche_code code, bool threw);
  void ReadShare(Reply& reply, const Record& record, const std::string& text);
  tranche_str Input(const std::string& text);
  void ReleaseInputs();
  std::string Envelope() const;
  boost::json::object Extended(boost::json::object object) const;

  Reporter& reporter_;
  const Options& options_;
  const std::string path_;
  Host* host_;  // never freed: a backend may call it for ever
  tranche_backend_api table_{};
  tranche_instance* instance_ = nullptr;
  Reply created_;
  Inputs inputs_ = Inputs::kPlain;
  bool unknown_members_ = false;
  std::chrono::milliseconds deadline_;
  std::vector<std::pair<void*, std::size_t>> mapped_;
};

}  // namespace tranche::conform
