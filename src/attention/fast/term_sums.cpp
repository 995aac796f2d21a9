// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/term_sums.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "attention/call/add_to.h"
#include "core/element.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {
namespace {

// Numbers of all parts: 16 MiB. Beyond, fewer parts share the pieces.
constexpr Index kMostSums = Index{1} << 21;

Index numbers_of(const ConstTensorView& table) noexcept {
  return table.empty() ? 0 : table.count();
}
// Whether no two pieces add to the same number of a gradient of the bias.
bool has_owners(const TensorView& bias, const FastCall& c, Index slices) noexcept {
  if (bias.empty()) return true;
  const auto last = static_cast<std::size_t>(bias.rank - 1);
  if (slices > 1 && bias.shape[last] != c.Tk) return false;
  if (bias.rank == 2) return c.B * c.G * c.head_parts == 1;
  return bias.shape[0] == c.B && c.are_owned(bias.shape[0], bias.shape[1]);
}

// Each row is one number further along the line than the one after it.
bool are_neighbours(const ScoreSlopes& x) noexcept {
  for (Index i = 1; i < x.rows; ++i)
    if (x.row[i].entry + i != x.row[0].entry) return false;
  return true;
}

// Entry of the numbers that a DecayTerm reads; its arrays have one channel.
Index entry_of_token(const ConstHeads& x, Index heads, Index b, Index token, Index h) noexcept {
  return (x.batch == 1 ? 0 : b) * x.batch_stride + (x.tokens == 1 ? 0 : token) * x.token_stride +
         Grouping{heads, x.heads}.of(h) * x.head_stride;
}

}  // namespace

FastTermSums::FastTermSums(const FastCall& c, const FastTileKernels& tiles,
                           const AttentionGradients& g, Index pieces, Index slices,
                           Index most_parts, CallArena& arena)
    : call_(c), tiles_(tiles), gradients_(g), pieces_(pieces), slices_(slices) {
  want_terms(arena);
  share_parts(has_owners(g.bias, c, slices), most_parts);
  sums_ = arena.array<double>(parts_ * size_);
  for (HeadSums* x : {&lines_, &classes_}) {
    x->parts = arena.array<double>(parts_ * x->size);
    x->all = arena.array<double>(by_group_ ? x->batches * c.H * x->of_head : 0);
  }
  const bool some = lines_.is_wanted() || classes_.is_wanted();
  table_ = arena.array<double>(some ? largest_ : 0);
  queries_ = arena.array<double>(decays_ * slices * c.B * c.H * c.Tq);
  keys_ = arena.array<double>(decays_ * c.B * c.H * c.Tk);
  if (arena.counts()) return;
  for (const std::span<double>& x :
       {sums_, lines_.parts, lines_.all, classes_.parts, classes_.all, queries_, keys_})
    std::fill(x.begin(), x.end(), 0.0);
}

void FastTermSums::share_parts(bool owned, Index most_parts) noexcept {
  const FastCall& c = call_;
  const Index groups = c.G * c.head_parts, of_head = lines_.of_head + classes_.of_head;
  const Index of_group = c.H / groups * of_head + size_;
  by_group_ = of_head > 0 && owned && c.H % groups == 0 && pieces_ <= most_parts &&
              pieces_ * of_group <= kMostSums;
  for (HeadSums* x : {&lines_, &classes_})
    x->size = (by_group_ ? c.H / groups : x->batches * c.H) * x->of_head;
  const Index size = std::max<Index>(1, lines_.size + classes_.size + size_);
  parts_ =
      owned ? std::clamp<Index>(kMostSums / size, 1, std::clamp<Index>(pieces_, 1, most_parts)) : 1;
}

void FastTermSums::want_terms(CallArena& arena) {
  const std::span<const Term> all = call_.args.terms;
  wanted_ = arena.objects<Wanted>(static_cast<Index>(gradients_.terms.size()));
  for (std::size_t n = 0; n < wanted_.size(); ++n) {
    const TermGradient& g = gradients_.terms[n];
    Wanted& w = wanted_[n];
    const TermClass kind = term_class(all[n]);
    if (kind == TermClass::none || kind == TermClass::distance_curve || !Starts::takes(all[n]))
      continue;
    if (std::holds_alternative<DecayTerm>(all[n])) {
      w.query = g.query.data != nullptr, w.key = g.key.data != nullptr;
      if (w.query || w.key) w.tokens = decays_++, ++pairs_;
      continue;
    }
    w.table = g.table.empty() ? 0 : numbers_of(term_arrays(all[n]).table);
    if (w.table == 0) continue;
    largest_ = std::max(largest_, w.table);
    const Starts& starts = call_.starts;
    if (starts.classes().has(n)) {
      classes_.of_head = starts.classes().slab_size(),
      classes_.batches = starts.classes().batches();
    } else if (starts.has_lines() || starts.has_pictures()) {
      lines_.of_head = starts.line_size(), lines_.batches = starts.line_batches();
    } else {
      w.at = size_, w.by_pair = true, size_ += w.table, ++pairs_;
    }
  }
}

