// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/backward_call.h"

#include <algorithm>
#include <cmath>

#include "attention/call/add_to.h"
#include "core/element.h"
#include "core/parallel.h"

namespace posenc::inline v0::detail {
namespace {

// Pieces that are worth a cut of the keys, tiles that a slice must have, and numbers of all its gradients of q.
constexpr Index kWantedPieces = 8, kSliceTiles = 4, kMostSliceSums = Index{1} << 23;

Index slice_count(const FastCall& c, const FastTileKernels& t) noexcept {
  // Gradients of rows of tables are summed over all keys.
  // Gates and sticks pass on what they get from key to key.
  if (!c.rows.none() || c.passes_back() || !c.regions.none()) return 1;
  const Index pieces = std::max<Index>(1, c.B * c.G * c.head_parts),
              key_tiles = block_count(c.Tk, t.tile_keys);
  const Index sums = std::max<Index>(1, c.B * c.H * c.Tq * c.D);
  const Index most = std::min(key_tiles / kSliceTiles, kMostSliceSums / sums);
  return std::clamp<Index>(kWantedPieces / pieces, 1, std::max<Index>(1, most));
}

}  // namespace

BackwardCut::BackwardCut(const FastCall& c, const FastTileKernels& t) : slices(slice_count(c, t)) {
  const Index key_tiles = std::max<Index>(1, block_count(c.Tk, t.tile_keys));
  slice_keys = block_count(key_tiles, slices) * t.tile_keys;
  slices = std::max<Index>(1, block_count(c.Tk, slice_keys));
  pieces = c.B * c.G * c.head_parts * slices;
}

BackwardCall::BackwardCall(const ReadyCall& call, const LoweredCall& lowered,
                           const ConstHeads& d_out, const AttentionGradients& g, CallArena& arena,
                           const Executor& executor)
    : FastCall(call, lowered, Keep::inputs, arena, executor),
      tiles(fast_tile_kernels(active_isa())),
      slopes(word_slopes_of(*this, tiles, d_out)),
      gradients(g),
      q_width(whole_vectors(channels, tiles.lanes)),
      g_width(whole_vectors(V, tiles.lanes)),
      cut(*this, tiles),
      facts(*this, slopes != nullptr, arena, executor),
      products(*this, g, cut.slices, arena),
      row_gradients(*this, tiles, g, q_width, arena),
      gate_gradients(*this, tiles, g, q_width, arena),
      stick_gradients(*this, tiles, g_width),
      terms(*this, tiles, g, cut.pieces, cut.slices,
            ValueGradients::most_parts(*this, g, cut.slices), arena),
      value_gradients(*this, tiles, g, cut.slices, terms.parts(), arena),
      curve_gradients(*this, g, cut.slices, arena),
      weight_gradients(*this, tiles, g, cut.slices, arena),
      region_gradients(*this, g, arena) {
  value_vectors = value_panels = 0;
  // A gradient that two arrays share is their sum.
  const auto differ = [](const Heads& x, const Heads& y) {
    return x.data == nullptr || x.data != y.data;
  };
  writes = g.overwrite && differ(g.q, g.k) && differ(g.q, g.v) && differ(g.k, g.v);
  const bool wants_along = !g.head_scale.empty() || !g.query_factor.empty();
  if (cut.slices > 1) q_sums = arena.array<float>(cut.slices * B * H * padded_rows() * q_width);
  if (head_parts > 1)
    key_sums = arena.array<float>(cut.pieces * padded_keys() * (q_width + g_width));
  if (!args.prepare.empty() || rotates_regions(args)) {
    prepared_q = arena.array<float>(B * Tq * H * D);
    prepared_k = arena.array<float>(B * Tk * G * D);
  }
  if (wants_along) along = arena.array<double>(B * H * Tq);
  if (wants_along && (adds_to_q() || wide.content_scale() != 0))
    along_terms = arena.array<double>(B * H * Tq);
}

BackwardWork::BackwardWork(const BackwardCall& c, CallArena& arena)
    : FastRowWork(c, c.padded_rows(), c.tiles.tile_keys, arena) {
  const FastTileKernels& t = c.tiles;
  const Index count = c.padded_rows(), slice = c.padded_keys();
  const auto zeros = [&](Index n) {
    const std::span<float> x = arena.array<float>(n);
    if (!arena.counts()) std::fill(x.begin(), x.end(), 0.0f);
    return x;
  };
  const Index floats = c.slopes == nullptr ? 1 : 0;  // of what words take the place of
  q = zeros(count * c.q_width), g = zeros(floats * count * c.g_width);
  less = zeros(count), factors = arena.array<float>(count);
  reference = arena.array<double>(count);
  if (!arena.counts()) std::fill(reference.begin(), reference.end(), 0.0);
  if (c.q_sums.empty()) dq = arena.array<float>(count * c.q_width);
  if (c.key_sums.empty() && c.head_parts == 1)
    dk = arena.array<float>(slice * c.q_width), dv = arena.array<float>(slice * c.g_width);
  keys = arena.array<float>(floats * t.tile_keys * c.channels),
  values = arena.array<float>(floats * t.tile_keys * c.V);
  key_rows = zeros(floats * t.tile_keys * c.q_width);
  const Index tile = (t.tile_rows + t.rows) * t.tile_stride + 2 * (t.tile_stride - t.tile_keys);
  p = zeros(floats * tile), s = zeros(tile), cap_slopes = zeros(c.is_capped() ? tile : 0),
  products = zeros(c.weights.none() ? 0 : tile);
  diagonals = arena.array<float>(t.tile_rows + t.tile_keys + 2 * t.lanes);
  tokens = arena.array<const void*>(t.tile_keys);
  vector = arena.array<float>(c.q_width);
  content = arena.array<double>(c.adds_to_q() ? c.D : 0);
  row_gradients = c.row_gradients.work(count, arena);
  value_gradients = c.value_gradients.work(count, arena);
  curve_gradients = c.curve_gradients.work(arena);
  gate_gradients = c.gate_gradients.work(count, arena);
  stick_gradients = c.stick_gradients.work(count, arena);
  regions = c.region_gradients.work(c, count, slice, arena);
  words = WordSlopeWork(c, count, arena);
}

Index end_of_rows(const BackwardCall& c, Run keys) noexcept {
  const FastTileKernels& k = c.tiles;
  const Index count = keys.end - keys.begin;
  return count == k.tile_keys || !c.reads_behind()
             ? count
             : std::min(k.tile_stride, count + std::max(k.lanes, k.rows));
}

void put_floats(const BackwardCall& c, const Heads& y, Index b, Run tokens, Index h, double factor,
                const float* x, Index width) noexcept {
  if (!c.writes || y.data == nullptr)
    return add_floats(c.kernels, y, b, tokens, h, factor, x, width);
  if (y.dtype == DType::f32 && y.dim_stride == 1)
    return c.kernels.write_rows(
        static_cast<float*>(y.data) +
            (b * y.batch_stride + tokens.begin * y.token_stride + h * y.head_stride),
        y.token_stride, x, width, tokens.end - tokens.begin, y.dim, static_cast<float>(factor));
  clear_tokens(y, b, tokens.begin, tokens.end, h);
  add_floats(c.kernels, y, b, tokens, h, factor, x, width);
}

// d a_h = sum g_i x, d g_i = sum a_h x, x = scale q.dq; the sink has the weight 2^(sink - sum) and no value.
void add_factors(const BackwardCall& c) noexcept {
  const AttentionGradients& g = c.gradients;
  if (c.along.empty() && g.sink.empty()) return;
  const auto add = [](const TensorView& to, Index first, Index second, double x) {
    const Index a = to.shape[0] == 1 ? 0 : first;
    const Index at =
        to.rank == 1 ? second * to.stride[0] : a * to.stride[0] + second * to.stride[1];
    add_element(to.data, to.dtype, at, x);
  };
  for (Index b = 0; b < c.B; ++b)
    for (Index h = 0; h < c.H; ++h) {
      double head = 0, sink = 0;
      for (Index i = 0; i < c.Tq; ++i) {
        const double sum = c.facts.log2_sum(b, h, i);
        const double x = c.along.empty() ? 0 : c.along[static_cast<std::size_t>(c.row_at(b, h, i))];
        head += c.factor(b, i) * x;
        if (!g.query_factor.empty())
          add(g.query_factor, b, i,
              c.head_scale(b, h) * x +
                  (c.along_terms.empty()
                       ? 0
                       : c.along_terms[static_cast<std::size_t>(c.row_at(b, h, i))]));
        if (!g.sink.empty() && sum != HUGE_VAL)
          sink -= std::exp2(kLog2E * read_number(c.args.sink, h) - sum) * c.facts.less(b, h, i);
      }
      if (!g.head_scale.empty()) add(g.head_scale, b, h, head);
      if (!g.sink.empty()) add(g.sink, 0, h, sink);
    }
}

}  // namespace posenc::v0::detail
