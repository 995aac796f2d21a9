// SPDX-License-Identifier: Apache-2.0
// Start values of a strip. Numbers that may be large are taken relative to the largest of the strip or row, in double,
// before they become floats: what is far from it weighs nothing.
#include <algorithm>
#include <array>
#include <cmath>

#include "attention/fast/work.h"
#include "core/element.h"

namespace posenc::inline v0::detail {
namespace {

// Beyond, numbers of a row are taken relative to the largest.
constexpr float kLargestCurve = 64;

float relative(double value, double to) noexcept {
  return static_cast<float>(std::max(value - to, kFar));
}

// Whether numbers come from lines here, or none do: a term that reads rows may add them.
bool reads_lines(const FastCall& c) noexcept {
  return c.starts.has_lines() && !c.starts.classes().is_wide() && !c.rows.hold_numbers();
}
bool reads_pictures(const FastCall& c) noexcept {
  return c.starts.reads_pictures() && !c.rows.hold_numbers();
}
bool adds_numbers(const FastCall& c) noexcept {
  return !c.starts.none() && !c.rows.hold_numbers();
}

// Adds mask.bias.
void add_bias(const FastCall& c, const FastRow& r, Run keys, double* to) noexcept {
  const ConstTensorView& bias = c.args.mask.bias;
  if (bias.empty()) return;
  const PairRow at = pair_row(bias, c.H, r.b, r.h, r.i);
  for (Index j = keys.begin; j < keys.end; ++j)
    to[j - keys.begin] += kLog2E * float_element(bias.data, bias.dtype, at.at(j));
}

// Start values of keys [0, size) that are 0 or hide the key: -inf, 0, -inf, so many of each.
constexpr Index kStep = 256;
constexpr std::array<float, 3 * kStep> kSteps = [] {
  std::array<float, 3 * kStep> x{};
  for (std::size_t n = 0; n < kStep; ++n) x[n] = x[2 * kStep + n] = -HUGE_VALF;
  return x;
}();
// Those of a row that sees one run of the block, from its first key on or up to its last one; else `at` is null. `last`:
// the end of the keys that it sees.
struct Step {
  const float* at;
  Index last;
};
Step step_of(const VisibleBounds& bounds, Run keys, Index lanes) noexcept {
  Run some{0, 0};
  for (const Run& run : bounds.runs()) {
    const Run part{std::max(run.begin, keys.begin), std::min(run.end, keys.end)};
    if (part.begin >= part.end) continue;
    if (some.begin < some.end) return {nullptr, 0};
    some = part;
  }
  if (some.begin >= some.end) return {kSteps.data(), keys.begin};
  if (some.begin == keys.begin)
    return {kSteps.data() + 2 * kStep - (some.end - keys.begin), some.end};
  if (some.end == keys.end && is_whole_vectors(keys.end - keys.begin, lanes))
    return {kSteps.data() + kStep - (some.begin - keys.begin), some.end};
  return {nullptr, 0};
}

// Start values of one row, -inf where it does not see the key; returns what they are relative to. `far`: all of them hide
// their keys, and none is written.
double fill_row(const FastCall& c, FastRowWork& w, const FastRow& r, Run keys, float* to,
                Index width, bool& bounded, bool& far) noexcept {
  const auto size = static_cast<std::size_t>(keys.end - keys.begin);
  std::fill_n(to, width, -HUGE_VALF);
  find_visible(c, r.b, r.h, r.i, r.place, keys, w.runs);
  if (w.runs.empty()) return 0;
  std::fill_n(w.start.begin(), size, 0.0);
  // Only what is visible is read: a bias of others may be NaN.
  const Run some{w.runs[0].begin, w.runs.back().end};
  double* start = w.start.data() + (some.begin - keys.begin);
  if (adds_numbers(c)) c.starts.add(r, some, start);
  add_bias(c, r, some, start);
  double largest = -HUGE_VAL;
  each_key(Runs(w.runs.data(), w.runs.size()), [&](Index j) {
    const double x = w.start[static_cast<std::size_t>(j - keys.begin)];
    bounded = bounded && x == x && x < -kFar;
    largest = std::max(largest, x);
  });
  far = !(largest > kFar);
  if (!bounded || far) return 0;
  each_key(Runs(w.runs.data(), w.runs.size()), [&](Index j) {
    to[j - keys.begin] = relative(w.start[static_cast<std::size_t>(j - keys.begin)], largest);
  });
  return largest;
}

// Hides the keys whose orders a row does not see, of start values of keys from `key` on. False: it sees none of them.
bool hide_by_rank(const FastCall& c, const FastRow& r, Index key, Index count, float* to) noexcept {
  const std::int32_t* rank =
      c.ranks.data() + (c.key_order_rows == 1 ? 0 : r.place.row) * c.Tk + key;
  const RankRuns& seen = r.orders;
  std::int32_t some = 0;
  for (Index n = 0; n < count; ++n) {
    const std::int32_t x = rank[n];
    const std::int32_t first = (x >= seen.begin[0]) & (x < seen.end[0]);
    const std::int32_t second = (x >= seen.begin[1]) & (x < seen.end[1]);
    some |= first | second;
    to[n] = (first | second) != 0 ? to[n] : -HUGE_VALF;
  }
  return some != 0;
}

// Whether a group takes its numbers from lines in double.
bool reads_wide_lines(const FastCall& c, const RowGroup& g) noexcept {
  return reads_lines(c) && c.starts.has_wide_lines() && !g.near;
}
bool reads_wide_pictures(const FastCall& c) noexcept {
  return reads_pictures(c) && c.starts.has_wide_pictures();
}
// Entries of lines that the rows of a group read of some keys.
Run entries_of(const RowGroup& g, Run keys) noexcept {
  Index low = kUnbounded, high = -kUnbounded;
  for (Index n = 0; n < g.count; ++n)
    low = std::min(low, g.row[n].entry), high = std::max(high, g.row[n].entry);
  return {low + keys.begin, high + keys.end};
}

// Of some keys of a block; if `wide`, relative to `largest`. Other start values stand behind theirs.
void copy_pictures(const FastCall& c, FastRowWork& w, const FastRow& r, Run block, Run keys,
                   bool wide, double largest, float* to) noexcept {
  if (wide)
    return c.starts.each_run(r, block, keys, w.pictures, [&](Index first, Index end, Index at) {
      c.kernels.narrow(to + (first - keys.begin), c.starts.wide_lines() + at + first, end - first,
                       largest, kFar);
    });
  float* numbers = w.pictures.numbers.data();
  c.starts.write_pictures(c.row_reads, r, block, keys, w.pictures, numbers);
  std::copy_n(numbers, keys.end - keys.begin, to);
}

// The largest wide number of some keys of a block.
double largest_of(const FastCall& c, FastRowWork& w, const FastRow& r, Run block,
                  Run keys) noexcept {
  if (!reads_pictures(c)) return c.starts.largest(r.entry + keys.begin, keys.end - keys.begin);
  double largest = -HUGE_VAL;
  c.starts.each_run(r, block, keys, w.pictures, [&](Index first, Index end, Index at) {
    largest = std::max(largest, c.starts.largest(at + first, end - first));
  });
  return largest;
}

// The same where start values are 0 or numbers of a line: in float, or, if `wide`, relative to the largest visible one,
// which becomes `largest`. Returns the end of the visible keys.
Index copy_row(const FastCall& c, FastRowWork& w, const FastRow& r, Run keys, bool wide, float* to,
               Index width, double& largest) noexcept {
  std::fill_n(to, width, -HUGE_VALF);
  const bool shows_all = c.flags.shows_all(r.place.row, keys);
  const bool ranks = c.ranked && !wide;
  const bool filters = (c.filtered && !ranks) || (wide && !shows_all);
  if (filters) {
    find_visible(c, r.b, r.h, r.i, r.place, keys, w.runs);
  } else {
    w.runs.clear();
    for (const Run& run : r.bounds.runs())
      if (const Run some{std::max(run.begin, keys.begin), std::min(run.end, keys.end)};
          some.begin < some.end)
        w.runs.push_back(some);
  }
  if (w.runs.empty()) return 0;
  if (wide) {
    largest = -HUGE_VAL;
    for (const Run& run : w.runs) largest = std::max(largest, largest_of(c, w, r, keys, run));
  }
  const float* line = reads_lines(c) ? c.starts.lines() + r.entry : nullptr;
  for (const Run& run : w.runs) {
    float* first = to + (run.begin - keys.begin);
    if (reads_pictures(c))
      copy_pictures(c, w, r, keys, run, wide, largest, first);
    else if (line == nullptr)
      std::fill_n(first, run.end - run.begin, 0.0f);
    else if (wide)
      c.kernels.narrow(first, c.starts.wide_lines() + r.entry + run.begin, run.end - run.begin,
                       largest, kFar);
    else
      std::copy(line + run.begin, line + run.end, first);
  }
  const Index last = w.runs.back().end;
  if (!filters && !shows_all) {
    const float* hidden = c.flags.starts(r.place.row) + keys.begin;
    for (Index n = 0; n < last - keys.begin; ++n) to[n] += hidden[n];
  }
  if (ranks && !hide_by_rank(c, r, keys.begin, last - keys.begin, to)) return 0;
  return last;
}

// A slice of the lines for all rows of the group, relative to its largest number. False: the rows are too far apart.
bool fill_slice(const FastCall& c, FastRowWork& w, const RowGroup& g, Run keys,
                StripStarts& s) noexcept {
  const Run entries = entries_of(g, keys);
  const Index size = entries.end - entries.begin;
  if (size > static_cast<Index>(w.starts.size())) return false;
  const double largest = c.starts.largest(entries.begin, size);
  c.kernels.narrow(w.starts.data(), c.starts.wide_lines() + entries.begin, size, largest, kFar);
  for (Index n = 0; n < g.count; ++n) {
    s.at[n] = w.starts.data() + (g.row[n].entry + keys.begin - entries.begin);
    s.base[n] = largest + g.row[n].offset;
  }
  return true;
}

// Rows after the last one in use read what it reads.
void fill_rest(const RowGroup& g, StripStarts& s) noexcept {
  for (Index n = std::max<Index>(1, g.count); n < g.rows; ++n)
    s.at[n] = s.at[n - 1], s.base[n] = s.base[n - 1];
}

// Here and below keys come by reference: a copy is written in halves and read whole, which waits until all stores before
// it have reached the cache.
void fill_masked_starts(const FastCall&, FastRowWork&, const RowGroup&, const Run& keys,
                        StripStarts&) noexcept;

// Of a block that all rows see: from lines.
void fill_line_starts(const FastCall& c, FastRowWork& w, const RowGroup& g, Run keys,
                      StripStarts& s) noexcept {
  s.keys = keys.end - keys.begin;
  if (reads_wide_lines(c, g)) {
    if (!fill_slice(c, w, g, keys, s)) return fill_masked_starts(c, w, g, keys, s);
  } else {
    for (Index n = 0; n < g.count; ++n) {
      s.at[n] = c.starts.lines() + g.row[n].entry + keys.begin;
      s.base[n] = g.row[n].offset;
    }
  }
  fill_rest(g, s);
}

// The same from pictures.
void fill_picture_starts(const FastCall& c, FastRowWork& w, const RowGroup& g, Run keys,
                         StripStarts& s) noexcept {
  s.keys = keys.end - keys.begin;
  for (Index n = 0; n < g.count; ++n) {
    float* to = w.starts.data() + n * w.block_keys;
    c.starts.write_pictures(c.row_reads, g.row[n], keys, keys, w.pictures, to);
    s.at[n] = to, s.base[n] = 0;
  }
  fill_rest(g, s);
}

// Hides the keys of a block that a row does not see, of `width` start values; returns the end of those that it sees.
Index hide(const VisibleBounds& bounds, Run keys, Index width, float* to) noexcept {
  Index at = keys.begin;
  for (const Run& run : bounds.runs()) {
    const Run some{std::max(run.begin, keys.begin), std::min(run.end, keys.end)};
    if (some.begin >= some.end) continue;
    std::fill(to + (at - keys.begin), to + (some.begin - keys.begin), -HUGE_VALF);
    at = some.end;
  }
  std::fill(to + (at - keys.begin), to + width, -HUGE_VALF);
  return at;
}

// Of a group whose only start values are those of a curve, within what float holds near 0. False: they are not written.
bool fill_curve_starts(const FastCall& c, FastRowWork& w, const RowGroup& g, Run keys,
                       StripStarts& s) noexcept {
  const DistanceCurve* curve = c.starts.curve();
  if (curve == nullptr || !c.args.mask.bias.empty() || c.filtered || c.rows.hold_numbers() ||
      !c.flags.shows_all(g.row->place.row, keys))
    return false;
  const Run some{keys.begin, std::min(keys.end, g.seen.end)};
  if (some.begin >= some.end ||
      !curve->write({g.row, static_cast<std::size_t>(g.count)}, some, kLargestCurve,
                    w.starts.data(), w.block_keys, w.pieces.data() + g.first))
    return false;
  const Index count = some.end - some.begin, width = whole_vectors(count, c.kernels.lanes);
  const bool whole = sees_all(g, some) && count == width;
  s.keys = whole ? count : 0;
  for (Index n = 0; n < g.count; ++n) {
    float* to = w.starts.data() + n * w.block_keys;
    if (!whole) s.keys = std::max(s.keys, hide(g.row[n].bounds, some, width, to) - some.begin);
    s.at[n] = to, s.base[n] = 0;
  }
  fill_rest(g, s);
  return true;
}

void fill_masked_starts(const FastCall& c, FastRowWork& w, const RowGroup& g, const Run& keys,
                        StripStarts& s) noexcept {
  if (fill_curve_starts(c, w, g, keys, s)) return;
  s.keys = 0;
  const bool copies =
      c.args.mask.bias.empty() && (!adds_numbers(c) || reads_lines(c) || reads_pictures(c));
  const bool wide = copies && (reads_wide_lines(c, g) || reads_wide_pictures(c));
  const bool biased = c.bias.whole_rows() && (c.starts.none() || reads_lines(c));
  // Of gates, numbers that come later may be large.
  const bool may_skip = !w.skips.empty() && c.gates.none() && !breaks_sticks(c.args);
  const bool steps = copies && !adds_numbers(c) && c.rows.none() && !c.filtered &&
                     !c.starts.classes().adds() && w.block_keys <= kStep &&
                     c.flags.shows_all(g.row->place.row, keys);
  // Of what is written, the strip reads so much.
  const Index width = whole_vectors(std::max<Index>(0, std::min(keys.end, g.seen.end) - keys.begin),
                                    c.kernels.lanes);
  for (Index n = 0; n < g.count; ++n) {
    if (steps) {
      if (const Step step = step_of(g.row[n].bounds, keys, c.kernels.lanes); step.at != nullptr) {
        s.at[n] = step.at, s.base[n] = 0;
        s.keys = std::max(s.keys, step.last - keys.begin);
        continue;
      }
    }
    const auto row = static_cast<std::size_t>(g.first + n);
    float* to = w.starts.data() + n * w.block_keys;
    bool bounded = true, far = false;
    double largest = 0;
    Index last = 0;
    if (copies) {
      last = copy_row(c, w, g.row[n], keys, wide, to, width, largest);
      largest += g.row[n].offset;
    } else if (biased) {
      const BiasStarts::Row made = c.bias.write(g.row[n], keys, to, width);
      bounded = made.bounded, far = made.far, largest = made.largest, last = made.last;
    } else {
      largest = fill_row(c, w, g.row[n], keys, to, width, bounded, far);
      if (!w.runs.empty()) last = w.runs.back().end;
    }
    if (bounded && far && may_skip) {
      w.skips[row] = 1;
      std::fill_n(to, width, -HUGE_VALF);
    } else if (!bounded || far) {
      w.left[row] = 1;
      std::fill_n(to, width, -HUGE_VALF);
    } else {
      s.keys = std::max(s.keys, last - keys.begin);
    }
    s.at[n] = to;
    s.base[n] = largest;
  }
  fill_rest(g, s);
}

}  // namespace

namespace {

// All numbers but those of classes.
Given fill_others(const FastCall& c, FastRowWork& w, const RowGroup& g, const Run& keys,
                  StripStarts& s) noexcept {
  const Index row = g.row->place.row;
  const bool all =
      !c.filtered && sees_all(g, keys) && is_whole_vectors(keys.end - keys.begin, c.kernels.lanes);
  const bool whole = all && c.flags.shows_all(row, keys);
  if (whole && reads_lines(c)) {
    fill_line_starts(c, w, g, keys, s);
    return Given::shared;
  }
  if (whole && reads_pictures(c) && !reads_wide_pictures(c) && c.args.mask.bias.empty()) {
    fill_picture_starts(c, w, g, keys, s);
    return Given::own;
  }
  if (!all || adds_numbers(c)) {
    fill_masked_starts(c, w, g, keys, s);
    return Given::own;
  }
  s.keys = keys.end - keys.begin;
  std::fill_n(s.base, g.rows, 0.0);
  if (!whole) std::fill_n(s.at, g.rows, c.flags.starts(row) + keys.begin);
  return whole ? Given::nothing : Given::shared;
}

}  // namespace

Given fill_numbers(const FastCall& c, FastRowWork& w, const RowGroup& g, const Run& keys,
                   StripStarts& s) noexcept {
  const Given given = fill_others(c, w, g, keys, s);
  return c.starts.classes().adds() && s.keys > 0 ? add_class_numbers(c, w, g, keys, given, s)
                                                 : given;
}

bool fill_starts(const FastCall& c, FastRowWork& w, const RowGroup& g, Run keys,
                 StripStarts& s) noexcept {
  Given given = fill_numbers(c, w, g, keys, s);
  if (!c.rows.none() && s.keys > 0) given = add_row_terms(c, w, g, keys, given, s);
  return given != Given::nothing;
}

}  // namespace posenc::v0::detail
