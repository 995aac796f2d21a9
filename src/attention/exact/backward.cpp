// SPDX-License-Identifier: Apache-2.0
// The call backward: each row is computed anew, then its gradients from the output to the factors.
// The work is cut into shards of rows and slices of shards, by the shape alone (shards.h); sums of
// slices are added in their order.
#include <algorithm>
#include <cmath>

#include "attention/call/add_to.h"
#include "attention/call/check_overlap.h"
#include "attention/call/check_parts.h"
#include "attention/exact/backward_rows.h"
#include "attention/exact/engine.h"
#include "attention/exact/forward_rows.h"
#include "attention/exact/row_blocks.h"
#include "attention/exact/shards.h"
#include "core/element.h"
#include "core/shape.h"
#include "posenc/attention/attend.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

// d_out of the rows, and dP' = D.v, dv += P' D.
void pull_values(const CallView& c, const ConstHeads& d_out, RowWork& w, Pull& pull) noexcept {
  each_head(w, [&](HeadRow& r) { read_vector(d_out, r.b, r.i, r.h, r.d_out); });
  const auto runs_of = [&](const HeadRow& r) { return value_runs(c, w, r); };
  each_block(c, w, [&](RowBlock rows, Index slab) {
    block_dots(rows, &HeadRow::d_mixed, &HeadRow::d_out, dots_of_tiles(c, c.v_tiles, slab, c.V),
               runs_of);
    block_add_outer(c.lanes, rows, pull.v + slab * c.Tk * c.V, &HeadRow::mixed, &HeadRow::d_out,
                    c.V, runs_of);
  });
}

// The same of what comes to the output beside the values. Returns the gradient of the remainder
// that goes to the own value.
double pull_beside_values(const CallView& c, HeadRow& r, RowWork& w, Pull& pull) noexcept {
  for (std::size_t n = 0; n < c.terms.size(); ++n)
    if (std::holds_alternative<ValueRowsTerm>(*c.terms[n].term))
      pull_value_rows(c, c.terms[n], r, w, pull.terms[n]);
  if (c.args.normalisation != Normalisation::stick_breaking_own) return 0;
  const Index own = c.own_key(r.place), slab = c.key_slab(r.place.row, r.h);
  if (own < 0) return 0;
  add_scaled(pull.v + (slab * c.Tk + own) * c.V, r.remainder, r.d_out, c.V);
  return dot(r.d_out, c.v.data() + (slab * c.Tk + own) * c.V, c.V);
}

// y_h = sum_g mix[h, g] x_g: d x_g = sum_h mix[h, g] d y_h, d mix[h, g] += d y_h . x_g. x is 0 where
// its head does not see, and what comes to it there is not read.
void pull_mix(const CallView& c, std::span<const double> mix, RowWork& w, double* HeadRow::*x,
              double* HeadRow::*d_y, double* HeadRow::*d_x, double* d_mix) noexcept {
  each_head(w, [&](HeadRow& g) {
    each_key(g.runs, [&](Index j) { (g.*d_x)[j] = 0; });
    for (const HeadRow& h : w.heads) {
      const Index at = h.h * c.H + g.h;
      double sum = 0;
      each_key(g.runs, [&](Index j) {
        const double d = (h.*d_y)[j];
        if (d == 0) return;  // not seen by h: its x may be anything
        (g.*d_x)[j] += mix[static_cast<std::size_t>(at)] * d;
        sum += d * (g.*x)[j];
      });
      if (d_mix != nullptr) d_mix[at] += sum;
    }
  });
}

void pull_bias(const CallView& c, const RowWork& w, const HeadRow& r, const Pull& pull) noexcept {
  if (pull.query_bias != nullptr) {
    const std::ptrdiff_t at = w.bias.row(r.b, r.i) - w.bias.x;
    c.lanes.add(pull.query_bias + at, r.d_scores, r.runs);
  }
  const TensorView& to = pull.bias;
  if (to.empty()) return;
  const PairRow row = pair_row(to, c.H, r.b, r.h, r.i);
  each_key(r.runs, [&](Index j) { add_element(to.data, to.dtype, row.at(j), r.d_scores[j]); });
}

// d content and d terms of what the cap and their sum got: cap' = 1 - tanh^2.
void pull_plain(const CallView& c, HeadRow& r) noexcept {
  if (r.d_terms == r.d_plain) return;  // and d_content: one array
  const bool after = c.args.softcap_after_terms, network = c.all_heads;
  each_key(r.runs, [&](Index j) {
    double d = r.d_plain[j];
    if (after) d *= soft_cap_slope(c.args, r.content[j] + r.terms[j]);
    r.d_content[j] = network ? r.d_content[j] + d : d;
    r.d_terms[j] = network ? r.d_terms[j] + d : d;
  });
}

