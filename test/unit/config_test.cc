#include <string>

#include <absl/strings/str_replace.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "config/config.h"

namespace tranche::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// docs/architecture.md §5.
constexpr char kExample[] = R"(apiVersion: tranche.dev/v1alpha1
kind: HostConfiguration
backends:
- name: uplink
  library: vnic_tc
  isolation: process
  config: {parents: [{interface: eth1, bandwidth: 10G, queues: 4, quoted: "4", up: true, none: ~, ratio: 0.5}]}
  allowEdits: {hooks: [/var/lib/kubelet/plugins/vnic.tranche.dev/bin/]}
drivers:
- name: vnic.tranche.dev
  offers:
  - name: shared
    backend: uplink
    mode: share
    capacity:
      bandwidth: {default: 100M, min: 10M, max: 5G, step: 10M, reserve: 10%}
  classes:
  - name: vnic-shared
    offer: shared
    namespaces: {allow: ["team-*"]}
    minimumEnforcement: hard
    parameters: {direction: both}
    claimParameters: [direction]
)";

std::string Replaced(std::string_view from, std::string_view to) {
  std::string text = kExample;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Configuration, ReadsTheDocumentedExample) {
  const absl::StatusOr<HostConfiguration> read = ParseConfiguration(kExample, "host.yaml");
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->backends.size(), 1U);
  const BackendConfiguration& backend = read->backends[0];
  EXPECT_EQ(backend.library, "vnic_tc");
  EXPECT_EQ(backend.isolation, Isolation::kProcess);
  EXPECT_EQ(backend.config, R"({"parents":[{"interface":"eth1","bandwidth":"10G","queues":4,"quoted":"4","up":true,"none":null,"ratio":5E-1}]})");
  EXPECT_THAT(backend.allow_edits.hooks, ElementsAre("/var/lib/kubelet/plugins/vnic.tranche.dev/bin/"));
  EXPECT_FALSE(backend.allow_edits.net_devices);
  const DriverConfiguration& driver = read->drivers.at(0);
  EXPECT_EQ(driver.offers[0].line, 12);
  const CapacityConfiguration& bandwidth = driver.offers[0].capacity.at("bandwidth");
  EXPECT_EQ(bandwidth.reserve.percent, 10);
  EXPECT_EQ(bandwidth.policy->default_value->ToString(), "100M");
  EXPECT_EQ(bandwidth.policy->valid_range->step->ToString(), "10M");
  const ClassConfiguration* device_class = FindClass(driver, "vnic-shared");
  ASSERT_NE(device_class, nullptr);
  EXPECT_THAT(device_class->namespaces, ElementsAre("team-*"));
  EXPECT_EQ(device_class->minimum_enforcement, Enforcement::kHard);
  EXPECT_EQ(device_class->parameters, R"({"direction":"both"})");
  EXPECT_EQ(FindDriver(*read, "vnic.tranche.dev"), &read->drivers[0]);
  EXPECT_EQ(FindDriver(*read, "x"), nullptr);
}

TEST(Configuration, DefaultsNeedNotBeWritten) {
  std::string text = Replaced("  isolation: process\n", "");
  text = absl::StrReplaceAll(text, {{"    namespaces: {allow: [\"team-*\"]}\n", ""}, {"    minimumEnforcement: hard\n", ""}});
  const absl::StatusOr<HostConfiguration> read = ParseConfiguration(text, "f");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->backends[0].isolation, Isolation::kProcess);
  EXPECT_THAT(read->drivers[0].classes[0].namespaces, ElementsAre("*"));
  EXPECT_EQ(read->drivers[0].classes[0].minimum_enforcement, Enforcement::kNone);
}

TEST(Configuration, ValidValuesInsteadOfARange) {
  const absl::StatusOr<HostConfiguration> read =
      ParseConfiguration(Replaced("{default: 100M, min: 10M, max: 5G, step: 10M, reserve: 10%}", "{default: 1G, validValues: [1G, 2G], reserve: 1G}"), "f");
  ASSERT_TRUE(read.ok()) << read.status();
  const CapacityConfiguration& bandwidth = read->drivers[0].offers[0].capacity.at("bandwidth");
  EXPECT_EQ(bandwidth.policy->valid_values.size(), 2U);
  EXPECT_EQ(bandwidth.reserve.amount->ToString(), "1G");
}

struct Mistake {
  const char* name;
  const char* from;
  const char* to;
  int line;
  const char* path;
  const char* message;
};

class ConfigurationMistake : public testing::TestWithParam<Mistake> {};

