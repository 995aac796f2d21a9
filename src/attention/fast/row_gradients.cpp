// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/row_gradients.h"

#include <algorithm>

#include "core/element.h"
#include "core/parallel.h"

namespace posenc::inline v0::detail {
namespace {

// Steps whose rows are read before the first one and behind the last: those of a strip.
Index margin_of(const FastTileKernels& k) noexcept {
  return 2 * k.rows;
}

}  // namespace

RowGradients::RowGradients(const FastCall& c, const FastTileKernels& tiles,
                           const AttentionGradients& g, Index q_width, CallArena& arena)
    : call_(c), tiles_(tiles), q_width_(q_width) {
  const std::span<const RowTerm> terms = c.rows.all();
  wanted_ = arena.objects<Wanted>(static_cast<Index>(terms.size()));
  for (std::size_t n = 0; n < terms.size(); ++n) {
    const RowTerm& t = terms[n];
    if (t.number >= g.terms.size()) continue;
    if (!t.is_content()) {
      const Heads& x = t.of_keys ? g.terms[t.number].key : g.terms[t.number].query;
      wanted_[n].vectors.want(c, x, t.of_keys ? c.Tk : c.Tq, 1, VectorGradient::is_owned(c, x),
                              arena);
    }
    if (g.terms[t.number].table.empty()) continue;
    const TensorView& to = wanted_[n].to = g.terms[t.number].table;
    if (c.are_owned(to.shape[0], to.shape[1])) continue;
    wanted_[n].kept = arena.array<float>(c.B * c.H * t.steps() * t.channels);
  }
}

Index RowGradients::width(const RowTerm& t) const noexcept {
  return t.of_keys && t.is_content() ? q_width_ : whole_vectors(t.channels, tiles_.lanes);
}
float* RowGradients::at_step(const RowTerm& t, std::span<float> x, Index step) const noexcept {
  return x.data() + (step + margin_of(tiles_)) * width(t);
}

RowGradientsWork RowGradients::work(Index rows, CallArena& arena) const {
  RowGradientsWork w;
  Index size = 0;
  std::size_t number = 0;
  w.terms = arena.made<RowGradientWork>(static_cast<Index>(wanted_.size()), [&](Index) {
    const RowTerm& t = call_.rows.all()[number];
    const Index numbers = (t.steps() + 2 * margin_of(tiles_)) * width(t);
    RowGradientWork of;
    of.rows = arena.array<float>(numbers);
    if (!wanted_[number].to.empty()) of.d_rows = arena.array<float>(numbers);
    if (!t.of_keys) of.d_x = arena.array<float>(rows * width(t));
    of.classes = arena.array<float>(rows * t.classes.width());
    if (t.of_keys && !t.is_content()) {
      of.d_x = arena.array<float>((call_.Tk + tiles_.rows) * width(t));
      of.y = arena.array<float>(tiles_.tile_keys * width(t));
      if (!arena.counts()) std::fill(of.y.begin(), of.y.end(), 0.0f);
    }
    if (!arena.counts()) std::fill(of.rows.begin(), of.rows.end(), 0.0f);
    const Index steps =
        t.by_line ? std::min(t.steps(), tiles_.tile_keys + tiles_.tile_rows) : t.steps();
    const Index chunks = block_count(steps, tiles_.tile_keys);
    const Index lines = t.of_keys ? steps + tiles_.rows : chunks * (tiles_.tile_rows + tiles_.rows);
    size = std::max(size, lines * tiles_.tile_stride);
    ++number;
    return of;
  });
  w.sums = arena.array<float>(size);
  w.picks = arena.array<std::int32_t>(none() ? 0 : tiles_.tile_keys);
  w.runs = arena.array<FastRun>(none() ? 0 : tiles_.tile_keys);
  if (!arena.counts()) std::fill(w.sums.begin(), w.sums.end(), 0.0f);
  return w;
}

bool RowGradients::adds_to_q() const noexcept {
  const std::span<const RowTerm> terms = call_.rows.all();
  return std::any_of(terms.begin(), terms.end(),
                     [](const RowTerm& t) { return !t.of_keys && t.is_content(); });
}

void RowGradients::begin_head(Index b, Index h, RowGradientsWork& w) const noexcept {
  const Index panel = call_.panel;
  for (std::size_t n = 0; n < w.terms.size(); ++n) {
    const RowTerm& t = call_.rows.all()[n];
    RowGradientWork& of = w.terms[n];
    of.y_first = -1;
    std::fill(of.d_rows.begin(), of.d_rows.end(), 0.0f);
    std::fill(of.d_x.begin(), of.d_x.end(), 0.0f);
    std::fill(of.classes.begin(), of.classes.end(), 0.0f);
    const float* table = t.table_of(t.slab(b, h, call_.H));
    for (Index step = 0; step < t.steps(); ++step) {
      float* to = at_step(t, of.rows, step);
      if (t.of_keys) {
        std::copy_n(table + step * t.channels, t.channels, to);
        continue;
      }
      const float* from = table + step / panel * panel * t.channels + step % panel;
      for (Index c = 0; c < t.channels; ++c) to[c] = from[c * panel];
    }
  }
}

// The step of each key of the tile for one of its rows, -1: none.
const std::int32_t* RowGradients::steps_of_row(const RowTerm& t, const RowTile& x, Index row,
                                               RowGradientsWork& w) const noexcept {
  if (t.by_line) return t.step + t.entry(call_, *x.row) - row + x.keys.begin;
  const float* s = x.s + row * tiles_.tile_stride;
  t.pairs.find(call_, *t.term, x.row[row], x.keys, w.picks.data());
  for (Index j = 0; j < x.keys.end - x.keys.begin; ++j)
    if (s[j] == 0) w.picks[static_cast<std::size_t>(j)] = -1;
  return w.picks.data();
}

// A step for each distance of the tile.
void RowGradients::add_each(const RowTerm& t, const RowTile& x, const float* vectors,
                            RowGradientWork& of) const noexcept {
  const Index n = width(t), count = x.keys.end - x.keys.begin;
  const Index step = t.step[t.entry(call_, *x.row) + x.keys.begin];
  tiles_.add_rows_along(of.d_x.data() + x.first * n, x.s, at_step(t, of.rows, step), x.rows, count,
                        n);
  if (!of.d_rows.empty())
    tiles_.add_outer_along(at_step(t, of.d_rows, step), x.s, vectors, x.rows, count, n);
}

void RowGradients::clear_sums(const SummedRows& x, RowGradientsWork& w) const noexcept {
  const Index stride = tiles_.tile_stride;
  for (Index begin = x.first; begin <= x.last; begin += tiles_.tile_keys) {
    // Products read the steps of a strip behind the last one.
    const Index some = std::min(stride, x.last + 1 - begin + tiles_.rows);
    for (Index i = 0; i < x.rows; ++i) std::fill_n(&sum_at(x, i, begin, w), some, 0.0f);
  }
}

float& RowGradients::sum_at(const SummedRows& x, Index row, Index step,
                            RowGradientsWork& w) const noexcept {
  const Index at = step - x.first, stride = tiles_.tile_stride;
  const Index size = (tiles_.tile_rows + tiles_.rows) * stride;  // of the sums of some steps
  return w.sums[static_cast<std::size_t>(at / tiles_.tile_keys * size + row * stride +
                                         at % tiles_.tile_keys)];
}

void RowGradients::multiply_sums(const RowTerm& t, const SummedRows& x, const RowTermWork& forward,
                                 RowGradientWork& of, RowGradientsWork& w) const noexcept {
  const Index n = width(t);
  const float* vectors = forward.x.data() + x.row * n;
  for (Index begin = x.first; begin <= x.last; begin += tiles_.tile_keys) {
    const float* sums = &sum_at(x, 0, begin, w);
    const Index some = std::min(tiles_.tile_keys, x.last + 1 - begin);
    tiles_.add_rows(of.d_x.data() + x.row * n, sums, at_step(t, of.rows, begin), x.rows, some, n);
    if (!of.d_rows.empty())
      tiles_.add_outer(at_step(t, of.d_rows, begin), sums, vectors, x.rows, some, n);
  }
}

void RowGradients::add_classes(const RowTerm& t, const RowTile& x, RowGradientWork& of,
                               RowGradientsWork& w) const noexcept {
  const Index width = t.classes.width(), key_row = x.row->place.row, stride = tiles_.tile_stride;
  float* sums = of.classes.data() + x.first * width;
  if (t.classes.has_runs()) {
    const Index runs = t.classes.clip(key_row, x.keys, w.runs.data());
    call_.row_reads.sum_runs(sums, width, x.rows, x.s, stride, w.runs.data(), runs);
    return;
  }
  const std::int32_t* classes = t.classes.key_classes(key_row) + x.keys.begin;
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < x.keys.end - x.keys.begin; ++j)
      sums[i * width + classes[j]] += x.s[i * stride + j];
}

