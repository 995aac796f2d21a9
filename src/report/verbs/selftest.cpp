// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "posenc/report/checks.h"
#include "posenc/report/verb.h"

namespace posenc::report {
namespace {

Verb::Run declare_selftest(Words& w) {
  auto o = std::make_shared<SelftestOptions>();
  w.texts("--suite", o->suites, "DIR",
          "a suite's folder; repeatable (default: the suites installed with posenc)");
  w.text("--map", o->map, "F", "JSON file that adds the `posenc` field to cases, by case name")
      .file();
  w.texts("--onnx", o->onnx, "DIR",
          "a folder of ONNX Attention or RotaryEmbedding node tests; repeatable");
  w.text("--filter", o->filter, "RE", "run only cases whose name matches this expression");
  w.json();
  return [o](const Request& r) {
    if (r.checks == nullptr) throw UsageError("selftest is not part of this program");
    return r.checks->selftest(*o, r);
  };
}

}  // namespace

const Verb selftest_verb{
    "selftest", "run the conformance suites on this machine", &declare_selftest,
    "Examples:\n  posenc selftest\n  posenc selftest --suite conformance/gguf --json\n"
    "Exit code: 1 if a case fails."};

}  // namespace posenc::report
