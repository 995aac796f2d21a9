// SPDX-License-Identifier: Apache-2.0
// Products of a block of rows with the keys or values that they see. Where the runs of the rows
// differ they are cut into segments, each with the rows that see it: what a row does not see never
// meets it, and keys go through each row's sums in their order.
#pragma once
#include <array>
#include <limits>

#include "attention/exact/load_keys.h"
#include "attention/exact/row.h"

namespace posenc::inline v0::detail {

// Rows of one slab of keys, at most kBlockRows.
using RowBlock = std::span<HeadRow>;

// fn(rows, slab) for neighbours that read the same slab of keys.
template <class F>
void each_block(const CallView& c, RowWork& w, const F& fn) {
  for (Index n = 0; n < w.count;) {
    const auto slab_at = [&](Index at) {
      const HeadRow& r = w.heads[static_cast<std::size_t>(at)];
      return c.key_slab(r.place.row, r.h);
    };
    Index end = n + 1;
    while (end < w.count && end < n + kBlockRows && slab_at(end) == slab_at(n)) ++end;
    fn(RowBlock(w.heads).subspan(static_cast<std::size_t>(n), static_cast<std::size_t>(end - n)),
       slab_at(n));
    n = end;
  }
}

// fn(keys, which rows, their number) for segments in the order of the keys. runs_of(row) gives the
// runs of a row.
template <class RunsOf, class F>
void each_segment(RowBlock rows, const RunsOf& runs_of, const F& fn) {
  struct {
    Runs runs;
    std::size_t at = 0;
  } left[kBlockRows];
  for (std::size_t r = 0; r < rows.size(); ++r) left[r].runs = runs_of(rows[r]);
  for (Index from = 0;;) {
    Run next{std::numeric_limits<Index>::max(), std::numeric_limits<Index>::max()};
    std::array<std::size_t, kBlockRows> seen{};
    Index count = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      auto& [runs, at] = left[r];
      while (at < runs.size() && runs[at].end <= from) ++at;
      if (at == runs.size()) continue;
      const Index begin = std::max(from, runs[at].begin);
      if (begin > next.begin) {
        next.end = std::min(next.end, begin);
        continue;
      }
      if (begin < next.begin) {
        next = {begin, std::min(next.begin, runs[at].end)};
        count = 0;
      }
      next.end = std::min(next.end, runs[at].end);
      seen[static_cast<std::size_t>(count++)] = r;
    }
    if (count == 0) return;
    fn(next, seen, count);
    from = next.end;
  }
}

using RowArray = double* HeadRow::*;

// fn(some) for pieces of a run.
template <class F>
void each_piece_of(Run run, Index channels, const F& fn) {
  for (const Index size = streamed_keys(channels); run.begin < run.end; run.begin += size)
    fn(Run{run.begin, std::min(run.end, run.begin + size)});
}

// y = x . key of a run of whole tiles, from tiles at hand or from the keys of the call.
struct TileDots {
  const ExactRowKernels& lanes;
  const double* tiles;
  Index channels;
  void operator()(double* const* y, const double* const* x, Index rows, Run run) const noexcept {
    lanes.dots(y, x, rows, tiles, channels, run);
  }
};
inline TileDots dots_of_tiles(const CallView& c, std::span<const double> tiles, Index slab,
                              Index channels) {
  return {c.lanes, tiles.data() + slab * tiles_size(c.Tk, channels), channels};
}
struct StreamedDots {
  const CallView& c;
  Index slab;
  double* memory;
  void operator()(double* const* y, const double* const* x, Index rows, Run run) const noexcept {
    const Index r = slab / c.G, last = c.key_end(r);
    double* to[kBlockRows];
    each_piece_of(run, c.D, [&](Run some) {
      for (Index n = 0; n < rows; ++n) to[n] = y[n] + some.begin;
      stream_key_tiles(c, r, slab % c.G, {some.begin, std::min(some.end, last)}, memory);
      c.lanes.dots(to, x, rows, memory, c.D, {0, some.end - some.begin});
    });
  }
};

// y = x . key for all keys of the tiles that any row sees: of the others whatever comes out.
template <class Dots, class RunsOf>
void block_dots(RowBlock rows, RowArray y, RowArray x, const Dots& dots, const RunsOf& runs_of) {
  double* to[kBlockRows];
  const double* from[kBlockRows];
  for (std::size_t r = 0; r < rows.size(); ++r) to[r] = rows[r].*y, from[r] = rows[r].*x;
  Run some{0, 0};
  const auto flush = [&] {
    if (some.begin < some.end) dots(to, from, static_cast<Index>(rows.size()), some);
  };
  each_segment(rows, runs_of, [&](Run keys, const auto&, Index) {
    const Index begin = std::max(some.end, keys.begin / kTile * kTile);
    const Index end = whole_tiles(keys.end);
    if (begin > some.end) {
      flush();
      some.begin = begin;
    }
    some.end = end;
  });
  flush();
}

// y += sum over a run of weight[j] x_j, of rows at hand or of the values of the call.
struct WeightedRows {
  const ExactRowKernels& lanes;
  const double* x;
  Index channels;
  void operator()(double* const* y, const double* const* weight, Index rows,
                  Run run) const noexcept {
    lanes.add_weighted(y, weight, rows, x, channels, run);
  }
};
struct StreamedValues {
  const CallView& c;
  Index slab;
  double* memory;
  void operator()(double* const* y, const double* const* weight, Index rows,
                  Run run) const noexcept {
    const double* by[kBlockRows];
    each_piece_of(run, c.V, [&](Run some) {
      for (Index n = 0; n < rows; ++n) by[n] = weight[n] + some.begin;
      c.value_source.load_rows(slab / c.G, slab % c.G, some, memory);
      c.lanes.add_weighted(y, by, rows, memory, c.V, {0, some.end - some.begin});
    });
  }
};

// y += sum over the keys of weight[j] x_j.
template <class Add, class RunsOf>
void block_add_weighted(RowBlock rows, RowArray y, RowArray weight, const Add& add,
                        const RunsOf& runs_of) {
  each_segment(rows, runs_of, [&](Run keys, const auto& seen, Index count) {
    double* to[kBlockRows];
    const double* by[kBlockRows];
    for (std::size_t n = 0; n < static_cast<std::size_t>(count); ++n)
      to[n] = rows[seen[n]].*y, by[n] = rows[seen[n]].*weight;
    add(to, by, count, keys);
  });
}

// y_j += sum over the rows of weight[j] x.
template <class RunsOf>
void block_add_outer(const ExactRowKernels& lanes, RowBlock rows, double* y, RowArray weight,
                     RowArray x, Index channels, const RunsOf& runs_of) {
  each_segment(rows, runs_of, [&](Run keys, const auto& seen, Index count) {
    const double* by[kBlockRows];
    const double* from[kBlockRows];
    for (std::size_t n = 0; n < static_cast<std::size_t>(count); ++n)
      by[n] = rows[seen[n]].*weight, from[n] = rows[seen[n]].*x;
    lanes.add_outer(y, by, from, count, channels, keys);
  });
}

}  // namespace posenc::v0::detail
