// SPDX-License-Identifier: Apache-2.0
// The scores of a call as a person wants to see them: O(pairs) of what is asked for.
#include <cmath>

#include "attention/call/check_overlap.h"
#include "attention/call/check_parts.h"
#include "attention/exact/engine.h"
#include "attention/exact/forward_rows.h"
#include "core/element.h"
#include "core/shape.h"
#include "posenc/attention/attend.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

void check_pairs_view(const CallView& c, const TensorView& v, const std::string& what) {
  if (v.empty()) return;
  if (v.device != Device::cpu) refuse_field(kAttention, what, "must be in the CPU's memory");
  if (v.dtype != DType::f64 && v.dtype != DType::f32)
    refuse_field(kAttention, what, "must be f64 or f32", dtype_name(v.dtype));
  if (v.rank != 4 || v.shape[0] != c.B || v.shape[1] != c.H || v.shape[2] != c.Tq ||
      v.shape[3] != c.Tk)
    refuse_shape(kAttention, what, "must be [batch, heads, queries, keys]", v);
}

// value(j) for visible keys, `hidden` for the others.
template <class F>
void put_row(const CallView& c, const HeadRow& r, const TensorView& v, double hidden,
             const F& value) noexcept {
  if (v.empty()) return;
  const Index at = r.b * v.stride[0] + r.h * v.stride[1] + r.i * v.stride[2];
  for (Index j = 0; j < c.Tk; ++j) put_element(v.data, v.dtype, at + j * v.stride[3], hidden);
  each_key(r.runs, [&](Index j) { put_element(v.data, v.dtype, at + j * v.stride[3], value(j)); });
}

enum class ReadBy : std::uint8_t { both, query, key, neither };

// Which of q and k a term reads.
ReadBy read_by(const Term& term) noexcept {
  const TermArrays t = term_arrays(term);
  const auto reads = [](const Factor& f) { return f.content || f.made_of_content; };
  const bool query =
      reads(t.query) || (std::holds_alternative<GatesTerm>(term) && !t.table.empty());
  if (query) return reads(t.key) ? ReadBy::both : ReadBy::query;
  return reads(t.key) ? ReadBy::key : ReadBy::neither;
}

// The terms of a row that read what `by` says, summed in r.terms, which is used up by then.
void sum_terms(const CallView& c, HeadRow& r, RowWork& w, ReadBy by) noexcept {
  each_key(r.runs, [&](Index j) { r.terms[j] = 0; });
  for (const TermView& t : c.terms)
    if (read_by(*t.term) == by) add_term(c, t, r, w, r.terms);
}

void put_scores(const CallView& c, HeadRow& r, RowWork& w, const AttentionScores& s) noexcept {
  const bool after = c.args.softcap_after_terms;
  put_row(c, r, s.scores, -HUGE_VAL, [&](Index j) { return r.scores[j]; });
  put_row(c, r, s.probabilities, 0, [&](Index j) { return r.p[j]; });
  put_row(c, r, s.capped, 0, [&](Index j) {
    return after ? soft_cap(c.args, r.content[j] + r.terms[j]) : r.content[j];
  });
  if (!s.content.empty()) {
    sum_terms(c, r, w, ReadBy::both);
    put_row(c, r, s.content, 0, [&](Index j) { return r.scale * r.raw[j] + r.terms[j]; });
  }
  const auto put_terms = [&](const TensorView& v, ReadBy by) {
    if (v.empty()) return;
    sum_terms(c, r, w, by);
    put_row(c, r, v, 0, [&](Index j) { return r.terms[j]; });
  };
  put_terms(s.query_position, ReadBy::query);
  put_terms(s.position_key, ReadBy::key);
  put_terms(s.position_position, ReadBy::neither);
}

}  // namespace

void exact_scores(const AttentionArgs& a, const LoweredCall& lowered, const AttentionScores& s,
                  const Executor& executor) {
  check_call(a);
  check_attention_indices(a);
  CallArena arena;
  const CallView c(ReadyCall(a, arena), lowered, false, arena, executor);
  std::vector<Operand> written;
  const auto check = [&](const TensorView& v, const char* name) {
    check_pairs_view(c, v, name);
    if (!v.empty()) written.push_back({name, memory_of(v)});
  };
  check(s.content, "content");
  check(s.scores, "scores");
  check(s.capped, "capped");
  check(s.probabilities, "probabilities");
  check(s.query_position, "query_position");
  check(s.position_key, "position_key");
  check(s.position_position, "position_position");
  check_overlap(a, written);
  each_row_of(
      c, row_tasks(c, RowsFor::scores, arena, executor), executor,
      [&](RowWork& w) noexcept { each_head(w, [&](HeadRow& r) { put_scores(c, r, w, s); }); });
}

}  // namespace detail
}  // namespace posenc::v0
