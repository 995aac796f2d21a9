// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/gate_gradients.h"

#include <algorithm>
#include <array>

#include "core/element.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {

GateGradients::GateGradients(const FastCall& c, const FastTileKernels& tiles,
                             const AttentionGradients& g, Index q_width, CallArena& arena)
    : call_(c), tiles_(tiles), q_width_(q_width) {
  if (none()) return;
  for (std::size_t n = 0; n < std::min(g.terms.size(), c.args.terms.size()); ++n)
    if (Gates::has(c.args.terms[n])) {
      to_ = g.terms[n].table;
      const GatesTerm& t = c.gates.term();
      const Heads &x = g.terms[n].query, &y = g.terms[n].key;
      if (!t.query.content) query_.want(c, x, c.Tq, 1, VectorGradient::is_owned(c, x), arena);
      if (!t.key.content) key_.want(c, y, c.Tk, 1, VectorGradient::is_owned(c, y), arena);
    }
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
  if (has_products()) make_products(rows, w, arena);
  return w;
}

void GateGradients::make_products(Index rows, GateGradientsWork& w, CallArena& arena) const {
  const auto zeros = [&](Index n) {
    const std::span<float> x = arena.array<float>(n);
    if (!arena.counts()) std::fill(x.begin(), x.end(), 0.0f);
    return x;
  };
  w.q = zeros(rows * width()), w.d_q = arena.array<float>(rows * width());
  w.product = zeros((tiles_.tile_rows + tiles_.rows) * tiles_.tile_stride);
  w.level_rows = zeros(rows * q_width_);
  if (!has_keys()) return;
  w.keys_of_tile = zeros(tiles_.tile_keys * call_.gates.channels());
  w.y = zeros(tiles_.tile_keys * width());
  w.d_y = arena.array<float>((call_.Tk + tiles_.rows) * width());
}

void GateGradients::begin_head(Index b, Index h, const FastRowWork& rows,
                               GateGradientsWork& w) const noexcept {
  if (none()) return;
  const Gates& gates = call_.gates;
  std::fill(w.count.begin(), w.count.end(), 0.0),
      std::fill(w.running.begin(), w.running.end(), 0.0);
  std::fill(w.edge.begin(), w.edge.end(), call_.Tk);
  for (std::span<float> x : {w.d_levels, w.d_x, w.d_table, w.d_q, w.d_y})
    std::fill(x.begin(), x.end(), 0.0f);
  const Index channels = call_.D;
  if (gates.has_levels()) copy_table(b, h, w);
  for (const RowGroup& g : rows.groups) {
    for (Index n = 0; n < g.rows; ++n) {
      float* x = w.vectors.data() + n * channels;
      take_level_query(call_, g.row[n], x);
      if (!has_products()) continue;
      std::copy_n(x, channels, w.level_rows.data() + (g.first + n) * q_width_);
      take_gate_query(call_, g.row[n], w.q.data() + (g.first + n) * width());
    }
    fill_levels(call_, g, w.vectors.data(), w.levels.data() + g.first * gates.level_stride());
  }
}

void GateGradients::copy_table(Index b, Index h, GateGradientsWork& w) const noexcept {
  const float* table = call_.gates.table(slab_of(call_.gates.term().table, b, h, call_.H));
  const Index panel = call_.panel;
  for (Index m = 0; m < levels(); ++m)
    for (Index c = 0; c < call_.D; ++c)
      w.table[static_cast<std::size_t>(m * q_width_ + c)] =
          table[m / panel * panel * call_.D + c * panel + m % panel];
}

bool GateGradients::counts(const RowGroup& g, const GateGradientsWork& w) const noexcept {
  if (!call_.gates.has_levels()) return true;
  const double* count = w.count.data() + g.first;
  const auto last = static_cast<double>(call_.gates.last());
  return std::any_of(count, count + g.count, [&](double x) { return x < last; });
}

