#include <string>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "model/json.h"

namespace tranche {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json::value Parse(std::string_view text) {
  absl::StatusOr<json::value> value = ParseJson(text);
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : json::value();
}

Quantity Amount(std::string_view text) { return *Quantity::Parse(text); }

constexpr std::string_view kClaim = R"({
  "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
  "metadata": {"namespace": "team-a", "name": "infer", "uid": "6f1c", "annotations": {"a": "b"}, "managedFields": []},
  "spec": {"devices": {
    "requests": [
      {"name": "net", "exactly": {"deviceClassName": "vnic-shared", "allocationMode": "ExactCount", "count": 2, "adminAccess": null,
                                  "capacity": {"requests": {"bandwidth": "55M", "queues": 3}}}},
      {"name": "gpu", "firstAvailable": [{"name": "big", "deviceClassName": "gpu", "selectors": [{"cel": {"expression": "true"}}]},
                                         {"name": "small", "deviceClassName": "gpu", "allocationMode": "All"}]}],
    "constraints": [{"requests": ["net"], "distinctAttribute": "vnic.tranche.dev/subnet"}],
    "config": [{"requests": ["net"], "opaque": {"driver": "vnic.tranche.dev", "parameters": {"direction": "both"}}}]}},
  "status": {
    "allocation": {"devices": {
      "results": [{"request": "net", "driver": "vnic.tranche.dev", "pool": "node-1", "device": "eth1-shared", "adminAccess": null,
                   "shareID": "2b0e6b4e-3a5e-4d3e-9f2a-0d8a2f1c3b4d", "consumedCapacity": {"bandwidth": "60M"}}],
      "config": [{"source": "FromClass", "requests": null, "opaque": {"driver": "vnic.tranche.dev", "parameters": {"a": 1}}}]}},
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}], "devices": null}})";

TEST(ClaimJson, ReadsEveryFieldOfTheApi) {
  const absl::StatusOr<Claim> claim = DecodeClaim(Parse(kClaim));
  ASSERT_TRUE(claim.ok()) << claim.status();
  EXPECT_EQ(claim->namespace_name, "team-a");
  EXPECT_EQ(claim->annotations.at("a"), "b");
  ASSERT_EQ(claim->requests.size(), 2U);
  EXPECT_EQ(claim->requests[0].count, 2);
  EXPECT_FALSE(claim->requests[0].admin_access);
  EXPECT_EQ(claim->requests[0].capacity.at("bandwidth"), Amount("55M"));
  EXPECT_EQ(claim->requests[0].capacity.at("queues"), Amount("3"));
  ASSERT_EQ(claim->requests[1].first_available.size(), 2U);
  EXPECT_THAT(claim->requests[1].first_available[0].selectors, ElementsAre("true"));
  EXPECT_EQ(claim->requests[1].first_available[1].allocation_mode, AllocationMode::kAll);
  EXPECT_EQ(claim->constraints[0].distinct_attribute, "vnic.tranche.dev/subnet");
  EXPECT_EQ(claim->config[0].parameters, R"({"direction":"both"})");
  ASSERT_TRUE(claim->allocation.has_value());
  EXPECT_EQ(claim->allocation->results[0].consumed_capacity.at("bandwidth"), Amount("60M"));
  EXPECT_EQ(claim->allocation->config[0].source, ConfigSource::kClass);
  EXPECT_EQ(claim->reserved_for[0].uid, "u");
}

TEST(ClaimJson, EncodingIsReadBackEqual) {
  const Claim claim = *DecodeClaim(Parse(kClaim));
  const absl::StatusOr<Claim> again = DecodeClaim(Parse(ToJsonText(EncodeClaim(claim))));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ToJsonText(EncodeClaim(*again)), ToJsonText(EncodeClaim(claim)));
  EXPECT_EQ(again->requests[0], claim.requests[0]);
  EXPECT_EQ(again->allocation, claim.allocation);
}

TEST(ClaimJson, MistakesNameTheirPath) {
  const auto error = [](std::string_view text) { return std::string(DecodeClaim(Parse(text)).status().message()); };
  EXPECT_THAT(error(R"({"metadata":{"name":"c"},"status":{"allocation":{"devices":{"results":[{"request":"r","driver":"d","device":"x"}]}}}})"),
              HasSubstr("status.allocation.devices.results[0].pool: is missing"));
  EXPECT_THAT(error(R"({"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"name":"r"}]}}})"), HasSubstr("requests[0]: must have either"));
  EXPECT_THAT(error(R"({"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","count":"2"}}]}}})"),
              HasSubstr("exactly.count: must be an integer, not a string"));
  EXPECT_THAT(
      error(R"({"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","capacity":{"requests":{"b":"1X"}}}}]}}})"),
      HasSubstr("capacity.requests.b"));
  EXPECT_THAT(error(R"({"apiVersion":"resource.k8s.io/v1beta1","metadata":{"name":"c"}})"), HasSubstr("resource.k8s.io/v1"));
  EXPECT_THAT(error("[]"), HasSubstr("must be an object"));
}