double* FastTermSums::of_queries(const Wanted& w, Index slice) noexcept {
  return queries_.data() + (w.tokens * slices_ + slice) * call_.B * call_.H * call_.Tq;
}
double* FastTermSums::of_keys(const Wanted& w) noexcept {
  return keys_.data() + w.tokens * call_.B * call_.H * call_.Tk;
}

Index FastTermSums::first_entry(const HeadSums& x, Index part) const noexcept {
  if (!by_group_) return 0;
  const Index groups = call_.G * call_.head_parts;
  const Index n = part / slices_;  // b * groups + group
  return x.size * (x.batches > 1 ? n : n % groups);
}

void FastTermSums::add(const ScoreSlopes& x, Index n) noexcept {
  if (lines_.is_wanted()) add_line(x, part_of(lines_, n));
  if (classes_.is_wanted()) add_classes(x, part_of(classes_, n));
  if (pairs_ > 0) add_pairs(x, part(n));
  if (!gradients_.bias.empty()) add_bias(x);
}

// Entry e of the lines: the pairs (i, j) with row[i].entry + j = e.
void FastTermSums::add_line(const ScoreSlopes& x, double* to) noexcept {
  const Index count = x.keys.end - x.keys.begin;
  if (call_.starts.has_pictures()) {
    for (Index i = 0; i < x.rows; ++i)
      call_.starts.pictures().add_slopes(call_, x.row[i], x.keys, x.s + i * x.stride,
                                         x.rows_of_keys, to + call_.starts.head_of(x.row[i]));
    return;
  }
  if (are_neighbours(x)) {
    tiles_.diagonals(x.diagonals, x.s, x.rows, count);
    double* line = to + x.row[0].entry + x.keys.begin - (x.rows - 1);
    for (Index n = 0; n < x.rows - 1 + count; ++n) line[n] += static_cast<double>(x.diagonals[n]);
    return;
  }
  for (Index i = 0; i < x.rows; ++i) {
    double* line = to + x.row[i].entry + x.keys.begin;
    for (Index j = 0; j < count; ++j) line[j] += static_cast<double>(x.s[i * x.stride + j]);
  }
}

// Rows of one class are added first, then keys of one class.
void FastTermSums::add_classes(const ScoreSlopes& x, double* to) noexcept {
  const ClassNumbers& numbers = call_.starts.classes();
  const RowClasses& classes = numbers.classes();
  const Index count = x.keys.end - x.keys.begin, key_row = x.row->place.row;
  const auto class_of = [&](Index i) { return classes.query_class(x.row[i].b, x.row[i].i); };
  double* slab = to + numbers.slab(call_, x.row->b, x.row->h) * numbers.slab_size();
  const Index runs = classes.has_runs() ? classes.clip(key_row, x.keys, x.runs) : 0;
  for (Index i = 0; i < x.rows; ++i) {
    const Index of = class_of(i);
    bool done = false;
    for (Index before = 0; before < i && !done; ++before) done = class_of(before) == of;
    if (done) continue;
    std::fill_n(x.diagonals, whole_vectors(count, tiles_.lanes), 0.0f);
    for (Index row = i; row < x.rows; ++row)
      if (class_of(row) == of) call_.row_reads.add_slice(x.diagonals, x.s + row * x.stride, count);
    double* sums = slab + of * classes.width();
    if (!classes.has_runs()) {
      const std::int32_t* key = classes.key_classes(key_row) + x.keys.begin;
      for (Index j = 0; j < count; ++j) sums[key[j]] += static_cast<double>(x.diagonals[j]);
      continue;
    }
    std::array<float, kMostTokenClasses + 2 * kMostLanes> some{};
    call_.row_reads.sum_runs(some.data(), 0, 1, x.diagonals, 0, x.runs, runs);
    for (Index k = 0; k < classes.size(); ++k)
      sums[k] += static_cast<double>(some[static_cast<std::size_t>(k)]);
  }
}