TEST_P(ConfigurationMistake, NamesLinePathAndRemedy) {
  const Mistake& mistake = GetParam();
  const ParseOutcome outcome = ParseConfigurationDetailed(Replaced(mistake.from, mistake.to));
  EXPECT_FALSE(outcome.configuration.has_value());
  ASSERT_FALSE(outcome.errors.empty());
  const ParseError& error = outcome.errors[0];
  EXPECT_EQ(error.line, mistake.line) << error.message;
  EXPECT_EQ(error.path, mistake.path) << error.message;
  EXPECT_THAT(error.message, HasSubstr(mistake.message));
  EXPECT_EQ(outcome.errors.size(), 1U) << outcome.errors[1].line << ": " << outcome.errors[1].path << ": " << outcome.errors[1].message;
}

constexpr char kPolicy[] = "{default: 100M, min: 10M, max: 5G, step: 10M, reserve: 10%}";
constexpr char kBandwidth[] = "drivers[0].offers[0].capacity.bandwidth";
constexpr char kBandwidthDefault[] = "drivers[0].offers[0].capacity.bandwidth.default";
constexpr char kBandwidthMin[] = "drivers[0].offers[0].capacity.bandwidth.min";
constexpr char kBandwidthMax[] = "drivers[0].offers[0].capacity.bandwidth.max";
constexpr char kBandwidthStep[] = "drivers[0].offers[0].capacity.bandwidth.step";
constexpr char kBandwidthValues[] = "drivers[0].offers[0].capacity.bandwidth.validValues";
constexpr char kBandwidthReserve[] = "drivers[0].offers[0].capacity.bandwidth.reserve";

