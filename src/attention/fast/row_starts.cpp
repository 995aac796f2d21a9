// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/row_starts.h"

#include <algorithm>
#include <cmath>

#include "attention/fast/work.h"
#include "core/element.h"
#include "core/parallel.h"

namespace posenc::inline v0::detail {
namespace {

// Panels that n neighbouring steps lie in, at most.
Index panels_of(Index n, Index panel) noexcept {
  return (n + panel - 2) / panel + 1;
}

}  // namespace

RowTermWork::RowTermWork(const RowTerm& t, const FastKernels& k, Index rows, Index block_keys,
                         CallArena& arena) {
  const Index panel = 2 * k.lanes;
  if (t.of_keys) {
    const Index strips = block_count(t.steps(), k.rows);
    columns = arena.array<float>(strips * k.rows * block_keys);
    done = arena.array<std::uint8_t>(strips);
    if (t.term->key.content) return;
    own_packed = arena.array<float>(block_keys * t.channels);
    own_tokens = arena.array<const void*>(block_keys);
    return;
  }
  x_width = whole_vectors(t.channels, k.lanes);
  x = arena.array<float>(rows * x_width);
  if (!arena.counts()) std::fill(x.begin(), x.end(), 0.0f);
  held = arena.array<Panels>(rows);
  if (!t.by_line) {
    width = block_count(t.steps(), panel) * panel;
    products = arena.array<float>(rows * width);
    numbers = arena.array<float>(rows * t.classes.width());
    return;
  }
  // The line moves on by a block, so that a strip meets rows - 1 steps again.
  kept_width = panels_of(k.rows - 1, panel) * panel;
  width = panels_of(block_keys + k.rows - 1, panel) * panel + k.lanes;
  kept = arena.array<float>(rows * kept_width);
  products = arena.array<float>(k.rows * width);
}

bool take_row_vector(const FastCall& c, const RowTerm& t, const FastRow& r, float* x) noexcept {
  const double scale = t.term->scale * kLog2E;
  if (!t.term->query.content)
    return take_given(c.kernels, t.term->query.given, c.H, r.b, r.i, r.h, static_cast<float>(scale),
                      x);
  const auto factor = static_cast<float>(scale * c.factor(r.b, r.i));
  return std::isfinite(factor) && take_vector(c.kernels, c.q, r.b, r.i, r.h, factor, x, c.D);
}

const std::int32_t* pick_rows(const FastCall& c, const RowTerm& t, const FastRow& r, Run keys,
                              Index count, std::int32_t* to) noexcept {
  const auto none = static_cast<std::int32_t>(t.steps() - 1);
  if (!t.classes.none()) {
    const std::int32_t* picks = t.classes.picks_of(r.b, r.i);
    const std::int32_t* key = t.classes.key_classes(r.place.row) + keys.begin;
    for (Index j = 0; j < count; ++j) to[j] = keys.begin + j < keys.end ? picks[key[j]] : none;
    return to;
  }
  const Index some = std::min(count, keys.end - keys.begin);
  t.pairs.find(c, *t.term, r, {keys.begin, keys.begin + some}, to);
  for (Index j = 0; j < count; ++j) to[j] = j < some && to[j] >= 0 ? to[j] : none;
  return to;
}

void take_row_terms(const FastCall& c, FastRowWork& w) noexcept {
  std::size_t number = 0;
  for (const RowTerm& t : c.rows.all()) {
    RowTermWork& of = w.row_terms[number++];
    std::fill(of.held.begin(), of.held.end(), RowTermWork::Panels{});
    for (const RowGroup& g : w.groups)
      for (Index n = 0; n < g.rows; ++n) {
        const FastRow& r = g.row[n];
        bool bounded = t.bounded[static_cast<std::size_t>(t.slab(r.b, r.h, c.H))] != 0;
        if (!t.of_keys) {
          float* x = of.x.data() + (g.first + n) * of.x_width;
          if (!take_row_vector(c, t, r, x)) {
            bounded = false;
            std::fill_n(x, t.channels, 0.0f);
          }
        }
        if (!bounded) w.left[static_cast<std::size_t>(g.first + n)] = 1;
      }
  }
}

void take_row_keys(const FastCall& c, FastRowWork& w, const PackedKeys& block) noexcept {
  w.packed_keys = block;
  std::size_t number = 0;
  for (const RowTerm& t : c.rows.all()) {
    RowTermWork& of = w.row_terms[number++];
    of.head = -1;
    of.packed = t.term->key.content ? block.panels : of.own_packed.data();
    of.packed_channels = t.term->key.content ? c.channels : t.channels;
  }
}

namespace {

class StripAdder {
 public:
  StripAdder(const FastCall& call, FastRowWork& work, const RowGroup& group, Run keys, Given given,
             StripStarts& starts) noexcept
      : c_(call),
        w_(work),
        g_(group),
        keys_(keys),
        given_(given),
        s_(starts),
        count_(whole_vectors(starts.keys, call.kernels.lanes)),
        panel_(call.panel),
        own_(work.starts.data()) {}

