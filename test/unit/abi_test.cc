// What was released stays as it was: payloads of every schemaVersion, and the constants of the header.
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "conformance/schema.h"

namespace tranche {
namespace {

namespace fs = std::filesystem;

const fs::path kSdk = fs::path(TRANCHE_SOURCE_DIRECTORY) / "sdk";

std::string Read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ReleasedPayloads, StayValid) {
  std::set<std::string> schemas;
  for (const auto& entry : fs::recursive_directory_iterator(kSdk / "abi" / "payloads")) {
    if (entry.path().extension() != ".json") continue;
    const std::string stem = entry.path().stem().string();
    const std::string schema = stem.substr(0, stem.find('-'));
    schemas.insert(schema);
    EXPECT_EQ(conform::WhyInvalid(schema, Read(entry.path())), "") << entry.path();
  }
  EXPECT_EQ(schemas, (std::set<std::string>{"device", "health", "key", "manifest", "prepare", "share", "unprepare"}));
}

// "#define TRANCHE_X value" lines; what a newer header may add is no difference.
std::set<std::string> Constants(const fs::path& header) {
  std::set<std::string> constants;
  std::istringstream lines(Read(header));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string define, name, value;
    words >> define >> name >> value;
    if (define == "#define" && name.starts_with("TRANCHE_") && !value.empty() && name != "TRANCHE_ABI_MINOR") constants.insert(name + " " + value);
  }
  return constants;
}

TEST(ReleasedHeader, ConstantsKeepTheirValues) {
  const std::set<std::string> now = Constants(kSdk / "include" / "tranche" / "backend.h");
  const std::set<std::string> released = Constants(kSdk / "abi" / "1.0" / "tranche" / "backend.h");
  EXPECT_GT(released.size(), 20u);
  for (const std::string& constant : released) EXPECT_TRUE(now.contains(constant)) << constant;
}

}  // namespace
}  // namespace tranche
