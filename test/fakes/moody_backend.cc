// A backend that is wrong when a file says so, and well again once the file is gone: tests of process isolation name it as library moody_backend.
//
//   moodFile   its first line is "WHERE KIND [NUMBER]"; WHERE is create, discover, prepare, unprepare, list, verify or any. KIND:
//                segv abort exit spin sleep allocate descriptors thread throw garbage oversize huge utf8 print probe flood child
//                lag N     sleeps N ms whatever is cancelled; burn N: computes for N ms; flood: reports health for ever; child: leaves one, and crashes
//                crash N   SIGSEGV at the N-th step of applying or removing; the file is removed first, so that it happens once
//   devices    how many (default 1)
//
// A share is two files, written and removed one after the other as a real one is a class and a filter: with one of them list_prepared says
// "partial". The words "trait:none" in the library can be replaced, before it is loaded, by those of a library that must not take over.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tranche/backend.hpp>

namespace {

namespace sdk = tranche::sdk;
namespace json = boost::json;
namespace fs = std::filesystem;

const volatile char kTrait[] = "trait:none\0\0\0\0\0\0";  // trait:nolist | trait:create | trait:later

bool Has(const char* trait) {
  std::string text;
  for (const volatile char* at = kTrait; *at != '\0'; ++at) text += *at;
  return text == std::string("trait:") + trait;
}

struct Mood {
  std::string where, kind;
  int number = 0;
};

std::string g_file;  // one instance a process; read in every call

Mood ReadMood() {
  Mood mood;
  std::ifstream file(g_file);
  file >> mood.where >> mood.kind >> mood.number;
  return mood;
}

void WriteToHost(const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = ::send(3, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return;
    sent += static_cast<std::size_t>(count);
  }
}

[[noreturn]] void Spin() {
  for (std::atomic<unsigned> turn = 0;; ++turn) {}
}

void Allocate() {
  constexpr std::size_t kBytes = 2ull * 1024 * 1024 * 1024;
  char* memory = static_cast<char*>(std::malloc(kBytes));
  if (memory == nullptr) throw sdk::Error(TRANCHE_RESOURCE_EXHAUSTED, "2 GiB are not to be had");
  std::memset(memory, 1, kBytes);
}

std::string Answer(const char* what, long result) {
  return std::string(what) + (result == 0                    ? "=0 "
                              : result < 0 && errno == EPERM ? "=denied "
                                                             : "=" + std::to_string(result) + "/" + std::to_string(errno) + " ");
}

// What this process may do, as words.
std::string Probe() {
  std::string words;
  words += Answer("mount", ::mount("none", "/proc", "tmpfs", 0, nullptr));
  words += Answer("ptrace", ::ptrace(PTRACE_ATTACH, ::getppid(), nullptr, nullptr));
  words += Answer("setns", ::syscall(SYS_setns, 0, 0));
  words += Answer("module", ::syscall(SYS_delete_module, "none", 0));
  words += Answer("kexec", ::syscall(SYS_kexec_load, 0, 0, nullptr, 0));
  words += Answer("reboot", ::syscall(SYS_reboot, 0, 0, 0, nullptr));
  words += Answer("kill", ::kill(::getppid(), 0));
  words += Answer("self", ::kill(::getpid(), 0));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  words += Answer("fork", child);
  char* none[] = {nullptr};
  words += Answer("exec", ::execve("/bin/true", none, none));
  words += "privileges=" + std::to_string(::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  words += " files=" + std::to_string(files.rlim_cur);
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("CapEff:", 0) == 0) words += " capabilities=" + line.substr(line.find_first_not_of(" \t", 7));
  }
  int open = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) open += entry.path().empty() ? 0 : 1;
  return words + " open=" + std::to_string(open);
}

// As the kernel ends it, also where a sanitizer would report first.
void Crash() {
  std::signal(SIGSEGV, SIG_DFL);
  std::raise(SIGSEGV);
}

void Suffer(const Mood& mood, tranche_call* call, const tranche_host_api* host) {
  const std::string& kind = mood.kind;
  if (kind == "segv") Crash();
  if (kind == "abort") std::abort();
  if (kind == "exit") std::exit(3);
  if (kind == "spin") Spin();
  if (kind == "sleep") std::this_thread::sleep_for(std::chrono::seconds(60));
  if (kind == "allocate") Allocate();
  if (kind == "descriptors") {
    for (int fd = 0; fd >= 0;) fd = ::open("/dev/null", O_RDONLY);
  }
  if (kind == "thread") std::thread([] { std::this_thread::sleep_for(std::chrono::hours(1)); }).detach();
  if (kind == "garbage") WriteToHost(std::string(4096, '\x5a'));
  if (kind == "oversize") {
    const std::uint32_t head[] = {100u * 1024 * 1024, 18u | 3u << 16, 2, 0};  // an answer of 100 MiB, in version 3 of the protocol
    WriteToHost(std::string(reinterpret_cast<const char*>(head), sizeof head) + std::string(1024 * 1024, 'x'));
  }
  if (kind == "huge") {
    const std::string huge(100u * 1024 * 1024, 'x');
    host->add_share(call, {huge.data(), huge.size()});
  }
  if (kind == "utf8") {
    const char text[] = "{\"schemaVersion\": 1, \"key\": \"\xff\xfe\"}";
    host->add_share(call, {text, sizeof text - 1});
    throw sdk::Error(TRANCHE_INTERNAL, "these are no characters: \xff\xfe");
  }
  if (kind == "lag") std::this_thread::sleep_for(std::chrono::milliseconds(mood.number));  // and goes on, whoever gave it up
  if (kind == "burn") {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(mood.number); std::chrono::steady_clock::now() < end;) {}
  }
  if (kind == "flood") {
    std::thread([host] {
      for (;;) host->report_health(host->host, {"x", 1});
    }).detach();
  }
  if (kind == "child") {
    const pid_t child = ::fork();
    while (child == 0) ::pause();
    std::ofstream(g_file + ".child") << child;
    Crash();
  }
  if (kind == "print") {
    for (int line = 0; line < 2000; ++line) std::printf("line %d of a backend that prints\n", line);
    std::fflush(stdout);
  }
}