// A pair of a region: its own q and k.
void pull_region(const CallView& c, const HeadRow& r, Index j, double d, Pull& pull) noexcept {
  const auto n = static_cast<std::size_t>(r.region[static_cast<std::size_t>(j)]);
  const RegionView& v = c.regions[n];
  const Index q_at = ((r.b * c.H + r.h) * c.Tq + r.i) * c.D;
  const Index k_at = ((r.place.row * v.groups + Grouping{c.H, v.groups}.of(r.h)) * c.Tk + j) * c.D;
  const double *q = v.q.data() + q_at, *k = v.k.data() + k_at;
  add_scaled(pull.sums.region_q[n].data() + q_at, d * r.factor, k, c.D);
  if (pull.region_k[n] != nullptr) add_scaled(pull.region_k[n] + k_at, d * r.factor, q, c.D);
  if (pull.query_factor != nullptr) {
    const Index rows = c.args.query_factor.shape[0];
    pull.query_factor[(rows == 1 ? 0 : r.b) * c.Tq + r.i] += d * dot(q, k, c.D);
  }
}

// content = cap(a scale g q.k): d a += d scale g q.k, d (g q) += d a scale k, d k += d a scale g q.
void pull_content_row(const CallView& c, HeadRow& r, Pull& pull) noexcept {
  if (c.args.softcap != 0 && !c.args.softcap_after_terms)
    each_key(r.runs,
             [&](Index j) { r.d_content[j] *= soft_cap_slope(c.args, r.scale * r.raw[j]); });
  if (pull.head_scale != nullptr) {
    const Index rows = c.args.head_scale.shape[0];
    pull.head_scale[(rows == 1 ? 0 : r.b) * c.H + r.h] +=
        *c.args.scale * c.lanes.dot(r.d_content, r.raw, r.runs);
  }
  c.lanes.scale(r.d_content, r.scale, r.d_content, r.runs);
}
}  // namespace

void pull_products(const CallView& c, RowWork& w, Pull& pull) noexcept {
  const auto runs_of = [&](const HeadRow& r) {
    return Runs(c.regions.empty() ? r.runs : r.content_runs);
  };
  each_block(c, w, [&](RowBlock rows, Index slab) {
    const Index at = slab * c.Tk * c.D;
    block_add_weighted(rows, &HeadRow::d_query, &HeadRow::d_content,
                       WeightedRows{c.lanes, c.k.data() + at, c.D}, runs_of);
    block_add_outer(c.lanes, rows, pull.k + at, &HeadRow::d_content, &HeadRow::query, c.D, runs_of);
  });
}

namespace {

void pull_content(const CallView& c, RowWork& w, Pull& pull) noexcept {
  each_head(w, [&](HeadRow& r) { pull_content_row(c, r, pull); });
  pull_products(c, w, pull);
  if (c.regions.empty()) return;
  each_head(w, [&](HeadRow& r) {
    each_key(r.runs, [&](Index j) {
      if (r.region[static_cast<std::size_t>(j)] >= 0) pull_region(c, r, j, r.d_content[j], pull);
    });
  });
}

}  // namespace

// g q: d g += d . q, d q = g d.
void pull_query(const CallView& c, HeadRow& r, Pull& pull) noexcept {
  const Index at = ((r.b * c.H + r.h) * c.Tq + r.i) * c.D;
  if (pull.query_factor != nullptr) {
    const Index rows = c.args.query_factor.shape[0];
    pull.query_factor[(rows == 1 ? 0 : r.b) * c.Tq + r.i] += dot(r.d_query, c.q.data() + at, c.D);
  }
  double* to = pull.sums.q.empty() ? r.d_query : pull.sums.q.data() + at;
  for (Index d = 0; d < c.D; ++d) to[d] = r.factor * r.d_query[d];
  if (pull.q.data != nullptr) add_vector(pull.q, r.b, r.i, r.h, to);
}

namespace {

// The weights of a row that has a part of the keys, among all of them.
void weigh_among_all(const CallView& c, const ConstAttentionResult& whole, HeadRow& r) noexcept {
  const double all = read_number(whole.log_sum_exp, r.b, r.h, r.i);
  if (r.log_sum_exp != -HUGE_VAL) c.lanes.scale(r.p, std::exp(r.log_sum_exp - all), r.p, r.runs);
  r.log_sum_exp = all;
}

double dot_of_whole(const CallView& c, const ConstAttentionResult& whole,
                    const HeadRow& r) noexcept {
  read_vector(whole.out, r.b, r.i, r.h, r.out);
  return dot(r.out, r.d_out, c.V);
}

// Gradients of the scores of the rows from those of the result.
void pull_result(const CallView& c, const GivenGradient& given, RowWork& w, Pull& pull) noexcept {
  const ConstAttentionResult& d = given.result;
  const bool is_part = given.whole.whole;
  if (is_part) each_head(w, [&](HeadRow& r) { weigh_among_all(c, given.whole, r); });
  pull_values(c, d.out, w, pull);
  each_head(w, [&](HeadRow& r) { r.d_remainder = pull_beside_values(c, r, w, pull); });
  if (!c.mix_after.empty())
    pull_mix(c, c.mix_after, w, &HeadRow::p, &HeadRow::d_mixed, &HeadRow::d_p, pull.mix_after);
  each_head(w, [&](HeadRow& r) {
    const double d_lse = d.log_sum_exp.empty() ? 0 : read_number(d.log_sum_exp, r.b, r.h, r.i);
    const double along = is_part ? dot_of_whole(c, given.whole, r) : 0;
    pull_weights(c, r, d_lse, r.d_remainder, pull.sink, is_part ? &along : nullptr);
  });
}

}  // namespace

