// SPDX-License-Identifier: Apache-2.0
// Content, terms, cap, network, mix and bias of one row.
#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/row.h"
#include "core/element.h"

namespace posenc::inline v0::detail {
namespace {

// Keys of a row without those that a region holds.
void split_regions(const CallView& c, HeadRow& r) noexcept {
  r.content_runs.clear();
  for (const Run& run : r.runs)
    for (Index j = run.begin; j < run.end; ++j) {
      const std::int32_t n = c.region_of(r.b, r.i, r.place.row, j);
      r.region[static_cast<std::size_t>(j)] = n;
      if (n >= 0) continue;
      if (!r.content_runs.empty() && r.content_runs.back().end == j)
        ++r.content_runs.back().end;
      else
        r.content_runs.push_back({j, j + 1});
    }
}

void order_keys(const CallView& c, HeadRow& r, std::vector<std::uint8_t>& flags) noexcept {
  r.ordered.clear();
  if (c.keys_by_order.empty()) return each_key(r.runs, [&](Index j) { r.ordered.push_back(j); });
  std::fill(flags.begin(), flags.end(), std::uint8_t{0});
  each_key(r.runs, [&](Index j) { flags[static_cast<std::size_t>(j)] = 1; });
  for (Index s = r.place.begin; s < r.place.end; ++s) {
    const Index j = c.key_in_order(r.place, s);
    if (flags[static_cast<std::size_t>(j)] != 0) r.ordered.push_back(j);
  }
}

void clear_row(const CallView& c, HeadRow& r) noexcept {
  for (double* x : {r.raw, r.content, r.terms, r.plain, r.scores, r.p, r.mixed})
    std::fill(x, x + c.Tk, 0.0);
  for (double* x : {r.d_mixed, r.d_p, r.d_scores, r.d_plain, r.d_content, r.d_terms})
    if (x != nullptr) std::fill(x, x + c.Tk, 0.0);
}

void start_row(const CallView& c, Index b, Index h, Index i, HeadRow& r, RowWork& w) noexcept {
  r.b = b, r.h = h, r.i = i;
  r.place = c.place(b, i);
  r.factor = c.factor(b, i);
  r.scale = c.args.scale * c.head_scale(b, h);
  const double* q = c.query_row(b, h, i);
  for (Index d = 0; d < c.D; ++d) r.query[d] = r.factor * q[d];
  find_visible(c, b, h, i, r.place, r.runs);
  if (!c.regions.empty()) split_regions(c, r);
  if (c.by_order) order_keys(c, r, w.flags);
  if (c.all_heads) clear_row(c, r);
}

void fill_content(const CallView& c, HeadRow& r) noexcept {
  const Index slab = c.key_slab(r.place.row, r.h);
  const double* tiles = c.k_tiles.data() + slab * tiles_size(c.Tk, c.D);
  const bool cap_here = c.args.softcap != 0 && !c.args.softcap_after_terms;
  const auto put = [&](Index j, double x) {
    r.raw[j] = x;
    r.content[j] = cap_here ? soft_cap(c.args, r.scale * x) : r.scale * x;
  };
  if (c.regions.empty()) return each_dot(c.lanes, r.query, tiles, c.D, r.runs, put);
  each_dot(c.lanes, r.query, tiles, c.D, r.content_runs, put);
  each_key(r.runs, [&](Index j) {
    const std::int32_t n = r.region[static_cast<std::size_t>(j)];
    if (n < 0) return;
    const RegionView& v = c.regions[static_cast<std::size_t>(n)];
    const double* q = v.q.data() + ((r.b * c.H + r.h) * c.Tq + r.i) * c.D;
    const Index k_slab = r.place.row * v.groups + r.h / (c.H / v.groups);
    put(j, r.factor * dot(q, v.k.data() + (k_slab * c.Tk + j) * c.D, c.D));
  });
}

void fill_terms(const CallView& c, HeadRow& r, RowWork& w) noexcept {
  each_key(r.runs, [&](Index j) { r.terms[j] = 0; });
  for (const TermView& t : c.terms) add_term(c, t, r, w, r.terms);
}

void fill_plain(const CallView& c, HeadRow& r) noexcept {
  if (c.args.softcap_after_terms)
    each_key(r.runs, [&](Index j) { r.plain[j] = soft_cap(c.args, r.content[j] + r.terms[j]); });
  else if (c.terms.empty())
    each_key(r.runs, [&](Index j) { r.plain[j] = r.content[j]; });
  else
    each_key(r.runs, [&](Index j) { r.plain[j] = r.content[j] + r.terms[j]; });
}

// S'_h = sum_g mix[h, g] S_g.
void mix_scores(const CallView& c, RowWork& w) noexcept {
  if (c.mix_before.empty()) return;
  each_head(w, [&](HeadRow& r) {
    for (const HeadRow& g : w.heads) {
      const double m = c.mix_before[static_cast<std::size_t>(r.h * c.H + g.h)];
      each_key(r.runs, [&](Index j) { r.scores[j] += m * g.plain[j]; });
    }
  });
}

void add_bias(const CallView& c, HeadRow& r) noexcept {
  const ConstTensorView& v = c.args.mask.bias;
  if (v.empty()) return;
  const Index group = v.rank == 2 ? 0 : r.h / (c.H / v.shape[1]);
  each_key(r.runs, [&](Index j) {
    r.scores[j] += v.rank == 2 ? number(v, r.i, j) : number(v, r.b, group, r.i, j);
  });
}

// Keys that any head sees, in storage order.
void join_runs(RowWork& w) noexcept {
  std::fill(w.flags.begin(), w.flags.end(), std::uint8_t{0});
  for (const HeadRow& r : w.heads)
    each_key(r.runs, [&](Index j) { w.flags[static_cast<std::size_t>(j)] = 1; });
  w.read_runs.clear();
  const Index n = static_cast<Index>(w.flags.size());
  for (Index j = 0; j < n; ++j) {
    if (w.flags[static_cast<std::size_t>(j)] == 0) continue;
    const Index first = j;
    while (j + 1 < n && w.flags[static_cast<std::size_t>(j + 1)] != 0) ++j;
    w.read_runs.push_back({first, j + 1});
  }
}

}  // namespace

RowWork::RowWork(const CallView& c, bool backward) {
  const auto n = static_cast<std::size_t>(c.Tk);
  heads.resize(c.all_heads ? static_cast<std::size_t>(c.H) : 1);
  const Index each = 13 * c.Tk + 2 * c.D + c.V;
  memory_.resize(heads.size() * static_cast<std::size_t>(each));
  double* at = memory_.data();
  const auto take = [&at](Index size) { return std::exchange(at, at + size); };
  for (HeadRow& r : heads) {
    r.runs.reserve(n / 2 + 2);
    if (!c.regions.empty()) r.content_runs.reserve(n + 1), r.region.resize(n);
    if (c.by_order) r.ordered.reserve(n);
    r.query = take(c.D), r.raw = take(c.Tk), r.content = take(c.Tk), r.terms = take(c.Tk);
    r.plain = take(c.Tk);
    r.scores = c.mix_before.empty() ? r.plain : take(c.Tk);
    r.p = take(c.Tk);
    r.mixed = c.mix_after.empty() ? r.p : take(c.Tk);
    if (!backward) continue;
    r.d_query = take(c.D), r.d_out = take(c.V), r.d_mixed = take(c.Tk);
    r.d_p = c.mix_after.empty() ? r.d_mixed : take(c.Tk);
    r.d_scores = take(c.Tk);
    r.d_plain = c.mix_before.empty() ? r.d_scores : take(c.Tk);
    r.d_content = take(c.Tk), r.d_terms = take(c.Tk);
  }
  read_runs.reserve(n / 2 + 2);
  rows.resize(n), flags.resize(n);
  levels.resize(2 * n + 1);
  out.resize(static_cast<std::size_t>(c.V));
  for (const TermView& t : c.terms) {
    if (t.term->kind == TermKind::gates)
      for (std::vector<double>* x : {&gate, &gate_slope, &gate_sum}) x->resize(n);
    if (t.term->spread != 0)
      for (std::vector<double>* x : {&gate_level, &d_gate_level})
        x->resize(std::max(x->size(), static_cast<std::size_t>(t.table.rows)));
    if (t.term->kind != TermKind::score_mlp) continue;
    hidden.resize(n * static_cast<std::size_t>(t.mlp.units));
    d_hidden.resize(hidden.size());
  }
}

double soft_cap(const AttentionArgs& a, double x) noexcept {
  return a.softcap == 0 ? x : a.softcap * std::tanh(x / a.softcap);
}
double soft_cap_slope(const AttentionArgs& a, double x) noexcept {
  if (a.softcap == 0) return 1;
  const double t = std::tanh(x / a.softcap);
  return 1 - t * t;
}

void fill_scores(const CallView& c, Index b, Index h, Index i, RowWork& w) noexcept {
  each_head(w, [&](HeadRow& r) {
    start_row(c, b, h++, i, r, w);
    fill_content(c, r);
    if (!c.terms.empty() || c.args.softcap_after_terms) fill_terms(c, r, w);
    fill_plain(c, r);
  });
  if (!c.terms.empty() && c.terms.back().term->kind == TermKind::score_mlp)
    add_score_mlp(c, c.terms.back(), w);
  mix_scores(c, w);
  each_head(w, [&](HeadRow& r) { add_bias(c, r); });
  if (!c.mix_after.empty()) join_runs(w);
}

}  // namespace posenc::v0::detail
