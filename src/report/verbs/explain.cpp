// SPDX-License-Identifier: Apache-2.0
#include "posenc/report/explain.h"

#include <memory>

#include "common.h"
#include "notes.h"
#include "posenc/report/doctor.h"
#include "posenc/report/verb.h"
#include "utf8.h"

namespace posenc::report {
namespace {

Report explain_model(const SubjectOptions& o, const Request& r) {
  const ModelSpec m = read_model_argument(o);
  if (m.has_error()) {
    note(findings_text(m.findings));
    throw InputError(m.file + ": the positions of this model cannot be determined");
  }
  if (o.layer) chosen_layer(m, o);  // rejects a layer that does not exist
  if (r.json) return {.text = in_utf8(explain_json(m, o.layer)).dump(2) + "\n"};
  return {.text = explain_text(m, o.layer, {r.color})};
}

Verb::Run declare_explain(Words& w) {
  auto o = std::make_shared<SubjectOptions>();
  w.subject(*o, Takes::layer_of_model);
  w.json();
  return [o](const Request& r) { return explain_model(*o, r); };
}

}  // namespace

const Verb explain_verb{"explain",
                        "show which positions a model uses and where each value comes from",
                        &declare_explain,
                        "Examples:\n  posenc explain models/llama/config.json\n"
                        "  posenc explain model.gguf --layer 5\n"
                        "  posenc explain models/phi --context 8192 --json\n"
                        "Exit code: 3 if the positions cannot be determined."};

}  // namespace posenc::report
