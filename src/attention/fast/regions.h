// SPDX-License-Identifier: Apache-2.0
// Regions of pairs with their own q and k (Self-Extend, ReRoPE, dual chunk). A strip of rows and a block of keys that lie
// in one region use its q and k. Others are computed once for each region that is present, with start values that hide
// the pairs of the others, so kernels see no regions.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "attention/fast/row_blocks.h"

namespace posenc::inline v0::detail {

// Regions by bits: 0 pairs that no region contains, n + 1 region n of the call.
using RegionSet = std::uint32_t;
inline constexpr RegionSet kNoRegion = 1;
inline constexpr std::size_t kMostRegions = 31;
// One bit alone.
inline bool is_single(RegionSet s) noexcept {
  return (s & (s - 1)) == 0;
}

class Regions {
 public:
  Regions(const ReadyCall&, CallArena&);
  // Why regions are not computed here; empty: they are, or there are none.
  static std::string_view why_not(const AttentionArgs&) noexcept;

  bool none() const noexcept { return all_.empty(); }
  std::size_t size() const noexcept { return all_.size(); }
  // fn(number of the region, negative: none) for each bit.
  template <class F>
  static void each(RegionSet s, const F& fn) {
    for (int bit = 0; s != 0; ++bit, s >>= 1)
      if ((s & 1) != 0) fn(bit - 1);
  }
  // q and k of a region.
  const ConstQK& qk(int number) const noexcept { return qk_[static_cast<std::size_t>(number)]; }
  // Of all regions, as prepared.
  void use(std::span<const ConstQK> qk) noexcept { qk_ = qk; }
  // Whether heads that read one k read different k of a region.
  bool splits_groups() const noexcept;

  // Regions that some pair of these may lie in. If it is one, all pairs do.
  RegionSet of(const FastRow* rows, Index count, Run keys) const noexcept;
  RegionSet of(const RowGroup& g, Run keys) const noexcept;
  // Those of all queries with each tile of keys, [rows of keys][tiles].
  std::span<const RegionSet> of_tiles(CallArena&) const;
  // to[j - keys.begin] = start of the key, or 0 where start is null; -inf where the pair lies in another region. `width`
  // numbers are written, those behind the keys -inf. Returns a run that contains the keys of the region.
  Run hide_others(int number, const FastRow&, Run keys, const float* start, Index width,
                  float* to) const noexcept;

 private:
  // floor(position / chunk) of queries and keys, as AxisView holds their positions.
  struct Chunks {
    const ScoreRegion* region = nullptr;
    const AxisView* axis = nullptr;
    std::span<double> query, key;
    std::span<double> low, high;  // [rows of keys][tiles]
    bool exact = false;           // doubles hold all differences
    bool sorted = false;          // the keys of each row do not decrease
  };
  // Chunks of some queries, from the first to the last; of none the first lies behind the last.
  struct Span {
    double low = HUGE_VAL, high = -HUGE_VAL;
    void add(double x) noexcept { low = std::min(low, x), high = std::max(high, x); }
  };
  enum class Share : std::uint8_t { none, some, all };
  void fill(Chunks&) noexcept;
  Share share(const Chunks&, const Span& queries, Index key_row, Run keys) const noexcept;
  template <class SpanOf>
  RegionSet of(const SpanOf& queries, Index key_row, Run keys) const noexcept;
  // fn(run) for keys that a region contains, whatever the regions before it do.
  template <class F>
  void each_run(const Chunks&, const FastRow&, Run keys, const F& fn) const;

  const ReadyCall& call_;
  std::span<Chunks> all_;
  std::span<const ConstQK> qk_;
};

}  // namespace posenc::v0::detail
