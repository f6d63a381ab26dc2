#include <algorithm>
#include <utility>

#include "base/fault.h"
#include "base/status.h"
#include "base/text.h"
#include "claims/impl.h"
#include "telemetry/log.h"

namespace tranche::claims {
namespace {

store::ClaimRow ClaimOf(const std::string& driver, const ClaimReference& reference) {
  store::ClaimRow claim;
  claim.driver = driver;
  claim.claim_uid = reference.uid;
  claim.namespace_name = reference.namespace_name;
  claim.name = reference.name;
  return claim;
}

}  // namespace

UnprepareAnswers Claims::Impl::Unprepare(const std::string& driver, const std::vector<ClaimReference>& claims, Deadline deadline, const GivenUp& given_up) {
  std::map<std::string, ClaimReference> waiting;
  for (const ClaimReference& reference : claims) waiting.emplace(reference.uid, reference);
  UnprepareAnswers answers;
  bool is_late = false;
  // One that another call is at work on keeps none of the others waiting.
  while (!waiting.empty()) {
    std::set<ClaimId> ids;
    for (const auto& [uid, reference] : waiting) ids.emplace(driver, uid);
    const auto locks = locks_.AcquireFree(ids, deadline);
    is_late = given_up && given_up();
    if (locks.empty() || is_late) break;
    std::map<std::string, ClaimReference> free;
    for (const auto& [id, lock] : locks) free.insert(waiting.extract(id.second));
    answers.merge(UnprepareLocked(driver, free, deadline));
  }
  for (const auto& [uid, reference] : waiting) answers[uid] = NotBegun(uid, is_late);
  return answers;
}

UnprepareAnswers Claims::Impl::UnprepareLocked(const std::string& driver, const std::map<std::string, ClaimReference>& claims, Deadline deadline) {
  UnprepareAnswers answers;
  std::vector<Release> releases;
  for (const auto& [uid, reference] : claims) {
    absl::StatusOr<std::optional<StoredClaim>> stored = Find({driver, uid});
    if (!stored.ok()) {
      answers[uid] = stored.status();
    } else if (stored->has_value()) {
      releases.push_back({**std::move(stored), absl::OkStatus(), absl::OkStatus()});
    } else if (const std::vector<UnknownShare> unknown = unknown_.Of({driver, uid}); !unknown.empty()) {
      releases.push_back(ReleaseOf(ClaimOf(driver, reference), unknown));
    } else {
      answers[uid] = RemoveUnknownFile({driver, uid});  // nothing is known of it, so nothing may be left of it
      if (answers[uid].ok()) Notify(ClaimChange::kReleased, ClaimOf(driver, reference), {});
    }
  }
  ReleaseAll(releases, Actor::kKubelet, deadline);
  for (const Release& release : releases) {
    answers[release.stored.claim.claim_uid] = release.status;
    if (release.status.ok()) unknown_.Forget({driver, release.stored.claim.claim_uid});
  }
  return answers;
}

void Claims::Impl::ReleaseAll(std::vector<Release>& releases, Actor actor, Deadline deadline) {
  if (releases.empty()) return;
  TRANCHE_FAULT_POINT("claims.unprepare.before_mark");
  MarkReleasing(releases);
  TRANCHE_FAULT_POINT("claims.unprepare.after_mark");
  CallUnprepare(releases, deadline);
  TRANCHE_FAULT_POINT("claims.unprepare.after_backend");
  Forget(releases, actor);
  TRANCHE_FAULT_POINT("claims.unprepare.after_delete");
  NotifyReleases(releases);
  RejoinWhenDrained(releases);
}

// Durable before the backend is called: from here on nobody answers that the claim is prepared, and its capacity stays taken until all is gone.
void Claims::Impl::MarkReleasing(std::vector<Release>& releases) {
  const absl::Status stored = dependencies_.store.Write([&](store::Transaction& transaction) -> absl::Status {
    for (Release& release : releases) {
      store::ClaimRow& claim = release.stored.claim;
      TRANCHE_ASSIGN_OR_RETURN(const std::optional<store::ClaimRow> now, transaction.FindClaim(claim.driver, claim.claim_uid));
      if (!release.failed_prepare.ok()) {
        TRANCHE_RETURN_IF_ERROR(transaction.AppendAudit(MakeAudit(Actor::kKubelet, "prepare", claim, nullptr, release.failed_prepare)));
      }
      if (!now.has_value()) continue;  // another host released it; the backend is asked all the same
      if (now->epoch != claim.epoch) {
        release.superseded = true;
        release.status = absl::AbortedError(Cat("claim ", claim.claim_uid, " was prepared anew by another host process meanwhile; retry"));
        continue;
      }
      claim.state = store::ClaimState::kUnpreparing;
      claim.reason = View(release.failed_prepare.message());
      claim.updated_at = std::chrono::system_clock::now();
      TRANCHE_RETURN_IF_ERROR(transaction.PutClaim(claim));
      for (store::ShareRow& share : release.stored.shares) {
        share.state = store::ShareState::kReleasing;
        TRANCHE_RETURN_IF_ERROR(transaction.PutShare(share));
      }
    }
    return absl::OkStatus();
  });
  if (stored.ok()) return;
  for (Release& release : releases) release.status = Annotate(stored, Cat("claim ", release.stored.claim.claim_uid, ": mark it as being released"));
}

void Claims::Impl::CallUnprepare(std::vector<Release>& releases, Deadline deadline) {
  std::map<std::string, std::vector<backend::UnprepareItem>> items;
  for (const Release& release : releases) {
    if (!release.status.ok()) continue;
    for (const store::ShareRow& share : release.stored.shares) {
      items[share.backend].push_back({share.key, share.applied.has_value() ? share.applied->state : ""});
    }
  }
  std::map<ShareKey, absl::Status> answers;
  std::map<std::string, std::vector<backend::UnprepareOutcome>> outcomes;
  std::vector<std::function<void()>> calls;
  for (const auto& [name, list] : items) {
    const std::shared_ptr<backend::Backend> backend = dependencies_.backend(name);
    const bool is_late = Passed(deadline);
    const absl::Status silent = backend == nullptr
                                    ? absl::UnavailableError(Cat("backend '", name, "' is not loaded; load it again so that its shares can be taken away"))
                                : is_late ? NotCalled(name)
                                          : absl::InternalError(Cat("backend '", name, "' gave no answer for this share"));
    for (const backend::UnprepareItem& item : list) answers[item.key] = silent;
    if (backend == nullptr || is_late) continue;
    calls.emplace_back([backend, deadline, &asked = list, &given = outcomes[name]] { given = backend->Unprepare(asked, deadline); });
  }
  SideBySide(calls);
  for (auto& [name, given] : outcomes) {
    for (backend::UnprepareOutcome& outcome : given) {
      const auto answer = answers.find(outcome.key);
      if (answer != answers.end()) answer->second = std::move(outcome.status);
    }
  }
  for (Release& release : releases) {
    if (!release.status.ok()) continue;
    for (const store::ShareRow& share : release.stored.shares) {
      const absl::Status& answer = answers.at(share.key);
      if (!answer.ok() && release.status.ok()) release.status = Annotate(answer, Cat("unprepare ", Describe(share.key)));
    }
  }
}

void Claims::Impl::Forget(std::vector<Release>& releases, Actor actor) {
  const absl::Status stored = dependencies_.store.Write([&](store::Transaction& transaction) -> absl::Status {
    for (Release& release : releases) TRANCHE_RETURN_IF_ERROR(ForgetOne(transaction, release, actor));
    return absl::OkStatus();
  });
  if (stored.ok()) return;
  for (Release& release : releases) {
    if (release.status.ok()) release.status = Annotate(stored, Cat("claim ", release.stored.claim.claim_uid, ": forget it"));
  }
}

absl::Status Claims::Impl::ForgetOne(store::Transaction& transaction, Release& release, Actor actor) {
  const std::string_view action = actor == Actor::kKubelet ? "unprepare" : actor == Actor::kOperator ? "release-unknown" : "reconcile";
  store::ClaimRow claim = release.stored.claim;
  TRANCHE_ASSIGN_OR_RETURN(const std::optional<store::ClaimRow> now, transaction.FindClaim(claim.driver, claim.claim_uid));
  const bool ours = now.has_value() && now->epoch == claim.epoch;
  // The file of a claim that was prepared anew since belongs to that.
  if (release.status.ok() && (ours || !now.has_value())) release.status = Annotate(cdi_.Remove(claim.driver, claim.claim_uid), "remove the CDI file");
  TRANCHE_FAULT_POINT("claims.unprepare.after_cdi");
  if (!release.status.ok()) {
    claim.reason = View(release.status.message());
    if (ours && now->state == store::ClaimState::kUnpreparing) TRANCHE_RETURN_IF_ERROR(transaction.PutClaim(claim));
    return transaction.AppendAudit(MakeAudit(actor, action, claim, nullptr, release.status));
  }
  if (ours) TRANCHE_RETURN_IF_ERROR(transaction.DeleteClaim(claim.driver, claim.claim_uid));
  if (!release.failed_prepare.ok()) return absl::OkStatus();  // recorded as a failed prepare
  for (const store::ShareRow& share : release.stored.shares) {
    TRANCHE_RETURN_IF_ERROR(transaction.AppendAudit(MakeAudit(actor, action, claim, &share, absl::OkStatus())));
  }
  return absl::OkStatus();
}

void Claims::Impl::RejoinWhenDrained(const std::vector<Release>& releases) {
  const auto snapshot = dependencies_.inventory.Current();
  for (const Release& release : releases) {
    if (!release.status.ok()) continue;
    for (const store::ShareRow& share : release.stored.shares) {
      const PublishedDevice* device = snapshot->Find(share.key.driver, share.key.pool, share.key.device);
      if (device == nullptr || !device->draining) continue;
      dependencies_.inventory.Rejoin();
      return;
    }
  }
}

}  // namespace tranche::claims
