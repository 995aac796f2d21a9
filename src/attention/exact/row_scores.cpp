// SPDX-License-Identifier: Apache-2.0
// Content, terms, cap, network, mix and bias of one row.
#include <algorithm>
#include <cmath>

#include "attention/exact/row_blocks.h"
#include "core/element.h"
#include "core/memory_limit.h"
#include "core/workspace.h"

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

void order_keys(const CallView& c, HeadRow& r, std::span<std::uint8_t> flags) noexcept {
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
  r.scale = *c.args.scale * c.head_scale(b, h);
  const double* q = c.query_row(b, h, i);
  for (Index d = 0; d < c.D; ++d) r.query[d] = r.factor * q[d];
  find_visible(c, b, h, i, r.place, r.runs);
  if (!c.regions.empty()) split_regions(c, r);
  if (c.by_order) order_keys(c, r, w.flags);
  if (c.all_heads) clear_row(c, r);
}

// Pairs of a region: its own q and k.
void fill_regions(const CallView& c, HeadRow& r) noexcept {
  each_key(r.runs, [&](Index j) {
    const std::int32_t n = r.region[static_cast<std::size_t>(j)];
    if (n < 0) return;
    const RegionView& v = c.regions[static_cast<std::size_t>(n)];
    const double* q = v.q.data() + ((r.b * c.H + r.h) * c.Tq + r.i) * c.D;
    const Index k_slab = r.place.row * v.groups + Grouping{c.H, v.groups}.of(r.h);
    r.raw[j] = r.factor * dot(q, v.k.data() + (k_slab * c.Tk + j) * c.D, c.D);
  });
}

void fill_content(const CallView& c, RowWork& w) noexcept {
  each_block(c, w, [&](RowBlock rows, Index slab) {
    const auto runs_of = [&](const HeadRow& r) {
      return Runs(c.regions.empty() ? r.runs : r.content_runs);
    };
    if (c.streams)
      block_dots(rows, &HeadRow::raw, &HeadRow::query, StreamedDots{c, slab, w.streamed.data()},
                 runs_of);
    else
      block_dots(rows, &HeadRow::raw, &HeadRow::query, dots_of_tiles(c, c.k_tiles, slab, c.D),
                 runs_of);
  });
  const bool cap_here = c.args.softcap != 0 && !c.args.softcap_after_terms;
  each_head(w, [&](HeadRow& r) {
    if (!c.regions.empty()) fill_regions(c, r);
    if (r.content == nullptr) return;
    c.lanes.scale(r.content, r.scale, r.raw, r.runs);
    if (cap_here) each_key(r.runs, [&](Index j) { r.content[j] = soft_cap(c.args, r.content[j]); });
  });
}

void fill_terms(const CallView& c, HeadRow& r, RowWork& w) noexcept {
  for (const Run& run : r.runs) std::fill(r.terms + run.begin, r.terms + run.end, 0.0);
  for (const TermView& t : c.terms) add_term(c, t, r, w, r.terms);
}

