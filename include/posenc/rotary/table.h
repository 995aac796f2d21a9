// SPDX-License-Identifier: Apache-2.0
// RotaryTable: cos and sin of positions 0 .. size-1, built once, shared by every batch and layer,
// read in O(1) by position, as inference engines do. It grows by appending while other threads read it
// (rows that they see never move or change); rows of another scaling are built separately and published
// in one step.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "posenc/core/file_path.h"
#include "posenc/rotary/plan.h"

namespace posenc::inline v0 {

namespace detail {
struct RotaryTableState;
}

// What a call does for a position without a row.
enum class BeyondTable : std::uint8_t { refuse, grow };
template <>
struct EnumNames<BeyondTable> {
  static constexpr std::array<std::string_view, 2> value{"refuse", "grow"};
};

class POSENC_API RotaryTable {
 public:
  // One-axis and multi-axis specs (an axis-wise table of each pair's own position stream). Rows have
  // any layout, for programs that read them from a snapshot; `half` is read fastest. Throws
  // [rotary table]: xPos (its decay is not bounded), dtype not f32, f16, bf16, size < 0 or beyond
  // the spec's valid_to (positions for which its frequencies are not valid). Throws std::bad_alloc,
  // with the number of bytes, if the machine does not have enough memory.
  RotaryTable(const RotarySpec&, Index positions, DType, TableLayout,
              BeyondTable = BeyondTable::refuse, const Executor& = default_executor());
  RotaryTable(const RotarySpec& spec, Index positions, DType dtype = DType::f32,
              BeyondTable beyond = BeyondTable::refuse,
              const Executor& executor = default_executor())
      : RotaryTable(spec, positions, dtype, TableLayout::half, beyond, executor) {}
  ~RotaryTable();
  // A moved-from table has size 0 and may only be assigned to or destroyed.
  RotaryTable(RotaryTable&&) noexcept;
  RotaryTable& operator=(RotaryTable&&) noexcept;

  // Another handle of the same table: growth and replacement are visible in all handles.
  RotaryTable share() const;

  // Other threads continue to read without waiting. By default it runs on the caller's thread, to leave
  // cores to the readers. Up to 2^20 positions (and at least the size at
  // the start) rows are appended in place; beyond, a larger table is built separately. Throws: size < 0.
  void grow(Index positions, const Executor& = inline_executor());
  // The same number of rows of another spec, published in one step. Existing snapshots keep the old rows.
  // Throws [rotary table]: blocks, pairs, heads or axes other than the table's; a size beyond the
  // spec's valid_to.
  void replace(const RotarySpec&, const Executor& = inline_executor());
  Index size() const noexcept;
  std::size_t bytes() const noexcept;  // of the rows

  // A reader's view of one version, [positions, columns]; valid as long as `keep_alive` lives.
  struct Snapshot {
    std::shared_ptr<const void> keep_alive;
    // [positions, columns]: block after block, the cosines and sines of its [heads, pairs] in the layout
    ConstTensorView cos_sin;
    TableLayout layout = TableLayout::half;
    Index size = 0;
  };
  Snapshot snapshot() const;
  // The rows as a snapshot has them, in any layout, to .npy or .safetensors by the name's ending
  // (atomic). .npy has no bf16.
  void save(const FilePath&, TableLayout = TableLayout::half) const;
  // Maps a file that save() wrote; the spec must be the one it was built from: by the hash in the
  // file (.safetensors) and by rows that are computed again. .safetensors records its layout, and another requested one is
  // rejected; .npy does not record it, and the default is half. A table that grows moves into memory.
  static RotaryTable map(const FilePath&, const RotarySpec&, BeyondTable = BeyondTable::refuse,
                         std::optional<TableLayout> = std::nullopt);

 private:
  friend struct detail::StateAccess;
  explicit RotaryTable(std::shared_ptr<detail::RotaryTableState>);
  std::shared_ptr<detail::RotaryTableState> state_;
};

// One table for each layer, built once where the rows are equal (same spectrum and precision; the
// pairing does not matter).
class POSENC_API RotaryTableSet {
 public:
  RotaryTableSet(std::span<const RotarySpec> layers, Index positions, DType = DType::f32,
                 BeyondTable = BeyondTable::refuse, const Executor& = default_executor());
  // Throws [rotary table] out of range.
  const RotaryTable& operator[](Index layer) const POSENC_LIFETIME_BOUND;
  Index layers() const noexcept { return static_cast<Index>(of_layer_.size()); }
  Index distinct() const noexcept { return static_cast<Index>(tables_.size()); }
  std::size_t bytes() const noexcept;  // of the distinct ones

 private:
  std::vector<RotaryTable> tables_;
  std::vector<std::size_t> of_layer_;
};

// Rotates with rows looked up by position (i32 or i64). The plan determines which channels rotate, the
// table by which angles: it must contain the rows of the plan's spec, or have contained them before it
// was replaced (then the new rows apply; inverse and shift require the same gain). A position below 0 is
// rejected; one at or beyond size() is rejected or grows the table (to at most 2^24 positions). Lengths
// outside valid_from to valid_to of the table's spec are rejected unless the plan allows them
// (plan_options.h). Products are rounded once: precision hf_bfloat16_table with its own roundings is
// rejected.
POSENC_API void apply(const RotaryPlan&, const ConstQK& in, const QK& out, const RotaryTable&,
                      const Positions&, RotateMode = RotateMode::forward,
                      const Executor& = default_executor());
POSENC_API void apply(const RotaryPlan&, const QK&, const RotaryTable&, const Positions&,
                      RotateMode = RotateMode::forward, const Executor& = default_executor());
// Queries and keys in place, or one tensor.
inline void apply(const RotaryPlan& plan, const Heads& q, const Heads& k, const RotaryTable& table,
                  const Positions& p, RotateMode mode = RotateMode::forward,
                  const Executor& executor = default_executor()) {
  apply(plan, QK{q, k}, table, p, mode, executor);
}
inline void apply(const RotaryPlan& plan, const Heads& q, const RotaryTable& table,
                  const Positions& p, RotateMode mode = RotateMode::forward,
                  const Executor& executor = default_executor()) {
  apply(plan, QK{q, {}}, table, p, mode, executor);
}

}  // namespace posenc::v0
