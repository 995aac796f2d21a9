// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/region_gradients.h"

#include <algorithm>

#include "attention/fast/backward_rows.h"

namespace posenc::inline v0::detail {
namespace {

// The part of a region in memory that holds all.
float* part_of(std::span<float> all, std::size_t regions, std::size_t number) noexcept {
  return all.data() + all.size() / regions * number;
}

}  // namespace

RegionGradients::RegionGradients(const FastCall& c, const AttentionGradients& g, CallArena& arena)
    : to_(arena.objects<QK>(static_cast<Index>(c.regions.size()))),
      keys_(arena.objects<VectorGradient>(static_cast<Index>(c.regions.size()))) {
  static float counted = 0;  // where an arena that counts has no memory
  const auto memory_like = [&](const ConstHeads& x) {
    const std::span<float> y = arena.array<float>(x.batch * x.tokens * x.heads * x.dim);
    if (!arena.counts()) std::fill(y.begin(), y.end(), 0.0f);
    float* data = arena.counts() ? &counted : y.data();
    return Heads{data,           x.batch,        x.tokens,      x.heads,      x.dim,
                 x.batch_stride, x.token_stride, x.head_stride, x.dim_stride, DType::f32};
  };
  for (std::size_t n = 0; n < keys_.size(); ++n) {
    const ConstQK& qk = c.regions.qk(static_cast<int>(n));
    if (c.args.regions[n].rotary != nullptr)
      to_[n] = {memory_like(qk.q), memory_like(qk.k)};
    else if (!g.regions.empty())
      to_[n] = g.regions[n];
    keys_[n].want(c, to_[n].k, c.Tk, 1, VectorGradient::is_owned(c, to_[n].k), arena);
  }
}

RegionGradientsWork RegionGradients::work(const BackwardCall& c, Index rows, Index keys,
                                          CallArena& arena) const {
  const auto zeros = [&](Index n) {
    const std::span<float> x = arena.array<float>(static_cast<Index>(c.regions.size()) * n);
    if (!arena.counts()) std::fill(x.begin(), x.end(), 0.0f);
    return x;
  };
  RegionGradientsWork w;
  w.q = zeros(rows * c.q_width), w.dq = zeros(rows * c.q_width), w.dk = zeros(keys * c.q_width);
  w.keys = zeros(c.tiles.tile_keys * c.channels), w.key_rows = zeros(c.tiles.tile_keys * c.q_width);
  return w;
}

void RegionGradients::begin_head(BackwardWork& w) const noexcept {
  std::fill(w.regions.dq.begin(), w.regions.dq.end(), 0.0f);
  std::fill(w.regions.dk.begin(), w.regions.dk.end(), 0.0f);
}

TileRegion RegionGradients::open(const BackwardCall& c, Index b, Index h, Run keys, int number,
                                 float* dq, BackwardWork& w) const noexcept {
  if (number < 0) return {number, w.q.data(), w.keys.data(), w.key_rows.data(), dq, w.dk.data()};
  const auto n = static_cast<std::size_t>(number), all = c.regions.size();
  RegionGradientsWork& of = w.regions;
  const TileRegion t{number,
                     part_of(of.q, all, n),
                     part_of(of.keys, all, n),
                     part_of(of.key_rows, all, n),
                     part_of(of.dq, all, n),
                     part_of(of.dk, all, n)};
  const RegionSet bit = kNoRegion << (number + 1);
  if ((of.taken & bit) == 0) {
    of.taken |= bit;
    take_key_rows(c, c.regions.qk(number).k, b, h, keys, part_of(of.keys, all, n),
                  part_of(of.key_rows, all, n), w);
  }
  return t;
}

void RegionGradients::end_head(const BackwardCall& c, Index b, Index h, BackwardWork& w) noexcept {
  for (std::size_t n = 0; n < c.regions.size(); ++n) {
    const float* dq = part_of(w.regions.dq, c.regions.size(), n);
    const float* dk = part_of(w.regions.dk, c.regions.size(), n);
    for (Index i = 0; i < c.Tq; ++i, dq += c.q_width) {
      if (!c.along.empty())
        c.along[static_cast<std::size_t>(c.row_at(b, h, i))] +=
            *c.args.scale * along_query(c, c.regions.qk(static_cast<int>(n)).q, b, h, i, dq, w);
      add_floats(c.kernels, to_[n].q, b, {i, i + 1}, h, c.row_factor(b, h, i), dq, c.q_width);
    }
    for (Index j = 0; keys_[n].is_wanted() && j < c.Tk; ++j)
      keys_[n].add(c, b, h, j, kLn2, dk + j * c.q_width);
  }
}

void RegionGradients::finish(const FastCall& c, const Executor& executor) noexcept {
  for (VectorGradient& k : keys_) k.finish(c, kLn2, executor);
}

void RegionGradients::pull_back(const FastCall& c, const LoweredCall& lowered, const StageCopy& q,
                                const StageCopy& k, const Executor& executor) const {
  for (std::size_t n = 0; n < to_.size(); ++n) {
    if (c.args.regions[n].rotary == nullptr) continue;
    StageCopy dq = q, dk = k;
    dq.x = static_cast<float*>(to_[n].q.data), dk.x = static_cast<float*>(to_[n].k.data);
    rotate_region(c, lowered, n, dq, dk, RotateMode::gradient, executor);
    const auto add = [&](const StageCopy& to, const float* x) {
      to.each_vector(executor, [&](Index m) {
        for (Index d = m * to.dim; d < (m + 1) * to.dim; ++d) to.x[d] += x[d];
      });
    };
    add(q, dq.x), add(k, dk.x);
  }
}

}  // namespace posenc::v0::detail
