// SPDX-License-Identifier: Apache-2.0
#include "posenc/attention/explain_plan.h"

#include "attention/engines/engine.h"

namespace posenc::inline v0 {

PlanExplanation detail::explain_lowered(const AttentionArgs& a, const LoweredCall& lowered) {
  check_attention(a, AttentionGradients{});
  check_attention_indices(a);
  Choice choice = choose_engine(engines(), a, lowered);
  PlanExplanation e;
  e.engine = choice.engine->name;
  for (auto& [name, why] : choice.refused) e.others.push_back({std::string(name), std::move(why)});
  e.workspace_bytes = choice.engine->workspace_bytes(a, lowered);
  for (const Term& t : a.terms) e.terms.push_back({std::string(term_name(t)), term_class(t)});
  return e;
}

PlanExplanation explain_plan(const AttentionArgs& a) {
  return detail::explain_lowered(a, {});
}

}  // namespace posenc::v0
