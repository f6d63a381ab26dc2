// One share as a backend pushed it: judged, then read.
#pragma once

#include <string>

#include "conformance/session.h"

namespace tranche::conform {

struct Finding {
  std::string rule;  // "" for none
  std::string why;
  bool unusable = false;  // nothing of it can be read
};
Finding JudgeShare(const std::string& text);
// `text` must be usable.
SeenShare ParseShare(const std::string& text);

}  // namespace tranche::conform