void fill_plain(const CallView& c, HeadRow& r) noexcept {
  // Where content is not kept it is made in passing, with the same roundings.
  const double scale = r.content == nullptr ? r.scale : 1;
  const double* content = r.content == nullptr ? r.raw : r.content;
  if (r.terms == nullptr)
    c.lanes.scale(r.plain, scale, content, r.runs);
  else
    c.lanes.scale_add(r.plain, scale, content, r.terms, r.runs);
  if (c.args.softcap_after_terms)
    each_key(r.runs, [&](Index j) { r.plain[j] = soft_cap(c.args, r.plain[j]); });
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

void add_bias(const CallView& c, const RowWork& w, HeadRow& r) noexcept {
  if (w.bias.x != nullptr) c.lanes.add(r.scores, w.bias.row(r.b, r.i), r.runs);
  const ConstTensorView& v = c.args.mask.bias;
  if (v.empty()) return;
  const PairRow row = pair_row(v, c.H, r.b, r.h, r.i);
  each_key(r.runs, [&](Index j) { r.scores[j] += float_element(v.data, v.dtype, row.at(j)); });
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

// Arrays that nobody reads after the next one is made are that one: of softmax without caps and
// mixes a row is one array of scores and weights, one of terms and one of gradients. They are not
// written before a row fills them.
void take_arrays(const ReadyCall& c, RowsFor what, HeadRow& r, Arena& arena) {
  const Index size = whole_tiles(c.Tk);
  const bool lean = what != RowsFor::scores && !c.all_heads && c.args.softcap == 0;
  const bool softmax = c.args.normalisation == Normalisation::softmax, merged = lean && softmax;
  const auto take = [&arena](Index doubles) { return arena.take<double>(doubles); };
  r.query = take(c.D), r.out = take(c.V), r.raw = take(size);
  if (!lean) r.content = take(size);
  if (!lean || !c.args.terms.empty()) r.terms = take(size);
  r.plain = lean && c.args.head_scale.empty() ? r.raw : take(size);
  r.scores = c.args.mix_before.empty() ? r.plain : take(size);
  r.p = merged ? r.scores : take(size);
  r.mixed = c.args.mix_after.empty() ? r.p : take(size);
  if (what != RowsFor::gradients) return;
  r.d_query = take(c.D), r.d_out = take(c.V), r.d_mixed = take(size);
  r.d_p = c.args.mix_after.empty() ? r.d_mixed : take(size);
  r.d_scores = merged ? r.d_p : take(size);
  r.d_plain = c.args.mix_before.empty() ? r.d_scores : take(size);
  r.d_content = lean ? r.d_plain : take(size);
  r.d_terms = lean ? r.d_plain : take(size);
}

// Of all arrays of one row. Rows begin nine cache lines beside whole pages: in the first cache they
// do not push each other out.
std::size_t bytes_of_row(const ReadyCall& c, RowsFor what) {
  HeadRow row;
  Arena one;
  take_arrays(c, what, row, one);
  constexpr std::size_t kPage = 4096, kBeside = 576;
  return (one.bytes() + kPage - 1) / kPage * kPage + kBeside;
}
Index rows_of_work(const CallView& c) {
  return c.all_heads ? c.H : std::min(rows_at_once(c), std::max<Index>(1, row_count(c)));
}

void take_rows(const CallView& c, RowsFor what, std::span<HeadRow> rows, CallArena& arena) {
  const std::size_t each = bytes_of_row(c, what), bytes = rows.size() * each;
  if (!arena.counts()) check_memory("attention", "rows of scores in double", bytes);
  const std::span<double> memory = arena.array<double>(static_cast<Index>(bytes / sizeof(double)));
  for (HeadRow& r : rows) {
    const std::size_t at = static_cast<std::size_t>(&r - rows.data()) * each;
    Arena own;  // without memory where the call's arena counts
    if (!arena.counts()) own = Arena(std::as_writable_bytes(memory).subspan(at, each));
    take_arrays(c, what, r, own);
    r.runs = RunList(arena.array<Run>(most_runs(c)));
    if (!c.regions.empty()) {
      r.content_runs = RunList(arena.array<Run>(c.Tk + 1));
      r.region = arena.array<std::int32_t>(c.Tk);
    }
    if (c.by_order) r.ordered = BoundedList<Index>(arena.array<Index>(c.Tk));
  }
}

void take_gates(const CallView& c, CallArena& arena, RowWork& w) {
  Index rows = 0;
  bool any = false;
  for (const TermView& t : c.terms) {
    const auto* gates = std::get_if<GatesTerm>(t.term);
    any = any || gates != nullptr;
    if (gates != nullptr && gates->spread != 0) rows = std::max(rows, t.table.rows);
  }
  if (!any) return;
  for (std::span<double>* x : {&w.gate, &w.gate_slope, &w.gate_sum}) *x = arena.array<double>(c.Tk);
  for (std::span<double>* x : {&w.gate_level, &w.d_gate_level}) *x = arena.array<double>(rows);
}

}  // namespace

RowWork::RowWork(const CallView& c, RowsFor what, CallArena& arena)
    : heads(arena.objects<HeadRow>(rows_of_work(c))) {
  take_rows(c, what, heads, arena);
  if (!c.mix_after.empty()) read_runs = RunList(arena.array<Run>(c.Tk / 2 + 2));
  if (c.streams)
    streamed =
        arena.array<double>(std::max(2 * streamed_keys(c.D) * c.D, streamed_keys(c.V) * c.V));
  flags = arena.array<std::uint8_t>(c.Tk);
  if (!c.terms.empty())
    rows = arena.array<std::int32_t>(c.Tk), levels = arena.array<double>(2 * c.Tk + 1);
  take_gates(c, arena, *this);
  if (!has_score_mlp(c)) return;
  const Index units = c.terms.back().mlp.units;
  hidden = arena.array<double>(c.Tk * units);
  d_hidden = arena.array<double>(what == RowsFor::gradients ? c.Tk * units : 0);
}

double soft_cap(const AttentionArgs& a, double x) noexcept {
  return a.softcap == 0 ? x : a.softcap * std::tanh(x / a.softcap);
}
double soft_cap_slope(const AttentionArgs& a, double x) noexcept {
  if (a.softcap == 0) return 1;
  const double t = std::tanh(x / a.softcap);
  return 1 - t * t;
}

void fill_scores(const CallView& c, Index first, Index count, RowWork& w) noexcept {
  const Index heads = c.all_heads ? 1 : c.H;
  w.count = c.all_heads ? c.H : count;
  for (Index n = 0; n < w.count; ++n) {
    const Index row = c.all_heads ? first : first + n;
    start_row(c, row / (heads * c.Tq), c.all_heads ? n : row / c.Tq % heads, row % c.Tq,
              w.heads[static_cast<std::size_t>(n)], w);
  }
  fill_content(c, w);
  each_head(w, [&](HeadRow& r) {
    if (r.terms != nullptr) fill_terms(c, r, w);
    fill_plain(c, r);
  });
  if (has_score_mlp(c)) add_score_mlp(c, c.terms.back(), w);
  mix_scores(c, w);
  each_head(w, [&](HeadRow& r) { add_bias(c, w, r); });
  if (!c.mix_after.empty()) join_runs(w);
}

}  // namespace posenc::v0::detail