INSTANTIATE_TEST_SUITE_P(
    All, ConfigurationMistake,
    testing::Values(Mistake{"UnknownKey", "minimumEnforcement:", "minimumEnforcment:", 21, "drivers[0].classes[0].minimumEnforcment",
                            "did you mean \"minimumEnforcement\"?"},
                    Mistake{"ApiVersion", "v1alpha1", "v2", 1, "apiVersion", "write tranche.dev/v1alpha1"},
                    Mistake{"Kind", "HostConfiguration", "Host", 2, "kind", "write HostConfiguration"},
                    Mistake{"DuplicateKey", "  isolation: process", "  library: vnic_tc", 6, "backends[0].library", "the first is on line 5"},
                    Mistake{"DuplicateKeyInConfig", "bandwidth: 10G,", "interface: x,", 7, "backends[0].config.parents[0].interface", "twice"},
                    Mistake{"Alias", "name: uplink", "name: *x", 4, "", "anchor"}, Mistake{"Anchor", "name: uplink", "name: &x uplink", 4, "", "anchors"},
                    Mistake{"Tag", "name: uplink", "name: !!str uplink", 4, "", "tags"},
                    Mistake{"NotUtf8", "name: uplink", "name: upl\xFFnk", 4, "", "not UTF-8"},
                    Mistake{"Surrogate", "name: uplink", "name: \"\\uD800\"", 4, "", "not valid YAML"},
                    Mistake{"KeyNotUtf8", "direction: both", "\xC0\x80: both", 22, "", "not UTF-8"},
                    Mistake{"SecondDocument", "drivers:", "---\ndrivers:", 10, "", "second document"},
                    Mistake{"Syntax", "name: uplink", "name: [uplink", 5, "", "not valid YAML"},
                    Mistake{"BackendName", "drivers:", "- {name: Up_link, library: x}\ndrivers:", 9, "backends[1].name", "DNS label"},
                    Mistake{"Library", "vnic_tc", "../vnic_tc.so", 5, "backends[0].library", "without directory"},
                    Mistake{"Isolation", "isolation: process", "isolation: vm", 6, "backends[0].isolation", "process or in-process"},
                    Mistake{"ConfigKind", "config: {parents: [{interface: eth1, bandwidth: 10G, queues: 4, quoted: \"4\", up: true, none: ~, ratio: 0.5}]}",
                            "config: 3", 7, "backends[0].config", "must be a map"},
                    Mistake{"EditPath", "[/var/lib", "[var/lib", 8, "backends[0].allowEdits.hooks[0]", "absolute"},
                    Mistake{"DriverName", "- name: vnic.tranche.dev", "- name: 9vnic.tranche.dev", 10, "drivers[0].name", "starts with a letter"},
                    Mistake{"OfferBackend", "backend: uplink", "backend: uplnk", 13, "drivers[0].offers[0].backend", "did you mean \"uplink\"?"},
                    Mistake{"Mode", "mode: share", "mode: shared", 14, "drivers[0].offers[0].mode", "did you mean \"share\"?"},
                    Mistake{"PolicyNeedsShare", "mode: share", "mode: whole", 16, kBandwidth, "needs mode: share"},
                    Mistake{"CapacityName", "      bandwidth:", "      band width:", 16, "drivers[0].offers[0].capacity.band width", "name of a capacity"},
                    Mistake{"Quantity", "10M, max", "10Q, max", 16, kBandwidthMin, "10Q"},
                    Mistake{"Negative", "10M, max", "-10M, max", 16, kBandwidthMin, "negative"},
                    Mistake{"MinMissing", "min: 10M, ", "", 16, kBandwidthMin, "min: 0"},
                    Mistake{"MaxBelowMin", kPolicy, "{default: 10M, min: 10M, max: 5M}", 16, kBandwidthMax, "below min"},
                    Mistake{"DefaultBelowMin", "default: 100M", "default: 1M", 16, kBandwidthDefault, "below min 10M"},
                    Mistake{"DefaultAboveMax", "default: 100M", "default: 6G", 16, kBandwidthDefault, "above max 5G"},
                    Mistake{"DefaultOffGrid", "default: 100M", "default: 105M", 16, kBandwidthDefault, "110M"},
                    Mistake{"MaxOffGrid", "max: 5G", "max: 5001M", 16, kBandwidthMax, "multiple of step"},
                    Mistake{"StepZero", "step: 10M", "step: 0", 16, kBandwidthStep, "more than 0"},
                    Mistake{"ValuesAndRange", "reserve: 10%", "validValues: [1G]", 16, kBandwidthValues, "excludes"},
                    Mistake{"ValuesOrder", kPolicy, "{default: 1G, validValues: [2G, 1G]}", 16, kBandwidthValues, "ascending"},
                    Mistake{"ValuesDefault", kPolicy, "{default: 3G, validValues: [1G, 2G]}", 16, kBandwidthValues, "not one of"},
                    Mistake{"ReservePercent", "reserve: 10%", "reserve: 110%", 16, kBandwidthReserve, "0% to 100%"},
                    Mistake{"ReserveFraction", "reserve: 10%", "reserve: 1.5%", 16, kBandwidthReserve, "whole number"},
                    Mistake{"ReserveAmount", "reserve: 10%", "reserve: lots", 16, kBandwidthReserve, "amount"},
                    Mistake{"ClassOffer", "offer: shared", "offer: share", 19, "drivers[0].classes[0].offer", "did you mean \"shared\"?"},
                    Mistake{"ClassName", "name: vnic-shared", "name: vnic_shared", 18, "drivers[0].classes[0].name", "DNS name"},
                    Mistake{"NamespaceGlob", "team-*", "Team?", 20, "drivers[0].classes[0].namespaces.allow[0]", "matches no namespace"},
                    Mistake{"NoNamespace", "[\"team-*\"]", "[]", 20, "drivers[0].classes[0].namespaces.allow", "allows no namespace"},
                    Mistake{"Enforcement", "Enforcement: hard", "Enforcement: hart", 21, "drivers[0].classes[0].minimumEnforcement", "did you mean \"hard\"?"},
                    Mistake{"Parameters", "{direction: both}", "[both]", 22, "drivers[0].classes[0].parameters", "must be a map"}),
    [](const testing::TestParamInfo<Mistake>& mistake) { return std::string(mistake.param.name); });

TEST(Configuration, MissingLibraryIsNamedWithItsBackend) {
  const ParseOutcome outcome = ParseConfigurationDetailed(Replaced("  library: vnic_tc\n", ""));
  ASSERT_EQ(outcome.errors.size(), 1U);
  EXPECT_EQ(outcome.errors[0].line, 4);
  EXPECT_EQ(outcome.errors[0].path, "backends[0].library");
}

TEST(Configuration, NamesAreUnique) {
  const std::string text = absl::StrCat(kExample, R"(- name: gpu.tranche.dev
  offers:
  - {name: a, backend: uplink, mode: whole}
  - {name: a, backend: uplink, mode: whole}
  classes:
  - {name: vnic-shared, offer: a}
- {name: vnic.tranche.dev}
)");
  const ParseOutcome outcome = ParseConfigurationDetailed(text);
  ASSERT_EQ(outcome.errors.size(), 3U);
  EXPECT_EQ(outcome.errors[0].path, "drivers[1].offers[1].name");
  EXPECT_EQ(outcome.errors[1].path, "drivers[1].classes[0].name");
  EXPECT_THAT(outcome.errors[1].message, HasSubstr("line 18"));
  EXPECT_EQ(outcome.errors[2].path, "drivers[2].name");
}

