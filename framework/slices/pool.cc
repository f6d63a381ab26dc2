#include "slices/pool.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/text.h"

namespace tranche::slices {
namespace {

constexpr std::chrono::milliseconds kDoubt{1000};
constexpr std::size_t kMaxBuried = 4096;

// Resource versions of one kind of object grow with every write.
std::uint64_t VersionNumber(const std::string& text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string TaintText(const DeviceTaint& taint) { return Cat(taint.key, "=", taint.value, ":", taint.effect); }

bool HasTaints(const SliceContent& content) {
  return std::any_of(content.devices.begin(), content.devices.end(), [](const SliceDevice& device) { return !device.taints.empty(); });
}

}  // namespace

// ---- Observations.

void Pool::Put(Slice slice, bool confirmed) {
  if (buried_.contains(slice.uid) || slice.driver != driver_ || slice.node_name != node_) return;
  highest_ = std::max(highest_, slice.generation);
  Known& known = known_[slice.name];
  const bool same_object = known.slice.uid == slice.uid;
  const bool older = same_object && VersionNumber(slice.resource_version) < VersionNumber(known.slice.resource_version);
  known.confirmed = (same_object && known.confirmed) || confirmed;
  if (confirmed || !older) known.in_doubt_until.reset();
  if (older) return;
  RememberTimes(*slice.content);
  if (const std::optional<std::size_t> index = IndexOf(slice.name, driver_, node_)) {  // one copy in memory of what is the same
    const auto wanted = plan_.find(*index);
    if (wanted != plan_.end() && !HasTaints(*slice.content) && SameContent(*slice.content, *wanted->second.content)) slice.content = wanted->second.content;
  }
  known.slice = std::move(slice);
}

void Pool::Bury(const std::string& uid) {
  if (!buried_.insert(uid).second) return;
  buried_order_.push_back(uid);
  if (buried_order_.size() <= kMaxBuried) return;
  buried_.erase(buried_order_.front());
  buried_order_.pop_front();
}

bool Pool::List(std::vector<Slice> slices, TimePoint now) {
  bool gone = !listed_ && slices.empty();
  listed_ = true;
  std::set<std::string> present;
  for (Slice& slice : slices) {
    present.insert(slice.uid);
    Put(std::move(slice), true);
  }
  for (auto known = known_.begin(); known != known_.end();) {
    const bool absent = !present.contains(known->second.slice.uid);
    if (absent && !known->second.confirmed && !known->second.in_doubt_until.has_value()) known->second.in_doubt_until = now + kDoubt;
    const bool drop = absent && known->second.confirmed;
    if (drop) Bury(known->second.slice.uid);
    gone = gone || absent;
    known = drop ? known_.erase(known) : std::next(known);
  }
  return gone;
}

void Pool::Changed(Slice slice) { Put(std::move(slice), true); }

bool Pool::Deleted(const std::string& name, const std::string& uid) {
  Bury(uid);
  const auto known = known_.find(name);
  if (known == known_.end() || known->second.slice.uid != uid) return false;
  known_.erase(known);
  return true;
}

void Pool::Stored(Slice slice) { Put(std::move(slice), false); }

void Pool::RememberTimes(const SliceContent& content) {
  for (const SliceDevice& device : content.devices) {
    for (const DeviceTaint& taint : device.taints) {
      const bool relevant = plan_.empty() || tainted_.contains({device.name, TaintText(taint)});  // not what was lifted meanwhile
      if (relevant && taint.time_added.has_value()) taint_times_.emplace(std::pair(device.name, TaintText(taint)), *taint.time_added);
    }
  }
}

std::shared_ptr<const SliceContent> Pool::WithTimes(const std::shared_ptr<const SliceContent>& content) const {
  if (!HasTaints(*content)) return content;
  auto timed = std::make_shared<SliceContent>(*content);
  for (SliceDevice& device : timed->devices) {
    for (DeviceTaint& taint : device.taints) {
      const auto since = taint_times_.find({device.name, TaintText(taint)});
      if (since != taint_times_.end()) taint.time_added = since->second;
    }
  }
  return timed;
}

// ---- What is wanted.

void Pool::SetPlan(const SlicePlan& plan) {
  bool changed = plan_.size() != plan.slices.size();
  std::map<std::size_t, Wanted> next;
  std::set<std::pair<std::string, std::string>> tainted;
  for (std::size_t index = 0; index < plan.slices.size(); ++index) {
    Wanted wanted{plan.slices[index].generate_name, plan.slices[index].content};
    const auto before = plan_.find(index);
    const bool same = before != plan_.end() && SameContent(*before->second.content, *wanted.content);
    if (same) wanted.content = before->second.content;
    changed = changed || !same;
    for (const SliceDevice& device : wanted.content->devices) {
      for (const DeviceTaint& taint : device.taints) tainted.emplace(device.name, TaintText(taint));
    }
    next.emplace(index, std::move(wanted));
  }
  plan_ = std::move(next);
  if (!changed) return;
  ++epoch_;
  tainted_ = std::move(tainted);
  std::erase_if(taint_times_, [&](const auto& entry) { return !tainted_.contains(entry.first); });
  const auto stale = [&](std::size_t index, const auto& content) {
    const auto wanted = plan_.find(index);
    return wanted == plan_.end() || wanted->second.content != content;
  };
  std::erase_if(accepted_, [&](const auto& entry) { return stale(entry.first, entry.second.first); });
  std::erase_if(refused_, [&](const auto& entry) { return stale(entry.first, entry.second.content); });
}

void Pool::WantNothing() {
  plan_.clear();
  refused_.clear();
  accepted_.clear();
  ++epoch_;
}

void Pool::Accept(std::size_t index, std::shared_ptr<const SliceContent> sent, std::shared_ptr<const SliceContent> stored) {
  accepted_[index] = {std::move(sent), std::move(stored)};
}

void Pool::Refuse(std::size_t index, std::shared_ptr<const SliceContent> content, TimePoint until) {
  const auto wanted = plan_.find(index);
  if (wanted == plan_.end() || wanted->second.content != content) return;  // the plan has moved on
  if (!refused_.contains(index)) ++epoch_;
  refused_[index] = {std::move(content), until, false};
}

// ---- What to do.

bool Pool::SameAsWanted(std::size_t index, const Wanted& wanted, const Slice& slice) const {
  if (slice.content == wanted.content || SameContent(*slice.content, *wanted.content)) return true;
  const auto accepted = accepted_.find(index);
  return accepted != accepted_.end() && accepted->second.first == wanted.content && SameContent(*slice.content, *accepted->second.second);
}

std::map<std::size_t, Pool::Wanted> Pool::Publishable(TimePoint now) {
  std::map<std::size_t, Wanted> wanted = plan_;
  for (auto& [index, refusal] : refused_) {
    refusal.due = refusal.until <= now;
    if (!refusal.due) wanted.erase(index);
  }
  return wanted;
}

// Of several slices for one place the first by name stays, which any host decides alike.
Pool::Sorted Pool::Sort(const std::map<std::size_t, Wanted>& wanted) const {
  Sorted sorted;
  for (const auto& [name, known] : known_) {
    const std::optional<std::size_t> index = IndexOf(name, driver_, node_);
    const bool usable = index.has_value() && wanted.contains(*index) && known.slice.pool_name == node_;
    if (!usable || !sorted.survivors.emplace(*index, &known.slice).second) sorted.obsolete.push_back(&known.slice);
  }
  return sorted;
}

std::int64_t Pool::TargetGeneration(const std::map<std::size_t, Wanted>& wanted, const Sorted& sorted) const {
  std::size_t wrong = 0, current = 0;
  for (const auto& [index, slice] : sorted.survivors) {
    if (slice->generation != highest_) continue;
    ++current;
    const bool right = SameAsWanted(index, wanted.at(index), *slice) && slice->slice_count == static_cast<std::int64_t>(wanted.size());
    if (!right) ++wrong;
  }
  const bool complete_it = wrong == 0 && current > 0;
  // Slices of this generation that are to go would be read together with the changed one.
  const bool leftovers = std::any_of(sorted.obsolete.begin(), sorted.obsolete.end(), [&](const Slice* slice) { return slice->generation == highest_; });
  const bool one_in_place = wrong == 1 && current == wanted.size() && !leftovers;
  const bool last = highest_ == std::numeric_limits<std::int64_t>::max();
  return complete_it || one_in_place || last ? highest_ : highest_ + 1;
}

Write Pool::MakeWrite(std::size_t index, const Wanted& wanted, const Slice* existing, const NodeOwner& owner) const {
  Write write;
  write.kind = existing == nullptr ? Write::Kind::kCreate : Write::Kind::kReplace;
  write.index = index;
  write.wanted = wanted.content;
  if (existing != nullptr) write.slice = *existing;
  if (existing == nullptr) write.slice.generate_name = wanted.generate_name;
  write.slice.owner = owner;
  write.slice.driver = driver_;
  write.slice.node_name = node_;
  write.slice.pool_name = node_;
  write.slice.content = WithTimes(wanted.content);
  return write;
}

std::vector<Write> Pool::Decide(const NodeOwner& owner, TimePoint now) {
  std::erase_if(known_, [&](const auto& entry) { return entry.second.in_doubt_until.has_value() && *entry.second.in_doubt_until <= now; });
  const std::map<std::size_t, Wanted> wanted = Publishable(now);
  const Sorted sorted = Sort(wanted);
  std::vector<Write> writes;
  const std::int64_t generation = TargetGeneration(wanted, sorted);
  bool trying = false;
  for (const auto& [index, one] : wanted) {
    const auto found = sorted.survivors.find(index);
    const Slice* existing = found == sorted.survivors.end() ? nullptr : found->second;
    const bool right = existing != nullptr && existing->generation == generation && existing->owner == owner &&
                       existing->slice_count == static_cast<std::int64_t>(wanted.size()) && SameAsWanted(index, one, *existing);
    if (right) refused_.erase(index);  // another host got it through
    if (right) continue;
    Write write = MakeWrite(index, one, existing, owner);
    write.slice.generation = generation;
    write.slice.slice_count = static_cast<std::int64_t>(wanted.size());
    const auto refusal = refused_.find(index);
    trying = trying || (refusal != refused_.end() && refusal->second.due);
    writes.push_back(std::move(write));
  }
  if (trying) {  // what was refused goes alone: the others are touched only if it passes now
    std::erase_if(writes, [&](const Write& write) { return !refused_.contains(write.index); });
    return writes;
  }
  if (wanted.empty() && !plan_.empty()) return writes;  // everything is refused: what is there stays
  for (const Slice* slice : sorted.obsolete) writes.push_back({Write::Kind::kDelete, 0, *slice, nullptr});
  return writes;
}

std::optional<TimePoint> Pool::NextLook() const {
  std::optional<TimePoint> next;
  const auto consider = [&](TimePoint time) { next = next.has_value() ? std::min(*next, time) : time; };
  for (const auto& [name, known] : known_) {
    if (known.in_doubt_until.has_value()) consider(*known.in_doubt_until);
  }
  for (const auto& [index, refusal] : refused_) consider(refusal.until);
  return next;
}

std::size_t Pool::Right() const {
  std::size_t right = 0;
  for (const auto& [index, slice] : Sort(plan_).survivors) {
    if (slice->generation == highest_ && SameAsWanted(index, plan_.at(index), *slice)) ++right;
  }
  return right;
}

}  // namespace tranche::slices
