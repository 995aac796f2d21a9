// SPDX-License-Identifier: Apache-2.0
// A table of positions at another size. Every method is linear in the table, so its gradient is the
// transpose of the same map.
//   linear       1-D, between the two nearest rows
//   stretch      1-D, new row o at old row o / factor, factor = new / old: position interpolation
//                (LongEmbed; Long-CLIP, whose first 20 rows are a prefix)
//   tile         1-D, new row o is old row o mod old: Longformer, LSG, BigBird
//   bilinear     a grid, the same on both axes
//   bicubic      a grid, Keys' cubic convolution (IEEE Trans. ASSP 29, 1981) on both axes
//   geometric    a grid of odd sides, linear between points whose distances grow geometrically
//                from the middle: timm's set_window_size (BEiT's authors: cubic, by scipy, there)
//   hierarchical to n^2 positions (Su Jianlin, kexue.fm/archives/7947; bert4keras):
//                q[x n + y] = a u_x + (1 - a) u_y,  u_t = (p_t - a p_0) / (1 - a)
//                           = p_y + a / (1 - a) (p_x - p_0),  so q[y] = p_y bit for bit
// Sampling points, in units of old rows, o = 0 .. new - 1, s = old / new:
//   s (o + 1/2) - 1/2                 by default; with align_corners o (old - 1) / (new - 1)
//   offset        s = old / (new + offset): DINO, DINOv2 and ViT in older transformers (0.1)
//   scale         s = 1 / scale, a factor instead of a size (torch without recompute_scale_factor)
// An axis that keeps its size is copied but by bicubic without antialias or another border (torch).
// Who does what: torch, ViT, CLIP, DINOv2 in transformers 5: bicubic (a -0.75, border repeated);
// timm, DINOv2 with registers: antialias (a -0.5, border renormalised); JAX, big_vision: antialias;
// Swin: bicubic (tables of bias), LeViT bicubic with antialias, BEiT in transformers bilinear;
// SAM's decomposed tables: linear to 2 max(q, k) - 1 rows.
#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/core/executor.h"
#include "posenc/core/tensor_view.h"
#include "posenc/positions/mrope.h"

namespace posenc::inline v0 {

enum class ExtendHow : std::uint8_t {
  linear,
  bilinear,
  bicubic,
  geometric,
  hierarchical,
  stretch,
  tile
};
template <>
struct EnumNames<ExtendHow> {
  static constexpr std::array<std::string_view, 7> value{
      "linear", "bilinear", "bicubic", "geometric", "hierarchical", "stretch", "tile"};
};
// Whether it resizes a list of rows; the others resize both axes of a grid.
constexpr bool is_one_axis(ExtendHow how) noexcept {
  return how == ExtendHow::linear || how == ExtendHow::hierarchical || how == ExtendHow::stretch ||
         how == ExtendHow::tile;
}
// Taps outside the table: read the nearest row; omit them and divide by the sum of the others; or,
// stretch only, continue the line through the last two rows (Long-CLIP).
enum class ResizeBorder : std::uint8_t { repeat, renormalise, extrapolate };
template <>
struct EnumNames<ResizeBorder> {
  static constexpr std::array<std::string_view, 3> value{"repeat", "renormalise", "extrapolate"};
};
// What the rows of a table represent, which determines the possible sizes.
//   positions  one row for each position or patch: any size
//   offsets    one row for each offset of two patches (Swin, BEiT, SAM): an odd number on each axis
//              and no rows in front
//   buckets    one row for each bucket of distances (T5): the number of buckets is fixed, because
//              the rows have no order that interpolation could use
enum class TableRows : std::uint8_t { positions, offsets, buckets };
template <>
struct EnumNames<TableRows> {
  static constexpr std::array<std::string_view, 3> value{"positions", "offsets", "buckets"};
};
// By the usual name of such a tensor: relative_position_bias_table, rel_pos_h,
// distance_embedding ... are offsets; relative_attention_bias, rel_attn_embed ... are buckets.
POSENC_API TableRows table_rows_of(std::string_view tensor_name) noexcept;

struct Extension {
  ExtendHow how = ExtendHow::linear;
  bool align_corners = false;  // with antialias only the step follows, as in torch
  bool antialias = false;      // the kernel is widened by s where s > 1 (fewer rows than before)
  std::optional<double> a{};   // Keys' parameter; none: -0.75, with antialias -0.5, as in torch
  std::optional<ResizeBorder> border{};  // none: repeat, with antialias renormalise, as in torch
  double offset = 0;                     // added to the new size where s is made
  std::optional<double> scale_y{}, scale_x{};  // new size over old; 1-D tables: scale_y
  double alpha = 0.4;                          // hierarchical: 0 < alpha < 1, not 1/2
  TableRows rows = TableRows::positions;
  bool operator==(const Extension&) const = default;
};

// Rows of a table: `prefix` (class, register tokens; rows before position 0), height x width of a
// grid row by row, `suffix` (BEiT's three class rows). 1-D: width 1. Prefix and suffix are copied.
struct TableShape {
  Index height = 0, width = 1, prefix = 0, suffix = 0;
  Index rows() const noexcept { return prefix + height * width + suffix; }
  bool operator==(const TableShape&) const = default;
};

// New row o is the sum over k of weight[o taps + k] times old row index[o taps + k]; taps outside
// the table read its ends (repeat) or have weight 0. In double.
struct AxisTaps {
  Index old_size = 0, new_size = 0, taps = 0;
  std::vector<Index> index;
  std::vector<double> weight;
};
// One axis. `scale`: of this axis. Throws [extend]: sizes below 1 or above 2^31, align_corners with
// a factor or an offset, a factor that is not finite and positive, geometric with an even size,
// hierarchical beyond n^2, options that the method does not have, extrapolate of one row or of a method
// other than stretch, sizes that do not exist for `rows`.
POSENC_API AxisTaps axis_taps(Index old_size, Index new_size, const Extension&,
                              std::optional<double> scale = {});

// table [from.rows(), c] -> out [to.rows(), c], both of one dtype (f64, f32, f16, bf16), channels
// together, rows any stride; no overlap. Arithmetic in double, rounded once. Equal sizes without
// factor or offset copy bit for bit. Results do not depend on the executor. Throws [extend]:
// shapes, dtypes, prefixes or suffixes that differ, a grid for a 1-D way, and as axis_taps.
POSENC_API void extend_table(const ConstTensorView& table, const TableShape& from,
                             const TensorView& out, const TableShape& to, const Extension&,
                             const Executor& = default_executor());
// The transpose: d_table overwritten; deterministic.
POSENC_API void extend_gradient(const ConstTensorView& d_out, const TableShape& to,
                                const TensorView& d_table, const TableShape& from, const Extension&,
                                const Executor& = default_executor());

// Rows for images packed one after the other (Qwen3-VL: bilinear, align_corners, merge 2; Kimi K2.5:
// bicubic, merge 1): the table resized to each image's grid, frames repeated, patches of a frame in
// blocks of merge x merge, row by row. out [sum of frames x rows x columns, c]. `from` without
// prefix and suffix. Throws [extend]: also a grid that merge does not divide.
POSENC_API void extend_packed(const ConstTensorView& table, const TableShape& from,
                              std::span<const VisionGrid> images, Index merge,
                              const TensorView& out, const Extension&,
                              const Executor& = default_executor());
POSENC_API void extend_packed_gradient(const ConstTensorView& d_out,
                                       std::span<const VisionGrid> images, Index merge,
                                       const TensorView& d_table, const TableShape& from,
                                       const Extension&, const Executor& = default_executor());

}  // namespace posenc::v0
