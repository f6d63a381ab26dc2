// absl::StrCat for code that uses std::string_view: Abseil packages built for C++14 have a string_view of their own, which StrCat wants.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace tranche {

namespace text_internal {
template <typename Part>
decltype(auto) Piece(const Part& part) {
  if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
    const std::string_view view = part;
    return absl::string_view(view.data(), view.size());
  } else {
    return (part);
  }
}
}  // namespace text_internal

template <typename... Parts>
std::string Cat(const Parts&... parts) {
  return absl::StrCat(text_internal::Piece(parts)...);
}

template <typename... Parts>
void Append(std::string& text, const Parts&... parts) {
  absl::StrAppend(&text, text_internal::Piece(parts)...);
}

inline std::string_view View(absl::string_view text) { return {text.data(), text.size()}; }
inline absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace tranche
