// A vendor's library behind the Backend interface, in a tranche-runner process of its own. What happens there ends there:
//
//   ends, crashes       calls in progress are Unavailable at once; a new process is started after a back-off with jitter
//   hangs               a call is abandoned at its deadline; without an answer soon after, the process is killed and replaced
//   sends what is no answer, or one that is too large   the connection is closed, the process replaced
//   uses up its descriptors or memory                   it is replaced between two calls
//   takes more CPU time than its calls are worth        for a minute it runs only when nobody else wants to, also when it was replaced meanwhile
//   survives SIGKILL    reported in Process(), never used again, replaced
//
// While no process serves, calls are Unavailable and say why. Events::availability tells of the end and of the new start. Prepared shares stay
// in force throughout: they are the kernel's or the hardware's.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "backend/backend.h"
#include "backend/in_process.h"
#include "backend/loader.h"

namespace tranche::backend {

struct RunnerOptions {
  std::string program;                         // tranche-runner
  std::string copies_directory;                // of libraries, by content; must allow execution
  std::chrono::milliseconds probation{60000};  // at idle priority, after more CPU time was used than the calls are worth
  std::chrono::milliseconds first_back_off{100};
  std::chrono::milliseconds last_back_off{30000};
  std::chrono::milliseconds stable_after{30000};  // of serving, after which the back-off starts again
  std::chrono::milliseconds hang_grace{1000};     // after a call's deadline
  std::chrono::milliseconds stop_patience{3000};  // for destroy
  std::chrono::milliseconds kill_patience{2000};
};

// Returns once an instance was created there, or why not: then nothing runs. Otherwise as CreateBackend.
absl::StatusOr<std::shared_ptr<Backend>> CreateRunnerBackend(const CheckedLibrary& library, const CreateOptions& options, const RunnerOptions& runner,
                                                             Events events);

}  // namespace tranche::backend