void RowGradients::close_tiles(const FastRowWork& forward, RowGradientsWork& w) const noexcept {
  for (std::size_t n = 0; n < w.terms.size(); ++n) {
    const RowTerm& t = call_.rows.all()[n];
    if (t.classes.none()) continue;
    RowGradientWork& of = w.terms[n];
    for (Index row = 0; row < call_.Tq; row += tiles_.tile_rows) {
      const SummedRows x{row, std::min(tiles_.tile_rows, call_.Tq - row), 0, t.steps() - 1};
      clear_sums(x, w);
      for (Index i = 0; i < x.rows; ++i) {
        const FastRow& r = forward.rows[static_cast<std::size_t>(row + i)];
        const std::int32_t* picks = t.classes.picks_of(r.b, r.i);
        const float* sums = of.classes.data() + (row + i) * t.classes.width();
        for (Index k = 0; k < t.classes.size(); ++k) sum_at(x, i, picks[k], w) += sums[k];
      }
      multiply_sums(t, x, forward.row_terms[n], of, w);
    }
  }
}

void RowGradients::add_query(const RowTerm& t, const RowTile& x, const RowTermWork& forward,
                             RowGradientWork& of, RowGradientsWork& w) const noexcept {
  const Index n = width(t), count = x.keys.end - x.keys.begin, stride = tiles_.tile_stride;
  if (!t.classes.none()) return add_classes(t, x, of, w);
  const auto [first, last] = t.range(call_, *x.row, x.rows, x.keys.begin, count);
  if (t.by_line && last - first == x.rows + count - 2)
    return add_each(t, x, forward.x.data() + x.first * n, of);
  const SummedRows summed{x.first, x.rows, first, last};
  clear_sums(summed, w);
  for (Index i = 0; i < x.rows; ++i) {
    const float* s = x.s + i * stride;
    if (first == last && t.by_line) {
      w.sums[static_cast<std::size_t>(i * stride)] = call_.row_reads.sum(s, count);
      continue;
    }
    const std::int32_t* steps = steps_of_row(t, x, i, w);
    for (Index j = 0; j < count;) {
      const Index step = steps[j];
      float sum = s[j++];
      for (; j < count && steps[j] == step; ++j) sum += s[j];
      if (step >= 0) sum_at(summed, i, step, w) += sum;
    }
  }
  multiply_sums(t, summed, forward, of, w);
}