TEST(Json, RefusesWhatIsNotStrict) {
  for (std::string_view text : {"", "{", "{} x", "{'a':1}", "[1,]", "\"\xff\"", "nul"}) {
    EXPECT_EQ(ParseJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_TRUE(ParseJson(std::string(60, '[') + std::string(60, ']')).ok());
  EXPECT_FALSE(ParseJson(std::string(70, '[') + std::string(70, ']')).ok());
  EXPECT_FALSE(ParseJson(std::string(1000000, '[')).ok());
}

TEST(Json, PrettyTextIsIndentedByTwo) {
  EXPECT_EQ(ToPrettyJson(Parse(R"({"b":[1,{}],"a":"/x"})")), "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": \"/x\"\n}\n");
}

constexpr std::string_view kPhysical = R"({"schemaVersion": 1, "name": "gpu-8f", "identity": {"uuid": "GPU-8f"},
  "silicon": {"id": "GPU-8f", "units": {"slice": 8}, "uses": {"slice": 8}}, "modes": ["whole", "share"],
  "attributes": {"model": {"string": "H100"}, "driverVersion": {"version": "580.1.0"}, "ecc": {"bool": true}, "index": {"int": 3}, "l": {"strings": ["x"]}},
  "capacities": {"memory": {"value": 85899345920, "text": "80Gi", "unit": "bytes", "shareable": true, "enforcement": "strong",
    "overhead": {"value": 1073741824, "text": "1Gi"}, "requestPolicy": {"default": null, "validRange": {"min": "1Gi", "step": "1Gi"}}}},
  "metadata": ["model"], "topology": {"numaNode": 0}, "future": 1})";

TEST(PhysicalDeviceJson, ReadsTheDocumentedPayload) {
  const absl::StatusOr<PhysicalDevice> device = DecodePhysicalDevice(Parse(kPhysical));
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->modes, (std::vector<Mode>{Mode::kWhole, Mode::kShare}));
  EXPECT_EQ(device->attributes.size(), 4U);
  EXPECT_EQ(device->attributes.at("driverVersion"), AttributeValue(VersionValue{"580.1.0"}));
  const PhysicalCapacity& memory = device->capacities.at("memory");
  EXPECT_EQ(memory.value.ToString(), "80Gi");
  EXPECT_EQ(memory.overhead, Amount("1Gi"));
  EXPECT_EQ(memory.request_policy->valid_range->min, Amount("1Gi"));
  EXPECT_EQ(device->numa_node, 0);
  EXPECT_EQ(*DecodePhysicalDevice(EncodePhysicalDevice(*device)), *device);
}

TEST(PhysicalDeviceJson, RefusesWhatContradictsItself) {
  const auto error = [](std::string_view capacity) {
    return std::string(DecodePhysicalDevice(Parse(Cat(R"({"name":"x","modes":["whole"],"capacities":{"m":)", capacity, "}}"))).status().message());
  };
  EXPECT_THAT(error(R"({"value": 10, "text": "11"})"), HasSubstr("capacities.m.text"));
  EXPECT_THAT(error(R"({"value": -1})"), HasSubstr("negative"));
  EXPECT_THAT(error(R"({"value": 1, "unit": "furlongs"})"), HasSubstr("capacities.m.unit"));
  EXPECT_THAT(error(R"({"value": 1, "enforcement": "iron"})"), HasSubstr("none, soft, strong or hard"));
  EXPECT_FALSE(DecodePhysicalDevice(Parse(R"({"name":"x","modes":[]})")).ok());
  EXPECT_FALSE(DecodePhysicalDevice(Parse(R"({"schemaVersion":2,"name":"x","modes":["whole"]})")).ok());
  EXPECT_FALSE(DecodePhysicalDevice(Parse(R"({"name":"x","modes":["whole"],"silicon":{"id":"s","units":{"u":1},"uses":{"u":2}}})")).ok());
}

