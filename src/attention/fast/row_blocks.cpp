// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/row_blocks.h"

#include <algorithm>

#include "core/parallel.h"

namespace posenc::inline v0::detail {

namespace {

// Rows of a block: steps of this, up to so many. Both are whole strips of every size.
constexpr Index kSomeRows = 384, kMostRows = 3 * kSomeRows, kWholeStrips = 24;
// What a block keeps of its rows, where it takes more than kSomeRows.
constexpr Index kMostFloats = 320 << 10;
// A call has so many blocks before they become larger.
constexpr Index kFewestBlocks = 32;

// Queries that read one row of keys may follow queries that read another.
bool has_several_rows(const ReadyCall& c) noexcept {
  return !c.sequence.empty() && !c.args.block_table.empty();
}
// Rows of one head in the largest block, in whole strips.
Index padded_queries(const ReadyCall& c, const BlockShape& s) noexcept {
  return block_count(std::min(longest_run(c), s.rows), s.strip_rows) * s.strip_rows;
}
// Heads of a block: several where queries are few.
Index heads_of_block(const ReadyCall& c, const BlockShape& s) noexcept {
  if (s.one_head) return 1;
  const Index padded = padded_queries(c, s);
  return std::clamp<Index>(kSomeRows / std::max<Index>(1, padded), 1, c.H / c.G);
}

}  // namespace

Index rows_of_block(const ReadyCall& c, Index row_floats) noexcept {
  const auto fits = [&](Index rows) {
    return rows * row_floats <= kMostFloats && c.B * c.H * block_count(c.Tq, rows) >= kFewestBlocks;
  };
  Index rows = kMostRows;
  while (rows > kSomeRows && !fits(rows)) rows -= kSomeRows;
  if (rows == kSomeRows) return rows;
  // Of one size, for threads.
  const Index even = block_count(c.Tq, std::max<Index>(1, block_count(c.Tq, rows)));
  return std::min(rows, block_count(even, kWholeStrips) * kWholeStrips);
}

Index longest_run(const ReadyCall& c) noexcept {
  if (!has_several_rows(c)) return c.Tq;
  Index longest = 0, run = 0;
  for (Index i = 0; i < c.Tq; ++i) {
    run = i > 0 && c.place(0, i).row == c.place(0, i - 1).row ? run + 1 : 1;
    longest = std::max(longest, run);
  }
  return longest;
}

bool has_few_rows(const ReadyCall& c) noexcept {
  if (c.Tk == 0 || c.D == 0 || c.V == 0 || c.G == 0 || c.Tq == 0) return false;
  const Index share = c.H / c.G;
  return share <= kFewRows && longest_run(c) * share <= kFewRows;
}

Index most_rows_of_block(const ReadyCall& c, const BlockShape& s) noexcept {
  return heads_of_block(c, s) * padded_queries(c, s);
}

std::span<const FastRowBlock> fast_row_blocks(const ReadyCall& c, const BlockShape& s,
                                              CallArena& arena) {
  const Index share = c.H / c.G, heads = heads_of_block(c, s);
  // Queries of one block read one row of keys.
  const bool by_sequence = has_several_rows(c);
  const Index cuts = by_sequence ? c.R : 0;
  BoundedList<FastRowBlock> blocks(arena.array<FastRowBlock>(c.B * c.G * block_count(share, heads) *
                                                             (block_count(c.Tq, s.rows) + cuts)));
  if (arena.counts()) return {};
  for (Index b = 0; b < c.B; ++b)
    for (Index begin = 0; begin < c.Tq;) {
      const Index row = c.place(b, begin).row;
      Index end = std::min(c.Tq, begin + s.rows);
      for (Index i = begin + 1; by_sequence && i < end; ++i)
        if (c.place(b, i).row != row) end = i;
      for (Index group = 0; group < c.G; ++group)
        for (Index h = 0; h < share; h += heads)
          blocks.push_back(
              {b, group * share + h, group * share + std::min(share, h + heads), begin, end, row});
      begin = end;
    }
  return {blocks.data(), blocks.size()};
}

void find_bounds(RowGroup& g) noexcept {
  Run first{kUnbounded, -kUnbounded}, second = first;  // unions of the runs
  Run all_first{-kUnbounded, kUnbounded},
      all_second = all_first;  // what is in the runs of every row
  bool two = true, every = true;
  const auto join = [](Run& a, const Run& b) {
    a = {std::min(a.begin, b.begin), std::max(a.end, b.end)};
  };
  const auto meet = [](Run& a, const Run& b) {
    a = {std::max(a.begin, b.begin), std::min(a.end, b.end)};
  };
  for (Index n = 0; n < g.count; ++n) {
    const VisibleBounds& v = g.row[n].bounds;
    every = every && v.count > 0;
    two = two && v.count == 2;
    if (v.count == 0) continue;
    join(first, v.run[0]), join(second, v.run[v.count - 1]);
    meet(all_first, v.run[0]), meet(all_second, v.run[v.count - 1]);
  }
  g.seen = {std::min(first.begin, second.begin), std::max(first.end, second.end)};
  if (g.seen.begin >= g.seen.end) g.seen = {0, 0};
  g.hole = two ? Run{first.end, second.begin} : Run{0, 0};
  g.all[0] = every ? all_first : Run{0, 0};
  g.all[1] = every ? all_second : Run{0, 0};
}

}  // namespace posenc::v0::detail
