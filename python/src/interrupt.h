// SPDX-License-Identifier: Apache-2.0
// Long calls that Ctrl-C ends: signals are looked for on the calling thread, between blocks of rows.
#pragma once
#include <nanobind/nanobind.h>
#include <pthread.h>

#include <atomic>
#include <chrono>

#include "posenc/core/error.h"
#include "posenc/core/executor.h"

namespace posenc::python {

namespace nb = nanobind;

// An executor whose calls end when a handler of a signal raises.
class Interruptible {
 public:
  explicit Interruptible(Executor e) : executor_(e) {
    executor_.cancelled = [](void* self) { return static_cast<Interruptible*>(self)->poll(); };
    executor_.cancel_context = this;
  }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
  const Executor& executor() const { return executor_; }

 private:
  bool poll() noexcept {
    if (raised_.load(std::memory_order_relaxed)) return true;
    if (pthread_equal(thread_, pthread_self()) == 0) return false;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return false;
    last_ = now;
    const nb::gil_scoped_acquire hold;
    if (PyErr_CheckSignals() != 0) raised_.store(true, std::memory_order_relaxed);
    return raised_.load(std::memory_order_relaxed);
  }

  Executor executor_;
  std::atomic<bool> raised_{false};
  const pthread_t thread_ = pthread_self();
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// f(executor) without the GIL; what a handler of a signal raised is raised here.
template <class F>
void run_interruptible(const Executor& executor, const F& f) {
  Interruptible i(executor);
  try {
    const nb::gil_scoped_release free;
    f(i.executor());
  } catch (const Cancelled&) {
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    throw;
  }
}

}  // namespace posenc::python