class MoodyBackend {
 public:
  static constexpr const char* kName = "moody_backend";
  static constexpr const char* kVersion = "1.0.0";
  static constexpr bool kConcurrent = true;

  MoodyBackend(sdk::Host host, const json::object& config, const std::string& runtime_directory) : host_(host), directory_(runtime_directory) {
    if (const json::value* path = config.if_contains("moodFile")) g_file = std::string(path->as_string());
    if (const json::value* count = config.if_contains("devices")) devices_ = count->as_int64();
    Feel("create", nullptr);
    if (Has("create")) throw sdk::Error(TRANCHE_FAILED_PRECONDITION, "this version does not start");
    if (Has("later"))
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        Crash();
      }).detach();
  }

  std::vector<sdk::Device> Discover(sdk::Call& call) {
    Feel("discover", call.raw());
    std::vector<sdk::Device> devices;
    for (std::int64_t index = 0; index < devices_; ++index) {
      sdk::Device device;
      device.name = "moody-" + std::to_string(index);
      device.identity["uuid"] = "MOODY-" + std::to_string(index);
      device.modes = {"whole", "share"};
      device.attributes = {{"model", std::string("Moody")}};
      device.capacities["memory"] = {1099511627776, "1Ti", "bytes", true, "strong", {}, {}};
      devices.push_back(std::move(device));
    }
    return devices;
  }

  sdk::Share PrepareOne(sdk::Call& call, const sdk::PrepareRequest& request) {
    Feel("prepare", call.raw());
    int step = 0;
    Step(++step);
    std::int64_t memory = 0;
    for (const auto& [name, amount] : request.consumed) memory = amount.value;
    Write(Path(request.key, ".limit"), json::serialize(json::object{{"key", sdk::ToJson(request.key)}, {"memory", memory}}), step);
    Step(++step);
    Write(Path(request.key, ".filter"), "on", step);
    Step(++step);
    sdk::Share share = Load(Path(request.key, ".limit"));
    if (ReadMood().kind == "probe") share.state = Probe();
    Step(++step);
    return share;
  }

  void UnprepareOne(sdk::Call& call, const sdk::ShareRef& share) {
    Feel("unprepare", call.raw());
    int step = 0;
    Step(++step);
    fs::remove(Path(share.key, ".filter"));
    Step(++step);
    fs::remove(Path(share.key, ".limit"));
    Step(++step);
  }

  std::vector<sdk::Share> ListPrepared(sdk::Call& call) {
    Feel("list", call.raw());
    std::vector<sdk::Share> shares;
    if (Has("nolist")) return shares;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      // A file may be gone by now: somebody removes it.
      if (entry.path().extension() == ".limit" && fs::exists(entry.path())) shares.push_back(Load(entry.path()));
    }
    return shares;
  }

  sdk::Share Verify(sdk::Call& call, const sdk::ShareRef& reference) {
    Feel("verify", call.raw());
    const fs::path path = Path(reference.key, ".limit");
    if (!fs::exists(path)) throw sdk::Error(TRANCHE_NOT_FOUND, "nothing is prepared for claim " + reference.key.claim_uid);
    return Load(path);
  }

 private:
  void Feel(const char* where, tranche_call* call) const {
    const Mood mood = ReadMood();
    if (mood.where == where || mood.where == "any") Suffer(mood, call, host_.api());
  }

  static void Step(int step) {
    const Mood mood = ReadMood();
    if (mood.kind != "crash" || mood.number != step) return;
    fs::remove(g_file);
    Crash();
  }

  fs::path Path(const sdk::Key& key, const char* suffix) const { return fs::path(directory_) / (key.claim_uid + "-" + key.request + suffix); }

  static void Write(const fs::path& path, const std::string& text, int& step) {
    const fs::path part = path.string() + ".part";
    std::ofstream(part) << text;
    Step(++step);
    fs::rename(part, path);
  }

  static sdk::Share Load(const fs::path& path) {
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const json::value value = json::parse(text);
    const std::int64_t memory = value.at("memory").as_int64();
    sdk::Share share;
    share.key = sdk::KeyFrom(value.at("key"));
    if (memory != 0) share.limits.push_back({"memory", "", memory, memory, "strong", std::chrono::system_clock::now(), "files"});
    fs::path filter = path;
    if (!fs::exists(filter.replace_extension(".filter"))) share.applied = "partial";
    return share;
  }

  const sdk::Host host_;
  const std::string directory_;
  std::int64_t devices_ = 1;
};

using Thunks = sdk::detail::Thunks<MoodyBackend>;

// An exception that does leave the library.
tranche_code Prepare(tranche_instance* instance, tranche_call* call, tranche_str list) {
  const Mood mood = ReadMood();
  if (mood.kind == "throw") throw std::runtime_error("an exception through C");
  return Thunks::kTable.prepare(instance, call, list);
}

}  // namespace

extern "C" TRANCHE_EXPORT const tranche_backend_api* tranche_backend_v1(const tranche_head* host) {
  if (Thunks::Entry(host) == nullptr) return nullptr;
  static const tranche_backend_api table = [] {
    tranche_backend_api copy = Thunks::kTable;
    copy.prepare = &Prepare;
    return copy;
  }();
  return &table;
}
