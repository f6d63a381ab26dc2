// The loader against real files, good and broken, and backends that lie, throw and flood: in this process and in one of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include <sys/stat.h>
#include <unistd.h>

#include "backend/in_process.h"
#include "backend/loader.h"
#include "backend/runner_backend.h"
#include "backend/schema.h"
#include "base/ids.h"

namespace tranche::backend {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

const fs::path kFakes = fs::path(TRANCHE_BINARY_DIRECTORY) / "fakes";
const fs::path kGood = fs::path(TRANCHE_BINARY_DIRECTORY) / "backends";

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A private backend directory that goes away with the test.
class Directory {
 public:
  Directory() {
    std::string pattern = testing::TempDir() + "/backend_test.XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~Directory() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

  void Write(const std::string& file, const std::string& content, mode_t mode = 0644) const {
    std::ofstream(path_ / file, std::ios::binary) << content;
    ::chmod((path_ / file).c_str(), mode);
  }
  // A manifest that is right for `content`, unless `from` is replaced by `to` in it.
  void WriteManifest(const std::string& name, const std::string& content, const std::string& from = "", const std::string& to = "") const {
    std::string text = R"({"manifestVersion": 1, "name": ")" + name + R"(", "version": "1.0.0", "library": ")" + name +
                       R"(.so", "abi": "1.0", "arch": "x86_64", "sha256": ")" + Sha256Hex(content) + R"(", "licence": "Apache-2.0"})";
#if defined(__aarch64__)
    text.replace(text.find("x86_64"), 6, "aarch64");
#endif
    if (!from.empty()) text.replace(text.find(from), from.size(), to);
    Write(name + ".backend.json", text);
  }
  void Add(const std::string& name, const std::string& content) const {
    Write(name + ".so", content, 0755);
    WriteManifest(name, content);
  }
  void AddGood() const {
    Write("null_backend.so", Read(kGood / "null_backend.so"), 0755);
    Write("null_backend.backend.json", Read(kGood / "null_backend.backend.json"));
  }

 private:
  fs::path path_;
};

void ExpectRefusal(const fs::path& directory, const std::string& name, Stage stage, const std::string& why) {
  const auto library = Loader(directory).Load(name);
  ASSERT_FALSE(library.ok()) << name;
  EXPECT_EQ(StageOf(library.status()), stage) << library.status();
  EXPECT_THAT(std::string(library.status().message()), AllOf(HasSubstr(name), HasSubstr(why))) << name;
}

LoadedLibrary Load(const fs::path& directory, const std::string& name) {
  const auto library = Loader(directory).Load(name);
  EXPECT_TRUE(library.ok()) << library.status();
  return library.ok() ? **library : LoadedLibrary();
}

PrepareItem Item(const std::string& claim, const std::string& physical = "null-0") {
  PrepareItem item;
  item.key = {claim, "gpu", "gpu.example.com", "node", "dev", "share-" + claim};
  item.physical = physical;
  item.consumed["memory"] = *Quantity::Parse("10Gi");
  return item;
}
Deadline Soon() { return DeadlineIn(10s); }
std::string Message(const absl::Status& status) { return std::string(status.message()); }

// ---- Loader

TEST(Loader, LoadsAGoodLibraryOnce) {
  Loader loader(kGood);
  const auto library = loader.Load("null_backend");
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ((*library)->manifest.name, "null_backend");
  EXPECT_EQ((*library)->version, "1.0.0");
  EXPECT_TRUE((*library)->Concurrent());
  EXPECT_NE((*library)->table.verify, nullptr);
  EXPECT_EQ(*loader.Load("null_backend"), *library);
  const auto names = loader.List();
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, testing::Contains("null_backend"));
}

