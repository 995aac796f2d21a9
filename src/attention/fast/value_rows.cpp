// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/value_rows.h"

#include <algorithm>

#include "attention/fast/work.h"
#include "core/parallel.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {

bool ValueRows::has(const Term& t) noexcept {
  return term_class(t) == TermClass::value_rows;
}
std::string_view ValueRows::why_not(const ReadyCall& c, const Term& t) noexcept {
  return steps_why_not(c, std::get<ValueRowsTerm>(t));
}

ValueRows::ValueRows(const ReadyCall& c, const FastKernels& k, For use, CallArena& arena) {
  const std::span<const Term> terms = c.args.terms;
  all_ = arena.objects<ValueRowTerm>(std::count_if(terms.begin(), terms.end(), has));
  std::size_t n = 0;
  for (std::size_t number = 0; number < terms.size(); ++number) {
    if (!has(terms[number])) continue;
    ValueRowTerm& t = all_[n++];
    t.term = std::get_if<ValueRowsTerm>(&terms[number]), t.number = number;
    static_cast<RowSteps&>(t) = find_steps(c, *t.term, arena);
    if (use == For::gradients)
      pack_steps(t, k, arena);
    else if (use == For::strips)
      pack_channels(t, k, arena);
    else
      pack_rows(t, k, arena);
  }
}

bool ValueRows::are_bounded() const noexcept {
  return std::all_of(all_.begin(), all_.end(), [](const ValueRowTerm& t) {
    return std::all_of(t.bounded.begin(), t.bounded.end(), [](std::uint8_t x) { return x != 0; });
  });
}

void ValueRows::pack_steps(ValueRowTerm& t, const FastKernels& k, CallArena& arena) {
  const ConstTensorView& table = t.term->table;
  const Index slabs = table.shape[0] * table.shape[1], panel = 2 * k.lanes, V = table.shape[3];
  const Index steps = block_count(t.steps(), panel) * panel;
  t.slab_size = steps * V;
  const std::span<float> to = arena.array<float>(slabs * t.slab_size);
  const std::span<std::uint8_t> bounded = arena.array<std::uint8_t>(slabs);
  t.table = to, t.bounded = bounded;
  if (arena.counts()) return;
  std::fill(bounded.begin(), bounded.end(), std::uint8_t{1});
  for (Index n = 0; n < slabs * steps; ++n) {
    const Index slab = n / steps, s = n % steps;
    const Index row = s < t.steps() ? t.row[static_cast<std::size_t>(s)] : -1;
    float* x = to.data() + slab * t.slab_size + s / panel * panel * V + s % panel;
    if (!take_table_row(table, slab, row, t.term->scale, x, panel))
      bounded[static_cast<std::size_t>(slab)] = 0;
  }
}

void ValueRows::pack_rows(ValueRowTerm& t, const FastKernels& k, CallArena& arena) {
  const ConstTensorView& table = t.term->table;
  const Index slabs = table.shape[0] * table.shape[1],
              width = whole_vectors(table.shape[3], k.lanes);
  t.slab_size = t.steps() * width;
  const std::span<float> to = arena.array<float>(slabs * t.slab_size);
  const std::span<std::uint8_t> bounded = arena.array<std::uint8_t>(slabs);
  t.table = to, t.bounded = bounded;
  if (arena.counts()) return;
  std::fill(to.begin(), to.end(), 0.0f);
  std::fill(bounded.begin(), bounded.end(), std::uint8_t{1});
  for (Index n = 0; n < slabs * t.steps(); ++n)
    if (!take_table_row(table, n / t.steps(), t.row[static_cast<std::size_t>(n % t.steps())],
                        t.term->scale, to.data() + n * width, 1))
      bounded[static_cast<std::size_t>(n / t.steps())] = 0;
}

void ValueRows::pack_channels(ValueRowTerm& t, const FastKernels& k, CallArena& arena) {
  const ConstTensorView& table = t.term->table;
  const Index slabs = table.shape[0] * table.shape[1], panel = 2 * k.lanes, V = table.shape[3];
  const Index panels = block_count(V, panel);
  t.slab_size = panels * t.steps() * panel;
  const std::span<float> to = arena.array<float>(slabs * t.slab_size);
  const std::span<float> row = arena.array<float>(panels * panel);
  const std::span<std::uint8_t> bounded = arena.array<std::uint8_t>(slabs);
  t.table = to, t.bounded = bounded;
  if (arena.counts()) return;
  std::fill(row.begin(), row.end(), 0.0f);
  for (Index slab = 0; slab < slabs; ++slab) {
    bool all = true;
    for (Index s = 0; s < t.steps(); ++s) {
      all = take_table_row(table, slab, t.row[static_cast<std::size_t>(s)], t.term->scale,
                           row.data(), 1) &&
            all;
      for (Index p = 0; p < panels; ++p)
        std::copy_n(row.data() + p * panel, panel,
                    to.data() + slab * t.slab_size + (p * t.steps() + s) * panel);
    }
    bounded[static_cast<std::size_t>(slab)] = all ? 1 : 0;
  }
}

