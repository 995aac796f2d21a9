// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/gate_gradients.h"

#include <algorithm>
#include <array>

#include "core/element.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {

std::string_view GateGradients::why_not(const ReadyCall& c) noexcept {
  for (const Term& t : c.args.terms) {
    if (!Gates::has(t)) continue;
    const auto& gates = std::get<GatesTerm>(t);
    if (!gates.query.content || !gates.key.content || !c.args.head_scale.empty() ||
        *c.args.scale == 0)
      return "it computes gradients only of gates that are products of q and k";
  }
  return {};
}

GateGradients::GateGradients(const FastCall& c, const FastTileKernels& tiles,
                             const AttentionGradients& g, Index q_width, CallArena& arena)
    : call_(c), tiles_(tiles), q_width_(q_width) {
  if (none()) return;
  for (std::size_t n = 0; n < std::min(g.terms.size(), c.args.terms.size()); ++n)
    if (Gates::has(c.args.terms[n])) to_ = g.terms[n].table;
  if (!to_.empty()) kept_ = arena.array<float>(c.B * c.H * levels() * c.D);
}

GateGradientsWork GateGradients::work(Index rows, CallArena& arena) const {
  GateGradientsWork w;
  if (none()) return w;
  const auto zeros = [&](Index n) {
    const std::span<float> x = arena.array<float>(n);
    if (!arena.counts()) std::fill(x.begin(), x.end(), 0.0f);
    return x;
  };
  const Index stride = call_.gates.level_stride();
  const Index tile = (tiles_.tile_rows + tiles_.rows) * tiles_.tile_stride;
  w.levels = arena.array<float>(rows * stride), w.d_levels = arena.array<float>(rows * stride);
  w.count = arena.array<double>(rows), w.running = arena.array<double>(rows);
  w.edge = arena.array<Index>(rows), w.keys = arena.array<Index>(rows);
  w.start = zeros(tiles_.rows * tiles_.tile_stride);
  w.slope = zeros(tile), w.rise = zeros(tile), w.at = zeros(tile);
  w.whole = arena.array<Index>(tiles_.tile_rows + tiles_.rows);
  w.vectors = arena.array<float>(tiles_.rows * call_.D);
  w.table = zeros((levels() + tiles_.rows) * q_width_);
  w.d_table = zeros((levels() + tiles_.rows) * q_width_);
  w.d_x = arena.array<float>(rows * q_width_);
  w.sums = zeros(tile);
  return w;
}

void GateGradients::begin_head(Index b, Index h, const FastRowWork& rows,
                               GateGradientsWork& w) const noexcept {
  if (none()) return;
  const Gates& gates = call_.gates;
  std::fill(w.count.begin(), w.count.end(), 0.0),
      std::fill(w.running.begin(), w.running.end(), 0.0);
  std::fill(w.edge.begin(), w.edge.end(), call_.Tk);
  for (std::span<float> x : {w.d_levels, w.d_x, w.d_table}) std::fill(x.begin(), x.end(), 0.0f);
  const float* table = gates.table(slab_of(gates.term().table, b, h, call_.H));
  const Index panel = call_.panel, channels = call_.D;
  for (Index m = 0; m < levels(); ++m)
    for (Index c = 0; c < channels; ++c)
      w.table[static_cast<std::size_t>(m * q_width_ + c)] =
          table[m / panel * panel * channels + c * panel + m % panel];
  for (const RowGroup& g : rows.groups) {
    for (Index n = 0; n < g.rows; ++n)
      take_level_query(call_, g.row[n], w.vectors.data() + n * channels);
    fill_levels(call_, g, w.vectors.data(), w.levels.data() + g.first * gates.level_stride());
  }
}

bool GateGradients::counts(const RowGroup& g, const GateGradientsWork& w) const noexcept {
  const double* count = w.count.data() + g.first;
  const auto last = static_cast<double>(call_.gates.last());
  return std::any_of(count, count + g.count, [&](double x) { return x < last; });
}

FastGateTile GateGradients::tile_of(const GateTile& t, GateGradientsWork& w,
                                    Index* own) const noexcept {
  const Gates& gates = call_.gates;
  FastGateTile of;
  of.gates.ratio = gates.ratio(), of.gates.last = gates.last();
  of.gates.level_stride = gates.level_stride();
  of.gates.levels = w.levels.data() + t.group->first * gates.level_stride();
  if (own != nullptr && find_own_keys(call_, *t.group, t.keys, own)) of.gates.own = own;
  const Index at = t.first * tiles_.tile_stride;
  of.count = w.count.data() + t.group->first, of.whole = w.whole.data() + t.first;
  of.start = w.start.data(), of.slope = w.slope.data() + at, of.rise = w.rise.data() + at;
  of.at = w.at.data() + at, of.stride = tiles_.tile_stride;
  return of;
}