void pull_rows(const CallView& c, Index first, Index count, const GivenGradient& d, RowWork& w,
               Pull& pull) noexcept {
  fill_rows(c, first, count, w);
  if (d.scores == nullptr)
    pull_result(c, d, w, pull);
  else
    each_head(w, [&](HeadRow& r) {
      each_key(r.runs, [&](Index j) { r.d_scores[j] = read_number(*d.scores, r.b, r.h, r.i, j); });
    });
  each_head(w, [&](HeadRow& r) {
    std::fill(r.d_query, r.d_query + c.D, 0.0);
    pull_bias(c, w, r, pull);
  });
  if (!c.mix_before.empty())
    pull_mix(c, c.mix_before, w, &HeadRow::plain, &HeadRow::d_scores, &HeadRow::d_plain,
             pull.mix_before);
  if (has_score_mlp(c)) pull_score_mlp(c, c.terms.back(), w, pull.terms.back());
  each_head(w, [&](HeadRow& r) {
    pull_plain(c, r);
    for (std::size_t n = 0; n < c.terms.size(); ++n)
      pull_term(c, c.terms[n], r, w, pull.terms[n], pull);
  });
  pull_content(c, w, pull);
  each_head(w, [&](HeadRow& r) { pull_query(c, r, pull); });
}

namespace {

void pull_shard(const CallView& c, Run rows, const GivenGradient& d, RowWork& w, Pull& pull,
                const Executor& executor) noexcept {
  const Index at_once = rows_at_once(c);
  for (Index first = rows.begin; first < rows.end && !is_cancelled(executor); first += at_once)
    pull_rows(c, first, std::min(at_once, rows.end - first), d, w, pull);
}

void check_read_scores(const AttentionArgs& a, const ConstTensorView& d) {
  if (d.device != Device::cpu)
    refuse_field(kAttention, "the gradient of the scores", "must be in the CPU's memory");
  if (d.dtype != DType::f64 && d.dtype != DType::f32)
    refuse_field(kAttention, "the gradient of the scores", "must be f64 or f32",
                 dtype_name(d.dtype));
  const Index want[] = {a.q.batch, a.q.heads, a.q.tokens, CallSizes(a).keys};
  if (d.rank != 4 || !std::equal(want, want + 4, d.shape.begin()))
    refuse_shape(kAttention, "the gradient of the scores", "must be [batch, heads, queries, keys]",
                 d);
  if (d.empty() && d.count() > 0)
    refuse_field(kAttention, "the gradient of the scores", "must not be null");
}

void run_backward(const ReadyCall& call, const LoweredCall& lowered, const GivenGradient& d,
                  const AttentionGradients& g, CallArena& arena, const Executor& executor) {
  const CallView c(call, lowered, true, arena, executor);
  GradientSums sums(c, g, arena);
  const Shards shards(c, g, sums.shared());
  if (!arena.counts()) clear_overwritten(g);
  if (shards.count() == 0) return;
  const Index most = most_tasks(c);
  sums.start(c, shards.slices, shards.cuts, arena);
  const std::span<Pull> pulls =
      arena.made<Pull>(shards.slices, [&](Index n) { return Pull(sums, g, n, arena); });
  const std::span<RowWork> works =
      row_works(c, RowsFor::gradients, task_count(executor, shards.slices, most), arena);
  if (arena.counts()) return;
  each_piece(executor, shards.slices, most, [&](Index slice, Index task) noexcept {
    Pull& pull = pulls[static_cast<std::size_t>(slice)];
    for (Index shard = shards.first_of(slice); shard < shards.first_of(slice + 1); ++shard) {
      pull.use_cut(shard % shards.cuts);
      for (Index n = 0; n < shards.ranges; ++n)
        pull_shard(c, shards.rows(shard, n), d, works[static_cast<std::size_t>(task)], pull,
                   executor);
    }
  });
  sums.add_all(c, g, executor);
}

}  // namespace

// Rows are computed anew, so that the result is read only where it is that of more keys.
void exact_backward(const ReadyCall& call, const LoweredCall& lowered,
                    const ConstAttentionResult& result, const ConstAttentionResult& d_result,
                    const AttentionGradients& g, CallArena& arena, const Executor& executor) {
  run_backward(call, lowered, {.result = d_result, .whole = result}, g, arena, executor);
}

void exact_scores_backward(const AttentionArgs& a, const LoweredCall& lowered,
                           const ConstTensorView& d_scores, const AttentionGradients& g,
                           const Executor& executor) {
  check_attention(a, g);
  check_attention_indices(a);
  check_read_scores(a, d_scores);
  check_overlap(d_scores, g);
  CallArena arena;
  run_backward(ReadyCall(a, arena), lowered, {.scores = &d_scores}, g, arena, executor);
}

}  // namespace detail
}  // namespace posenc::v0