ValueRowWork::ValueRowWork(const ValueRowTerm& t, const FastKernels& k, Index rows,
                           CallArena& arena)
    : before(arena.array<float>(rows * k.lanes)),
      step(arena.array<Index>(rows)),
      width(t.by_line ? std::min(t.steps(), k.block_keys + k.rows) : t.steps()) {
  sums = arena.array<float>(k.rows * width);
}

namespace {

std::size_t number_of(const FastWork& w, const RowGroup& g) noexcept {
  return static_cast<std::size_t>(&g - w.groups.data());
}

// out += sums [rows][width] times rows of the steps [first, first + count).
void multiply(const FastCall& c, FastWork& w, const RowGroup& g, const ValueRowTerm& t,
              const float* sums, Index width, Index first, Index count) noexcept {
  const FastRow& r = *g.row;
  const float* table = t.table.data() + t.slab(r.b, r.h, c.H) * t.slab_size + first * c.panel;
  c.row_reads.add_values[g.kind](w.out.data() + g.slot * c.value_panels * c.panel, sums, width,
                                 table, t.steps() * c.panel, c.value_vectors, count);
}

void put(const FastCall& c, FastWork& w, const RowGroup& g, const ValueRowTerm& t,
         ValueRowWork& of) noexcept {
  Index& step = of.step[number_of(w, g)];
  if (step < 0) return;
  const Index lanes = c.kernels.lanes;
  const float *now = w.sums.data() + g.slot * lanes, *before = of.before.data() + g.slot * lanes;
  float* grown = of.sums.data();
  for (Index n = 0; n < g.rows; ++n, now += lanes, before += lanes) {
    grown[n] = 0;
    for (Index lane = 0; lane < lanes; ++lane) grown[n] += now[lane] - before[lane];
  }
  multiply(c, w, g, t, grown, 1, step, 1);
  step = -1;
}

// Sums of the weights of row n by step, from `first` on.
void sum_row(const FastCall& c, FastWork& w, const RowGroup& g, const ValueRowTerm& t, Run keys,
             Index count, Index n, Index first, float* to) noexcept {
  const float* p = w.weights.data() + n * c.kernels.block_keys;
  const FastRow& r = g.row[n];
  if (t.by_line)
    return c.row_reads.sum_steps(to - first, t.step + t.entry(c, r) + keys.begin, p, count);
  for (Index j = 0; j < count; ++j)
    if (const Index row = picked_row(c, *t.term, r, keys.begin + j); row >= 0) to[row] += p[j];
}

// The step that all pairs of a strip read; -1: there are several.
Index only_step(const ValueRowTerm& t, const RowSteps::Range& steps) noexcept {
  return t.by_line && steps.first == steps.last ? steps.first : -1;
}

}  // namespace

void clear_value_rows(const FastCall& c, FastWork& w, const RowGroup& g) noexcept {
  std::size_t number = 0;
  for (const ValueRowTerm& t : c.value_rows.all()) {
    w.value_rows[number++].step[number_of(w, g)] = -1;
    if (t.bounded[static_cast<std::size_t>(t.slab(g.row->b, g.row->h, c.H))] == 0)
      std::fill_n(w.left.begin() + g.first, g.rows, std::uint8_t{1});
  }
}

void begin_value_rows(const FastCall& c, FastWork& w, const RowGroup& g, Run keys,
                      Index count) noexcept {
  if (c.value_vectors == 0) return;
  std::size_t number = 0;
  for (const ValueRowTerm& t : c.value_rows.all()) {
    ValueRowWork& of = w.value_rows[number++];
    Index& step = of.step[number_of(w, g)];
    const Index next = only_step(t, t.range(c, *g.row, g.count, keys.begin, count));
    if (next == step) continue;
    put(c, w, g, t, of);
    step = next;
    const Index lanes = c.kernels.lanes, at = g.slot * lanes;
    if (step >= 0) std::copy_n(w.sums.data() + at, g.rows * lanes, of.before.data() + at);
  }
}

void add_value_rows(const FastCall& c, FastWork& w, const RowGroup& g, Run keys, Index count,
                    bool moved) noexcept {
  if (c.value_vectors == 0) return;
  std::size_t number = 0;
  for (const ValueRowTerm& t : c.value_rows.all()) {
    ValueRowWork& of = w.value_rows[number++];
    const RowSteps::Range steps = t.range(c, *g.row, g.count, keys.begin, count);
    if (!moved && only_step(t, steps) >= 0) continue;
    const Index some = steps.last + 1 - steps.first;
    for (Index n = 0; n < g.rows; ++n) std::fill_n(of.sums.data() + n * of.width, some, 0.0f);
    for (Index n = 0; n < g.count; ++n)
      sum_row(c, w, g, t, keys, count, n, steps.first, of.sums.data() + n * of.width);
    multiply(c, w, g, t, of.sums.data(), of.width, steps.first, some);
  }
}

void put_value_rows(const FastCall& c, FastWork& w, const RowGroup& g) noexcept {
  if (c.value_vectors == 0) return;
  std::size_t number = 0;
  for (const ValueRowTerm& t : c.value_rows.all()) put(c, w, g, t, w.value_rows[number++]);
}

}  // namespace posenc::v0::detail
