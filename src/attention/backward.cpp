// SPDX-License-Identifier: Apache-2.0
// The call backward: each row is computed anew, then its gradients from the output to the factors.
// The work is cut into slices of a number that the shape alone decides; sums of slices are added in
// their order.
#include <algorithm>

#include "attention/forward_rows.h"
#include "core/element.h"
#include "core/shape.h"
#include "posenc/attention/attend.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

// d_out of a row, and dP' = D.v, dv += P' D, and the same of value rows. Returns the gradient of
// the remainder that goes to the own value.
double pull_values(const CallView& c, const ConstHeads& d_out, HeadRow& r, RowWork& w,
                   Pull& pull) noexcept {
  const Index at = r.b * d_out.batch_stride + r.i * d_out.token_stride + r.h * d_out.head_stride;
  for (Index d = 0; d < c.V; ++d)
    r.d_out[d] = float_element(d_out.data, d_out.dtype, at + d * d_out.dim_stride);
  const Runs runs = value_runs(c, w, r);
  const Index slab = c.key_slab(r.place.row, r.h);
  const double* tiles = c.v_tiles.data() + slab * tiles_size(c.Tk, c.V);
  double* d_v = pull.sums.v.data() + slab * c.Tk * c.V;
  each_dot(c.lanes, r.d_out, tiles, c.V, runs, [&](Index j, double x) { r.d_mixed[j] = x; });
  c.lanes.add_outer(d_v, r.mixed, r.d_out, c.V, runs);
  for (std::size_t n = 0; n < c.terms.size(); ++n)
    if (c.terms[n].term->kind == TermKind::value_rows)
      pull_value_rows(c, c.terms[n], r, w, pull.terms[n]);
  if (c.args.normalisation != Normalisation::stick_breaking_own) return 0;
  const Index own = c.own_key(r.place);
  if (own < 0) return 0;
  add_scaled(d_v + own * c.V, r.remainder, r.d_out, c.V);
  return dot(r.d_out, c.v.data() + (slab * c.Tk + own) * c.V, c.V);
}

