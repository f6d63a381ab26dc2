// The pool of one driver and node: what the API has of it, as the watch and the answers to our own writes tell, and the writes that bring it to the
// plan. No I/O and no threads: the publisher calls it under its lock. Internal to the room; tests use it directly.
//
// Generation rules: it is kept when one slice changes in place, and when what has the highest generation is right and only has to be completed (a slice
// that someone deleted, an update that was interrupted, a second host at the same work); otherwise every slice gets the highest ever seen plus one. So no
// reader ever sees a complete pool that mixes two plans.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "slices/planner.h"
#include "slices/slice.h"

namespace tranche::slices {

using TimePoint = std::chrono::steady_clock::time_point;

struct Write {
  enum class Kind { kCreate, kReplace, kDelete };
  Kind kind = Kind::kCreate;
  std::size_t index = 0;                       // in the plan; meaningless for kDelete
  Slice slice;                                 // as to be sent
  std::shared_ptr<const SliceContent> wanted;  // the plan's content, without times of taints
};

class Pool {
 public:
  Pool(std::string driver, std::string node) : driver_(std::move(driver)), node_(std::move(node)) {}

  // ---- Observations.
  // True: a slice that we knew is gone, or this is the first list and has none.
  bool List(std::vector<Slice> slices, TimePoint now);
  void Changed(Slice slice);                                      // by the watch
  bool Deleted(const std::string& name, const std::string& uid);  // true: we knew it
  void Stored(Slice slice);                                       // the answer to a write of ours
  bool listed() const { return listed_; }

  // ---- What is wanted.
  void SetPlan(const SlicePlan& plan);
  void WantNothing();  // the driver is withdrawn
  // The server stores `sent` as `stored` and always will: the two count as equal.
  void Accept(std::size_t index, std::shared_ptr<const SliceContent> sent, std::shared_ptr<const SliceContent> stored);
  // The server refuses this content: the pool is published without it until `until`, then it is tried again, before anything else is touched.
  void Refuse(std::size_t index, std::shared_ptr<const SliceContent> content, TimePoint until);
  void Passed(std::size_t index) { refused_.erase(index); }
  bool IsRefused(std::size_t index) const { return refused_.contains(index); }

  // ---- What to do now; empty: nothing. Writes of one answer may go in any order and in parallel.
  std::vector<Write> Decide(const NodeOwner& owner, TimePoint now);
  // When Decide may answer otherwise without any new observation.
  std::optional<TimePoint> NextLook() const;

  std::int64_t generation() const { return highest_; }
  std::size_t wanted() const { return plan_.size(); }
  std::size_t refused() const { return refused_.size(); }
  std::size_t known() const { return known_.size(); }
  std::size_t Right() const;  // slices of the plan that the API has as wanted
  // Grows whenever what we want changes: a write that repeats an earlier one of the same epoch undoes somebody else's.
  std::uint64_t epoch() const { return epoch_; }

 private:
  struct Wanted {
    std::string generate_name;
    std::shared_ptr<const SliceContent> content;
  };
  struct Known {
    Slice slice;
    bool confirmed = false;                   // the watch has told of it
    std::optional<TimePoint> in_doubt_until;  // a list lacks it that may be older than our write
  };
  struct Refusal {
    std::shared_ptr<const SliceContent> content;
    TimePoint until;
    bool due = false;  // being tried again
  };
  struct Sorted {
    std::map<std::size_t, const Slice*> survivors;  // by index
    std::vector<const Slice*> obsolete;
  };

  void Put(Slice slice, bool confirmed);
  void Bury(const std::string& uid);
  void RememberTimes(const SliceContent& content);
  std::shared_ptr<const SliceContent> WithTimes(const std::shared_ptr<const SliceContent>& content) const;
  bool SameAsWanted(std::size_t index, const Wanted& wanted, const Slice& slice) const;
  std::map<std::size_t, Wanted> Publishable(TimePoint now);
  Sorted Sort(const std::map<std::size_t, Wanted>& wanted) const;
  std::int64_t TargetGeneration(const std::map<std::size_t, Wanted>& wanted, const Sorted& sorted) const;
  Write MakeWrite(std::size_t index, const Wanted& wanted, const Slice* existing, const NodeOwner& owner) const;

  const std::string driver_, node_;
  bool listed_ = false;
  std::map<std::string, Known> known_;  // by name
  std::int64_t highest_ = 0;            // generation, of everything ever seen
  std::set<std::string> buried_;        // UIDs that are gone: late news of them is old
  std::deque<std::string> buried_order_;
  std::map<std::size_t, Wanted> plan_;
  std::map<std::size_t, std::pair<std::shared_ptr<const SliceContent>, std::shared_ptr<const SliceContent>>> accepted_;
  std::map<std::size_t, Refusal> refused_;
  std::set<std::pair<std::string, std::string>> tainted_;                // device and taint, of the plan
  std::map<std::pair<std::string, std::string>, WallTime> taint_times_;  // since when
  std::uint64_t epoch_ = 0;
};

}  // namespace tranche::slices
