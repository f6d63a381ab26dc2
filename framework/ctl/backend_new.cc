#include "ctl/backend_new.h"

#include <cctype>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <vector>

#include <boost/json.hpp>

#include "base/files.h"
#include "base/status.h"
#include "base/text.h"

namespace tranche::ctl {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

// The name is a C++ namespace, a target and a file name as well.
bool IsIdentifier(std::string_view name) {
  return !name.empty() && name.size() <= 63 && name.front() >= 'a' && name.front() <= 'z' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

std::string Upper(std::string name) {
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// "fake_accelerator" with `between` "" as "FakeAccelerator", with " " as "Fake Accelerator".
std::string Words(const std::string& name, std::string_view between) {
  std::string words;
  bool begin = true;
  for (const char c : name) {
    if (c == '_') {
      begin = true;
      continue;
    }
    if (begin && !words.empty()) words += between;
    words += begin ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begin = false;
  }
  return words;
}

std::string Renamed(std::string_view text, const std::string& name) {
  static const std::string original = "fake_accelerator";
  const std::vector<std::pair<std::string, std::string>> names = {
      {original, name}, {Upper(original), Upper(name)}, {Words(original, ""), Words(name, "")}, {Words(original, " "), Words(name, " ")}};
  std::string renamed(text);
  for (const auto& [from, to] : names) {
    for (std::size_t at = renamed.find(from); at != std::string::npos; at = renamed.find(from, at + to.size())) renamed.replace(at, from.size(), to);
  }
  return renamed;
}

absl::Status WriteTemplate(const std::string& name, const fs::path& directory, std::vector<std::string>& written) {
  for (const TemplateFile* file = kTemplateFiles; !file->path.empty(); ++file) {
    const fs::path path = directory / std::string(file->path);
    TRANCHE_RETURN_IF_ERROR(MakeDirectories(path.parent_path().string(), 0755));
    TRANCHE_RETURN_IF_ERROR(WriteFileAtomically(path.string(), Renamed(file->text, name), 0644, Durability::kVisible));
    written.emplace_back(file->path);
  }
  return absl::OkStatus();
}

}  // namespace

int NewBackend(const std::string& name, const std::string& directory, Format format) {
  if (!IsIdentifier(name)) {
    return Fail(
        absl::InvalidArgumentError(Cat("the name ", name, " must be lower-case letters, digits and _, beginning with a letter, at most 63 characters")));
  }
  std::error_code error;
  const bool existed = fs::exists(directory, error);
  if (existed && (!fs::is_directory(directory, error) || !fs::is_empty(directory, error))) {
    return Fail(absl::AlreadyExistsError(Cat(directory, " exists and is not an empty directory; name another")));
  }
  std::vector<std::string> written;
  if (const absl::Status status = WriteTemplate(name, directory, written); !status.ok()) {
    for (const std::string& path : written) fs::remove(fs::path(directory) / path, error);
    if (!existed) fs::remove_all(directory, error);
    return Fail(status);
  }
  if (format == Format::kJson) {
    PrintJson(json::object{{"name", name}, {"directory", directory}, {"files", json::array(written.begin(), written.end())}});
    return kSuccess;
  }
  for (const std::string& path : written) std::cout << directory << "/" << path << "\n";
  std::cout << "next: cd " << directory << ", then cmake --workflow --preset check\n";
  return kSuccess;
}

}  // namespace tranche::ctl
