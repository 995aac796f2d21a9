// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/value_gradients.h"

#include <algorithm>

namespace posenc::inline v0::detail {
namespace {

// Numbers of the sums of all parts: 20 MiB. Beyond, fewer parts share the pieces.
constexpr Index kMostRowSums = Index{5} << 20;

// The gradient of the table of a term; empty: not wanted.
TensorView wanted_of(const ValueRowTerm& t, const AttentionGradients& g) noexcept {
  return t.number < g.terms.size() ? g.terms[t.number].table : TensorView{};
}
// Whether one piece of work adds to each slab.
bool is_owned(const FastCall& c, const TensorView& to, Index slices) noexcept {
  return slices == 1 && c.are_owned(to.shape[0], to.shape[1]);
}
Index slabs_of(const TensorView& to) noexcept {
  return to.shape[0] * to.shape[1];
}

}  // namespace

Index ValueGradients::most_parts(const FastCall& c, const AttentionGradients& g,
                                 Index slices) noexcept {
  const Index width = whole_vectors(c.V, c.kernels.lanes);
  Index numbers = 0;
  for (const ValueRowTerm& t : c.value_rows.all())
    if (const TensorView to = wanted_of(t, g); !to.empty() && !is_owned(c, to, slices))
      numbers += slabs_of(to) * t.steps() * width;
  return numbers == 0 ? kUnbounded : std::max<Index>(1, kMostRowSums / numbers);
}

ValueGradients::ValueGradients(const FastCall& c, const FastTileKernels& tiles,
                               const AttentionGradients& g, Index slices, Index parts,
                               CallArena& arena)
    : call_(c), tiles_(tiles), g_width_(whole_vectors(c.V, tiles.lanes)), parts_(parts) {
  const std::span<const ValueRowTerm> terms = c.value_rows.all();
  wanted_ = arena.objects<Wanted>(static_cast<Index>(terms.size()));
  for (std::size_t n = 0; n < terms.size(); ++n) {
    Wanted& w = wanted_[n];
    w.to = wanted_of(terms[n], g);
    if (w.to.empty() || is_owned(c, w.to, slices)) continue;
    w.sums = arena.array<float>(parts * slabs_of(w.to) * size(terms[n]));
    if (!arena.counts()) std::fill(w.sums.begin(), w.sums.end(), 0.0f);
  }
}

ValueGradientsWork ValueGradients::work(Index rows, CallArena& arena) const {
  ValueGradientsWork w;
  if (none()) return w;
  Index chunks = 0, number = 0;
  w.terms = arena.made<ValueGradientWork>(static_cast<Index>(wanted_.size()), [&](Index) {
    const auto n = static_cast<std::size_t>(number++);
    const ValueRowTerm& t = call_.value_rows.all()[n];
    ValueGradientWork of;
    if (!wanted_[n].to.empty()) of.d_rows = arena.array<float>(size(t) + tiles_.rows * g_width_);
    of.kept = arena.array<float>(rows), of.product = arena.array<float>(rows);
    of.kept_step = arena.array<Index>(rows), of.product_step = arena.array<Index>(rows);
    const Index steps =
        t.by_line ? std::min(t.steps(), tiles_.tile_keys + tiles_.tile_rows) : t.steps();
    chunks = std::max(chunks, block_count(steps, tiles_.tile_keys));
    // Steps of a group begin anywhere in a panel.
    const Index span =
        t.by_line ? std::min(t.steps(), tiles_.tile_keys + tiles_.rows + call_.panel) : t.steps();
    w.width = std::max(w.width, (block_count(span, call_.panel) + 1) * call_.panel);
    return of;
  });
  w.products = arena.array<float>(tiles_.rows * w.width);
  w.sums = arena.array<float>(chunks * (tiles_.tile_rows + tiles_.rows) * tiles_.tile_stride);
  w.picks = arena.array<std::int32_t>(tiles_.tile_stride);
  w.less = arena.array<float>(tiles_.rows);
  if (!arena.counts()) std::fill(w.sums.begin(), w.sums.end(), 0.0f);
  return w;
}

void ValueGradients::begin_head(ValueGradientsWork& w) const noexcept {
  for (ValueGradientWork& of : w.terms) {
    std::fill(of.d_rows.begin(), of.d_rows.end(), 0.0f);
    std::fill(of.kept_step.begin(), of.kept_step.end(), Index{-1});
    std::fill(of.product_step.begin(), of.product_step.end(), Index{-1});
  }
}

// Products of g with the steps of a panel.
void ValueGradients::multiply(const ValueRowTerm& t, const ValueGroup& x, Index panel, float* to,
                              Index width) const noexcept {
  const FastRow& r = *x.group.row;
  const float* table = t.table.data() + t.slab(r.b, r.h, call_.H) * t.slab_size;
  call_.row_reads.products[x.group.kind](
      to, width, x.g, g_width_, table + panel * call_.panel * call_.V, 0, 1, call_.V, nullptr);
}

const float* ValueGradients::take_less(const ValueGroup& x, const float* less,
                                       ValueGradientsWork& w) const noexcept {
  const RowGroup& g = x.group;
  for (std::size_t n = 0; n < w.terms.size(); ++n) {
    const ValueRowTerm& t = call_.value_rows.all()[n];
    const auto [first, last] = t.range(call_, *g.row, g.count, x.keys.begin, x.count);
    if (!t.by_line || first != last) continue;
    float* product = w.terms[n].product.data() + g.first;
    if (Index& held = w.terms[n].product_step[static_cast<std::size_t>(x.number)]; held != first) {
      held = first;
      multiply(t, x, first / call_.panel, w.products.data(), w.width);
      for (Index row = 0; row < g.rows; ++row)
        product[row] = w.products[static_cast<std::size_t>(row * w.width + first % call_.panel)];
    }
    for (Index row = 0; row < g.rows; ++row)
      w.less[static_cast<std::size_t>(row)] = less[row] - product[row];
    less = w.less.data();
  }
  return less;
}

// The step of each key for a row; of hidden ones any.
const std::int32_t* ValueGradients::steps_of_row(const ValueRowTerm& t, const FastRow& r, Run keys,
                                                 const float* p,
                                                 ValueGradientsWork& w) const noexcept {
  if (t.by_line) return t.step + t.entry(call_, r) + keys.begin;
  const Index none = t.steps() - 1;
  for (Index j = 0; j < tiles_.tile_stride; ++j) {
    const bool seen = j < keys.end - keys.begin && p[j] != 0;
    const Index row = seen ? picked_row(call_, *t.term, r, keys.begin + j) : -1;
    w.picks[static_cast<std::size_t>(j)] = static_cast<std::int32_t>(row < 0 ? none : row);
  }
  return w.picks.data();
}

void ValueGradients::add_slopes(const ValueGroup& x, ValueGradientsWork& w) const noexcept {
  const RowGroup& g = x.group;
  for (std::size_t n = 0; n < w.terms.size(); ++n) {
    const ValueRowTerm& t = call_.value_rows.all()[n];
    const auto [first, last] = t.range(call_, *g.row, g.count, x.keys.begin, x.count);
    if (t.by_line && first == last) continue;
    const Index begin = first / call_.panel;
    for (Index panel = begin; panel <= last / call_.panel; ++panel)
      multiply(t, x, panel, w.products.data() + (panel - begin) * call_.panel, w.width);
    const bool each = t.by_line && last - first == x.count + g.count - 2;
    for (Index row = 0; row < g.count; ++row) {
      const float* p = x.p + row * tiles_.tile_stride;
      float* s = x.s + row * tiles_.tile_stride;
      const float* product = w.products.data() + row * w.width - begin * call_.panel;
      const std::int32_t* steps = steps_of_row(t, g.row[row], x.keys, p, w);
      if (each)
        tiles_.add_scaled(s, p, product + *steps, x.count);
      else
        tiles_.add_scaled_indexed(s, p, product, steps, x.count);
    }
  }
}

// Weights that were kept of a group, times g.
void ValueGradients::put_kept(ValueGradientWork& of, const RowGroup& group, Index number,
                              const float* g) const noexcept {
  Index& step = of.kept_step[static_cast<std::size_t>(number)];
  if (step < 0) return;
  float* to = of.d_rows.data() + step * g_width_;
  for (Index row = 0; row < group.count; ++row, g += g_width_) {
    const float p = of.kept[static_cast<std::size_t>(group.first + row)];
    for (Index c = 0; c < g_width_; ++c) to[c] += p * g[c];
  }
  step = -1;
}

void ValueGradients::keep(ValueGradientWork& of, const ValueTile& x, const RowGroup& group,
                          Index step) const noexcept {
  const Index number = x.number + (&group - x.first), at = group.first - x.first->first;
  Index& held = of.kept_step[static_cast<std::size_t>(number)];
  if (held != step) put_kept(of, group, number, x.g + at * g_width_);
  float* kept = of.kept.data() + group.first;
  for (Index row = 0; row < group.count; ++row)
    kept[row] =
        (held < 0 ? 0 : kept[row]) +
        call_.row_reads.sum(x.p + (at + row) * tiles_.tile_stride, x.keys.end - x.keys.begin);
  held = step;
}

struct ValueGradients::Mixed {
  Index begin, end;  // rows of the tile
  RowSteps::Range steps;
};
// Keeps the weights of the other rows.
ValueGradients::Mixed ValueGradients::find_mixed(const ValueRowTerm& t, const ValueTile& x,
                                                 ValueGradientWork& of) const noexcept {
  Mixed m{kUnbounded, 0, {t.steps(), -1}};
  for (const RowGroup* g = x.first; g < x.end; ++g) {
    const auto [first, last] =
        t.range(call_, *g->row, g->count, x.keys.begin, x.keys.end - x.keys.begin);
    if (t.by_line && first == last) {
      keep(of, x, *g, first);
      continue;
    }
    const Index row = g->first - x.first->first;
    m.begin = std::min(m.begin, row), m.end = std::max(m.end, row + g->count);
    m.steps = {std::min(m.steps.first, first), std::max(m.steps.last, last)};
  }
  return m;
}

void ValueGradients::add_mixed(const ValueRowTerm& t, const ValueTile& x, const Mixed& m,
                               ValueGradientWork& of, ValueGradientsWork& w) const noexcept {
  const Index count = x.keys.end - x.keys.begin, stride = tiles_.tile_stride,
              rows = m.end - m.begin;
  const Index some = tiles_.tile_keys, size = (tiles_.tile_rows + tiles_.rows) * stride;
  const Index first = m.steps.first, last = m.steps.last;
  // Products read the steps of a strip behind the last one.
  for (Index chunk = 0; chunk <= (last - first) / some; ++chunk)
    for (Index row = 0; row < rows; ++row)
      std::fill_n(w.sums.data() + chunk * size + row * stride,
                  std::min(stride, last + 1 - first - chunk * some + tiles_.rows), 0.0f);
  for (const RowGroup* g = x.first; g < x.end; ++g) {
    const RowSteps::Range own = t.range(call_, *g->row, g->count, x.keys.begin, count);
    if (t.by_line && own.first == own.last) continue;
    for (Index n = 0; n < g->count; ++n) {
      const Index row = g->first - x.first->first + n;
      const float* p = x.p + row * stride;
      float* sums = w.sums.data() + (row - m.begin) * stride;
      each_step_sum(steps_of_row(t, g->row[n], x.keys, p, w), p, count, [&](Index step, float sum) {
        const Index at = step - first;
        sums[at / some * size + at % some] += sum;
      });
    }
  }
  for (Index chunk = 0; chunk <= (last - first) / some; ++chunk)
    tiles_.add_outer(of.d_rows.data() + (first + chunk * some) * g_width_,
                     w.sums.data() + chunk * size, x.g + m.begin * g_width_, rows,
                     std::min(some, last + 1 - first - chunk * some), g_width_);
}

void ValueGradients::add_tile(const ValueTile& x, ValueGradientsWork& w) const noexcept {
  const Index count = x.keys.end - x.keys.begin;
  const Index rows = x.end[-1].first + x.end[-1].count - x.first->first;
  for (std::size_t n = 0; n < w.terms.size(); ++n) {
    ValueGradientWork& of = w.terms[n];
    if (of.d_rows.empty()) continue;
    const ValueRowTerm& t = call_.value_rows.all()[n];
    const auto [first, last] = t.range(call_, *x.first->row, rows, x.keys.begin, count);
    if (t.by_line && last - first == rows + count - 2) {
      const Index step = t.step[t.entry(call_, *x.first->row) + x.keys.begin];
      tiles_.add_outer_along(of.d_rows.data() + step * g_width_, x.p, x.g, rows, count, g_width_);
      continue;
    }
    const Mixed mixed = find_mixed(t, x, of);
    if (mixed.begin < mixed.end) add_mixed(t, x, mixed, of, w);
  }
}

void ValueGradients::end_head(Index b, Index h, Index part, const float* g,
                              const std::span<const RowGroup> groups,
                              ValueGradientsWork& w) noexcept {
  for (std::size_t n = 0; n < w.terms.size(); ++n) {
    const ValueRowTerm& t = call_.value_rows.all()[n];
    ValueGradientWork& of = w.terms[n];
    if (of.d_rows.empty()) continue;
    Index number = 0;
    for (const RowGroup& group : groups) put_kept(of, group, number++, g + group.first * g_width_);
    const Index slab = t.slab(b, h, call_.H);
    if (wanted_[n].sums.empty()) {
      add_table_rows(t, wanted_[n].to, slab, t.term->scale, of.d_rows.data(), g_width_);
      continue;
    }
    float* sum = wanted_[n].sums.data() + (part * slabs_of(wanted_[n].to) + slab) * size(t);
    for (Index at = 0; at < size(t); ++at) sum[at] += of.d_rows[static_cast<std::size_t>(at)];
  }
}

void ValueGradients::finish() noexcept {
  for (std::size_t n = 0; n < wanted_.size(); ++n) {
    const ValueRowTerm& t = call_.value_rows.all()[n];
    const Wanted& w = wanted_[n];
    if (w.sums.empty()) continue;
    const Index slabs = slabs_of(w.to), all = slabs * size(t);
    float* sum = w.sums.data();
    for (Index part = 1; part < parts_; ++part)
      for (Index at = 0; at < all; ++at) sum[at] += sum[part * all + at];
    for (Index slab = 0; slab < slabs; ++slab)
      add_table_rows(t, w.to, slab, t.term->scale, sum + slab * size(t), g_width_);
  }
}

}  // namespace posenc::v0::detail
