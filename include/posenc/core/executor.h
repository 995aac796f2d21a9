// SPDX-License-Identifier: Apache-2.0
// Who runs the parts of a large call: the library's own pool, or the host's.
#pragma once
#include <cstddef>
#include <span>

#include "posenc/core/dtype.h"
#include "posenc/core/export.h"

namespace posenc::inline v0 {

// Fork-join over [0, n), callable from C. `run` calls task(arg, i) once for every i, on any thread,
// and returns when all are done; the tasks never throw. run == nullptr: the caller's thread alone.
struct Executor {
  void* context = nullptr;
  Index concurrency = 1;  // how many tasks may run at once; calls are split into at most this many
  void (*run)(void* context, Index n, void (*task)(void* arg, Index i), void* arg) = nullptr;
  // Attention calls it between blocks of queries, on the threads that compute. Once it returns true, and
  // it must then keep returning true, the call ends early and throws Cancelled; the contents of its
  // outputs are undefined. Null: never.
  bool (*cancelled)(void* cancel_context) = nullptr;
  void* cancel_context = nullptr;
};

// The library's pool: started by the first large call, POSENC_NUM_THREADS threads (default: the
// cores this process may use), re-created after fork(). Results never depend on the thread count.
POSENC_API const Executor& default_executor();
// Its number of threads from the next call on, 1 to 1024; 0: the default. Running calls are not
// affected. Throws [executor].
POSENC_API void set_default_threads(Index);
// Replaces the executor of all later calls that do not name one; one without `run` uses the
// caller's thread. Its context must live as long as the process, or until another one is set and
// all calls have ended. Throws [executor]: concurrency below 1.
POSENC_API void set_default_executor(const Executor&);
// The caller's thread alone.
POSENC_API const Executor& inline_executor() noexcept;

// Scratch memory of the caller; functions that need some document how much.
using Workspace = std::span<std::byte>;

}  // namespace posenc::v0