  Given add() noexcept {
    std::size_t number = 0;
    for (const RowTerm& t : c_.rows.all()) {
      RowTermWork& of = w_.row_terms[number++];
      if (t.of_keys)
        add_keys(t, of);
      else if (t.by_line)
        add_line(t, of);
      else
        add_pairs(t, of);
    }
    for (Index n = g_.count; n < g_.rows; ++n) {
      s_.base[n] = s_.base[n - 1];
      if (given_ != Given::nothing) s_.at[n] = s_.at[n - 1];
    }
    return given_;
  }

 private:
  // Start values that nobody else reads.
  void own() noexcept {
    if (given_ == Given::own) return;
    own_ = w_.row_starts.data();
    for (Index n = 0; n < g_.count; ++n) {
      float* to = row(n);
      if (given_ == Given::nothing)
        std::fill_n(to, count_, 0.0f);
      else
        std::copy_n(s_.at[n], count_, to);
      s_.at[n] = to;
    }
    given_ = Given::own;
  }
  float* row(Index n) const noexcept { return own_ + n * w_.block_keys; }

  // The entry of the first row and key; each row after it is one entry behind.
  Index first_entry(const RowTerm& t) const noexcept { return t.entry(c_, *g_.row) + keys_.begin; }
  using Steps = RowSteps::Range;
  Steps steps_of(const RowTerm& t) const noexcept {
    return t.range(c_, *g_.row, g_.count, keys_.begin, count_);
  }

  void add_line(const RowTerm& t, RowTermWork& of) noexcept {
    const Index entry = first_entry(t);
    const Steps steps = steps_of(t);
    const Window x = window(t, of, steps);
    if (steps.first == steps.last) {
      for (Index n = 0; n < g_.count; ++n)
        s_.base[n] += static_cast<double>(x.at[n * x.width + steps.first]);
      return;
    }
    const bool each = steps.last - steps.first == count_ + g_.count - 2;
    const auto place = [&](Index n) { return x.at + n * x.width + t.step[entry - n]; };
    if (each && given_ == Given::nothing) {
      for (Index n = 0; n < g_.count; ++n) s_.at[n] = place(n);
      given_ = Given::shared;
      return;
    }
    own();
    for (Index n = 0; n < g_.count; ++n)
      if (each)
        c_.row_reads.add_slice(row(n), place(n), count_);
      else
        c_.row_reads.add_indexed(row(n), x.at + n * x.width, t.step + entry - n, count_);
  }

  // Products of the strip's rows with steps: that of step s and row n at [n * width + s].
  struct Window {
    const float* at;
    Index width;
  };
  Window window(const RowTerm& t, RowTermWork& of, const Steps& steps) noexcept {
    const Index first = steps.first / panel_, end = steps.last / panel_ + 1;
    RowTermWork::Panels& held = of.held[static_cast<std::size_t>(&g_ - w_.groups.data())];
    float* kept = of.kept.data() + g_.first * of.kept_width;
    if (first >= held.first && end <= held.first + held.count)
      return {kept - held.first * panel_, of.kept_width};
    float* products = of.products.data();
    Index next = first;
    if (first >= held.first && first < held.first + held.count) {
      next = held.first + held.count;
      c_.row_reads.copy(products, of.width, kept + (first - held.first) * panel_, of.kept_width,
                        g_.rows, (next - first) * panel_);
    }
    multiply(t, of, next, end - next, products + (next - first) * panel_);
    // The next block begins so many steps before the end of this one.
    const Index again = std::max<Index>(steps.last + 2 - g_.rows, 0) / panel_;
    held.first = std::clamp(again, std::max(first, end - of.kept_width / panel_), end - 1);
    held.count = end - held.first;
    c_.row_reads.copy(kept, of.kept_width, products + (held.first - first) * panel_, of.width,
                      g_.rows, held.count * panel_);
    return {products - first * panel_, of.width};
  }
  void multiply(const RowTerm& t, RowTermWork& of, Index first, Index panels,
                float* to) const noexcept {
    const FastRow& r = *g_.row;
    const Index panel = panel_ * t.channels;
    const float* start = t.holds_numbers ? c_.starts.line_of(r.b, r.h) + first * panel_ : nullptr;
    c_.row_reads.products[g_.kind](to, of.width, of.x.data() + g_.first * of.x_width, of.x_width,
                                   t.table_of(t.slab(r.b, r.h, c_.H)) + first * panel, panel,
                                   panels, t.channels, start);
  }

