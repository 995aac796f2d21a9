// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/stick_gradients.h"

#include <algorithm>
#include <cmath>

#include "attention/fast/row_facts.h"

namespace posenc::inline v0::detail {

StickGradients::StickGradients(const FastCall& c, const FastTileKernels& tiles, Index g_width)
    : call_(c), tiles_(tiles), g_width_(g_width) {}

StickGradientsWork StickGradients::work(Index rows, CallArena& arena) const {
  StickGradientsWork w;
  if (none()) return w;
  const auto zeros = [&](Index n) {
    const std::span<float> x = arena.array<float>(n);
    if (!arena.counts()) std::fill(x.begin(), x.end(), 0.0f);
    return x;
  };
  w.left = arena.array<double>(rows), w.running = arena.array<double>(rows);
  w.edge = arena.array<Index>(rows), w.keys = arena.array<Index>(rows);
  w.start = zeros(tiles_.rows * tiles_.tile_stride);
  w.share = zeros((tiles_.tile_rows + tiles_.rows) * tiles_.tile_stride);
  w.own = zeros(g_width_);
  return w;
}

void StickGradients::begin_head(Index b, Index h, const RowFacts& facts,
                                StickGradientsWork& w) const noexcept {
  if (none()) return;
  std::fill(w.left.begin(), w.left.end(), 0.0), std::fill(w.running.begin(), w.running.end(), 0.0);
  std::fill(w.edge.begin(), w.edge.end(), call_.Tk);
  for (Index i = 0; i < call_.Tq; ++i) w.running[static_cast<std::size_t>(i)] = facts.less(b, h, i);
}

bool StickGradients::counts(const RowGroup& g, const StickGradientsWork& w) const noexcept {
  const double* left = w.left.data() + g.first;
  return std::any_of(left, left + g.count,
                     [](double x) { return x >= static_cast<double>(kSmallestExponent); });
}

FastStickTile StickGradients::tile_of(const GateTile& t, StickGradientsWork& w) const noexcept {
  return {w.left.data() + t.group->first, w.start.data(),
          w.share.data() + t.first * tiles_.tile_stride, tiles_.tile_stride};
}

void StickGradients::add_counts(const GateTile& t, const FastTileRows& rows,
                                StickGradientsWork& w) const noexcept {
  call_.stick_kernels.add_left[t.group->kind](*t.packed, rows, tile_of(t, w));
  w.edge[static_cast<std::size_t>(t.number)] = t.keys.begin;
}

void StickGradients::give_rest(const FastRowWork& rows, const float* g, float* dv,
                               StickGradientsWork& w) const noexcept {
  if (call_.args.normalisation != Normalisation::stick_breaking_own) return;
  for (const RowGroup& group : rows.groups)
    for (Index n = 0; n < group.count; ++n) {
      const FastRow& r = group.row[n];
      const Index own = call_.own_key(r.place), row = group.first + n;
      if (own < 0) continue;
      take_vector(call_.kernels, call_.given_v, r.place.row, own, call_.group(r.h), 1, w.own.data(),
                  g_width_);
      const double rest = std::exp2(w.left[static_cast<std::size_t>(row)]);
      const float* d = g + row * g_width_;
      w.running[static_cast<std::size_t>(row)] +=
          rest * static_cast<double>(tiles_.dot(d, w.own.data(), g_width_));
      call_.kernels.add_rows(dv + own * g_width_, 0, d, 0, 1, call_.V, static_cast<float>(rest));
    }
}

bool StickGradients::has_gradients(const RowGroup& g, Index number, Run keys,
                                   const StickGradientsWork& w) const noexcept {
  if (none() || keys.begin >= w.edge[static_cast<std::size_t>(number)]) return true;
  const double* running = w.running.data() + g.first;
  return std::any_of(running, running + g.count, [](double x) { return x != 0; });
}

void StickGradients::open(const GateTile& t, const FastTileRows& rows, StripStarts& s,
                          StickGradientsWork& w) const noexcept {
  const RowGroup& g = *t.group;
  FastTileRows at = rows;
  at.shift = s.shift;
  for (Index n = 0; n < g.rows; ++n) s.shift[n] = static_cast<float>(s.base[n]);
  w.keys[static_cast<std::size_t>(t.number)] = whole_vectors(s.keys, tiles_.lanes);
  double* left = w.left.data() + g.first;
  double before[kMostStripRows];
  std::copy_n(left, g.rows, before);
  const bool broken = t.keys.begin < w.edge[static_cast<std::size_t>(t.number)];
  if (broken) std::fill_n(left, g.rows, -HUGE_VAL);
  call_.stick_kernels.open[g.kind](*t.packed, at, tile_of(t, w));
  if (broken) std::copy_n(before, g.rows, left);
  for (Index n = 0; n < g.rows; ++n)
    s.at[n] = w.start.data() + n * tiles_.tile_stride, s.base[n] = 0;
}

void StickGradients::pull(const GateTile& t, float* s, StickGradientsWork& w) const noexcept {
  const Index keys = w.keys[static_cast<std::size_t>(t.number)];
  for (Index n = 0; n < t.group->count; ++n, s += tiles_.tile_stride) {
    double& running = w.running[static_cast<std::size_t>(t.group->first + n)];
    running = call_.stick_kernels.pull(s, w.share.data() + (t.first + n) * tiles_.tile_stride, keys,
                                       running);
  }
}

}  // namespace posenc::v0::detail
