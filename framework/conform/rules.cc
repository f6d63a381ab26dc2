#include "conform/rules.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace tranche::dra_conform {
namespace {

constexpr Level kMust = Level::kMust, kShould = Level::kShould;
constexpr std::string_view kRegistration = "Registration", kCalls = "Calls", kClaims = "Claims", kShares = "Devices and shares", kCdi = "CDI",
                           kUnprepare = "Unprepare", kSlices = "Slices", kHealth = "Health", kHostile = "Hostile input", kRestart = "Restart";
constexpr std::string_view kPluginProto = "pluginregistration/v1", kManager = "kubelet plugin manager", kDraProto = "dra/v1 api.proto",
                           kDraManager = "kubelet DRA manager", kKep4381 = "KEP-4381", kCdiSpec = "CDI specification", kScheduler = "scheduler's allocator",
                           kSliceApi = "resource.k8s.io/v1 ResourceSlice";

constexpr auto kRules = std::to_array<Rule>({
    {"D-1", kRegistration, kMust, "The registration socket answers GetInfo within one second.", "asked on a new connection, timed",
     "The kubelet gives up after 1 s and tries again with growing pauses; the driver is not registered meanwhile.", kManager},
    {"D-2", kRegistration, kMust, "The plugin's type is DRAPlugin.", "read from GetInfo", "The kubelet's DRA manager never sees the plugin.", kPluginProto},
    {"D-3", kRegistration, kMust, "The driver's name is a DNS subdomain in lower case of at most 63 characters.", "read from GetInfo",
     "Slices and claims cannot name it; the API server refuses them.", kSliceApi},
    {"D-4", kRegistration, kMust, "supported_versions lists v1.DRAPlugin or v1beta1.DRAPlugin: services, not semantic versions.", "read from GetInfo",
     "The kubelet refuses the registration.", kManager},
    {"D-5", kRegistration, kShould, "v1.DRAPlugin is listed, and before v1beta1.DRAPlugin.", "read from GetInfo; v1 is called whether listed or not",
     "The kubelet takes the first in the list that it knows: without v1 it never sees share ids, and v1beta1 is going to be removed.", kManager},
    {"D-6", kRegistration, kShould, "v1beta1.DRAPlugin is listed as well.", "read from GetInfo; v1beta1 is called whether listed or not",
     "Kubelets of 1.32 and 1.33 refuse the registration.", kManager},
    {"D-7", kRegistration, kMust, "Every DRAPlugin version that is listed is served.", "an empty prepare on each",
     "Every pod with a claim of this driver fails.", kManager},
    {"D-8", kRegistration, kMust, "The endpoint is empty or an absolute path of at most 107 bytes on which somebody listens.", "measured, connected",
     "The kubelet cannot dial it: sun_path holds 107 bytes and a NUL.", "unix(7); kubernetes/kubernetes#139166"},
    {"D-9", kRegistration, kMust, "NotifyRegistrationStatus of a success is answered without an error.", "called",
     "The kubelet takes the driver away again and registers it anew, with growing pauses.", "kubernetes/kubernetes#133335"},
    {"D-10", kRegistration, kMust, "A later GetInfo says the same as the first.", "asked again after the notification, on a new connection",
     "A restarted kubelet asks again and finds another plugin.", kManager},

    {"D-11", kCalls, kMust, "An answer has one entry for every UID that was asked for, and no other.", "every call of the examination that was answered",
     "The kubelet fails the whole pod: a claim was left out, or an unknown one came back.", kDraManager},
    {"D-12", kCalls, kShould, "A request without claims is answered without an error and without entries.", "prepare and unprepare of nothing",
     "Tools that ask whether the service works see a failure.", kDraProto},
    {"D-13", kCalls, kMust, "A claim that does not exist is refused.", "prepare of a random reference", "Devices are handed out that nobody was given.",
     kKep4381},
    {"D-14", kCalls, kShould, "A refused claim is an error of its entry, not of the call.", "prepare of a random reference",
     "All claims of the call fail with it, and nothing says which was at fault.", kDraProto},
    {"D-15", kCalls, kShould, "A claim that is refused leaves the others of its call prepared.", "one call with a good claim and one that does not exist",
     "A good claim is reported as failed though the fault is another's.", kDraProto},
    {"D-16", kCalls, kMust, "Prepares of one claim at the same time do not contradict each other, and the claim is prepared afterwards.",
     "four at once: each gives the same devices or refuses; once more afterwards", "Two pods of one claim, or a retry after 45 s, corrupt its state.",
     kDraManager},
    {"D-17", kCalls, kMust, "Prepares of different claims at the same time all succeed.", "as many as there are free devices, eight at most",
     "Pods that start together fail; the kubelet's calls overlap.", kDraManager},
    {"D-18", kCalls, kMust, "Every listed version of DRAPlugin gives the same devices.", "prepared by one, asked by the other",
     "An update of the kubelet changes what running pods hold.", kManager},
    {"D-19", kCalls, kMust, "A prepare that its caller gave up is completed by a retry.",
     "called with deadlines of 1, 5 and 20 ms, then again, for 10 s at most", "The kubelet gives up after 45 s; its retry fails for ever.",
     "kubernetes/kubernetes#117146"},
    {"D-20", kCalls, kMust, "A new connection works as the one before.", "closed, opened, called", "The kubelet closes idle connections after 30 minutes.",
     "kubernetes/kubernetes#133920"},

    {"D-21", kClaims, kMust, "A claim that is allocated and reserved is prepared.", "one of up to two devices", "No pod with a claim of this driver starts.",
     kKep4381},
    {"D-22", kClaims, kMust, "The answer holds every device that the claim was allocated of this driver and no other, by pool and name.",
     "every granted claim is compared with its allocation", "Containers start without a device, or health and PodResources name another.", kDraProto},
    {"D-23", kClaims, kMust, "request_names holds base names of requests: no part after a slash, and the request of the allocation.",
     "every granted claim; one that was served by a subrequest", "The kubelet finds no device for the container's request.", kDraProto},
    {"D-24", kClaims, kMust, "Prepare of what is prepared gives the same devices and CDI ids again.", "called twice, compared",
     "A sandbox that is made anew, or a second pod of the claim, starts without its devices.", "kubernetes/kubernetes#120550"},
    {"D-25", kClaims, kMust, "A claim that has another UID by now is refused.", "claim deleted and made anew under its name; prepare with the old UID",
     "A pod gets the devices of another's claim.", kKep4381},
    {"D-26", kClaims, kMust, "A claim without an allocation is refused.", "prepare of one", "Devices are handed out that the scheduler did not give.",
     kKep4381},
    {"D-27", kClaims, kShould, "A claim that is reserved for nobody is answered, and the answer is either way taken back by unprepare.",
     "prepare of one that is allocated only; the report says which it was", "None while only the kubelet calls, which looks at reservedFor itself.",
     kDraManager},
    {"D-28", kClaims, kShould, "An allocation of a device that the driver does not have is refused.", "prepare of one",
     "The container fails later and without a reason, or runs without its device.", kKep4381},
    {"D-29", kClaims, kMust, "Results of other drivers in the same claim are skipped.", "a claim with a result of a driver that does not exist",
     "Claims over several drivers cannot be prepared, or are answered with what is another's.", kDraManager},

    {"D-30", kShares, kMust, "A device that another claim holds exclusively is refused until that claim is unprepared.",
     "both prepared; then the first unprepared, and the second prepared again", "After a forced deletion two containers have one device.",
     "kubernetes/kubernetes#141471"},
    {"D-31", kShares, kMust, "An answer of v1 carries the allocation's shareID.", "a share of a device that allows several allocations",
     "PodResources and status.devices cannot tell the shares of a device apart (1.35 and later).", "KEP-5075"},
    {"D-32", kShares, kMust, "Two claims hold shares of one device at the same time.", "both prepared", "Consumable capacity does not work.", "KEP-5075"},
    {"D-33", kShares, kShould, "Shares of a device that together consume more than it has are not all prepared.", "as many claims as are too much, 16 at most",
     "After a forced deletion shares get less than they were promised.", "kubernetes/kubernetes#141471"},

    {"D-34", kCdi, kMust, "CDI ids are qualified names, vendor/class=name.", "every id of every answer", "The runtime refuses the container.", kCdiSpec},
    {"D-35", kCdi, kMust, "The first CDI id of a device is unlike that of every other device and claim.", "over all answers of the examination",
     "Health is shown at the wrong device, and a runtime that caches specs gives a container what another claim had.", "kubelet device health; CDI cache"},
    {"D-36", kCdi, kMust, "Each id is found in a spec that can be read, in one of the CDI directories.", "the directories' files read",
     "Containers fail with \"unresolvable CDI devices\".", kCdiSpec},
    {"D-37", kCdi, kMust, "Prepare of what is prepared writes a spec again that was removed.", "file removed, claim prepared again, file looked for",
     "After a reboot of the node (the directory is on tmpfs) its pods never start.", "kubernetes/kubernetes#141433"},
    {"D-38", kCdi, kShould, "Nothing of a claim is left in the CDI directories when it is unprepared.", "ids looked for after each unprepare",
     "Specs pile up and are read at each container start.", kCdiSpec},

    {"D-39", kUnprepare, kMust, "Unprepare of a prepared claim succeeds.", "every claim of the examination",
     "The pod stays in Terminating; its device is lost.", kDraProto},
    {"D-40", kUnprepare, kMust, "Unprepare of a claim that was never prepared succeeds.", "of a random reference", "The pod stays in Terminating for ever.",
     "kubernetes/kubernetes#131957"},
    {"D-41", kUnprepare, kMust, "Unprepare of what is unprepared succeeds.", "called twice",
     "The pod stays in Terminating when another driver of its claim failed once.", kDraManager},
    {"D-42", kUnprepare, kMust, "Unprepare succeeds after the claim object was deleted.", "deleted, then called",
     "The pod stays in Terminating for ever; its device is lost.", kDraManager},
    {"D-43", kUnprepare, kMust, "Unprepare succeeds after a prepare that was refused.", "of refused claims", "The pod stays in Terminating.", kDraManager},
    {"D-44", kUnprepare, kMust, "A claim that was unprepared can be prepared again, with the same devices.", "prepared again, compared with its allocation",
     "A restarted pod of a kept claim never starts.", kDraManager},

    {"D-45", kSlices, kMust, "The node has slices of this driver, and they name the node and a pool.", "listed by driver and node",
     "Nothing is scheduled to its devices.", kSliceApi},
    {"D-46", kSlices, kMust, "All slices of a pool have one generation, and their number is its resourceSliceCount.", "listed, counted",
     "The scheduler takes the pool for incomplete and uses none of it.", kScheduler},
    {"D-47", kSlices, kMust, "A device's name is a DNS label and the only one of its pool.", "over all slices", "The scheduler takes the pool for invalid.",
     kScheduler},
    {"D-48", kSlices, kShould, "A slice is owned by its Node.", "ownerReferences read", "Slices of a node that was removed stay for ever.",
     "upstream helper library"},
    {"D-49", kSlices, kMust, "Slices do not change while nothing changes.", "resource versions compared after 3 s", "An update loop loads the API server.",
     "resourceslice controller"},
    {"D-50", kSlices, kMust, "A slice that somebody else deleted is back within two minutes.",
     "one deleted, waited for; the pool is whole again, with the same devices",
     "A kubelet deletes all slices of its node when it starts; the node has no devices after that.", "kubernetes/kubernetes#140011"},
    {"D-51", kSlices, kShould, "It is back within five seconds.", "the same deletion, timed",
     "The node's devices are missing for so long after each start of a kubelet.", kDraManager},

    {"D-52", kHealth, kMust, "A health service that is listed sends its devices at once, or says that it is not supported.",
     "first message awaited for 5 s; UNIMPLEMENTED passes", "The kubelet waits, and shows Unknown for every device.", "KEP-4680"},
    {"D-53", kHealth, kShould, "A health service that is not listed answers UNIMPLEMENTED.", "called",
     "A kubelet of 1.36 calls it unasked, and waits for nothing.", "kubernetes/kubernetes#140353"},

    {"D-54", kHostile, kMust, "A call with 1,000 claims is answered.", "prepare and unprepare of 1,000 claims that do not exist, then an empty call",
     "A drain of a full node ends the driver or hangs.", kDraProto},
    {"D-55", kHostile, kMust, "Empty, long and odd names are refused, and the driver goes on serving.",
     "prepare of an empty UID, of names of 100,000 bytes, with slashes, NUL and bytes that are no UTF-8; unprepare of the empty and the long; then an empty "
     "call",
     "One wrong byte ends the driver of the node.", kDraProto},
    {"D-56", kHostile, kMust, "Bytes that are no gRPC end their own connection only.", "written to both sockets, then called",
     "One wrong client ends the driver of the node.", "HTTP/2"},
    {"D-57", kHostile, kShould, "A driver that is told that its registration failed goes on answering GetInfo.",
     "NotifyRegistrationStatus of a failure, then GetInfo", "The kubelet's own retry finds nobody.", "kubernetes/kubernetes#133335"},

    {"D-58", kRestart, kMust, "After a restart, prepare of what was prepared gives the same devices.", "restarted by --restart-command, prepared again",
     "Each sandbox that is made anew after an update of the driver fails.", kDraManager},
    {"D-59", kRestart, kMust, "After a restart, CDI specs that the reboot took are written again.", "spec removed, driver restarted, claim prepared again",
     "After a reboot of the node its pods never start.", "kubernetes/kubernetes#141433"},
    {"D-60", kRestart, kMust, "After a restart, what was prepared is unprepared.", "unprepared; its CDI ids looked for",
     "Pods stay in Terminating after an update of the driver, or devices are lost.", kDraManager},
});

}  // namespace

std::string_view LevelName(Level level) { return level == Level::kMust ? "must" : "should"; }

std::span<const Rule> Rules() { return kRules; }

const Rule* FindRule(std::string_view id) {
  const auto found = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& rule) { return rule.id == id; });
  return found == kRules.end() ? nullptr : &*found;
}

std::string RulesTable() {
  std::string text;
  std::string_view part;
  for (const Rule& rule : kRules) {
    if (rule.part != part) {
      Append(text, part.empty() ? "" : "\n", "### ", rule.part,
             "\n| rule | level | what | how it is checked | a violation causes | source |\n|---|---|---|---|---|---|\n");
      part = rule.part;
    }
    Append(text, "| ", rule.id, " | ", LevelName(rule.level), " | ", rule.text, " | ", rule.check, " | ", rule.consequence, " | ", rule.source, " |\n");
  }
  return text;
}

}  // namespace tranche::dra_conform
