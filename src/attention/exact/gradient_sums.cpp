// SPDX-License-Identifier: Apache-2.0
#include "attention/exact/gradient_sums.h"

#include <algorithm>

#include "core/element.h"

namespace posenc::inline v0::detail {
namespace {

void want_term(TermSums& s, const TermView& v, const TermGradient& g) {
  const auto size = [](const auto& x) { return static_cast<Index>(x.size()); };
  const bool band = std::holds_alternative<ProductTerm>(*v.term) && v.adds_band;
  s.table.want(!g.table.empty() && !band, size(v.table.x));
  s.band.want(!g.table.empty() && band, band ? size(v.band->values) : 0);
  s.query.want(g.query.data != nullptr, size(v.query.x));
  s.key.want(g.key.data != nullptr, size(v.key.x));
  s.in.want(!g.mlp.in.empty(), size(v.mlp.in));
  s.in_bias.want(!g.mlp.in_bias.empty(), size(v.mlp.in_bias));
  s.out.want(!g.mlp.out.empty(), size(v.mlp.out));
  s.out_bias.want(!g.mlp.out_bias.empty(), size(v.mlp.out_bias));
}

// d t_r = scale times the sums of the diagonals that read row r.
std::span<const double> add_band(const TermView& v, std::span<const double> band,
                                 std::span<double> rows) noexcept {
  std::fill(rows.begin(), rows.end(), 0.0);
  for (std::size_t n = 0; n < band.size(); ++n) {
    const auto size = static_cast<std::size_t>(v.band->size());
    const Index row = v.band->rows[n % size], slab = static_cast<Index>(n / size);
    if (row >= 0) rows[static_cast<std::size_t>(slab * v.table.rows + row)] += v.scale * band[n];
  }
  return rows;
}

void add_term_sums(TermSums& s, const TermView& v, const TermGradient& g) {
  add_to(g.table,
         s.band.size() > 0 ? add_band(v, s.band.total(), s.rows_of_band) : s.table.total());
  add_to(g.query, s.query.total());
  add_to(g.key, s.key.total());
  add_to(g.mlp.in, s.in.total());
  add_to(g.mlp.in_bias, s.in_bias.total());
  add_to(g.mlp.out, s.out.total());
  add_to(g.mlp.out_bias, s.out_bias.total());
}

// Arrays of `size` one behind the other: all added to the first, in their order.
std::span<double> add_up(std::span<double> x, Index count) noexcept {
  const auto size = static_cast<std::size_t>(count);
  for (std::size_t from = size; from < x.size(); from += size)
    for (std::size_t n = 0; n < size; ++n) x[n] += x[from + n];
  return x.first(std::min(size, x.size()));
}

std::span<double> zeros(Index n, CallArena& arena) {
  const std::span<double> x = arena.array<double>(n);
  if (!arena.counts()) std::fill(x.begin(), x.end(), 0.0);
  return x;
}

// Of the largest array of a stage.
Index largest_array(const AttentionGradients& g) noexcept {
  Index most = 0;
  for (const StageGradient& s : g.prepare)
    for (const TensorView* v : {&s.q, &s.k})
      if (!v->empty()) most = std::max(most, v->count());
  return most;
}

}  // namespace

void SharedSum::start(Index slices, CallArena& arena) {
  x_ = zeros(size_ * slices, arena);
}

std::span<double> SharedSum::total() noexcept {
  return add_up(x_, size_);
}

GradientSums::GradientSums(const CallView& c, const AttentionGradients& g, CallArena& arena)
    : region_q(arena.objects<std::span<double>>(static_cast<Index>(c.regions.size()))),
      region_k(arena.objects<SharedSum>(static_cast<Index>(c.regions.size()))),
      terms(arena.objects<TermSums>(static_cast<Index>(c.terms.size()))),
      rotated_(arena.objects<RegionPull>(static_cast<Index>(c.regions.size()))),
      k_size_(c.R * c.G * c.Tk * c.D),
      v_size_(c.R * c.G * c.Tk * c.V) {
  if (!c.args.prepare.empty() || rotates_regions(c.args))
    q = zeros(static_cast<Index>(c.q.size()), arena);
  for (std::size_t n = 0; n < c.regions.size(); ++n) {
    const bool rotated = c.args.regions[n].rotary != nullptr;
    // Of rotated ones what comes back to k goes to the arrays of stages too.
    const bool wanted_k = rotated || (!g.regions.empty() && g.regions[n].k.data != nullptr);
    region_q[n] = zeros(static_cast<Index>(c.regions[n].q.size()), arena);
    region_k[n].want(wanted_k, static_cast<Index>(c.regions[n].k.size()));
  }
  for (std::size_t n = 0; !g.terms.empty() && n < c.terms.size(); ++n)
    want_term(terms[n], c.terms[n], g.terms[n]);
  const auto want = [&](SharedSum& s, const TensorView& view) {
    s.want(!view.empty(), view.empty() ? 0 : view.count());
  };
  want(head_scale, g.head_scale);
  want(query_factor, g.query_factor);
  want(sink, g.sink);
  want(mix_before, g.mix_before);
  want(mix_after, g.mix_after);
  array_sums_ = arena.array<double>(largest_array(g));
}

template <class F>
void GradientSums::each_shared(const F& fn) {
  for (SharedSum& s : region_k) fn(s);
  for (TermSums& t : terms)
    for (SharedSum* s :
         {&t.table, &t.query, &t.key, &t.band, &t.in, &t.in_bias, &t.out, &t.out_bias})
      fn(*s);
  for (SharedSum* s : {&head_scale, &query_factor, &sink, &mix_before, &mix_after}) fn(*s);
}

Index GradientSums::shared() noexcept {
  Index sum = 0;
  each_shared([&](const SharedSum& s) { sum += s.size(); });
  return sum;
}

void GradientSums::start(const CallView& c, Index slices, Index cuts, CallArena& arena) {
  each_shared([&](SharedSum& s) { s.start(slices, arena); });
  for (std::size_t n = 0; n < terms.size(); ++n)
    if (terms[n].band.size() > 0)
      terms[n].rows_of_band = arena.array<double>(static_cast<Index>(c.terms[n].table.x.size()));
  k = zeros(k_size_ * cuts, arena);
  v = zeros(v_size_ * cuts, arena);
}

void GradientSums::add_all(const CallView& c, const AttentionGradients& g,
                           const Executor& executor) {
  for (std::size_t n = 0; n < c.regions.size(); ++n) {
    if (c.args.regions[n].rotary != nullptr) {
      rotated_[n] = {region_q[n], region_k[n].total()};
    } else if (!g.regions.empty()) {
      add_to(g.regions[n].q, region_q[n]);
      add_to(g.regions[n].k, region_k[n].total());
    }
  }
  for (std::size_t n = 0; !g.terms.empty() && n < terms.size(); ++n)
    add_term_sums(terms[n], c.terms[n], g.terms[n]);
  add_to(g.head_scale, head_scale.total());
  add_to(g.query_factor, query_factor.total());
  add_to(g.sink, sink.total());
  add_to(g.mix_before, mix_before.total());
  add_to(g.mix_after, mix_after.total());
  pull_stages(c, {q, add_up(k, k_size_), add_up(v, v_size_), array_sums_, rotated_}, g, executor);
}

Pull::Pull(GradientSums& s, const AttentionGradients& g, Index slice, CallArena& arena)
    : sums(s),
      terms(arena.objects<TermPull>(static_cast<Index>(s.terms.size()))),
      region_k(arena.objects<double*>(static_cast<Index>(s.region_k.size()))),
      head_scale(s.head_scale.slice(slice)),
      query_factor(s.query_factor.slice(slice)),
      sink(s.sink.slice(slice)),
      mix_before(s.mix_before.slice(slice)),
      mix_after(s.mix_after.slice(slice)),
      bias(g.bias) {
  if (s.q.empty()) q = g.q;
  for (std::size_t n = 0; n < terms.size(); ++n) terms[n] = s.terms[n].slice(slice);
  for (std::size_t n = 0; n < region_k.size(); ++n) region_k[n] = s.region_k[n].slice(slice);
}

}  // namespace posenc::v0::detail