void FastTermSums::add_decay(const DecayTerm& t, const Wanted& w, const ScoreSlopes& x,
                             Index i) noexcept {
  const FastRow& r = x.row[i];
  const float* s = x.s + i * x.stride - x.keys.begin;
  double* keys = of_keys(w) + (r.b * call_.H + r.h) * call_.Tk;
  double sum = 0;
  if (t.side == Side::both) {
    for (Index j = x.keys.begin; j < x.keys.end; ++j) keys[j] += static_cast<double>(s[j]);
    constexpr Index kLanes = 8;
    double lanes[kLanes] = {};
    Index j = x.keys.begin;
    for (; j + kLanes <= x.keys.end; j += kLanes)
      for (Index lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(s[j + lane]);
    for (; j < x.keys.end; ++j) sum += static_cast<double>(s[j]);
    for (const double part : lanes) sum += part;
  }
  for (Index j = x.keys.begin; t.side != Side::both && j < x.keys.end; ++j) {
    const auto d = static_cast<double>(s[j]);
    if (d == 0 || !is_on_side(call_, t, r, j)) continue;
    sum += d, keys[j] += d;
  }
  of_queries(w, x.slice)[(r.b * call_.H + r.h) * call_.Tq + r.i] += sum;
}

// Pair by pair, to the rows of the term's table.
void FastTermSums::add_table(const Term& term, const ScoreSlopes& x, double* to) noexcept {
  const ConstTensorView& table = term_arrays(term).table;
  for (Index i = 0; i < x.rows; ++i) {
    const FastRow& r = x.row[i];
    const float* s = x.s + i * x.stride;
    const Index count = x.keys.end - x.keys.begin;
    double* rows = to + slab_of(table, r.b, r.h, call_.H) * table.shape[2] * table.shape[3];
    if (const auto* product = std::get_if<ProductTerm>(&term)) {
      std::int32_t* picked = x.rows_of_keys;
      call_.starts.pair_rows(term).find(call_, *product, r, x.keys, picked);
      for (Index j = 0; j < count; ++j)
        if (picked[j] >= 0) rows[picked[j]] += product->scale * static_cast<double>(s[j]);
      continue;
    }
    const auto& linear = std::get<LinearTerm>(term);
    const AxisView& axis = call_.axes[static_cast<std::size_t>(linear.axis)];
    for (Index j = 0; j < count; ++j) {
      const double delta = axis.delta(r.b, r.i, r.place.row, x.keys.begin + j);
      rows[delta > 0 ? 0 : 1] += linear.scale * std::fabs(delta) * static_cast<double>(s[j]);
    }
  }
}

void FastTermSums::add_pairs(const ScoreSlopes& x, double* to) noexcept {
  for (std::size_t n = 0; n < wanted_.size(); ++n) {
    const Term& term = call_.args.terms[n];
    const Wanted& w = wanted_[n];
    if (w.by_pair) add_table(term, x, to + w.at);
    if (const auto* decay = std::get_if<DecayTerm>(&term))
      for (Index i = 0; (w.query || w.key) && i < x.rows; ++i) add_decay(*decay, w, x, i);
  }
}

void FastTermSums::add_bias(const ScoreSlopes& x) noexcept {
  const TensorView& to = gradients_.bias;
  for (Index i = 0; i < x.rows; ++i) {
    const FastRow& r = x.row[i];
    const float* s = x.s + i * x.stride - x.keys.begin;
    const PairRow at = pair_row(to, call_.H, r.b, r.h, r.i);
    if (at.step == 1 && to.dtype == DType::f64) {
      double* row = static_cast<double*>(to.data) + at.begin;
      for (Index j = x.keys.begin; j < x.keys.end; ++j) row[j] += static_cast<double>(s[j]);
      continue;
    }
    for (Index j = x.keys.begin; j < x.keys.end; ++j)
      if (s[j] != 0) add_element(to.data, to.dtype, at.at(j), static_cast<double>(s[j]));
  }
}

void FastTermSums::finish_decay(const DecayTerm& t, const Wanted& w,
                                const TermGradient& to) noexcept {
  const Index H = call_.H;
  for (Index b = 0; b < call_.B; ++b)
    for (Index h = 0; h < H; ++h) {
      for (Index i = 0; w.query && i < call_.Tq; ++i)
        for (Index slice = 0; slice < slices_; ++slice)
          add_element(to.query.data, to.query.dtype, entry_of_token(to.query, H, b, i, h),
                      t.scale * of_queries(w, slice)[(b * H + h) * call_.Tq + i]);
      for (Index j = 0; w.key && j < call_.Tk; ++j)
        add_element(to.key.data, to.key.dtype, entry_of_token(to.key, H, b, j, h),
                    -t.scale * of_keys(w)[(b * H + h) * call_.Tk + j]);
    }
}

std::span<double> FastTermSums::add_parts(const HeadSums& x) noexcept {
  const std::span<double> all = by_group_ ? x.all : x.parts;
  for (Index n = by_group_ ? 0 : 1; n < parts_; ++n) {
    double* to = all.data() + first_entry(x, n);
    for (Index at = 0; at < x.size; ++at)
      to[at] += x.parts[static_cast<std::size_t>(n * x.size + at)];
  }
  return all;
}

void FastTermSums::finish() noexcept {
  const double *lines = add_parts(lines_).data(), *classes = add_parts(classes_).data();
  for (Index n = 1; n < parts_; ++n)
    for (Index at = 0; at < size_; ++at) part(0)[at] += part(n)[at];
  for (std::size_t n = 0; n < wanted_.size(); ++n) {
    const Term& term = call_.args.terms[n];
    const Wanted& w = wanted_[n];
    if (const auto* decay = std::get_if<DecayTerm>(&term))
      finish_decay(*decay, w, gradients_.terms[n]);
    if (w.table == 0) continue;
    const auto size = static_cast<std::size_t>(w.table);
    if (w.by_pair) {
      add_to(gradients_.terms[n].table, sums_.subspan(static_cast<std::size_t>(w.at), size));
      continue;
    }
    const std::span<double> table = table_.first(size);
    std::fill(table.begin(), table.end(), 0.0);
    if (call_.starts.classes().has(n))
      call_.starts.classes().pull(call_, n, classes, table.data());
    else
      call_.starts.pull_line(term, lines, table.data());
    add_to(gradients_.terms[n].table, table);
  }
}

}  // namespace posenc::v0::detail
