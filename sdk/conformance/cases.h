// The cases. Each runs in a child process and reports by rule; what they share is the runtime directory, as hosts of one node do.
#pragma once

#include <string>
#include <vector>

#include "conformance/conform.h"
#include "conformance/sandbox.h"

namespace tranche::conform {

// What files and symbols say, without running the library: rules TB-001 to TB-013. False when nothing of the library may run.
struct Subject {
  std::string manifest_path, library_path, name, version;
  int abi_minor = 0;
};
bool ExamineFiles(Report& report, const Options& options, Subject& subject);

struct CaseInput {
  const Options& options;
  const Subject& subject;
  std::string memory = {};  // what an earlier case noted
};

void OpenCase(Reporter& reporter, const CaseInput& input);          // TB-014 to TB-025
void LifeCase(Reporter& reporter, const CaseInput& input);          // create, discover, destroy
void EnvelopeCase(Reporter& reporter, const CaseInput& input);      // create with an unreadable envelope
void ShareCase(Reporter& reporter, const CaseInput& input);         // one share of every mode, through its life
void ListCase(Reporter& reporter, const CaseInput& input);          // several shares, failing and unknown keys, lost state
void GuardedCase(Reporter& reporter, const CaseInput& input);       // inputs end at an unmapped page
void UnmappedCase(Reporter& reporter, const CaseInput& input);      // inputs vanish with the call
void UnknownCase(Reporter& reporter, const CaseInput& input);       // inputs with unknown members
void ExpiredCase(Reporter& reporter, const CaseInput& input);       // calls past their deadline
void LeaveCase(Reporter& reporter, const CaseInput& input);         // prepares and destroys
void CrashCase(Reporter& reporter, const CaseInput& input);         // prepares and is killed
void AfterDestroyCase(Reporter& reporter, const CaseInput& input);  // a new process after LeaveCase
void AfterCrashCase(Reporter& reporter, const CaseInput& input);    // a new process after CrashCase
void ThreadsCase(Reporter& reporter, const CaseInput& input);       // overlapping calls
void OptionalCase(Reporter& reporter, const CaseInput& input);      // check_health, recover, release_handles, self_test
void CyclesCase(Reporter& reporter, const CaseInput& input);        // repetition
void SweepCase(Reporter& reporter, const CaseInput& input);         // takes away what the kit left

}  // namespace tranche::conform
