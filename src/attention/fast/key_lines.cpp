// SPDX-License-Identifier: Apache-2.0
// Forgetting gates, x_i - y_j: a line of numbers by key, and what each query adds to it.
#include <algorithm>

#include "attention/fast/starts.h"
#include "core/element.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {

double token_number(const ReadyCall& c, const ConstHeads& x, Index batch, Index h,
                    Index token) noexcept {
  if (x.data == nullptr) return 0;
  const Index at = (x.batch == 1 ? 0 : batch) * x.batch_stride +
                   (x.tokens == 1 ? 0 : token) * x.token_stride +
                   Grouping{c.H, x.heads}.of(h) * x.head_stride;
  return float_element(x.data, x.dtype, at);
}

// Of both sides alone, and of rows of keys that are entries of the batch. Lines of few keys would be margins.
bool Starts::are_decays() const noexcept {
  bool some = false;
  for (const Term& term : call_.args.terms) {
    if (!is_added(term)) continue;
    const auto* t = std::get_if<DecayTerm>(&term);
    if (t == nullptr || t->side != Side::both) return false;
    some = true;
  }
  return some && call_.R == call_.B && 2 * call_.Tk >= kLineMargin;
}

void Starts::make_decays(CallArena& arena) {
  by_key_ = true, line_size_ = call_.Tk + 2 * kLineMargin;
  for (const Term& term : call_.args.terms)
    if (is_added(term))
      line_batches_ = std::max(line_batches_, std::get<DecayTerm>(term).key.given.batch);
  make_room(true, arena);
  if (arena.counts()) return;
  for (const Term& term : call_.args.terms) {
    if (!is_added(term)) continue;
    const auto& t = std::get<DecayTerm>(term);
    for (Index n = 0; n < line_batches_ * call_.H; ++n) {
      double* line = wide_lines_.data() + n * line_size_ + kLineMargin;
      for (Index j = 0; j < call_.Tk; ++j)
        line[j] -= kLog2E * t.scale * token_number(call_, t.key.given, n / call_.H, n % call_.H, j);
    }
  }
  finish_lines();
}

double Starts::offset_of(const FastRow& r) const noexcept {
  double sum = 0;
  for (const Term& term : call_.args.terms)
    if (const auto* t = std::get_if<DecayTerm>(&term); t != nullptr && is_added(term))
      sum += kLog2E * t->scale * token_number(call_, t->query.given, r.b, r.h, r.i);
  return sum;
}

}  // namespace posenc::v0::detail