TEST(Configuration, ReportsAllErrorsWithFileAndLine) {
  const absl::StatusOr<HostConfiguration> read =
      ParseConfiguration(absl::StrReplaceAll(kExample, {{"mode: share", "mode: x"}, {"offer: shared", "offr: shared"}}), "h.yaml");
  ASSERT_FALSE(read.ok());
  const std::string message(read.status().message());
  EXPECT_THAT(message, HasSubstr("h.yaml:14: drivers[0].offers[0].mode: "));
  EXPECT_THAT(message, HasSubstr("\nh.yaml:19: drivers[0].classes[0].offr: unknown key; did you mean \"offer\"?"));
}

TEST(Configuration, RefusesWhatIsTooLargeOrNoConfiguration) {
  EXPECT_FALSE(ParseConfigurationDetailed(std::string((1 << 20) + 1, '#')).errors.empty());
  EXPECT_FALSE(ParseConfigurationDetailed(std::string(5000, '[')).errors.empty());
  EXPECT_FALSE(ParseConfigurationDetailed("").errors.empty());
  EXPECT_FALSE(ParseConfigurationDetailed("# nothing\n").errors.empty());
  EXPECT_FALSE(ParseConfigurationDetailed("3").errors.empty());
  EXPECT_FALSE(ParseConfigurationDetailed("backends: 3\ndrivers: [~, 1, [x], {offers: 1}]").errors.empty());
  EXPECT_FALSE(ParseConfigurationDetailed("? [a]\n: b").errors.empty());
  EXPECT_EQ(LoadConfiguration("/nonexistent/host.yaml").status().code(), absl::StatusCode::kNotFound);
}

TEST(Configuration, TheShippedExampleIsValid) {
  const absl::StatusOr<HostConfiguration> read = LoadConfiguration(TRANCHE_SOURCE_DIRECTORY "/examples/host.yaml");
  EXPECT_TRUE(read.ok()) << read.status();
}

TEST(Globs, MatchTheWholeText) {
  EXPECT_TRUE(MatchesAny({"team-*"}, "team-a"));
  EXPECT_TRUE(MatchesAny({"x", "*-a*"}, "team-a"));
  EXPECT_TRUE(MatchesAny({"*"}, ""));
  EXPECT_TRUE(MatchesAny({"a*b*c"}, "axxbyybzc"));
  EXPECT_FALSE(MatchesAny({"team-*"}, "my-team-a"));
  EXPECT_FALSE(MatchesAny({"team"}, "team-a"));
  EXPECT_FALSE(MatchesAny({}, "a"));
}

TEST(Parameters, ClaimSetsOnlyWhatTheClassAllows) {
  ClassConfiguration device_class;
  device_class.name = "c";
  device_class.parameters = R"({"mtu": 1500, "direction": "both"})";
  device_class.claim_parameters = {"direction"};
  EXPECT_EQ(*MergeParameters(device_class, {}), R"({"direction":"both","mtu":1500})");
  EXPECT_EQ(*MergeParameters(device_class, {R"({"direction":"egress"})"}), R"({"direction":"egress","mtu":1500})");
  const absl::Status refused = MergeParameters(device_class, {R"({"mtu":9000})"}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("\"mtu\", which class c"));
  EXPECT_EQ(MergeParameters(device_class, {"[]"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MergeParameters(device_class, {"{"}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PolicySnapshot, ChangesWithThePolicyAndNotWithTheFile) {
  const HostConfiguration before = *ParseConfiguration(kExample, "f");
  const HostConfiguration moved = *ParseConfiguration(absl::StrCat("# a comment\n", kExample), "f");
  const HostConfiguration changed = *ParseConfiguration(Replaced("max: 5G", "max: 4G"), "f");
  const auto snapshot = [](const HostConfiguration& host) { return SnapshotPolicy(host.drivers[0], host.drivers[0].classes[0]); };
  EXPECT_EQ(snapshot(before).version, snapshot(moved).version);
  EXPECT_NE(snapshot(before).version, snapshot(changed).version);
  EXPECT_EQ(snapshot(before).version.substr(0, 7), "sha256:");
  EXPECT_THAT(snapshot(before).json, HasSubstr(R"("validRange":{"max":"5G","min":"10M","step":"10M"})"));
}

}  // namespace
}  // namespace tranche::config