TEST(Loader, RefusesABadManifest) {
  const Directory directory;
  const std::string content = "x";
  ExpectRefusal(directory.path(), "absent", Stage::kManifest, "manifest beside it");
  ExpectRefusal(directory.path() / "nowhere", "absent", Stage::kManifest, "does not exist");
  ExpectRefusal(directory.path(), "../absent", Stage::kManifest, "[a-z0-9_]");
  directory.Write("a.backend.json", "{\"manifestVersion\": 1,");
  ExpectRefusal(directory.path(), "a", Stage::kManifest, "not a valid manifest");
  const std::string digest = Sha256Hex(content);
  directory.WriteManifest("a", content, "\"manifestVersion\": 1", "\"manifestVersion\": 2");
  ExpectRefusal(directory.path(), "a", Stage::kManifest, "manifestVersion");
  directory.WriteManifest("a", content, digest, "abc");
  ExpectRefusal(directory.path(), "a", Stage::kManifest, "sha256");
  directory.WriteManifest("a", content, "\"a.so\"", "\"../a.so\"");
  ExpectRefusal(directory.path(), "a", Stage::kManifest, "library");
  directory.WriteManifest("a", content, "\"a.so\"", "\"..\"");
  ExpectRefusal(directory.path(), "a", Stage::kManifest, "library");
  directory.WriteManifest("a", content, "\"name\": \"a\"", "\"name\": \"b\"");
  ExpectRefusal(directory.path(), "a", Stage::kManifest, "manifest of b");
  directory.WriteManifest("a", content, "\"1.0\"", "\"2.0\"");
  ExpectRefusal(directory.path(), "a", Stage::kManifest, "needs ABI 2.0");
  directory.WriteManifest("a", content, "\"arch\": \"", "\"arch\": \"not_");
  ExpectRefusal(directory.path(), "a", Stage::kManifest, "is for not_");
  directory.WriteManifest("a", content, "\"licence\"", "\"configSchema\": {\"$ref\": \"#\"}, \"licence\"");
  ExpectRefusal(directory.path(), "a", Stage::kManifest, "$ref");
  directory.WriteManifest("a", content);
  ::chmod((directory.path() / "a.backend.json").c_str(), 0666);
  ExpectRefusal(directory.path(), "a", Stage::kManifest, "chmod go-w");
}

TEST(Loader, RefusesADirectoryThatEverybodyMayWrite) {
  const Directory directory;
  directory.AddGood();
  ::chmod(directory.path().c_str(), 0777);
  ExpectRefusal(directory.path(), "null_backend", Stage::kManifest, "chmod o-w");
}

TEST(Loader, RefusesABadFile) {
  const Directory directory;
  directory.WriteManifest("a", "x");
  ExpectRefusal(directory.path(), "a", Stage::kFile, "cannot be opened");
  fs::create_directory(directory.path() / "a.so");
  ExpectRefusal(directory.path(), "a", Stage::kFile, "not a regular file");
  fs::remove(directory.path() / "a.so");
  ::mkfifo((directory.path() / "a.so").c_str(), 0600);
  ExpectRefusal(directory.path(), "a", Stage::kFile, "not a regular file");
  fs::remove(directory.path() / "a.so");
  directory.Write("a.so", "x", 0666);
  ExpectRefusal(directory.path(), "a", Stage::kFile, "writable by group or others");
  ::chmod((directory.path() / "a.so").c_str(), 0775);
  ExpectRefusal(directory.path(), "a", Stage::kFile, "writable by group or others");
  directory.Write("a.so", "y", 0755);
  ExpectRefusal(directory.path(), "a", Stage::kFile, "SHA-256");
}

TEST(Loader, RefusesAFileOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  const Directory directory;
  directory.AddGood();
  ASSERT_EQ(::chown((directory.path() / "null_backend.so").c_str(), 65534, 65534), 0);
  ExpectRefusal(directory.path(), "null_backend", Stage::kFile, "belongs to user 65534");
}

TEST(Loader, RefusesALinkOutOfTheDirectory) {
  const Directory directory, elsewhere;
  elsewhere.AddGood();
  directory.AddGood();
  fs::remove(directory.path() / "null_backend.so");
  fs::create_symlink(elsewhere.path() / "null_backend.so", directory.path() / "null_backend.so");
  ExpectRefusal(directory.path(), "null_backend", Stage::kFile, "outside its directory");
}

TEST(Loader, RefusesWhatIsNoLibrary) {
  const Directory directory;
  directory.Add("text", "#!/bin/sh\necho hello\n");
  ExpectRefusal(directory.path(), "text", Stage::kSymbols, "not a readable ELF");
  directory.Add("empty", "");
  ExpectRefusal(directory.path(), "empty", Stage::kSymbols, "not a readable ELF");
  const std::string whole = Read(kGood / "null_backend.so");
  directory.Add("truncated", whole.substr(0, whole.size() / 2));
  const auto truncated = Loader(directory.path()).Load("truncated");
  EXPECT_EQ(StageOf(truncated.status()), Stage::kSymbols) << truncated.status();
  directory.Add("header", whole.substr(0, 64));
  EXPECT_EQ(StageOf(Loader(directory.path()).Load("header").status()), Stage::kSymbols);
}

