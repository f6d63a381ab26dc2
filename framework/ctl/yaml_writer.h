// A JSON tree as one YAML document that every YAML 1.1 and 1.2 reader understands alike. Values that another reader could take for
// something else (numbers, "yes", dates, control characters) are quoted, texts of several lines are literal blocks where that is exact.
#pragma once

#include <string>
#include <string_view>

#include <boost/json/fwd.hpp>

namespace tranche::ctl {

// Block style, two spaces a level, members in their order; ends with a line end. Texts must be valid UTF-8.
std::string WriteYaml(const boost::json::value& value);

}  // namespace tranche::ctl
