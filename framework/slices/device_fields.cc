#include "slices/device_fields.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/ids.h"
#include "base/text.h"
#include "capacity/capacity.h"

namespace tranche::slices {
namespace {

constexpr std::size_t kMaxAttributesAndCapacities = 32;
constexpr std::size_t kMaxLabel = 63;
constexpr std::array<std::string_view, 2> kOwnAttributes = {"offer", "enforcement"};       // what DeviceClasses select by
constexpr std::array<std::string_view, 3> kEffects = {"NoExecute", "NoSchedule", "None"};  // strongest first

bool IsOwn(std::string_view name) { return std::find(kOwnAttributes.begin(), kOwnAttributes.end(), name) != kOwnAttributes.end(); }

bool IsLabelText(std::string_view text) {
  const auto alphanumeric = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  if (text.empty() || text.size() > kMaxLabel || !alphanumeric(text.front()) || !alphanumeric(text.back())) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) { return alphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

bool IsLabelKey(std::string_view key) {
  const std::size_t slash = key.find('/');
  if (slash == std::string_view::npos) return IsLabelText(key);
  return IsDnsSubdomain(key.substr(0, slash)) && IsLabelText(key.substr(slash + 1));
}

std::size_t Strength(const DeviceTaint& taint) {
  return static_cast<std::size_t>(std::find(kEffects.begin(), kEffects.end(), taint.effect) - kEffects.begin());
}

class Maker {
 public:
  Maker(const PublishedDevice& source, const ServerFeatures& features, Problems& problems) : source_(source), features_(features), problems_(problems) {}

  std::optional<SliceDevice> Make(const std::vector<DeviceTaint>& taints) {
    if (!IsDnsLabel(source_.name)) return Withhold("name", Cat("\"", RepairText(source_.name), "\" is not a DNS label of at most 63 characters"));
    if (source_.allow_multiple_allocations && !features_.consumable_capacity) {
      return Withhold("allowMultipleAllocations",
                      "the API server drops what makes a device shareable; switch on its feature gate DRAConsumableCapacity or offer the device whole");
    }
    device_.name = source_.name;
    device_.allow_multiple_allocations = source_.allow_multiple_allocations;
    std::copy_if(source_.consumes_counters.begin(), source_.consumes_counters.end(), std::back_inserter(device_.consumes_counters),
                 [](const CounterUse& use) { return !use.counters.empty(); });
    if (!AddCapacities() || !AddTaints(taints)) return std::nullopt;
    AddAttributes();
    return std::move(device_);
  }

 private:
  void Report(ProblemKind kind, std::string field, std::string message) { problems_.Add(kind, source_.name, std::move(field), std::move(message)); }
  std::nullopt_t Withhold(std::string field, std::string message) {
    Report(ProblemKind::kWithheld, std::move(field), std::move(message));
    return std::nullopt;
  }

  // A share without one of its capacities would be limited by nothing there: it is withheld. Other devices only lose a figure.
  bool AddCapacities() {
    for (const auto& [name, capacity] : source_.capacity) {
      const absl::Status valid = capacity::ValidatePolicy(name, capacity, source_.allow_multiple_allocations);
      const bool room = device_.capacity.size() < kMaxAttributesAndCapacities - kOwnAttributes.size();
      if (valid.ok() && room) {
        device_.capacity.emplace(name, SliceCapacity{capacity.value, capacity.request_policy});
        continue;
      }
      const std::string message = valid.ok() ? "a device has room for 32 attributes and capacities together" : std::string(valid.message());
      const ProblemKind kind = source_.allow_multiple_allocations ? ProblemKind::kWithheld : ProblemKind::kOmitted;
      Report(kind, Cat("capacity[", RepairText(name), "]"), message);
      if (kind == ProblemKind::kWithheld) return false;
    }
    return true;
  }

  // False: the server keeps no taints, so that only withholding the device keeps new claims off it.
  bool AddTaints(const std::vector<DeviceTaint>& given) {
    std::vector<DeviceTaint> taints;
    if (source_.draining) taints.push_back({std::string(kDrainingTaint), "", "NoSchedule", std::nullopt});
    for (const DeviceTaint& taint : given) {
      const bool valid = IsLabelKey(taint.key) && (taint.value.empty() || IsLabelText(taint.value)) && Strength(taint) < kEffects.size();
      if (valid) taints.push_back(taint);
      if (!valid) Report(ProblemKind::kOmitted, "taints", Cat("taint \"", RepairText(taint.key), "\" has a key, value or effect that the API does not allow"));
    }
    std::stable_sort(taints.begin(), taints.end(), [](const DeviceTaint& a, const DeviceTaint& b) { return Strength(a) < Strength(b); });
    const bool effective = !taints.empty() && taints.front().effect != "None";
    if (!features_.taints && effective) {
      Withhold("taints", Cat("the API server drops taints, so that nothing but leaving the device out keeps new claims off it (taint ", taints.front().key,
                             "); switch on its feature gate DRADeviceTaints"));
      return false;
    }
    if (!features_.taints) return true;
    const std::size_t most = features_.minor <= 34 ? 4 : 16;
    if (taints.size() > most) {
      Report(ProblemKind::kOmitted, "taints", Cat("the API server takes ", most, " taints of a device; the weakest are left out"));
      taints.resize(most);
    }
    device_.taints = std::move(taints);
    return true;
  }

  // Our own first, then those whose names need no repair, so that a repaired name never displaces a right one.
  void AddAttributes() {
    for (const auto& [name, value] : source_.attributes) {
      if (IsOwn(name)) AddAttribute(name, name, value);
    }
    for (const auto& [name, value] : source_.attributes) {
      if (!IsOwn(name) && PublishedName(name) == name) AddAttribute(name, name, value);
    }
    for (const auto& [name, value] : source_.attributes) {
      const std::optional<std::string> published = PublishedName(name);
      if (published == name) continue;
      if (!published.has_value()) {
        Report(ProblemKind::kOmitted, AttributeField(name), "no attribute name can be made of it");
        continue;
      }
      AddAttribute(name, *published, value);
    }
  }

  static std::string AttributeField(const std::string& name) { return Cat("attributes[", RepairText(name), "]"); }

  // A name in the driver's own domain is the bare name to every reader; the bare one is published.
  std::optional<std::string> PublishedName(const std::string& name) const {
    std::optional<std::string> repaired = RepairAttributeName(name);
    const std::string own = Cat(source_.driver, "/");
    if (repaired.has_value() && repaired->starts_with(own)) repaired->erase(0, own.size());
    return repaired;
  }

  void AddAttribute(const std::string& name, const std::string& published, const AttributeValue& value) {
    const std::optional<AttributeValue> repaired = RepairValue(name, value);
    if (!repaired.has_value()) return;
    if (device_.attributes.contains(published)) {
      Report(ProblemKind::kOmitted, AttributeField(name), Cat("another attribute is already published as ", published));
      return;
    }
    if (device_.attributes.size() + device_.capacity.size() >= kMaxAttributesAndCapacities) {
      Report(ProblemKind::kOmitted, AttributeField(name), "a device has room for 32 attributes and capacities together");
      return;
    }
    if (name != published) Report(ProblemKind::kRepaired, AttributeField(name), Cat("is published as ", published));
    device_.attributes.emplace(published, *repaired);
  }

  std::optional<AttributeValue> RepairValue(const std::string& name, const AttributeValue& value) {
    if (const std::string* text = std::get_if<std::string>(&value)) {
      std::string repaired = RepairText(*text);
      if (repaired != *text) Report(ProblemKind::kRepaired, AttributeField(name), Cat("is more than 64 bytes or not UTF-8; published as \"", repaired, "\""));
      return repaired;
    }
    if (const VersionValue* version = std::get_if<VersionValue>(&value)) {
      std::optional<std::string> repaired = RepairVersion(version->text);
      const std::string shown = RepairText(version->text);
      if (!repaired.has_value()) {
        Report(ProblemKind::kOmitted, AttributeField(name), Cat("\"", shown, "\" is no semantic version and none can be made of it; use a string attribute"));
        return std::nullopt;
      }
      if (*repaired != version->text) Report(ProblemKind::kRepaired, AttributeField(name), Cat("\"", shown, "\" is published as version ", *repaired));
      return VersionValue{*std::move(repaired)};
    }
    return value;
  }

  const PublishedDevice& source_;
  const ServerFeatures& features_;
  Problems& problems_;
  SliceDevice device_;
};

}  // namespace

std::optional<SliceDevice> MakeDevice(const PublishedDevice& device, const std::vector<DeviceTaint>& taints, const ServerFeatures& features,
                                      Problems& problems) {
  return Maker(device, features, problems).Make(taints);
}

}  // namespace tranche::slices