TEST(Loader, RefusesALibraryThatCannotBeLinked) {
  const Directory directory;
  std::string content = Read(kFakes / "broken_json.so");
  const std::size_t needed = content.find("libc.so.6");
  ASSERT_NE(needed, std::string::npos);
  for (std::size_t at = needed; at != std::string::npos; at = content.find("libc.so.6", at)) content.replace(at, 9, "libq.so.6");
  directory.Add("unlinkable", content);
  ExpectRefusal(directory.path(), "unlinkable", Stage::kDlopen, "libq.so.6");
}

TEST(Loader, RefusesEachBrokenLibraryAtItsStage) {
  ExpectRefusal(kFakes, "broken_no_symbol", Stage::kSymbols, "does not export tranche_backend_v1");
  ExpectRefusal(kFakes, "broken_other_major", Stage::kSymbols, "exports tranche_backend_v2");
  ExpectRefusal(kFakes, "broken_declines", Stage::kEntry, "declines this host");
  ExpectRefusal(kFakes, "broken_throws_in_entry", Stage::kEntry, "threw");
  ExpectRefusal(kFakes, "broken_magic", Stage::kTable, "magic");
  ExpectRefusal(kFakes, "broken_major", Stage::kTable, "ABI major 2");
  ExpectRefusal(kFakes, "broken_short_table", Stage::kTable, "table of 64 bytes");
  ExpectRefusal(kFakes, "broken_null_function", Stage::kTable, "prepare is null");
  ExpectRefusal(kFakes, "broken_table_name", Stage::kTable, "somebody_else");
  ExpectRefusal(kFakes, "broken_flags", Stage::kTable, "0x80000000");
}

TEST(Loader, BrokenLibrariesDoNotKeepOthersFromLoading) {
  const Directory directory;
  directory.Add("text", "no library");
  directory.AddGood();
  Loader loader(directory.path());
  EXPECT_FALSE(loader.Load("text").ok());
  EXPECT_TRUE(loader.Load("null_backend").ok());
}

TEST(Loader, RefusesTheSameFileUnderASecondName) {
  const Directory directory;
  const std::string content = Read(kGood / "null_backend.so");
  directory.AddGood();
  directory.WriteManifest("twin", content);
  fs::create_hard_link(directory.path() / "null_backend.so", directory.path() / "twin.so");
  Loader loader(directory.path());
  ASSERT_TRUE(loader.Load("null_backend").ok());
  const absl::Status status = loader.Load("twin").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Message(status), HasSubstr("same file as backend null_backend"));
}

TEST(Loader, NormaliseTakesALargerTableAndCopiesItsPrefix) {
  struct Larger {
    tranche_backend_api table;
    void* next[4];
  } larger{};
  larger.table = Load(kGood, "null_backend").table;
  larger.table.head.struct_size = sizeof larger;
  larger.table.head.minor = 9;
  larger.table.flags |= 0x100u;  // unknown, in the half that may be ignored
  const auto table = NormaliseTable(&larger.table, "null_backend");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->head.struct_size, sizeof(tranche_backend_api));
  larger.table.head.struct_size = sizeof larger + 4;
  EXPECT_FALSE(NormaliseTable(&larger.table, "null_backend").ok());
  EXPECT_FALSE(NormaliseTable(nullptr, "null_backend").ok());
}

TEST(Loader, InspectTellsWhatPassedAndWhatDidNot) {
  const Inspection good = Inspect((kGood / "null_backend.so").string());
  ASSERT_TRUE(good.status.ok()) << good.status;
  EXPECT_EQ(good.passed.size(), 6u);
  EXPECT_THAT(good.functions, testing::Contains("verify"));
  const Inspection bad = Inspect((kFakes / "broken_magic.backend.json").string());
  EXPECT_EQ(StageOf(bad.status), Stage::kTable);
  EXPECT_EQ(bad.passed.size(), 5u);
  ASSERT_TRUE(bad.manifest.has_value());
  EXPECT_EQ(bad.manifest->name, "broken_magic");
  EXPECT_EQ(bad.library, nullptr);
}

// ---- Backends, in each place that a library can run

enum class Place { kInProcess, kRunner };

