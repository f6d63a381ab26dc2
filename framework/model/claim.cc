#include "model/claim.h"

#include <algorithm>

#include "base/ids.h"
#include "base/text.h"

namespace tranche {
namespace {

// Every field with its length in front, so that no two different results have the same text.
void AppendField(std::string& text, std::string_view field) { Append(text, field.size(), ":", field, ";"); }

std::string CanonicalForm(const AllocationResult& result) {
  std::string text;
  for (std::string_view field : {std::string_view(result.request), std::string_view(result.driver), std::string_view(result.pool),
                                 std::string_view(result.device), std::string_view(result.admin_access ? "admin" : "")}) {
    AppendField(text, field);
  }
  if (result.share_id.has_value()) AppendField(text, *result.share_id);
  Append(text, "|");
  for (const auto& [name, amount] : result.consumed_capacity) {
    AppendField(text, name);
    AppendField(text, amount.ToString());
  }
  return text;
}

}  // namespace

std::string_view BaseRequest(std::string_view request) { return request.substr(0, request.find('/')); }

std::string AllocationVersion(const Allocation& allocation, std::string_view driver, std::int64_t epoch) {
  std::vector<std::string> forms;
  for (const AllocationResult& result : allocation.results) {
    if (result.driver == driver) forms.push_back(CanonicalForm(result));
  }
  std::sort(forms.begin(), forms.end());
  std::string text;
  for (const std::string& form : forms) AppendField(text, form);
  return Sha256Hex(Cat(text, "epoch=", epoch));
}

}  // namespace tranche