AppliedShare ExampleShare() {
  AppliedShare share;
  share.key = {"6f", "net", "vnic.tranche.dev", "node-1", "eth1-shared", "2b"};
  share.limits = {{"bandwidth", "egress", 50000000, 50000000, Enforcement::kHard, *ParseTime("2026-11-29T12:00:00Z"), "htb"}};
  share.usage = {{"bandwidth", "egress", 18446744073709551615U, 1, 2, CounterSource{"eth1", 0x7a60001}}};
  share.edits.env = {"A=b"};
  share.edits.device_nodes = {{"/dev/x", "/dev/y", "c", "rw", 1, 2}};
  share.edits.mounts = {{"/a", "/b", {"ro"}}};
  share.edits.hooks = {{"createRuntime", "/bin/h", {"h"}, {"K=v"}, 5}};
  share.edits.net_devices = {{"veth1", "net1"}};
  share.attributes = {{"index", std::int64_t{3}}};
  share.network = NetworkData{"net1", {"10.0.0.2/24"}, "02:00:00:00:00:01"};
  share.applied = AppliedState::kPartial;
  share.state = "opaque";
  return share;
}

TEST(AppliedShareJson, EncodingIsReadBackEqual) {
  const absl::StatusOr<AppliedShare> again = DecodeAppliedShare(Parse(ToJsonText(EncodeAppliedShare(ExampleShare()))));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, ExampleShare());
}

TEST(AppliedShareJson, StateIsBounded) {
  AppliedShare share = ExampleShare();
  share.state = std::string(4096, 'x');
  EXPECT_TRUE(DecodeAppliedShare(EncodeAppliedShare(share)).ok());
  share.state += 'x';
  EXPECT_THAT(std::string(DecodeAppliedShare(EncodeAppliedShare(share)).status().message()), HasSubstr("state"));
}

TEST(AppliedShareJson, WithoutKeyIsRefused) { EXPECT_FALSE(DecodeAppliedShare(Parse(R"({"limits":[]})")).ok()); }

TEST(PublishedDeviceJson, EncodingIsReadBackEqual) {
  PublishedDevice device;
  device.driver = "d.example";
  device.pool = "n";
  device.name = "x-shared";
  device.offer = "shared";
  device.backend = "b";
  device.physical = "x";
  device.mode = Mode::kShare;
  device.allow_multiple_allocations = true;
  device.attributes = {{"offer", std::string("shared")}};
  device.capacity["bandwidth"] = {Amount("9G"), RequestPolicy{Amount("100M"), {}, ValidRange{Amount("10M"), Amount("5G"), Amount("10M")}}, Enforcement::kHard};
  device.capacity["slots"] = {Amount("4"), RequestPolicy{Amount("1"), {Amount("1"), Amount("2")}, {}}, Enforcement::kSoft};
  device.consumes_counters = {{"s", {{"slice", Amount("8")}}}};
  device.enforcement = Enforcement::kSoft;
  device.draining = true;
  const absl::StatusOr<PublishedDevice> again = DecodePublishedDevice(EncodePublishedDevice(device));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, device);
  EXPECT_EQ(DeviceAddress(device), "d.example/n/x-shared");
}

TEST(ShareKey, ShortIdDependsOnEveryField) {
  const ShareKey key{"6f", "net", "d", "p", "x", "2b"};
  EXPECT_EQ(ShortId(key).size(), 16U);
  EXPECT_EQ(ShortId(key), ShortId(ShareKey{"6f", "net", "d", "p", "x", "2b"}));
  for (std::string ShareKey::*field : {&ShareKey::claim_uid, &ShareKey::request, &ShareKey::driver, &ShareKey::pool, &ShareKey::device, &ShareKey::share_id}) {
    ShareKey other = key;
    other.*field += "1";
    EXPECT_NE(ShortId(other), ShortId(key));
  }
  EXPECT_NE(ShortId({"a", "bc", "d", "p", "x", ""}), ShortId({"ab", "c", "d", "p", "x", ""}));
  EXPECT_THAT(Describe(key), HasSubstr("share 2b"));
}

TEST(AllocationVersion, IgnoresOrderAndOtherDriversOnly) {
  const AllocationResult a{"net", "d", "p", "x", false, "s1", {{"b", Amount("1")}}};
  const AllocationResult b{"net", "d", "p", "y", false, "s2", {{"b", Amount("1")}}};
  const AllocationResult other{"gpu", "other", "p", "y", false, {}, {}};
  const std::string version = AllocationVersion({{a, b}, {}}, "d", 1);
  EXPECT_EQ(AllocationVersion({{b, other, a}, {}}, "d", 1), version);
  EXPECT_NE(AllocationVersion({{a, b}, {}}, "d", 2), version);
  AllocationResult changed = a;
  changed.consumed_capacity["b"] = Amount("2");
  EXPECT_NE(AllocationVersion({{changed, b}, {}}, "d", 1), version);
  changed = a;
  changed.share_id.reset();
  EXPECT_NE(AllocationVersion({{changed, b}, {}}, "d", 1), version);
}

TEST(Request, BaseIsThePartBeforeTheSlash) {
  EXPECT_EQ(BaseRequest("req/sub"), "req");
  EXPECT_EQ(BaseRequest("req"), "req");
}

}  // namespace
}  // namespace tranche