class BackendIn : public testing::TestWithParam<Place> {
 protected:
  absl::StatusOr<std::shared_ptr<Backend>> Make(const fs::path& directory, const std::string& name, const CreateOptions& options) const {
    if (GetParam() == Place::kInProcess) return CreateBackend(Load(directory, name), options, {});
    const auto library = Loader(directory).Check(name);
    if (!library.ok()) return library.status();
    RunnerOptions runner;
    runner.program = (fs::path(TRANCHE_BINARY_DIRECTORY) / "bin" / "tranche-runner").string();
    runner.copies_directory = copies_.path() / "libraries";
    return CreateRunnerBackend(*library, options, runner, {});
  }
  absl::StatusOr<std::shared_ptr<Backend>> MakeNull(const std::string& config = "{}", const std::string& runtime = "") const {
    return Make(kGood, "null_backend", {.name = "null", .config = config, .runtime_directory = runtime});
  }
  absl::StatusOr<std::shared_ptr<Backend>> MakeBroken(const std::string& kind) const { return Make(kFakes, "broken_" + kind, {.name = kind}); }

  const Directory copies_;
};

INSTANTIATE_TEST_SUITE_P(Each, BackendIn, testing::Values(Place::kInProcess, Place::kRunner),
                         [](const auto& place) { return place.param == Place::kInProcess ? "InProcess" : "Runner"; });

TEST_P(BackendIn, RefusesEachBrokenLibraryAtItsStage) {
  const std::map<std::string, std::pair<Stage, std::string>> kinds = {{"declines", {Stage::kEntry, "declines this host"}},
                                                                      {"throws_in_entry", {Stage::kEntry, "threw"}},
                                                                      {"magic", {Stage::kTable, "magic"}},
                                                                      {"major", {Stage::kTable, "ABI major 2"}},
                                                                      {"short_table", {Stage::kTable, "table of 64 bytes"}},
                                                                      {"null_function", {Stage::kTable, "prepare is null"}},
                                                                      {"table_name", {Stage::kTable, "somebody_else"}},
                                                                      {"flags", {Stage::kTable, "0x80000000"}}};
  for (const auto& [kind, refusal] : kinds) {
    const absl::Status status = GetParam() == Place::kInProcess ? Loader(kFakes).Load("broken_" + kind).status() : MakeBroken(kind).status();
    EXPECT_EQ(StageOf(status), refusal.first) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("broken_" + kind), HasSubstr(refusal.second)));
  }
}

TEST_P(BackendIn, ConfigurationIsCheckedBeforeTheBackendSeesIt) {
  const absl::Status status = MakeNull(R"({"devices": "many"})").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("devices"));
  EXPECT_EQ(MakeNull(R"({"unheardOf": 1})").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeNull("[]").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeNull("{").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(BackendIn, CreateFailureCarriesCodeAndText) {
  const absl::Status status = MakeNull(R"({"failCreate": true})").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("asks create to fail"));
  EXPECT_EQ(MakeBroken("throws_in_create").status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(MakeBroken("no_instance").status()), HasSubstr("without an instance"));
}

TEST_P(BackendIn, DiscoversPreparesVerifiesUnprepares) {
  const Directory runtime;
  auto backend = MakeNull(R"({"devices": 3})", runtime.path());
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto devices = (*backend)->Discover(Soon());
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(devices->size(), 3u);

  const PrepareItem item = Item("c1");
  const auto prepared = (*backend)->Prepare({item}, Soon());
  ASSERT_EQ(prepared.size(), 1u);
  ASSERT_TRUE(prepared[0].status.ok()) << prepared[0].status;
  EXPECT_EQ(prepared[0].share->limits.at(0).in_force, 10737418240);
  EXPECT_TRUE((*backend)->Verify(item.key, prepared[0].share->state, Soon()).ok());
  EXPECT_EQ((*backend)->Verify(Item("other").key, "", Soon()).status().code(), absl::StatusCode::kNotFound);

  auto successor = MakeNull(R"({"devices": 3})", runtime.path());  // a restart, or an overlapping host
  ASSERT_TRUE(successor.ok()) << successor.status();
  const auto listed = (*successor)->ListPrepared(Soon());
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->size(), 1u);
  EXPECT_EQ(listed->front().key, item.key);
  for (int round = 0; round < 2; ++round) {  // the second is of an unknown key
    EXPECT_TRUE((*successor)->Unprepare({{item.key, ""}}, Soon()).at(0).status.ok());
  }
  EXPECT_TRUE((*backend)->ListPrepared(Soon())->empty());
}

