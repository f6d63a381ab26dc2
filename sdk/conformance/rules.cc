#include "conformance/rules.h"

#include <algorithm>
#include <array>

namespace tranche::conform {
namespace {

constexpr std::string_view kFiles = "Manifest and file", kSymbols = "Symbols", kTable = "Entry and table", kInstances = "Instances", kProcess = "The process",
                           kCalls = "Calls", kPayloads = "Payloads", kDiscover = "Discover", kPrepare = "Prepare", kUnprepare = "Unprepare",
                           kRestart = "Restart", kOptional = "Threads and optional functions";
constexpr std::string_view kRefused = "The library is refused; its devices are not published.";

constexpr std::array kRules = {
    Rule{"TB-001", kFiles, "A manifest NAME.backend.json lies beside the library, is at most 256 KiB and valid against manifest.schema.json.",
         "read, parsed, validated; no code runs", "loader: manifest", kRefused},
    Rule{"TB-002", kFiles, "NAME matches [a-z0-9_]{1,63} and is the manifest's name; library is a file name in the same directory.", "compared",
         "loader: manifest", kRefused},
    Rule{"TB-003", kFiles, "The manifest's abi is 1.N with N no higher than the table's minor.", "compared with the table", "loader: manifest", kRefused},
    Rule{"TB-004", kFiles, "The manifest's arch is the library's and the machine's.", "compared with e_machine", "loader: manifest, dlopen", kRefused},
    Rule{"TB-005", kFiles, "The manifest's sha256 is that of the library.", "computed", "loader: file", kRefused},
    Rule{"TB-006", kFiles, "The library is a regular file inside the manifest's directory and a readable ELF shared object.",
         "ELF header, tables and symbols read within bounds", "loader: file, symbols", kRefused},
    Rule{"TB-007", kFiles, "Library and manifest belong to root or the host's user and are not writable by group or others.", "stat", "loader: manifest, file",
         "The library is refused: anybody who may write it is root on the node."},
    Rule{"TB-008", kFiles, "configSchema is a self-contained draft 7 schema and accepts the operator's configuration.",
         "compiled; the given configuration is validated", "loader: manifest; host before create", "The library, or this configuration of it, is refused."},
    Rule{"TB-009", kSymbols, "The library exports tranche_backend_v1.", "dynamic symbol table", "loader: symbols", kRefused},
    Rule{"TB-010", kSymbols, "It exports nothing but tranche_backend_v*.", "dynamic symbol table", "-",
         "Names collide with other backends' and with the host's."},
    Rule{"TB-011", kSymbols, "It has no STB_GNU_UNIQUE symbol.", "dynamic symbol table", "-",
         "Inline variables are shared with other backends in the process."},
    Rule{"TB-012", kSymbols, "It has no RPATH or RUNPATH.", "dynamic section", "-", "Libraries are loaded from the build machine's paths."},
    Rule{"TB-013", kSymbols, "Neither protobuf nor gRPC is linked into it or needed by it.", "dynamic section and symbols", "-",
         "A second copy of a .proto ends the process when the library is opened."},
    Rule{"TB-014", kSymbols, "Every symbol resolves when the library is opened.", "dlopen with RTLD_NOW", "loader: dlopen", kRefused},
    Rule{"TB-015", kSymbols, "Opening the library starts no thread, keeps no descriptor and writes nothing.", "compared before and after dlopen", "-",
         "A host that only inspects the library is changed by it."},
    Rule{"TB-016", kTable, "tranche_backend_v1 returns a table for a host of the same major and does not throw.", "called", "loader: entry", kRefused},
    Rule{"TB-017", kTable, "It returns NULL for a host of another major or with a table too small to use.", "called with major 2, and with a table of 8 bytes",
         "-", "A host that cannot serve the library is called through members that it does not have."},
    Rule{"TB-018", kTable, "magic is TRANCHE_BACKEND_MAGIC.", "read", "loader: table", kRefused},
    Rule{"TB-019", kTable, "head.major is the entry's major.", "read", "loader: table", kRefused},
    Rule{"TB-020", kTable, "head.struct_size is sizeof the table: a multiple of 8 from 120 bytes to 64 KiB; the table is aligned.", "read", "loader: table",
         kRefused},
    Rule{"TB-021", kTable, "Every required member is set.", "read", "loader: table", kRefused},
    Rule{"TB-022", kTable, "name is the manifest's.", "compared", "loader: table", kRefused},
    Rule{"TB-023", kTable, "version is a semantic version and the manifest's.", "compared", "-", "Operators cannot tell which build runs."},
    Rule{"TB-024", kTable, "No flag of the high half is set that the ABI does not define.", "read", "loader: table", kRefused},
    Rule{"TB-025", kTable, "The table is constant: every call of the entry gives the same one.", "entry called twice; the bytes compared before and after use",
         "-", "The host works on a copy that has become wrong."},
    Rule{"TB-026", kTable, "verify is provided where a capacity is enforced.", "devices compared with the table", "host",
         "Limits cannot be proven: the host reports them as unverified."},
    Rule{"TB-027", kInstances, "create with a valid configuration returns OK and an instance.", "called", "host",
         "The host serves without this backend and retries with back-off."},
    Rule{"TB-028", kInstances, "create with an unreadable envelope fails without an instance and leaves nothing behind.", "called with truncated JSON", "-",
         "A failed start leaks on every retry."},
    Rule{"TB-029", kInstances, "destroy leaves prepared shares in force.", "destroyed; a new process lists them", "host: reconcile",
         "A restart of the host takes devices from running pods."},
    Rule{"TB-030", kInstances, "Instances are independent.", "two instances; one is destroyed, the other used", "-", "One configured backend breaks another."},
    Rule{"TB-031", kProcess, "The backend never ends the process: no crash, no abort, no exit.", "every case runs in a child process", "runner: restart",
         "In the runner: its devices are Unknown until it is back. In-process: every backend of the node stops."},
    Rule{"TB-032", kProcess, "No exception leaves a function of the table.", "caught", "host: INTERNAL", "The call fails; what it had done is unknown."},
    Rule{"TB-033", kProcess, "Threads are joined before destroy returns.", "/proc/self/task before create and after destroy", "-",
         "A thread runs on freed memory."},
    Rule{"TB-034", kProcess, "Descriptors are closed by destroy.", "/proc/self/fd before create and after destroy", "runner: limit",
         "The process runs out of descriptors."},
    Rule{"TB-035", kProcess, "Nothing is written to standard output or standard error.", "captured", "runner: captured into the log",
         "Text without time, level and backend in the host's log."},
    Rule{"TB-036", kProcess, "Environment, directory, umask, locale, signal handlers and signal mask stay as they were.", "compared", "-",
         "The host and other backends change behaviour."},
    Rule{"TB-037", kProcess, "No child process is left.", "waitpid as a sub-reaper", "runner: seccomp", "Processes without an owner on the node."},
    Rule{"TB-038", kProcess, "Memory stays below 512 MiB and does not grow with repeated calls.", "peak and growth of the resident set over the cycles",
         "runner: limit", "The process is killed for memory."},
    Rule{"TB-039", kCalls, "A call returns at its deadline: cancelled() is polled at least once a second.",
         "a watchdog; calls whose deadline has passed already", "host, runner: abandoned, killed, replaced",
         "Later calls fail retryably until the process is replaced."},
    Rule{"TB-040", kCalls, "Codes are canonical, 0 to 16.", "every code that is returned or given to fail and add_result", "host: INTERNAL",
         "A retryable failure is taken as permanent."},
    Rule{"TB-041", kCalls, "A failure says why: fail() with the returned code and a text, or a result with a text.", "compared", "host",
         "Operators read \"gave no reason\"."},
    Rule{"TB-042", kCalls, "Strings are read by their length, never to a terminating NUL.", "inputs end at an unmapped page", "-",
         "Crash, or garbage behind the value."},
    Rule{"TB-043", kCalls, "Inputs are borrowed for the call: nothing of them is used afterwards.", "inputs are unmapped when the call returns", "-",
         "Use of freed memory."},
    Rule{"TB-044", kCalls, "Unknown members of inputs are ignored.", "inputs with one more member at every level", "-",
         "A newer host cannot serve the backend."},
    Rule{"TB-045", kCalls, "Sinks are called on the call's own thread, before it returns, and only those of the function.", "recorded", "host: ignored",
         "Results are lost."},
    Rule{"TB-046", kCalls, "No host service is called after destroy has returned.", "services record calls for half a second", "-",
         "Use of freed memory in the host."},
    Rule{"TB-047", kPayloads, "Everything is UTF-8, and no string is null with a length.", "checked byte by byte", "host: dropped or replaced",
         "The item fails."},
    Rule{"TB-048", kPayloads, "Every payload is JSON, of schemaVersion 1 and valid against its schema.", "validated", "host: dropped",
         "The device is left out, the item fails, or the list fails."},
    Rule{"TB-049", kPayloads, "At most 64 KiB per payload and 1 MiB per call; state at most 4 KiB.", "measured", "host: dropped", "The item fails."},
    Rule{"TB-050", kPayloads, "Container edits are well-formed: NAME=value, absolute paths without dot-dot, hook names of OCI.", "read", "host: allowEdits",
         "The host refuses the share."},
    Rule{"TB-051", kDiscover, "Device names are unique within one discover.", "compared", "host: left out", "The second device is left out."},
    Rule{"TB-052", kDiscover, "Identities are unique, and the same in every discover of every instance.", "two discovers of two instances", "host: inventory",
         "Devices move under running claims."},
    Rule{"TB-053", kDiscover, "discover finds at least one device with the configuration that the kit is given.", "called", "-",
         "Nothing else can be examined."},
    Rule{"TB-054", kPrepare, "prepare and unprepare give exactly one result for every key and none for others.", "compared", "host: INTERNAL",
         "The share fails though it may be applied."},
    Rule{"TB-055", kPrepare, "An OK of prepare has exactly one share of the same key; a failure has none.", "compared", "host: INTERNAL",
         "The share fails though it is applied."},
    Rule{"TB-056", kPrepare, "Every consumed amount of bytes or bits per second that the device enforces has a limit, in force as requested (-2 % to +0.1 %).",
         "compared", "host: refused", "The host refuses the share: it would lie."},
    Rule{"TB-057", kPrepare, "prepare is idempotent by key: again OK with the same limits, listed once.", "called twice", "-",
         "A retry of the kubelet doubles or loses a share."},
    Rule{"TB-058", kPrepare, "prepare, verify and list_prepared say the same of a share.", "limits compared", "host: reconcile, verify",
         "The host repairs what is not broken."},
    Rule{"TB-059", kPrepare, "A key that fails leaves nothing behind and does not fail the others.", "one list with a good key and an unknown device",
         "host: reconcile", "Silicon is lost until a reconcile."},
    Rule{"TB-060", kPrepare, "A prepare cut short by its deadline ends done or undone, never half.", "called past its deadline; list_prepared",
         "host: reconcile", "A pod runs without its limit, or silicon is lost."},
    Rule{"TB-061", kPrepare, "prepare of what discover offers is OK: one share, and a list of several.", "every mode; shares on every device in one list", "-",
         "A drain or a large claim fails."},
    Rule{"TB-078", kPrepare, "requested of a limit is the amount that was asked; list_prepared and verify may say what is in force instead.", "compared",
         "host: refused", "The host refuses the share; its operator reads of a limit that nobody asked for."},
    Rule{"TB-079", kPrepare, "Every consumed count that the device enforces has a limit, too; not `shares`, which counts the shares themselves.", "compared",
         "-", "Nobody can prove the limit that enforcement promises."},
    Rule{"TB-062", kUnprepare, "unprepare takes the share away: not listed, verify says NOT_FOUND.", "called", "host: reconcile",
         "Silicon is lost until a reconcile."},
    Rule{"TB-063", kUnprepare, "A repeated unprepare is OK.", "called twice", "-", "A pod stays terminating."},
    Rule{"TB-064", kUnprepare, "An unknown key is OK.", "called with a key that never was", "-", "A pod stays terminating."},
    Rule{"TB-065", kUnprepare, "unprepare works without the stored state.", "called with an empty state", "-",
         "A share whose record is damaged can never be released."},
    Rule{"TB-066", kRestart, "After a crash list_prepared shows what is in force.", "the process is killed; a new one lists", "host: reconcile",
         "The host gives the silicon away again."},
    Rule{"TB-067", kRestart, "After a crash prepare of the same key is OK with the same limits.", "the process is killed; a new one prepares", "-",
         "Running pods cannot be confirmed."},
    Rule{"TB-068", kRestart, "After a crash unprepare takes the share away.", "the process is killed; a new one unprepares", "-",
         "Silicon is lost until the node restarts."},
    Rule{"TB-069", kOptional, "With TRANCHE_FLAG_CONCURRENT calls on one instance may overlap.", "eight threads prepare, verify and unprepare", "-",
         "Data races."},
    Rule{"TB-070", kOptional, "check_health reports one verdict per device; sequences of a source rise.", "called twice", "host: unknown",
         "The devices stay Unknown."},
    Rule{"TB-071", kOptional, "recover of an unknown device fails with a reason.", "called", "-", "A broken device returns to service."},
    Rule{"TB-072", kOptional, "release_handles loses no prepared share.", "called; list_prepared", "host: reconcile",
         "A drain takes devices from running pods."},
    Rule{"TB-073", kOptional, "self_test returns OK.", "called", "host: preflight", "The backend is not put into service."},
    Rule{"TB-074", kOptional, "verify of an unknown key is NOT_FOUND.", "called", "host", "A vanished share is not repaired."},
    Rule{"TB-075", kOptional, "Repeated prepare and unprepare leave threads, descriptors and list as they were.", "the cycles (20)", "runner: limits",
         "The process degrades until it is killed."},
    Rule{"TB-076", kOptional, "sweep is OK, may be called again, and loses no prepared share.", "called twice beside a prepared share", "host: reconcile",
         "A reconcile takes devices from running pods."},
    Rule{"TB-077", kOptional, "Names given to record_metric match [a-z][a-z0-9_]{0,63}.", "read", "host: dropped", "The number is not seen."},
};

}  // namespace

std::span<const Rule> Rules() { return kRules; }

const Rule* FindRule(std::string_view id) {
  const auto* found = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& rule) { return rule.id == id; });
  return found == kRules.end() ? nullptr : found;
}

std::string RulesDocument() {
  std::string text =
      "# Rules of the backend ABI\n\n"
      "What `tranche-conform` examines, by number. Reports, messages and issues name these numbers; a number is never given to another rule.\n"
      "*Enforced* is who else acts on a violation at run time; what only the kit sees has a dash. The specification is `sdk/include/tranche/backend.h`.\n"
      "This file is written by `tranche-conform --rules`.\n";
  std::string_view part;
  for (const Rule& rule : kRules) {
    if (rule.part != part) {
      part = rule.part;
      text.append("\n## ").append(part).append("\n| rule | what | how it is checked | enforced | a violation causes |\n|---|---|---|---|---|\n");
    }
    for (const std::string_view cell : {rule.id, rule.text, rule.check, rule.enforced, rule.consequence}) text.append("| ").append(cell).append(" ");
    text.append("|\n");
  }
  return text;
}

}  // namespace tranche::conform