// Those of keys that no query sees are 0.
void RowGradients::take_own_keys(const RowTerm& t, const RowTile& x, const PackedKeys& block,
                                 RowGradientWork& of) const noexcept {
  if (of.y_first == x.keys.begin) return;
  of.y_first = x.keys.begin;
  for (Index n = 0; n < x.keys.end - x.keys.begin; ++n) {
    float* to = of.y.data() + n * width(t);
    if (block.tokens[static_cast<std::size_t>(n)] == nullptr)
      std::fill_n(to, t.channels, 0.0f);
    else
      std::copy_n(t.own_key(block.row, x.keys.begin + n, x.row->h, call_.H), t.channels, to);
  }
}

void RowGradients::add_keys(const RowTerm& t, const RowTile& x, const PackedKeys& block,
                            RowGradientWork& of, RowGradientsWork& w) const noexcept {
  const float* keys = x.key_rows;
  float* d_keys = x.d_k;
  if (!t.is_content()) {
    take_own_keys(t, x, block, of);
    keys = of.y.data(), d_keys = of.d_x.data() + x.keys.begin * width(t);
  }
  const Index count = x.keys.end - x.keys.begin, stride = tiles_.tile_stride;
  const auto [first, last] = t.range(call_, *x.row, x.rows, x.keys.begin, count);
  const Index steps = last + 1 - first;
  float* sums = w.sums.data();
  std::fill_n(sums, (steps + tiles_.rows) * stride, 0.0f);
  for (Index i = 0; i < x.rows; ++i) {
    const float* s = x.s + i * stride;
    if (steps == 1 && t.by_line) {
      for (Index j = 0; j < count; ++j) sums[j] += s[j];
      continue;
    }
    const std::int32_t* step = steps_of_row(t, x, i, w);
    for (Index j = 0; j < count; ++j)
      if (step[j] >= 0) sums[(step[j] - first) * stride + j] += s[j];
  }
  tiles_.add_outer(d_keys, sums, at_step(t, of.rows, first), steps, count, width(t));
  if (!of.d_rows.empty())
    tiles_.add_rows(at_step(t, of.d_rows, first), sums, keys, steps, count, width(t));
}