// y_h = sum_g mix[h, g] x_g: d x_g = sum_h mix[h, g] d y_h, d mix[h, g] += d y_h . x_g. x is 0 where
// its head does not see, and what comes to it there is not read.
void pull_mix(const CallView& c, const std::vector<double>& mix, RowWork& w, double* HeadRow::*x,
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

void pull_bias(const CallView& c, const HeadRow& r, const TensorView& to) noexcept {
  if (to.empty()) return;
  Index at = 0, step = 0;
  const auto offset = [&](std::size_t n, Index x) {
    return to.shape[n] == 1 ? 0 : x * to.stride[n];
  };
  if (to.rank == 2)
    at = offset(0, r.i), step = offset(1, 1);
  else
    at = offset(0, r.b) + offset(1, r.h / (c.H / to.shape[1])) + offset(2, r.i),
    step = offset(3, 1);
  each_key(r.runs, [&](Index j) {
    put_element(to.data, to.dtype, at + j * step,
                float_element(to.data, to.dtype, at + j * step) + r.d_scores[j]);
  });
}

// d content and d terms of what the cap and their sum got: cap' = 1 - tanh^2.
void pull_plain(const CallView& c, HeadRow& r) noexcept {
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
  const Index k_at = ((r.place.row * v.groups + r.h / (c.H / v.groups)) * c.Tk + j) * c.D;
  const double *q = v.q.data() + q_at, *k = v.k.data() + k_at;
  add_scaled(pull.sums.region_q[n].data() + q_at, d * r.factor, k, c.D);
  if (pull.region_k[n] != nullptr) add_scaled(pull.region_k[n] + k_at, d * r.factor, q, c.D);
  if (pull.query_factor != nullptr) {
    const Index rows = c.args.query_factor.shape[0];
    pull.query_factor[(rows == 1 ? 0 : r.b) * c.Tq + r.i] += d * dot(q, k, c.D);
  }
}

// content = cap(a scale g q.k): d a += d scale g q.k, d (g q) += d a scale k, d k += d a scale g q.
void pull_content(const CallView& c, HeadRow& r, Pull& pull) noexcept {
  const bool cap_here = c.args.softcap != 0 && !c.args.softcap_after_terms;
  double d_head = 0;
  each_key(r.runs, [&](Index j) {
    if (cap_here) r.d_content[j] *= soft_cap_slope(c.args, r.scale * r.raw[j]);
    d_head += r.d_content[j] * r.raw[j];
    r.d_content[j] *= r.scale;
  });
  if (pull.head_scale != nullptr) {
    const Index rows = c.args.head_scale.shape[0];
    pull.head_scale[(rows == 1 ? 0 : r.b) * c.H + r.h] += c.args.scale * d_head;
  }
  const Index slab = c.key_slab(r.place.row, r.h) * c.Tk * c.D;
  const Runs runs = c.regions.empty() ? Runs(r.runs) : Runs(r.content_runs);
  c.lanes.add_weighted(r.d_query, r.d_content, c.k.data() + slab, c.D, runs);
  c.lanes.add_outer(pull.sums.k.data() + slab, r.d_content, r.query, c.D, runs);
  if (c.regions.empty()) return;
  each_key(r.runs, [&](Index j) {
    if (r.region[static_cast<std::size_t>(j)] >= 0) pull_region(c, r, j, r.d_content[j], pull);
  });
}

// g q: d g += d . q, d q = g d.
void pull_query(const CallView& c, const HeadRow& r, Pull& pull) noexcept {
  const Index at = ((r.b * c.H + r.h) * c.Tq + r.i) * c.D;
  if (pull.query_factor != nullptr) {
    const Index rows = c.args.query_factor.shape[0];
    pull.query_factor[(rows == 1 ? 0 : r.b) * c.Tq + r.i] += dot(r.d_query, c.q.data() + at, c.D);
  }
  for (Index d = 0; d < c.D; ++d)
    pull.sums.q[static_cast<std::size_t>(at + d)] = r.factor * r.d_query[d];
}

void pull_row(const CallView& c, Index b, Index h, Index i, const ConstAttentionResult& d,
              RowWork& w, Pull& pull) noexcept {
  fill_row(c, b, h, i, w);
  each_head(w, [&](HeadRow& r) {
    std::fill(r.d_query, r.d_query + c.D, 0.0);
    r.d_remainder = pull_values(c, d.out, r, w, pull);
  });
  if (!c.mix_after.empty())
    pull_mix(c, c.mix_after, w, &HeadRow::p, &HeadRow::d_mixed, &HeadRow::d_p, pull.mix_after);
  each_head(w, [&](HeadRow& r) {
    const double d_lse = d.log_sum_exp.empty() ? 0 : number(d.log_sum_exp, r.b, r.h, r.i);
    pull_weights(c, r, d_lse, r.d_remainder, pull.sink);
    pull_bias(c, r, pull.bias);
  });
  if (!c.mix_before.empty())
    pull_mix(c, c.mix_before, w, &HeadRow::plain, &HeadRow::d_scores, &HeadRow::d_plain,
             pull.mix_before);
  if (!c.terms.empty() && c.terms.back().term->kind == TermKind::score_mlp)
    pull_score_mlp(c, c.terms.back(), w, pull.terms.back());
  each_head(w, [&](HeadRow& r) {
    pull_plain(c, r);
    for (std::size_t n = 0; n < c.terms.size(); ++n)
      pull_term(c, c.terms[n], r, w, pull.terms[n], pull);
    pull_content(c, r, pull);
    pull_query(c, r, pull);
  });
}

// Rows that no other part of the call writes beside: by batch entry and key head, less where heads
// are mixed or the gradient of a dense bias is summed over them.
struct Parts {
  Parts(const CallView& c, const AttentionGradients& g) {
    const TensorView& bias = g.bias;
    const bool shared_batch = !bias.empty() && (bias.rank == 2 || bias.shape[0] == 1);
    const bool shared_heads = !bias.empty() && (bias.rank == 2 || bias.shape[1] % c.G != 0);
    batches = shared_batch ? 1 : c.B;
    groups = c.all_heads || shared_heads ? 1 : c.G;
  }
  Index batches, groups;
  Index count() const noexcept { return batches * groups; }
};

void pull_part(const CallView& c, const Parts& parts, Index part, const ConstAttentionResult& d,
               RowWork& w, Pull& pull) noexcept {
  const Index b0 = part / parts.groups, g = part % parts.groups;
  const Index heads = c.H / parts.groups, step = c.all_heads ? c.H : 1;
  const Index each = c.B / std::max<Index>(1, parts.batches);
  for (Index b = b0 * each; b < (b0 + 1) * each; ++b)
    for (Index h = g * heads; h < (g + 1) * heads; h += step)
      for (Index i = 0; i < c.Tq; ++i) pull_row(c, b, h, i, d, w, pull);
}

void check_read(const AttentionArgs& a, const ConstAttentionResult& r, const std::string& what) {
  const ConstHeads& o = r.out;
  if (!is_float(o.dtype))
    refuse(kAttentionName, what + " must be of a float type", dtype_name(o.dtype));
  const bool elements = a.q.batch * a.q.tokens * a.v.dim > 0;
  if (o.batch != a.q.batch || o.tokens != a.q.tokens || o.heads != a.q.heads || o.dim != a.v.dim ||
      (elements && o.data == nullptr))
    refuse_shape(kAttentionName, what + " must have the shape of the output", shape_text(o));
  const ConstTensorView& l = r.log_sum_exp;
  if (l.empty()) return;
  if (l.dtype != DType::f64 && l.dtype != DType::f32)
    refuse(kAttentionName, what + " log_sum_exp must be f64 or f32", dtype_name(l.dtype));
  if (l.rank != 3 || l.shape[0] != a.q.batch || l.shape[1] != a.q.heads || l.shape[2] != a.q.tokens)
    refuse_shape(kAttentionName, what + " log_sum_exp must be [batch, heads, queries]", l);
}

}  // namespace
}  // namespace detail

void attend_backward(const AttentionArgs& a, const ConstAttentionResult& result,
                     const ConstAttentionResult& d_result, const AttentionGradients& g,
                     const Executor& executor) {
  using namespace detail;
  check_attention(a, g);
  check_attention_indices(a);
  check_read(a, result, "the result");
  check_read(a, d_result, "the gradient of the result");
  const CallView c(a, true, executor);
  const Parts parts(c, g);
  const Index slices = std::min<Index>(parts.count(), 16);
  if (slices == 0) return;
  GradientSums sums(c, g, slices);
  std::vector<Pull> pulls;
  for (Index n = 0; n < slices; ++n) pulls.emplace_back(sums, g, n);
  std::vector<RowWork> works = row_works(c, true, slices);
  const auto slice = [&](Index n, Index begin, Index end) noexcept {
    const auto at = static_cast<std::size_t>(n);
    for (Index part = begin; part < end; ++part)
      pull_part(c, parts, part, d_result, works[at], pulls[at]);
  };
  if (most_tasks(c) < 2)
    parallel_slices(inline_executor(), parts.count(), slices, slice);
  else
    parallel_slices(executor, parts.count(), slices, slice);
  sums.add_all(c, g, executor);
}

}  // namespace posenc::v0
