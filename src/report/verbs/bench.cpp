// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "posenc/report/checks.h"
#include "posenc/report/verb.h"

namespace posenc::report {
namespace {

Verb::Run declare_bench(Words& w) {
  auto o = std::make_shared<BenchOptions>();
  w.text("--filter", o->filter, "RE", "run only lines whose name matches this expression");
  w.flag("--quick", o->quick, "take fewer samples: an impression, not a measurement");
  w.json();
  return [o](const Request& r) {
    if (r.checks == nullptr) throw UsageError("bench is not part of this program");
    return r.checks->bench(*o, r);
  };
}

}  // namespace

const Verb bench_verb{"bench", "measure speed against this machine's own limits, and the error",
                      &declare_bench,
                      "Examples:\n  posenc bench\n  posenc bench --filter rotate/f32 --json"};

}  // namespace posenc::report
