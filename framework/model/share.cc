#include "model/share.h"

#include "base/ids.h"
#include "base/text.h"

namespace tranche {

std::string ShortId(const ShareKey& key) {
  std::string text;
  for (const std::string* field : {&key.claim_uid, &key.request, &key.driver, &key.pool, &key.device, &key.share_id}) {
    Append(text, field->size(), ":", *field, ";");
  }
  return Sha256Hex(text).substr(0, 16);
}

std::string Describe(const ShareKey& key) {
  std::string text = Cat("claim ", key.claim_uid, ", request ", key.request, ", device ", key.driver, "/", key.pool, "/", key.device);
  if (!key.share_id.empty()) Append(text, ", share ", key.share_id);
  return text;
}

std::string_view AppliedStateName(AppliedState state) {
  switch (state) {
    case AppliedState::kComplete: return "complete";
    case AppliedState::kPartial: return "partial";
    case AppliedState::kForeign: return "foreign";
  }
  return "unknown";
}

}  // namespace tranche