void GateGradients::add_counts(const GateTile& t, const FastTileRows& rows,
                               GateGradientsWork& w) const noexcept {
  std::array<Index, kMostStripRows> own;
  call_.gate_kernels.add_counts[t.group->kind](*t.packed, rows, tile_of(t, w, own.data()));
  w.edge[static_cast<std::size_t>(t.number)] = t.keys.begin;
}

bool GateGradients::open(const GateTile& t, const FastTileRows& rows, StripStarts& s,
                         GateGradientsWork& w) const noexcept {
  const Gates& gates = call_.gates;
  const auto number = static_cast<std::size_t>(t.number);
  const RowGroup& g = *t.group;
  if (t.keys.begin < w.edge[number]) {
    w.keys[number] = -1;
    const float* level = w.levels.data() + g.first * gates.level_stride() + gates.last();
    for (Index n = 0; n < g.rows; ++n)
      s.base[n] += static_cast<double>(level[n * gates.level_stride()]);
    return false;
  }
  std::array<Index, kMostStripRows> own;
  w.keys[number] = whole_vectors(s.keys, tiles_.lanes);
  if (s.keys == 0) return false;
  call_.gate_kernels.open[g.kind](*t.packed, rows, tile_of(t, w, own.data()));
  for (Index n = 0; n < g.rows; ++n) s.at[n] = w.start.data() + n * tiles_.tile_stride;
  return true;
}

void GateGradients::pull(const GateTile& t, float* s, GateGradientsWork& w) const noexcept {
  const Gates& gates = call_.gates;
  const Index keys = w.keys[static_cast<std::size_t>(t.number)];
  const FastGateTile of = tile_of(t, w, nullptr);
  for (Index n = 0; n < t.group->count; ++n, s += tiles_.tile_stride) {
    const Index row = t.group->first + n;
    float* d_levels = w.d_levels.data() + row * gates.level_stride();
    double& running = w.running[static_cast<std::size_t>(row)];
    if (keys < 0)
      d_levels[gates.last()] += call_.row_reads.sum(s, t.keys.end - t.keys.begin);
    else
      running = call_.gate_kernels.pull(s, of, n, keys, running, d_levels + of.whole[n]);
  }
}

void GateGradients::end_head(Index b, Index h, const float* q, GateGradientsWork& w) noexcept {
  if (none()) return;
  const Index stride = call_.gates.level_stride();
  for (Index row = 0; row < call_.Tq; row += tiles_.tile_rows)
    for (Index level = 0; level < levels(); level += tiles_.tile_keys) {
      const Index rows = std::min(tiles_.tile_rows, call_.Tq - row);
      const Index count = std::min(tiles_.tile_keys, levels() - level);
      for (Index n = 0; n < rows; ++n)
        std::copy_n(w.d_levels.data() + (row + n) * stride + level, count,
                    w.sums.data() + n * tiles_.tile_stride);
      tiles_.add_rows(w.d_x.data() + row * q_width_, w.sums.data(),
                      w.table.data() + level * q_width_, rows, count, q_width_);
      if (!to_.empty())
        tiles_.add_outer(w.d_table.data() + level * q_width_, w.sums.data(), q + row * q_width_,
                         rows, count, q_width_);
    }
  if (to_.empty()) return;
  float* kept = kept_.data() + (b * call_.H + h) * levels() * call_.D;
  for (Index m = 0; m < levels(); ++m)
    std::copy_n(w.d_table.data() + m * q_width_, call_.D, kept + m * call_.D);
}

void GateGradients::add_content(const GateGradientsWork& w, Index i, double* to) const noexcept {
  if (none()) return;
  const float* d = w.d_x.data() + i * q_width_;
  for (Index c = 0; c < call_.D; ++c) to[c] += call_.gates.term().scale * static_cast<double>(d[c]);
}

void GateGradients::finish() noexcept {
  if (to_.empty()) return;
  // q came times the scale of q.k and log2(e).
  const double factor = call_.gates.term().scale / (*call_.args.scale * kLog2E);
  const Index groups = to_.shape[1], size = levels() * call_.D;
  for (Index slab = 0; slab < to_.shape[0] * groups; ++slab)
    for (Index n = 0; n < size; ++n) {
      double sum = 0;
      for (Index head = 0; head < call_.B * call_.H; ++head)
        if (slab_of(call_.gates.term().table, head / call_.H, head % call_.H, call_.H) == slab)
          sum += static_cast<double>(kept_[static_cast<std::size_t>(head * size + n)]);
      add_element(to_.data, to_.dtype,
                  slab / groups * to_.stride[0] + slab % groups * to_.stride[1] +
                      n / call_.D * to_.stride[2] + n % call_.D * to_.stride[3],
                  factor * sum);
    }
}

}  // namespace posenc::v0::detail