TEST_P(BackendIn, FailureOfOneItemLeavesTheOthers) {
  auto backend = MakeNull(R"({"devices": 2, "failPrepare": 8, "failDevices": ["null-1"]})");
  ASSERT_TRUE(backend.ok()) << backend.status();
  PrepareItem unreadable = Item("c3");
  unreadable.configuration = "[]";
  const auto outcomes = (*backend)->Prepare({Item("c1"), Item("c2", "null-1"), unreadable}, Soon());
  ASSERT_EQ(outcomes.size(), 3u);
  EXPECT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
  EXPECT_EQ(outcomes[1].status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(outcomes[1].status), AllOf(HasSubstr("claim c2"), HasSubstr("null-1")));
  EXPECT_EQ(outcomes[2].status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(outcomes[1].share.has_value());
}

TEST_P(BackendIn, DeadlineEndsASlowCall) {
  auto backend = MakeNull(R"({"slowMs": 60000})");
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto start = std::chrono::steady_clock::now();
  const auto outcomes = (*backend)->Prepare({Item("c1"), Item("c2")}, DeadlineIn(50ms));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  EXPECT_EQ(outcomes[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(outcomes[1].status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_P(BackendIn, ALieIsReportedAsSaid) {
  auto backend = MakeNull(R"({"lieLimit": true})");
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto outcomes = (*backend)->Prepare({Item("c1")}, Soon());
  ASSERT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
  const LimitInForce& limit = outcomes[0].share->limits.at(0);
  EXPECT_EQ(limit.in_force, 2 * limit.requested);  // whoever asked compares
}

TEST_P(BackendIn, BadShareIsAnErrorOfThatItem) {
  auto backend = MakeNull(R"({"badJson": true})");
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto outcomes = (*backend)->Prepare({Item("c1")}, Soon());
  EXPECT_EQ(outcomes[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(outcomes[0].status), HasSubstr("without a valid share"));
}

TEST_P(BackendIn, GarbageIsRefusedEverywhere) {
  auto backend = MakeBroken("json");
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_THAT(Message((*backend)->Discover(Soon()).status()), HasSubstr("invalid device"));
  EXPECT_THAT(Message((*backend)->Prepare({Item("c1")}, Soon()).at(0).status), HasSubstr("gave no result"));
  EXPECT_THAT(Message((*backend)->ListPrepared(Soon()).status()), HasSubstr("invalid share"));
  EXPECT_EQ((*backend)->Verify(Item("c1").key, "", Soon()).status().code(), absl::StatusCode::kUnimplemented);
  const absl::Status status = (*backend)->Unprepare({{Item("c1").key, ""}}, Soon()).at(0).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("device ? gone "));  // what it said is made valid UTF-8
}

TEST_P(BackendIn, NullStringWithALengthIsAViolation) {
  auto backend = MakeBroken("null_string");
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_THAT(Message((*backend)->Discover(Soon()).status()), HasSubstr("null string"));
}

TEST_P(BackendIn, SilenceExceptionsAndUnknownCodesAreInternal) {
  auto silent = MakeBroken("silent");
  ASSERT_TRUE(silent.ok()) << silent.status();
  EXPECT_EQ((*silent)->Prepare({Item("c1")}, Soon()).at(0).status.code(), absl::StatusCode::kInternal);
  auto throwing = MakeBroken("throws_in_prepare");
  ASSERT_TRUE(throwing.ok()) << throwing.status();
  EXPECT_THAT(Message((*throwing)->Prepare({Item("c1")}, Soon()).at(0).status), HasSubstr("exception through the ABI"));
  auto code = MakeBroken("code");
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ((*code)->Prepare({Item("c1")}, Soon()).at(0).status.code(), absl::StatusCode::kInternal);
}

TEST_P(BackendIn, FloodIsCutOff) {
  auto backend = MakeBroken("flood");
  ASSERT_TRUE(backend.ok()) << backend.status();
  const absl::Status status = (*backend)->Prepare({Item("c1")}, Soon()).at(0).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(status), HasSubstr("the limit of one item"));
  auto tight = Make(kFakes, "broken_flood", {.name = "flood", .limits = {.device_bytes = 64 * 1024, .call_bytes = 4096}});
  ASSERT_TRUE(tight.ok()) << tight.status();
  EXPECT_THAT(Message((*tight)->Prepare({Item("c1")}, Soon()).at(0).status), HasSubstr("more than 4096 bytes"));
}

TEST_P(BackendIn, CallsFromManyThreads) {
  const Directory runtime;
  auto backend = MakeNull(R"({"slowMs": 1})", runtime.path());
  ASSERT_TRUE(backend.ok()) << backend.status();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 10; ++round) {
        const PrepareItem item = Item("c" + std::to_string(thread) + "-" + std::to_string(round));
        EXPECT_TRUE((*backend)->Prepare({item}, Soon()).at(0).status.ok());
        EXPECT_TRUE((*backend)->Unprepare({{item.key, ""}}, Soon()).at(0).status.ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE((*backend)->ListPrepared(Soon())->empty());
}

// ---- Edits

TEST(Edits, NothingIsAllowedByDefault) {
  EXPECT_TRUE(CheckEdits({}, {}).ok());
  ContainerEdits edits;
  edits.env = {"A=1"};
  const absl::Status status = CheckEdits(edits, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(status), HasSubstr("allowEdits.env"));
}

absl::Status CheckMountOf(const std::string& host, const std::vector<std::string>& prefixes) {
  ContainerEdits edits;
  edits.mounts = {{host, "/inside", {}}};
  EditAllowList allowed;
  allowed.mounts = prefixes;
  return CheckEdits(edits, allowed);
}

TEST(Edits, PrefixesEndAtASeparator) {
  EXPECT_TRUE(CheckMountOf("/opt/vendor", {"/opt/vendor"}).ok());
  EXPECT_TRUE(CheckMountOf("/opt/vendor/lib", {"/opt/vendor"}).ok());
  EXPECT_TRUE(CheckMountOf("/opt/vendor/lib", {"/usr", "/opt/vendor/"}).ok());
  EXPECT_TRUE(CheckMountOf("/anything", {"/"}).ok());
  for (const char* path : {"/opt/vendor2", "/opt", "/", "opt/vendor", "", "/opt/vendor/../../etc", "/opt/vendor/./x", "/opt//vendor", "/opt/vendor/"}) {
    EXPECT_EQ(CheckMountOf(path, {"/opt/vendor"}).code(), absl::StatusCode::kPermissionDenied) << path;
  }
  EXPECT_FALSE(CheckMountOf("/etc", {""}).ok());
  EXPECT_FALSE(CheckMountOf("/etc", {"/opt/../etc"}).ok());
  EXPECT_FALSE(CheckMountOf(std::string("/opt/vendor/a\0b", 15), {"/opt/vendor"}).ok());
}

TEST(Edits, EachKindHasItsOwnList) {
  EditAllowList allowed;
  allowed.device_nodes = {"/dev/vendor"};
  allowed.hooks = {"/usr/bin/hook"};
  allowed.env = {"VENDOR_"};
  ContainerEdits edits;
  edits.device_nodes = {{"/dev/x", "/dev/vendor/0", "c", "rwm", {}, {}}};  // the host's path counts
  edits.hooks = {{"createRuntime", "/usr/bin/hook", {}, {}, {}}};
  edits.env = {"VENDOR_A=1"};
  EXPECT_TRUE(CheckEdits(edits, allowed).ok()) << CheckEdits(edits, allowed);
  const auto refused = [&](auto change) {
    ContainerEdits changed = edits;
    change(changed);
    return CheckEdits(changed, allowed).code() == absl::StatusCode::kPermissionDenied;
  };
  EXPECT_TRUE(refused([](ContainerEdits& e) { e.device_nodes[0].host_path = ""; }));
  EXPECT_TRUE(refused([](ContainerEdits& e) { e.device_nodes[0].permissions = "rwx"; }));
  EXPECT_TRUE(refused([](ContainerEdits& e) { e.device_nodes[0].path = "dev/x"; }));
  EXPECT_TRUE(refused([](ContainerEdits& e) { e.hooks[0].hook_name = "whenever"; }));
  EXPECT_TRUE(refused([](ContainerEdits& e) { e.hooks[0].path = "/usr/bin/hooks"; }));
  EXPECT_TRUE(refused([](ContainerEdits& e) { e.env = {"LD_PRELOAD=/x"}; }));
  EXPECT_TRUE(refused([](ContainerEdits& e) { e.env = {"VENDOR_A"}; }));
  EXPECT_TRUE(refused([](ContainerEdits& e) { e.env = {"VENDOR_A B=1"}; }));
  EXPECT_TRUE(refused([](ContainerEdits& e) { e.net_devices = {{"vf0", "net1"}}; }));
  allowed.net_devices = true;
  EXPECT_FALSE(refused([](ContainerEdits& e) { e.net_devices = {{"vf0", "net1"}}; }));
  EXPECT_TRUE(refused([](ContainerEdits& e) { e.net_devices = {{"../vf0", "net1"}}; }));
  EXPECT_TRUE(refused([](ContainerEdits& e) { e.net_devices = {{"vf0", "a-name-far-too-long"}}; }));
}

}  // namespace
}  // namespace tranche::backend
