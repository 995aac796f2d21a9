// SPDX-License-Identifier: Apache-2.0
// Terms that go by one distance, over a range of distances. Where the keys of a query count up, its
// entries are consecutive: a row of scores reads them as a slice.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "attention/call/call_arena.h"
#include "posenc/relative/scheme.h"

namespace posenc::inline v0::detail {

// What goes by one distance: the slopes of a LinearTerm, or the row that one line picks.
struct BandSource {
  const LinearTerm* linear = nullptr;
  const IndexLine* line = nullptr;
  std::int32_t axis = 0;  // of the positions
};
// None: several lines, classes, another kind.
std::optional<BandSource> band_source(const Term&) noexcept;
std::optional<BandSource> band_source(const PickedRows&) noexcept;

// Entry n is of the distance high - n.
struct Band {
  // The term has a band_source, and check_term accepts its table. The arena must outlive the band.
  Band(const Term&, const BandSource&, Index low, Index high, CallArena&);

  std::span<const std::int32_t> rows;  // of a line: its row of the table, negative where disabled
  // What is added to the score, scale included, [slabs of the table, size]: of a LinearTerm, and of a
  // line over numbers that meet no factor.
  std::span<const double> values;
  std::span<const double> positive_distance,
      negative_distance;  // of a LinearTerm: max(delta, 0), max(-delta, 0)
  Index low, high;

  Index size() const noexcept { return high - low + 1; }
  // Whether it holds for the term, of which a call may have replaced the line or the table.
  bool is_of(const Term&, const BandSource&) const noexcept;

 private:
  void make_slopes(const LinearTerm&, CallArena&);
  void make_rows(const Term&, const IndexLine&, CallArena&);

  const void *rows_of_, *table_of_;
};
// The band of a term over the distances that were lowered. Null: the term has none, or a large one.
const Band* lowered_band(const Term&, std::span<const DistanceRange>, CallArena&);

}  // namespace posenc::v0::detail