FastGateTile GateGradients::tile_of(const GateTile& t, GateGradientsWork& w,
                                    Index* own) const noexcept {
  const Gates& gates = call_.gates;
  FastGateTile of;
  describe_gates(gates, of.gates);
  if (gates.has_levels()) of.gates.levels = w.levels.data() + t.group->first * gates.level_stride();
  if (has_products()) {
    of.gates.q = w.q.data() + t.group->first * width(), of.q_width = width();
    of.gates.k = has_keys() ? w.keys_of_tile.data() : t.packed == nullptr ? nullptr : t.packed->k;
    of.gates.channels = gates.channels();
    of.product = w.product.data() + t.first * tiles_.tile_stride;
  }
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
  if (gates.has_levels() && t.keys.begin < w.edge[number]) {
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
  for (Index n = 0; n < g.rows; ++n) {
    s.at[n] = w.start.data() + n * tiles_.tile_stride;
    if (!gates.has_levels())
      s.base[n] += gates.rise() * w.count[static_cast<std::size_t>(g.first + n)];
  }
  return true;
}

void GateGradients::pull(const GateTile& t, float* s, GateGradientsWork& w) const noexcept {
  const Gates& gates = call_.gates;
  const Index keys = w.keys[static_cast<std::size_t>(t.number)];
  const FastGateTile of = tile_of(t, w, nullptr);
  for (Index n = 0; n < t.group->count; ++n, s += tiles_.tile_stride) {
    const Index row = t.group->first + n;
    float* d_levels = gates.has_levels() ? w.d_levels.data() + row * gates.level_stride() : nullptr;
    double& running = w.running[static_cast<std::size_t>(row)];
    if (keys < 0)
      d_levels[gates.last()] += call_.row_reads.sum(s, t.keys.end - t.keys.begin);
    else
      running = call_.gate_kernels.pull(s, of, n, keys, running,
                                        d_levels == nullptr ? nullptr : d_levels + of.whole[n]);
  }
}

const void* GateGradients::key(Index b, Index h, Index j) const noexcept {
  return given_vector(call_.gates.keys(), call_.H, b, j, h);
}

void GateGradients::take_keys(std::span<const void* const> tokens, Index count,
                              GateGradientsWork& w) const noexcept {
  const std::size_t type = fast_type(call_.gates.keys().dtype);
  const Index channels = call_.gates.channels();
  call_.kernels.pack_keys[type](w.keys_of_tile.data(), tokens.data(), count, channels, channels);
  call_.kernels.take_rows[type](w.y.data(), width(), tokens.data(), count, channels, nullptr);
}

void GateGradients::begin_tile(Index rows, Index keys, GateGradientsWork& w) const noexcept {
  for (Index n = 0; has_products() && n < rows; ++n)
    std::fill_n(w.product.data() + n * tiles_.tile_stride, keys, 0.0f);
}

void GateGradients::add_products(const GateProductTile& t, GateGradientsWork& w) const noexcept {
  if (!has_products()) return;
  const Index count = t.keys.end - t.keys.begin;
  const float* y = has_keys() ? w.y.data() : t.key_rows;
  float* d_y = has_keys() ? w.d_y.data() + t.keys.begin * width() : t.d_k;
  tiles_.add_outer(d_y, w.product.data(), w.q.data() + t.first * width(), t.rows, count, width());
  tiles_.add_rows(w.d_q.data() + t.first * width(), w.product.data(), y, t.rows, count, width());
}

void GateGradients::end_head(Index b, Index h, const float* q, GateGradientsWork& w) noexcept {
  if (none()) return;
  const double scale = call_.gates.term().gate_scale;
  if (has_products()) q = w.level_rows.data();
  for (Index i = 0; has_products() && query_.is_wanted() && i < call_.Tq; ++i)
    query_.add(call_, b, h, i, scale, w.d_q.data() + i * width());
  for (Index j = 0; has_keys() && key_.is_wanted() && j < call_.Tk; ++j)
    key_.add(call_, b, h, j, kLn2, w.d_y.data() + j * width());
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
  if (!has_products() || !call_.gates.term().query.content) return;
  d = w.d_q.data() + i * width();
  for (Index c = 0; c < call_.D; ++c)
    to[c] += call_.gates.term().gate_scale * static_cast<double>(d[c]);
}

void GateGradients::finish(const Executor& executor) noexcept {
  if (none()) return;
  query_.finish(call_, call_.gates.term().gate_scale, executor);
  key_.finish(call_, kLn2, executor);
  if (to_.empty()) return;
  // q came times the scale of q.k and log2(e); vectors of levels times the scale of the term.
  const double factor =
      has_products() ? kLn2 : call_.gates.term().scale / (*call_.args.scale * kLog2E);
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
