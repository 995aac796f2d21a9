// SPDX-License-Identifier: Apache-2.0
#include "posenc/attention/explain_plan.h"

#include "attention/call/check_parts.h"
#include "attention/engines/engine.h"

namespace posenc::inline v0 {

PlanExplanation detail::explain_lowered(const AttentionArgs& a, const LoweredCall& lowered) {
  check_call(a);
  check_attention_indices(a);
  CallArena arena;
  const ReadyCall call(a, arena);
  const Engine& chosen = choose_engine(engines(), call, lowered);
  PlanExplanation e;
  e.engine = chosen.name;
  e.backward_engine = choose_engine(engines(), call, lowered, Pass::backward).name;
  for (const Engine* other = engines().data(); other != &chosen; ++other)
    e.others.push_back({std::string(other->name), std::string(other->why_not(call, lowered))});
  e.workspace_bytes = bytes_of(
      [&](CallArena& counted) { attend_lowered(a, lowered, {}, counted, default_executor()); });
  for (const Term& t : a.terms) e.terms.push_back({std::string(term_name(t)), term_class(t)});
  return e;
}

PlanExplanation explain_plan(const AttentionArgs& a) {
  return detail::explain_lowered(a, {});
}

}  // namespace posenc::v0
