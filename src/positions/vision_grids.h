// SPDX-License-Identifier: Apache-2.0
// Images or videos of a call, used up in order.
#pragma once
#include <cmath>
#include <string>

#include "core/shape.h"
#include "posenc/core/error.h"
#include "posenc/positions/mrope.h"
#include "positions/exact.h"

namespace posenc::inline v0 {

inline void check_grid(std::string_view who, Index merge, const VisionGrid& g) {
  if (g.frames < 1) refuse(who, "a grid must have at least one frame", g.frames);
  if (g.rows < 1 || g.rows % merge != 0)
    refuse(who, "rows of a grid must be positive and divided by merge", g.rows);
  if (g.columns < 1 || g.columns % merge != 0)
    refuse(who, "columns of a grid must be positive and divided by merge", g.columns);
  if (!std::isfinite(g.seconds) || g.seconds < 0)
    refuse_field(who, "seconds", "must be finite and not negative", g.seconds);
}

class VisionGrids {
 public:
  // frames_apart: a video is so many grids of one frame.
  VisionGrids(std::string_view who, Index merge, bool frames_apart,
              std::span<const VisionGrid> grids, std::string_view kind)
      : who_(who), kind_(kind), grids_(grids.begin(), grids.end()), frames_apart_(frames_apart) {
    for (const VisionGrid& g : grids_) check_grid(who, merge, g);
  }
  VisionGrid next() {
    if (used_ == grids_.size())
      refuse(who_, std::string("there are more runs of tokens than grids of ") + kind_);
    VisionGrid g = grids_[used_];
    if (!frames_apart_ || ++frames_ == g.frames) ++used_, frames_ = 0;
    if (frames_apart_) g.frames = 1;
    return g;
  }
  void check_used_up() const {
    if (used_ != grids_.size())
      refuse(who_, std::string("every grid must have its run of tokens, left over of ") + kind_,
             static_cast<Index>(grids_.size() - used_));
  }

 private:
  std::string who_, kind_;
  std::vector<VisionGrid> grids_;
  bool frames_apart_;
  std::size_t used_ = 0;
  Index frames_ = 0;  // of the next grid that are used
};

// Merged patches of a grid; in double, so that no product overflows.
inline double merged_tokens(const VisionGrid& g, Index merge) noexcept {
  return static_cast<double>(g.frames) * static_cast<double>(g.rows / merge) *
         static_cast<double>(g.columns / merge);
}

// Token types and which of the tokens are real.
struct TypedRows {
  IntegerRows types, real;

  TypedRows(std::string_view who, const ConstTensorView& token_types, const ConstTensorView& mask)
      : types(integer_rows(token_types, who)), real(types) {
    std::fill(real.value.begin(), real.value.end(), 1);
    if (mask.empty()) return;
    real = mask_rows(mask, who);
    if (real.batch != types.batch || real.tokens != types.tokens)
      detail::refuse_shape(who, "mask",
                           "must have the shape of the token types, " +
                               detail::sizes_text({types.batch, types.tokens}),
                           detail::sizes_text({real.batch, real.tokens}));
  }
  // Places of the real tokens of a row.
  std::vector<Index> places(Index row) const {
    std::vector<Index> v;
    for (Index t = 0; t < types.tokens; ++t)
      if (real(row, t) != 0) v.push_back(t);
    return v;
  }
};

}  // namespace posenc::v0