  // The row of the table of each key for row n.
  const std::int32_t* pick(const RowTerm& t, Index n) noexcept {
    return pick_rows(c_, t, g_.row[n], {keys_.begin, keys_.begin + s_.keys}, count_,
                     w_.picks.data());
  }
  void add_pairs(const RowTerm& t, RowTermWork& of) noexcept {
    RowTermWork::Panels& held = of.held[static_cast<std::size_t>(&g_ - w_.groups.data())];
    float* products = of.products.data() + g_.first * of.width;
    if (held.count == 0) {
      multiply(t, of, 0, held.count = of.width / panel_, products);
      if (!t.classes.none()) fill_classes(t, of);
    }
    own();
    if (!t.classes.none()) return add_classes(t, of);
    for (Index n = 0; n < g_.count; ++n)
      c_.row_reads.add_indexed(row(n), products + n * of.width, pick(t, n), count_);
  }
  // The number of each class of keys.
  void fill_classes(const RowTerm& t, RowTermWork& of) noexcept {
    const Index width = t.classes.width();
    for (Index n = 0; n < g_.count; ++n) {
      float* to = of.numbers.data() + (g_.first + n) * width;
      std::fill_n(to, width, 0.0f);
      c_.row_reads.add_indexed(to, of.products.data() + (g_.first + n) * of.width,
                               t.classes.picks_of(g_.row[n].b, g_.row[n].i), width);
    }
  }
  void add_classes(const RowTerm& t, const RowTermWork& of) noexcept {
    const Index width = t.classes.width(), key_row = g_.row->place.row;
    const float* numbers = of.numbers.data() + g_.first * width;
    if (t.classes.has_runs()) {
      const Run some{keys_.begin, std::min(c_.Tk, keys_.begin + count_)};
      const Index runs = t.classes.clip(key_row, some, w_.key_runs.data());
      c_.row_reads.add_runs(own_, w_.block_keys, g_.count, numbers, width, w_.key_runs.data(),
                            runs);
      return;
    }
    for (Index n = 0; n < g_.count; ++n)
      c_.row_reads.add_indexed(row(n), numbers + n * width,
                               t.classes.key_classes(key_row) + keys_.begin, count_);
  }

  // Products of the keys of the block with steps [first, last]: step s and key j at [s * block_keys + j].
  void fill_columns(const RowTerm& t, RowTermWork& of, const Steps& steps) noexcept {
    const FastRow& r = *g_.row;
    const Index rows = c_.kernels.rows, keys = w_.block_keys;
    if (of.head != r.h) {
      of.head = r.h;
      std::fill(of.done.begin(), of.done.end(), std::uint8_t{0});
      of.bounded = t.term->key.content || pack_own(t, of);
    }
    if (!of.bounded) std::fill_n(w_.left.begin() + g_.first, g_.rows, std::uint8_t{1});
    const float* table = t.table_of(t.slab(r.b, r.h, c_.H));
    const Index panels = block_count(keys_.end - keys_.begin, panel_);
    for (Index n = steps.first / rows; n <= steps.last / rows; ++n) {
      if (of.done[static_cast<std::size_t>(n)] != 0) continue;
      of.done[static_cast<std::size_t>(n)] = 1;
      for (Index p = 0; p < panels; ++p)
        c_.row_reads.products[0](
            of.columns.data() + n * rows * keys + p * panel_, keys, table + n * rows * t.channels,
            t.channels, of.packed + p * panel_ * of.packed_channels, 0, 1, t.channels, nullptr);
    }
  }
  bool pack_own(const RowTerm& t, RowTermWork& of) noexcept {
    const ConstHeads& x = t.term->key.given;
    const PackedKeys& block = w_.packed_keys;
    const Index count = keys_.end - keys_.begin;
    for (Index n = 0; n < count; ++n)
      of.own_tokens[static_cast<std::size_t>(n)] =
          block.tokens[static_cast<std::size_t>(n)] == nullptr
              ? nullptr
              : t.own_key(block.row, keys_.begin + n, g_.row->h, c_.H);
    const bool bounded =
        c_.kernels.pack_keys[0](of.own_packed.data(), of.own_tokens.data(), count, x.dim, x.dim);
    if (!bounded) std::fill(of.own_packed.begin(), of.own_packed.end(), 0.0f);
    return bounded;
  }
  void add_keys(const RowTerm& t, RowTermWork& of) noexcept {
    const Index keys = w_.block_keys;
    const Steps steps = steps_of(t);
    fill_columns(t, of, steps);
    if (!t.by_line) {
      own();
      for (Index n = 0; n < g_.count; ++n)
        c_.row_reads.add_columns(row(n), keys, 1, of.columns.data(), keys, pick(t, n), count_);
      return;
    }
    if (steps.first == steps.last) {
      const float* column = of.columns.data() + steps.first * keys;
      if (given_ != Given::nothing) {
        own();
        for (Index n = 0; n < g_.count; ++n) c_.row_reads.add_slice(row(n), column, count_);
        return;
      }
      std::fill_n(s_.at, g_.count, column);
      given_ = Given::shared;
      return;
    }
    own();
    c_.row_reads.add_columns(own_, keys, g_.count, of.columns.data(), keys, t.step + first_entry(t),
                             count_);
  }

  const FastCall& c_;
  FastRowWork& w_;
  const RowGroup& g_;
  const Run keys_;
  Given given_;
  StripStarts& s_;
  const Index count_, panel_;  // count: keys in whole vectors
  float* own_;
};

}  // namespace

Given add_row_terms(const FastCall& c, FastRowWork& w, const RowGroup& g, Run keys, Given given,
                    StripStarts& s) noexcept {
  return StripAdder(c, w, g, keys, given, s).add();
}

}  // namespace posenc::v0::detail
