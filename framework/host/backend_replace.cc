// BackendPool: a changed library takes over from the running one, or does not.
#include <algorithm>
#include <set>
#include <utility>

#include "backend/runner_backend.h"
#include "base/status.h"
#include "base/text.h"
#include "host/backend_pool.h"
#include "telemetry/log.h"

namespace tranche::host {
namespace {

constexpr std::chrono::seconds kTrialDeadline{20};

absl::StatusOr<std::set<ShareKey>> Keys(backend::Backend& backend) {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<AppliedShare> shares, backend.ListPrepared(DeadlineIn(kTrialDeadline)));
  std::set<ShareKey> keys;
  for (const AppliedShare& share : shares) keys.insert(share.key);
  return keys;
}

// The new one must know every share that the old one knows, before and after it was asked: traffic goes on meanwhile.
absl::Status CheckTakesOver(backend::Backend& old, backend::Backend& successor) {
  TRANCHE_RETURN_IF_ERROR(successor.Discover(DeadlineIn(kTrialDeadline)).status());
  const absl::StatusOr<std::set<ShareKey>> before = Keys(old);
  TRANCHE_ASSIGN_OR_RETURN(const std::set<ShareKey> now, Keys(successor));
  if (!before.ok()) return absl::OkStatus();  // the old one cannot say; it may be the reason for the new one
  const absl::StatusOr<std::set<ShareKey>> after = Keys(old);
  if (!after.ok()) return absl::OkStatus();
  for (const ShareKey& key : *before) {
    if (now.contains(key) || !after->contains(key)) continue;
    return absl::FailedPreconditionError(Cat("list_prepared does not know ", Describe(key), ", which is in force"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BackendPool::Created> BackendPool::Successor(const Entry& entry) {
  TRANCHE_ASSIGN_OR_RETURN(Created created, Create(entry.configuration));
  if (created.sha256 == entry.created.sha256) return created;  // touched or installed again: nothing to take over
  TRANCHE_RETURN_IF_ERROR(CheckTakesOver(*entry.created.instance, *created.instance));
  return created;
}

// True when another instance serves now.
bool BackendPool::Replace(const std::string& name, const Entry& entry, const std::string& files) {
  const absl::StatusOr<backend::CheckedLibrary> library = loader_.Check(entry.configuration.library);
  const bool same = library.ok() && library->manifest.sha256 == entry.created.sha256;
  absl::StatusOr<Created> successor{Created{}};
  if (!library.ok()) successor = library.status();
  if (library.ok() && !same) successor = Successor(entry);
  const std::lock_guard lock(mutex_);
  Entry& now = entries_[name];
  if (same) {
    now.created.files = files;
    now.not_replaced = absl::OkStatus();
    return false;
  }
  if (!successor.ok()) {
    // Library and manifest are installed one after the other: what does not match yet is looked at again when either changes.
    now.refused_files = files;
    now.not_replaced = Annotate(successor.status(), Cat("the new library is not taken over, version ", now.created.version, " goes on serving"));
    LogError("a backend's new library is not taken over", {{"backend", name}, {"reason", std::string(successor.status().message())}});
    return false;
  }
  LogInfo("a backend's new library serves, on trial", {{"backend", name}, {"version", successor->version}, {"before", now.created.version}});
  now.previous = std::exchange(now.created, *std::move(successor));
  now.trial_until = DeadlineIn(options_.trial);
  now.refused_files.clear();
  now.not_replaced = absl::OkStatus();
  return true;
}

// True when the old instance serves again.
bool BackendPool::EndTrial(const std::string& name, const Entry& entry) {
  const absl::Status available = entry.created.instance->Availability();
  const std::optional<backend::ProcessStatus> process = entry.created.instance->Process();
  const bool ended = !available.ok() || (process.has_value() && process->restarts > 0);
  if (!ended && !Passed(entry.trial_until)) return false;
  Created gone;  // destroyed after the lock; its shares stay in force
  const std::lock_guard lock(mutex_);
  Entry& now = entries_[name];
  gone = std::exchange(now.previous, {});
  if (!ended) {
    LogInfo("a backend's new library has passed its trial", {{"backend", name}, {"version", now.created.version}});
    return false;
  }
  std::swap(gone, now.created);
  now.refused_files = gone.files;
  const std::string why = available.ok() ? "its process ended" : std::string(available.message());
  now.not_replaced = absl::FailedPreconditionError(Cat("version ", gone.version, " was rolled back to ", now.created.version, ": ", why));
  LogError("a backend's new library is rolled back", {{"backend", name}, {"version", gone.version}, {"reason", why}});
  return true;
}

std::vector<std::string> BackendPool::Refresh() {
  std::map<std::string, Entry> entries;
  {
    const std::lock_guard lock(mutex_);
    entries = entries_;
  }
  std::vector<std::string> fresh;
  for (const auto& [name, entry] : entries) {
    if (entry.configuration.isolation != config::Isolation::kProcess || entry.created.instance == nullptr || entry.failures > 0) continue;
    if (entry.previous.instance != nullptr) {
      if (EndTrial(name, entry)) fresh.push_back(name);
      continue;
    }
    const std::string files = LookOfFiles(entry.configuration.library);
    if (files == entry.created.files || files == entry.refused_files) continue;
    if (Replace(name, entry, files)) fresh.push_back(name);
  }
  return fresh;
}

bool BackendPool::OnTrial() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) { return entry.second.previous.instance != nullptr; });
}

}  // namespace tranche::host
