#include <cstring>
#include <regex>

#include "conformance/cases.h"
#include "conformance/process.h"
#include "conformance/session.h"

namespace tranche::conform {
namespace {

// The smallest table: all of 1.0.
constexpr std::uint32_t kSmallest = offsetof(tranche_backend_api, self_test) + sizeof(void*);

struct Called {
  const tranche_backend_api* table = nullptr;
  bool threw = false;
};
Called CallEntry(Reporter& reporter, tranche_backend_entry entry, const tranche_head& head) {
  Called called;
  reporter.Enter(TRANCHE_BACKEND_ENTRY, std::chrono::seconds(5));
  try {
    called.table = entry(&head);
  } catch (...) { called.threw = true; }
  reporter.Leave();
  return called;
}

void Judge(Reporter& reporter, std::string_view rule, const std::string& why) {
  if (why.empty()) {
    reporter.Pass(rule);
  } else {
    reporter.Fail(rule, why);
  }
}

std::string MissingMembers(const tranche_backend_api& table) {
  std::string missing;
  const auto need = [&](bool present, const char* name) {
    if (!present) missing.append(missing.empty() ? "" : ", ").append(name);
  };
  need(table.name != nullptr, "name");
  need(table.version != nullptr, "version");
  need(table.create != nullptr, "create");
  need(table.destroy != nullptr, "destroy");
  need(table.discover != nullptr, "discover");
  need(table.prepare != nullptr, "prepare");
  need(table.unprepare != nullptr, "unprepare");
  need(table.list_prepared != nullptr, "list_prepared");
  return missing.empty() ? "" : "null: " + missing;
}

std::string JudgeVersion(const char* version, const std::string& manifest) {
  static const std::regex semantic(R"(\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?)");
  if (version == nullptr) return "";  // TB-021
  const std::string text(version, ::strnlen(version, 64));
  if (!std::regex_match(text, semantic)) return "\"" + text + "\" is not MAJOR.MINOR.PATCH";
  return text == manifest ? "" : "the table says " + text + ", the manifest " + manifest;
}

// Head and magic are read first: nothing else may be before the size is known.
bool JudgeTable(Reporter& reporter, const CaseInput& input, const tranche_backend_api* table) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(table) % alignof(tranche_backend_api) == 0;
  if (!aligned) return reporter.Fail("TB-020", "the table is not aligned"), false;
  if (table->magic != TRANCHE_BACKEND_MAGIC) return reporter.Fail("TB-018", "magic is " + std::to_string(table->magic)), false;
  reporter.Pass("TB-018");
  const tranche_head head = table->head;
  if (head.major != TRANCHE_ABI_MAJOR) return reporter.Fail("TB-019", "major is " + std::to_string(head.major)), false;
  reporter.Pass("TB-019");
  if (head.struct_size < kSmallest || head.struct_size > 64 * 1024 || head.struct_size % 8 != 0) {
    return reporter.Fail("TB-020", "struct_size is " + std::to_string(head.struct_size)), false;
  }
  reporter.Pass("TB-020");
  Judge(reporter, "TB-003",
        input.subject.abi_minor > head.minor
            ? "the manifest needs minor " + std::to_string(input.subject.abi_minor) + ", the table has " + std::to_string(head.minor)
            : "");
  const std::string missing = MissingMembers(*table);
  Judge(reporter, "TB-021", missing);
  const std::string name = table->name == nullptr ? "" : std::string(table->name, ::strnlen(table->name, 64));
  if (table->name != nullptr) Judge(reporter, "TB-022", name == input.subject.name ? "" : "the table is of " + name);
  Judge(reporter, "TB-023", JudgeVersion(table->version, input.subject.version));
  const std::uint32_t unknown = table->flags & 0xffff0000u;
  Judge(reporter, "TB-024", unknown == 0 ? "" : "flags " + std::to_string(table->flags));
  return missing.empty() && name == input.subject.name && unknown == 0;
}

void JudgeRefusals(Reporter& reporter, tranche_backend_entry entry) {
  const Called other = CallEntry(reporter, entry, {static_cast<std::uint32_t>(sizeof(tranche_host_api)), 2, 0});
  const Called small = CallEntry(reporter, entry, {8, TRANCHE_ABI_MAJOR, 0});
  std::string why;
  if (other.threw || small.threw) why = "the entry threw";
  if (other.table != nullptr) why = "a host of major 2 is accepted";
  if (small.table != nullptr) why = "a host whose table has 8 bytes is accepted; compare head.struct_size with what you need";
  Judge(reporter, "TB-017", why);
}

}  // namespace

void OpenCase(Reporter& reporter, const CaseInput& input) {
  const ProcessState before = ReadProcess();
  reporter.Enter("dlopen", std::chrono::seconds(20));
  const Opened opened = OpenLibrary(input.subject.library_path);
  reporter.Leave();
  if (opened.entry == nullptr) return reporter.Fail("TB-014", opened.why);
  reporter.Pass("TB-014");
  const ProcessState after = ReadProcess();
  std::string changed;
  if (after.threads != before.threads) changed = "a thread was started";
  if (after.descriptors != before.descriptors) changed = "a descriptor was opened";
  if (after.surroundings != before.surroundings) changed = "environment, directory, locale or signals changed";
  Judge(reporter, "TB-015", changed);

  const tranche_head head{static_cast<std::uint32_t>(sizeof(tranche_host_api)), TRANCHE_ABI_MAJOR, TRANCHE_ABI_MINOR};
  const Called first = CallEntry(reporter, opened.entry, head);
  if (first.threw || first.table == nullptr) return reporter.Fail("TB-016", first.threw ? "the entry threw" : "the entry declines a host of this ABI");
  reporter.Pass("TB-016");
  if (!JudgeTable(reporter, input, first.table)) return;
  JudgeRefusals(reporter, opened.entry);
  const Called second = CallEntry(reporter, opened.entry, head);
  Judge(reporter, "TB-025", second.table == first.table ? "" : "a second call gives another table");
  reporter.Note("usable", "yes");
}

}  // namespace tranche::conform
