// SPDX-License-Identifier: Apache-2.0
// Arrays of a call, of any strides and float type, as dense doubles.
#include <algorithm>
#include <optional>

#include "attention/exact/gradient_sums.h"
#include "core/element.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

std::span<const double> dense_numbers(const ConstTensorView& v, CallArena& arena) {
  if (v.empty()) return {};
  std::array<Index, 4> n{1, 1, 1, 1};
  for (std::size_t a = 0; a < static_cast<std::size_t>(v.rank); ++a) n[a] = v.shape[a];
  const std::span<double> x = arena.array<double>(n[0] * n[1] * n[2] * n[3]);
  if (arena.counts()) return x;
  double* to = x.data();
  for (Index a = 0; a < n[0]; ++a)
    for (Index b = 0; b < n[1]; ++b)
      for (Index c = 0; c < n[2]; ++c)
        for (Index d = 0; d < n[3]; ++d) *to++ = read_number(v, a, b, c, d);
  return x;
}

DenseTable dense_table(const ConstTensorView& v, CallArena& arena) {
  if (v.empty()) return {};
  return {{v.shape[0], v.shape[1]}, dense_numbers(v, arena), v.shape[2], v.shape[3]};
}

DenseFactor dense_factor(const Factor& factor, bool tiles, CallArena& arena) {
  const ConstHeads& h = factor.given;
  DenseFactor f;
  f.content = factor.content;
  if (h.data == nullptr) return f;
  f.x = load_by_heads(h, arena, inline_executor());
  f.batch = h.batch, f.groups = h.heads;
  f.tokens = h.tokens, f.channels = h.dim;
  if (!tiles || h.tokens == 1) return f;
  const VectorSource source(h);
  const Index size = tiles_size(h.tokens, h.dim), slabs = h.batch * h.heads;
  const std::span<double> to = arena.array<double>(size * slabs);
  f.tiles = to;
  for (Index s = 0; s < slabs && !arena.counts(); ++s)
    source.load_tiles(s / h.heads, s % h.heads, {0, h.tokens}, to.data() + s * size);
  return f;
}

DenseMlp dense_mlp(const Mlp& m, CallArena& arena) {
  if (m.in.empty()) return {};
  DenseMlp d{dense_numbers(m.in, arena), dense_numbers(m.in_bias, arena),
             dense_numbers(m.out, arena), dense_numbers(m.out_bias, arena)};
  d.units = m.in.shape[0];
  d.channels = m.in.shape[1];
  d.kernel = m.in.shape[2];
  d.out_groups = m.out.shape[0];
  d.bias_groups = m.out_bias.shape[0];
  d.slope = m.slope;
  return d;
}

// The band of the plan where it fits the call. Backward, sums along its diagonals are as long as it is.
void find_band(const CallView& c, std::size_t term, bool backward, TermView& view,
               CallArena& arena) {
  const std::optional<BandSource> source = band_source(*view.term);
  if (!source) return;
  view.band_axis = source->axis;
  const std::optional<WholeDistances> d = consecutive_distances(c, view.band_axis);
  if (!d) return;
  const Band* lowered = c.lowered.band(term);
  const bool fits = lowered != nullptr && lowered->is_of(*view.term, *source) &&
                    lowered->low <= d->low && lowered->high >= d->high &&
                    (!backward || lowered->size() / 2 <= d->high - d->low + 1);
  view.band =
      fits ? lowered
           : arena
                 .made<Band>(
                     1, [&](Index) { return Band(*view.term, *source, d->low, d->high, arena); })
                 .data();
  view.adds_band = !view.band->values.empty() && !view.query.content && !view.query.given() &&
                   !view.key.content && !view.key.given();
}

}  // namespace

TermView view_of(const CallView& c, std::size_t number, bool backward, CallArena& arena) {
  const Term& term = c.args.terms[number];
  const TermArrays t = term_arrays(term);
  TermView v;
  v.term = &term;
  v.scale = std::visit([](const auto& kind) { return kind.scale; }, term);
  v.table = dense_table(t.table, arena);
  v.query = dense_factor(t.query, false, arena);
  v.key = dense_factor(t.key, t.query.present(), arena);
  v.mlp = dense_mlp(t.mlp, arena);
  find_band(c, number, backward, v, arena);
  return v;
}

}  // namespace posenc::v0::detail