void RowGradients::add(const RowTile& x, const FastRowWork& forward,
                       RowGradientsWork& w) const noexcept {
  for (std::size_t n = 0; n < w.terms.size(); ++n) {
    const RowTerm& t = call_.rows.all()[n];
    if (t.of_keys)
      add_keys(t, x, forward.packed_keys, w.terms[n], w);
    else
      add_query(t, x, forward.row_terms[n], w.terms[n], w);
  }
}

void RowGradients::add_content(const RowGradientsWork& w, Index i, double* to) const noexcept {
  for (std::size_t n = 0; n < w.terms.size(); ++n) {
    const RowTerm& t = call_.rows.all()[n];
    if (t.of_keys || !t.is_content()) continue;
    const float* d = w.terms[n].d_x.data() + i * width(t);
    for (Index c = 0; c < t.channels; ++c) to[c] += t.term->scale * static_cast<double>(d[c]);
  }
}

namespace {

// x holds the scale of the term and log2(e), keys neither; rows of keys hold both.
double factor_of(const RowTerm& t) noexcept {
  return t.of_keys ? t.term->scale : kLn2;
}
double factor_of_vectors(const RowTerm& t) noexcept {
  return t.of_keys ? kLn2 : t.term->scale;
}

}  // namespace

void RowGradients::end_head(Index b, Index h, const RowGradientsWork& w) noexcept {
  for (std::size_t n = 0; n < wanted_.size(); ++n) {
    const RowTerm& t = call_.rows.all()[n];
    VectorGradient& vectors = wanted_[n].vectors;
    for (Index m = 0; vectors.is_wanted() && m < (t.of_keys ? call_.Tk : call_.Tq); ++m)
      vectors.add(call_, b, h, m, factor_of_vectors(t), w.terms[n].d_x.data() + m * width(t));
    const TensorView& to = wanted_[n].to;
    if (to.empty()) continue;
    const float* d = at_step(t, w.terms[n].d_rows, 0);
    if (wanted_[n].kept.empty()) {
      add_table_rows(t, to, t.slab(b, h, call_.H), factor_of(t), d, width(t));
      continue;
    }
    float* kept = wanted_[n].kept.data() + (b * call_.H + h) * t.steps() * t.channels;
    for (Index step = 0; step < t.steps(); ++step)
      std::copy_n(d + step * width(t), t.channels, kept + step * t.channels);
  }
}

void RowGradients::finish(const Executor& executor) noexcept {
  for (std::size_t n = 0; n < wanted_.size(); ++n) {
    const RowTerm& t = call_.rows.all()[n];
    Wanted& wanted = wanted_[n];
    wanted.vectors.finish(call_, factor_of_vectors(t), executor);
    if (wanted.kept.empty()) continue;
    const TensorView& to = wanted.to;
    const Index size = t.steps() * t.channels;
    parallel_for(executor, to.shape[0] * to.shape[1],
                 static_cast<Index>(wanted.kept.size()) / kValuesPerTask,
                 [&](Index begin, Index end) noexcept {
                   for (Index slab = begin; slab < end; ++slab)
                     for (Index b = 0; b < call_.B; ++b)
                       for (Index h = 0; h < call_.H; ++h)
                         if (t.slab(b, h, call_.H) == slab)
                           add_table_rows(t, to, slab, factor_of(t),
                                          wanted.kept.data() + (b * call_.H + h) * size,
                                          t.channels);
                 });
  }
}

}  // namespace posenc::v0::detail
