// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "common.h"
#include "posenc/report/doctor.h"
#include "posenc/report/verb.h"
#include "utf8.h"

namespace posenc::report {
namespace {

struct DoctorOptions {
  SubjectOptions subject;
  bool notes = false, strict = false;
};

Report examine(const DoctorOptions& o, const Request& r) {
  const ModelSpec m = read_model_argument(o.subject);
  const std::vector<Finding> findings = doctor(m);
  const Severity least = o.strict ? Severity::warning : Severity::error;
  const bool negative =
      std::ranges::any_of(findings, [&](const Finding& f) { return f.severity >= least; });
  return {.code = negative ? kNegative : kSuccess,
          .text = r.json ? in_utf8(doctor_json(findings)).dump(2) + "\n"
                         : doctor_text(m.file, findings, o.notes, {r.color})};
}

Verb::Run declare_doctor(Words& w) {
  auto o = std::make_shared<DoctorOptions>();
  w.subject(o->subject, Takes::model);
  w.flag("--notes", o->notes,
         "print also the notes that hold for every model of its kind (--json always has them)");
  w.flag("--strict", o->strict, "exit with 1 for a warning too, not only for an error");
  w.json();
  return [o](const Request& r) { return examine(*o, r); };
}

}  // namespace

const Verb doctor_verb{
    "doctor", "report what is wrong, risky or ambiguous in a model's positions", &declare_doctor,
    "Examples:\n  posenc doctor models/llama\n"
    "  posenc doctor model.gguf --context 131072 --json\n"
    "Exit code: 1 if a finding is an error (--strict: or a warning). docs/doctor.md explains every "
    "code."};

}  // namespace posenc::report
