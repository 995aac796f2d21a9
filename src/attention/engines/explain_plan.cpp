// SPDX-License-Identifier: Apache-2.0
#include "posenc/attention/explain_plan.h"

#include "attention/call/check_parts.h"
#include "attention/engines/engine.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

using Others = std::vector<PlanExplanation::Other>;

// The engines before the one that runs, and why they do not.
Others others_of(const Engine& chosen, const ReadyCall& call, const LoweredCall& lowered,
                 Pass pass) {
  Others others;
  for (const Engine* other = engines().data(); other != &chosen; ++other) {
    const auto why = pass == Pass::forward ? other->why_not : other->backward_why_not;
    others.push_back({std::string(other->name), std::string(why(call, lowered))});
  }
  return others;
}

}  // namespace

PlanExplanation explain_lowered(const AttentionArgs& a, const LoweredCall& lowered) {
  check_call(a);
  check_attention_indices(a);
  CallArena arena;
  const ReadyCall call(a, arena);
  const Engine& chosen = choose_engine(engines(), call, lowered);
  PlanExplanation e;
  e.engine = chosen.name;
  e.others = others_of(chosen, call, lowered, Pass::forward);
  const Engine& backward = choose_engine(engines(), call, lowered, Pass::backward);
  e.backward_engine = backward.name;
  e.backward_others = others_of(backward, call, lowered, Pass::backward);
  e.workspace_bytes = bytes_of(
      [&](CallArena& counted) { attend_lowered(a, lowered, {}, counted, default_executor()); });
  for (const Term& t : a.terms) e.terms.push_back({std::string(term_name(t)), term_class(t)});
  return e;
}

}  // namespace detail

PlanExplanation explain_plan(const AttentionArgs& a) {
  return detail::explain_lowered(a, {});
}

}  // namespace posenc::v0
