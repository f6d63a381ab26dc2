// Identifiers: UUIDs, digests and names derived from them.
#pragma once

#include <string>
#include <string_view>

namespace tranche {

// Random RFC 4122 version 4, lower case, 36 characters.
std::string NewUuid();
// Lower-case RFC 4122 text form, 36 characters (what the API server accepts as a shareID).
bool IsUuid(std::string_view text);

// Lower-case hexadecimal SHA-256, 64 characters.
std::string Sha256Hex(std::string_view data);

// RFC 1123 label: 1–63 characters of [a-z0-9-], no '-' at either end.
bool IsDnsLabel(std::string_view text);
// DNS subdomain as Kubernetes takes it: parts of [a-z0-9-] joined by '.', none with '-' at an end, at most 253 characters in all. A part may be longer
// than a label.
bool IsDnsSubdomain(std::string_view text);
// DRA qualified name: optional DNS subdomain ≤ 63 and '/', then a C identifier ≤ 32.
bool IsQualifiedName(std::string_view text);
// A valid DNS label made from any text: lower case, other characters become '-', cut to 63 with a digest suffix when
// something was lost, so that two different inputs keep different names.
std::string ToDnsLabel(std::string_view text);

}  // namespace tranche
