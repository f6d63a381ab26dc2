#include "conformance/session.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "conformance/payloads.h"
#include "conformance/schema.h"
#include "conformance/text.h"

namespace tranche::conform {
namespace {

namespace json = boost::json;

constexpr std::chrono::milliseconds kGrace{2500};

json::object KeyJson(const sdk::Key& key) { return sdk::ToJson(key); }

}  // namespace

const SeenShare* Reply::Find(const std::string& key) const {
  const auto found = std::find_if(shares.begin(), shares.end(), [&](const SeenShare& share) { return share.key == key; });
  return found == shares.end() ? nullptr : &*found;
}

bool Reply::Ok(const std::string& key) const {
  const auto [first, last] = results.equal_range(key);
  return first != last && std::all_of(first, last, [](const auto& result) { return result.second.code == TRANCHE_OK; });
}

Opened OpenLibrary(const std::string& path) {
  Opened opened;
  opened.handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (opened.handle == nullptr) {
    const char* why = ::dlerror();
    opened.why = why == nullptr ? "unknown reason" : why;
    return opened;
  }
  opened.entry = reinterpret_cast<tranche_backend_entry>(::dlsym(opened.handle, TRANCHE_BACKEND_ENTRY));
  if (opened.entry == nullptr) opened.why = "no " TRANCHE_BACKEND_ENTRY;
  return opened;
}

Session::Session(Reporter& reporter, const Options& options, std::string library_path)
    : reporter_(reporter), options_(options), path_(std::move(library_path)), host_(new Host()), deadline_(options.deadline) {}

bool Session::Load() {
  const Opened opened = OpenLibrary(path_);
  if (opened.entry == nullptr) return false;
  const tranche_head head = host_->table()->head;
  const tranche_backend_api* table = nullptr;
  try {
    table = opened.entry(&head);
  } catch (...) { return false; }
  if (table == nullptr) return false;
  std::memcpy(&table_, table, std::min<std::size_t>(sizeof table_, table->head.struct_size));
  return true;
}

// ---- Inputs.

tranche_str Session::Input(const std::string& text) {
  if (inputs_ == Inputs::kPlain) {
    // A terminating NUL, and never freed: only the two other ways find what this forgives.
    char* copy = static_cast<char*>(std::malloc(text.size() + 1));
    std::memcpy(copy, text.c_str(), text.size() + 1);
    static auto* kept = new std::vector<char*>();
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    kept->push_back(copy);
    return {copy, text.size()};
  }
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t size = (text.size() + page - 1) / page * page + page;
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  char* end = static_cast<char*>(memory) + size - page;
  ::mprotect(end, page, PROT_NONE);
  std::memcpy(end - text.size(), text.data(), text.size());
  mapped_.emplace_back(memory, size);
  return {end - text.size(), text.size()};
}

void Session::ReleaseInputs() {
  // Not given back: the addresses stay without access, so that nothing new appears there.
  if (inputs_ == Inputs::kUnmapped) {
    for (const auto& [memory, size] : mapped_) ::mprotect(memory, size, PROT_NONE);
  }
  mapped_.clear();
}

json::object Session::Extended(json::object object) const {
  if (unknown_members_) object["xAddedLater"] = json::object{{"deep", json::array{1, "two", nullptr}}};
  return object;
}

std::string Session::Envelope() const {
  json::object envelope = Extended({{"schemaVersion", 1}, {"runtimeDirectory", options_.runtime_directory}});
  envelope["config"] = json::parse(options_.config);  // never extended: it is the operator's
  return json::serialize(envelope);
}

// ---- Calls.

template <class Function>
Reply Session::Call(const std::string& name, const Function& function) {
  Record& record = host_->Open(name, std::chrono::steady_clock::now() + deadline_);
  reporter_.Enter(name, deadline_ + kGrace);
  tranche_code code = TRANCHE_INTERNAL;
  bool threw = false;
  try {
    code = function(Host::Handle(record));
  } catch (const std::exception& error) {
    threw = true;
    host_->Problem("TB-032", name + " threw: " + error.what());
  } catch (...) {
    threw = true;
    host_->Problem("TB-032", name + " threw");
  }
  record.closed = true;
  reporter_.Leave();
  ReleaseInputs();
  Reply reply = Read(record, code, threw);
  Flush();
  return reply;
}

Reply Session::Read(Record& record, tranche_code code, bool threw) {
  Reply reply;
  reply.code = code;
  reply.threw = threw;
  reply.message = record.message;
  reply.dropped = record.dropped;
  if (code < TRANCHE_OK || code > TRANCHE_UNAUTHENTICATED) host_->Problem("TB-040", record.function + " returned " + std::to_string(code));
  const bool canonical = code >= TRANCHE_OK && code <= TRANCHE_UNAUTHENTICATED;
  if (code != TRANCHE_OK && canonical && !threw && (record.failed != code || record.message.empty())) {
    host_->Problem("TB-041", record.function + " returned " + CodeName(code) + " without a reason given to fail()");
  }
  for (const std::string& text : record.devices) {
    if (const std::string why = WhyInvalid("device", text); !why.empty()) {
      host_->Problem("TB-048", "add_device: " + why);
      reply.dropped = true;
      continue;
    }
    reply.devices.push_back(json::parse(text).as_object());
  }
  for (const std::string& text : record.shares) ReadShare(reply, record, text);
  for (const Record::Result& result : record.results) {
    if (const std::string why = WhyInvalid("key", result.key); !why.empty()) {
      host_->Problem("TB-048", "add_result: key " + why);
      reply.dropped = true;
      continue;
    }
    if (result.code != TRANCHE_OK && result.message.empty()) host_->Problem("TB-041", "a result of " + record.function + " fails without a text");
    reply.results.emplace(KeyText(sdk::KeyFrom(json::parse(result.key))), SeenResult{result.code, result.message});
  }
  record.devices.clear();  // the record stays, what it held need not
  record.shares.clear();
  record.results.clear();
  return reply;
}

void Session::ReadShare(Reply& reply, const Record& record, const std::string& text) {
  if (const Finding finding = JudgeShare(text); !finding.rule.empty()) {
    host_->Problem(finding.rule, record.function + ", add_share: " + finding.why);
    reply.dropped = reply.dropped || finding.unusable;
    if (finding.unusable) return;
  }
  reply.shares.push_back(ParseShare(text));
}

bool Session::Create(std::optional<std::string> text) {
  const tranche_str input = Input(text.has_value() ? *text : Envelope());
  tranche_instance* out = nullptr;
  created_ = Call("create", [&](tranche_call* call) { return table_.create(host_->table(), call, input, &out); });
  if (created_.ok() && out == nullptr) host_->Problem("TB-027", "create returned OK without an instance");
  Flush();
  instance_ = created_.ok() ? out : nullptr;
  return instance_ != nullptr;
}

void Session::Destroy() {
  if (instance_ == nullptr) return;
  tranche_instance* instance = std::exchange(instance_, nullptr);
  Call("destroy", [&](tranche_call*) {
    table_.destroy(instance);
    return TRANCHE_OK;
  });
  host_->End();
}

Reply Session::Discover() {
  return Call("discover", [&](tranche_call* call) { return table_.discover(instance_, call); });
}

Reply Session::Prepare(const std::vector<Wanted>& wanted) {
  json::array shares;
  for (const Wanted& one : wanted) {
    json::object consumed;
    for (const auto& [name, value] : one.consumed) consumed[name] = json::object{{"value", value}, {"text", std::to_string(value)}};
    json::object share = Extended({{"key", Extended(KeyJson(one.key))}, {"physical", one.physical}, {"mode", one.mode}, {"state", one.state}});
    share["consumed"] = std::move(consumed);
    share["configuration"] = json::parse(options_.parameters);
    share["policyVersion"] = "sha256:conformance";
    share["resultIndex"] = 0;
    share["claim"] = Extended({{"namespace", "conformance"}, {"name", "kit"}, {"podUIDs", json::array{RandomUuid()}}});
    shares.push_back(std::move(share));
  }
  const tranche_str input = Input(json::serialize(Extended({{"schemaVersion", 1}, {"shares", std::move(shares)}})));
  return Call("prepare", [&](tranche_call* call) { return table_.prepare(instance_, call, input); });
}

Reply Session::Unprepare(const std::vector<Wanted>& wanted) {
  json::array shares;
  for (const Wanted& one : wanted) shares.push_back(Extended({{"key", Extended(KeyJson(one.key))}, {"state", one.state}}));
  const tranche_str input = Input(json::serialize(Extended({{"schemaVersion", 1}, {"shares", std::move(shares)}})));
  return Call("unprepare", [&](tranche_call* call) { return table_.unprepare(instance_, call, input); });
}

Reply Session::ListPrepared() {
  return Call("list_prepared", [&](tranche_call* call) { return table_.list_prepared(instance_, call); });
}

Reply Session::Verify(const Wanted& wanted) {
  const tranche_str input = Input(json::serialize(Extended({{"schemaVersion", 1}, {"key", Extended(KeyJson(wanted.key))}, {"state", wanted.state}})));
  return Call("verify", [&](tranche_call* call) { return table_.verify(instance_, call, input); });
}

Reply Session::CheckHealth() {
  return Call("check_health", [&](tranche_call* call) { return table_.check_health(instance_, call); });
}
Reply Session::Recover(const std::string& device) {
  const tranche_str input = Input(device);
  return Call("recover", [&](tranche_call* call) { return table_.recover(instance_, call, input); });
}
Reply Session::ReleaseHandles() {
  return Call("release_handles", [&](tranche_call* call) { return table_.release_handles(instance_, call); });
}
Reply Session::SelfTest() {
  return Call("self_test", [&](tranche_call* call) { return table_.self_test(instance_, call); });
}
Reply Session::Sweep() {
  return Call("sweep", [&](tranche_call* call) { return table_.sweep(instance_, call); });
}

void Session::Flush() {
  for (const auto& [rule, detail] : host_->TakeProblems()) reporter_.Fail(rule, detail);
}

void Session::PassCallRules() {
  for (const std::string_view rule : {"TB-032", "TB-040", "TB-041", "TB-045", "TB-046", "TB-047", "TB-048", "TB-049", "TB-050", "TB-077"}) reporter_.Pass(rule);
}

}  // namespace tranche::conform
