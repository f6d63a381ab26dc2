// The order of names for people: numbers inside them count by value.
#pragma once

#include <string_view>

namespace tranche {

// eth2 before eth10. A strict order of all texts: what differs only in leading zeros is ordered byte by byte.
bool NaturalLess(std::string_view left, std::string_view right);

}  // namespace tranche
