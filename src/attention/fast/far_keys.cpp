// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/far_keys.h"

#include <algorithm>
#include <cmath>

#include "attention/fast/work.h"

namespace posenc::inline v0::detail {
namespace {

// Fewer rows of queries would read the keys for less than they save.
constexpr Index kManyRows = 256;
// Of rounding: 1024 products and as many sums in float, of numbers that this multiplies.
constexpr double kRounding = 0x1p-10;
// A range of keys is halved until it has so many.
constexpr Index kFewestKeys = 32;

// Whether a score is q.k, or less of it, and a number of the line.
bool are_scores_bounded(const FastCall& c) noexcept {
  return c.starts.classes().none() && c.wide.none() && c.rows.none() && c.value_rows.none() &&
         c.gates.none() && c.weights.none() && c.regions.none() && !breaks_sticks(c.args) &&
         !c.cap.starts && c.args.mask.bias.empty();
}

// Of keys that are there: those that a stage left out hold anything.
float length_of_keys(const FastCall& c, Index row, Index group, Run keys) noexcept {
  const std::size_t type = fast_type(c.k.dtype);
  const auto at = [&](const ConstHeads& x) {
    return static_cast<const std::byte*>(x.data) +
           (row * x.batch_stride + keys.begin * x.token_stride + group * x.head_stride) *
               size_of(x.dtype);
  };
  const Index count = keys.end - keys.begin;
  const Index step = c.k.token_stride;
  float squares[kTile];
  if (!c.kernels.dot_rows[type](at(c.k), step, at(c.k), step, count, c.D, squares) ||
      !c.kernels.are_bounded[fast_type(c.given_v.dtype)](at(c.given_v), c.given_v.token_stride,
                                                         count, c.V, 1))
    return HUGE_VALF;
  return std::sqrt(*std::max_element(squares, squares + count));
}

}  // namespace

std::span<const float> find_key_lengths(const FastCall& c, CallArena& arena,
                                        const Executor& executor) {
  const bool adjacent = c.k.dim_stride == 1 && c.args.v.dim_stride == 1;
  if (!c.starts.has_lines() || !are_scores_bounded(c) || !c.args.block_table.empty() || !adjacent ||
      !c.turns.none() || c.one_block || c.Tq * (c.H / std::max<Index>(1, c.G)) < kManyRows)
    return {};
  const std::span<float> lengths = arena.array<float>(c.R * c.G);
  if (arena.counts() || !c.starts.is_steep()) return {};
  parallel_for(executor, c.R * c.G, c.R * c.G * c.Tk * (c.D + c.V) / kValuesPerTask,
               [&](Index begin, Index end) noexcept {
                 for (Index n = begin; n < end; ++n) {
                   const Index row = n / c.G, tiles = block_count(c.Tk, kTile);
                   float most = 0;
                   for (Index t = 0; t < tiles; ++t)
                     if (c.seen.empty() || c.seen[static_cast<std::size_t>(row * tiles + t)] != 0)
                       most = std::max(
                           most, length_of_keys(c, row, n % c.G,
                                                {t * kTile, std::min(c.Tk, (t + 1) * kTile)}));
                   lengths[static_cast<std::size_t>(n)] = most;
                 }
               });
  return lengths;
}

namespace {

// Whether the key of the largest number is one that the row sees. Masks that are read for each key may hide it.
bool shows_top(const FastCall& c, const FastRow& r) noexcept {
  if (!reads_keys(c)) return true;
  const Index key = c.starts.top_key(r);
  if (key < 0) return false;
  Run memory[2];
  RunList runs(memory);
  find_visible(c, r.b, r.h, r.i, r.place, {key, key + 1}, runs);
  return !runs.empty();
}

}  // namespace

void find_tops(const FastCall& c, std::span<RowGroup> groups, double* tops) noexcept {
  if (!c.starts.is_steep()) return;
  for (RowGroup& g : groups) {
    g.near = true;
    for (Index n = 0; n < g.rows; ++n) {
      double& top = tops[g.first + n];
      if (n >= g.count) {
        top = tops[g.first + g.count - 1];
        continue;
      }
      top = c.starts.top(g.row[n]);
      g.near = g.near && std::fabs(top - g.row[n].offset) <= kLineRange && shows_top(c, g.row[n]);
    }
  }
}

void begin_references(const FastCall& c, const RowGroup& g, std::span<const double> tops,
                      double* reference) noexcept {
  // A cap of what is added, too, brings far numbers near.
  const bool none = !c.starts.is_steep() || c.cap.starts || breaks_sticks(c.args);
  for (Index n = 0; n < g.rows; ++n)
    reference[n] = none ? 0 : std::ceil(tops[static_cast<std::size_t>(g.first + n)]);
}

void find_weighing_keys(const FastCall& c, RowGroup& g, const float* q, Index width,
                        const double* reference) noexcept {
  g.weighs = g.seen;
  if (c.key_lengths.empty() || g.seen.begin >= g.seen.end) return;
  const FastRow& row = *g.row;
  const double least = *std::min_element(reference, reference + g.count);
  double offset = -HUGE_VAL;
  for (Index n = 0; n < g.count; ++n) offset = std::max(offset, g.row[n].offset);
  if (c.starts.lowest(row) + offset - least >= static_cast<double>(kSmallestExponent)) return;
  const double key = static_cast<double>(
      c.key_lengths[static_cast<std::size_t>(c.key_slab(row.place.row, row.h))]);
  float squares[kMostStripRows];
  c.kernels.dot_rows[0](q, width, q, width, g.count, c.D, squares);
  const double product =
      std::sqrt(static_cast<double>(*std::max_element(squares, squares + g.count))) * key;
  Index low = kUnbounded, high = -kUnbounded;
  for (Index n = 0; n < g.count; ++n)
    low = std::min(low, g.row[n].entry), high = std::max(high, g.row[n].entry);
  const auto weigh_nothing = [&](Run keys) {
    const double far =
        c.starts.largest(low + keys.begin, high - low + keys.end - keys.begin) + offset - least;
    return far + std::fabs(far) * kRounding + product * (1 + kRounding) <
           static_cast<double>(kSmallestExponent) - 1;
  };
  Run& keys = g.weighs;
  const Index all = keys.end - keys.begin;
  for (Index by = all; by >= kFewestKeys; by /= 2)
    if (by <= keys.end - keys.begin && weigh_nothing({keys.begin, keys.begin + by}))
      keys.begin += by;
  for (Index by = all; by >= kFewestKeys; by /= 2)
    if (by <= keys.end - keys.begin && weigh_nothing({keys.end - by, keys.end})) keys.end -= by;
}

}  // namespace posenc::v0::detail
