#include "conformance/payloads.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "conformance/schema.h"
#include "conformance/text.h"

namespace tranche::conform {
namespace {

namespace json = boost::json;

const json::value* Member(const json::object& object, std::string_view name) { return object.if_contains(json::string_view(name.data(), name.size())); }

bool IsPlainPath(std::string_view path) {
  return path.starts_with("/") && path.find("/../") == std::string_view::npos && !path.ends_with("/..") && path.find('\0') == std::string_view::npos;
}

bool IsVariable(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) return false;
  return std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; });
}

std::string JudgePaths(const json::object& edits, std::string_view list, std::initializer_list<std::string_view> names) {
  const json::value* items = Member(edits, list);
  if (items == nullptr) return "";
  for (const json::value& item : items->as_array()) {
    for (const std::string_view name : names) {
      const std::string_view path = TextOf(item.as_object(), name);
      if (!path.empty() && !IsPlainPath(path))
        return std::string(list) + ": " + std::string(name) + " " + std::string(path) + " is not an absolute path without ..";
    }
  }
  return "";
}

std::string JudgeEdits(const json::object& edits) {
  if (const json::value* env = Member(edits, "env"); env != nullptr) {
    for (const json::value& variable : env->as_array()) {
      if (!IsVariable(variable.as_string())) return "env: " + std::string(variable.as_string()) + " is not NAME=value";
    }
  }
  for (const std::string& why : {JudgePaths(edits, "deviceNodes", {"path", "hostPath"}), JudgePaths(edits, "mounts", {"hostPath", "containerPath"}),
                                 JudgePaths(edits, "hooks", {"path"})}) {
    if (!why.empty()) return why;
  }
  static constexpr std::array<std::string_view, 6> kHooks = {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"};
  if (const json::value* hooks = Member(edits, "hooks"); hooks != nullptr) {
    for (const json::value& hook : hooks->as_array()) {
      const std::string_view name = TextOf(hook.as_object(), "hookName");
      if (std::find(kHooks.begin(), kHooks.end(), name) == kHooks.end()) return "hooks: " + std::string(name) + " is no hook of OCI";
    }
  }
  return "";
}

// Integer with a Kubernetes suffix, as in "50M" or "10Gi".
std::optional<std::int64_t> Quantity(std::string_view text) {
  std::int64_t value = 0;
  std::size_t at = 0;
  for (; at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0; ++at) {
    if (value > 900000000000000000 / 10) return std::nullopt;
    value = value * 10 + (text[at] - '0');
  }
  static constexpr std::array<std::pair<std::string_view, std::int64_t>, 9> kSuffixes = {
      {{"", 1}, {"k", 1000}, {"M", 1000000}, {"G", 1000000000}, {"T", 1000000000000}, {"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1ll << 40}}};
  const auto* suffix = std::find_if(kSuffixes.begin(), kSuffixes.end(), [&](const auto& known) { return known.first == text.substr(at); });
  if (at == 0 || suffix == kSuffixes.end() || value > INT64_MAX / suffix->second) return std::nullopt;
  return value * suffix->second;
}

std::int64_t AmountFor(const json::object& capacity) {
  const std::int64_t value = Member(capacity, "value")->to_number<std::int64_t>();
  const json::value* policy = Member(capacity, "requestPolicy");
  if (policy != nullptr) {
    if (const auto amount = Quantity(TextOf(policy->as_object(), "default"))) return *amount;
    const json::value* range = Member(policy->as_object(), "validRange");
    if (range != nullptr) {
      if (const auto amount = Quantity(TextOf(range->as_object(), "min"))) return *amount;
    }
  }
  return std::max<std::int64_t>(value / 16, 1);
}

bool HasMode(const json::object& device, std::string_view mode) {
  const json::array& modes = Member(device, "modes")->as_array();
  return std::any_of(modes.begin(), modes.end(), [&](const json::value& one) { return one.as_string() == json::string_view(mode.data(), mode.size()); });
}

}  // namespace

std::string_view TextOf(const json::object& object, std::string_view name) {
  const json::value* value = Member(object, name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string().data(), value->get_string().size()) : std::string_view();
}

std::string KeyText(const sdk::Key& key) { return json::serialize(sdk::ToJson(key)); }

Finding JudgeShare(const std::string& text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  if (!error && value.is_object() && TextOf(value.get_object(), "state").size() > kMaxState) {
    return {"TB-049", "state has " + std::to_string(TextOf(value.get_object(), "state").size()) + " bytes, more than 4096", true};
  }
  if (const std::string why = WhyInvalid("share", text); !why.empty()) return {"TB-048", why, true};
  const json::value* edits = Member(value.get_object(), "containerEdits");
  if (edits == nullptr) return {};
  if (const std::string why = JudgeEdits(edits->as_object()); !why.empty()) return {"TB-050", why, false};
  return {};
}

SeenShare ParseShare(const std::string& text) {
  SeenShare share;
  share.value = json::parse(text).as_object();
  share.key = KeyText(sdk::KeyFrom(share.value.at("key")));
  share.state = std::string(TextOf(share.value, "state"));
  if (const json::value* limits = Member(share.value, "limits"); limits != nullptr) {
    for (const json::value& item : limits->as_array()) {
      const json::object& limit = item.as_object();
      const std::pair place(std::string(TextOf(limit, "capacity")), std::string(TextOf(limit, "direction")));
      const json::value* requested = Member(limit, "requested");
      share.limits[place] = Member(limit, "inForce")->to_number<std::int64_t>();
      share.requested[place] = requested == nullptr ? 0 : requested->to_number<std::int64_t>();
    }
  }
  return share;
}

std::optional<Wanted> Want(const json::object& device, std::string_view mode) {
  if (!HasMode(device, mode)) return std::nullopt;
  Wanted wanted;
  wanted.physical = std::string(TextOf(device, "name"));
  wanted.mode = std::string(mode);
  wanted.key = {RandomUuid(), "conform", "conform.tranche.dev", "node", wanted.physical, mode == "share" ? RandomUuid() : ""};
  wanted.text = KeyText(wanted.key);
  if (mode != "share") return wanted;  // the host names no amounts
  if (const json::value* capacities = Member(device, "capacities"); capacities != nullptr) {
    for (const auto& [name, value] : capacities->as_object()) {
      const json::object& capacity = value.as_object();
      const json::value* shareable = Member(capacity, "shareable");
      const bool divided = shareable != nullptr && shareable->is_bool() && shareable->get_bool();
      if (!divided) continue;
      wanted.consumed[std::string(name)] = AmountFor(capacity);
    }
  }
  return wanted;
}

std::optional<Wanted> WantAny(const std::vector<json::object>& devices) {
  for (const std::string_view mode : {"share", "whole", "partition"}) {
    for (const json::object& device : devices) {
      if (auto wanted = Want(device, mode)) return wanted;
    }
  }
  return std::nullopt;
}

}  // namespace tranche::conform
