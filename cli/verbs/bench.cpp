// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "checks.h"

namespace posenc::cli {
namespace {

Verb::Run declare_bench(Words& w) {
  auto o = std::make_shared<BenchOptions>();
  w.text("--filter", o->filter, "RE", "run only lines whose name matches this expression");
  w.flag("--quick", o->quick, "take fewer samples: an impression, not a measurement");
  w.json();
  return [o](const Request& r) { return bench(*o, r); };
}

}  // namespace

const Verb bench_verb{"bench", "measure speed against this machine's own limits, and the error",
                      &declare_bench,
                      "Examples:\n  posenc bench\n  posenc bench --filter rotate/f32 --json"};

}  // namespace posenc::cli
