// SPDX-License-Identifier: Apache-2.0
// RotaryTable: cos and sin of positions 0 .. size-1, built once, shared by every batch and layer,
// read in O(1) by position, as inference engines do. It grows by appending while readers read (what
// they see never moves or changes); a changed scaling is built aside and published in one step.
#pragma once
#include <filesystem>
#include <memory>

#include "posenc/rotary/plan.h"

namespace posenc {

enum class BeyondTable : std::uint8_t { refuse, grow };  // never a silent identity

class POSENC_API RotaryTable {
 public:
  // One-axis and multi-axis specs (an axis-wise table of each pair's own position stream). Throws
  // [rotary table]: xPos (its decay is not bounded), size < 0, dtype not f32, f16, bf16.
  RotaryTable(const RotarySpec&, Index positions, DType = DType::f32,
              BeyondTable = BeyondTable::refuse, const Executor& = default_executor());
  ~RotaryTable();
  RotaryTable(RotaryTable&&) noexcept;
  RotaryTable& operator=(RotaryTable&&) noexcept;

  void grow(Index positions, const Executor& = default_executor());
  void replace(const RotarySpec&, const Executor& = default_executor());
  Index size() const noexcept;
  std::size_t bytes() const noexcept;

  // What a reader holds: [positions, columns] of one version; valid as long as `keep_alive` lives.
  struct Snapshot {
    std::shared_ptr<const void> keep_alive;
    TensorView cos_sin;  // [positions, 2 * pairs], [cos | sin]
    Index size = 0;
  };
  Snapshot snapshot() const;
  // cos and sin of the table in any layout of INTERFACES, to .npy or .safetensors (atomic).
  void save(const std::filesystem::path&, TableLayout = TableLayout::half) const;
  // Maps a file that save() wrote (layout half); the spec must be the one it was built from.
  static RotaryTable map(const std::filesystem::path&, const RotarySpec&);

  struct State;
  const State& state() const noexcept { return *state_; }

 private:
  explicit RotaryTable(std::unique_ptr<State>);
  std::unique_ptr<State> state_;
};

// Rotate with rows looked up by position. A position outside [0, size): BeyondTable says.
POSENC_API void apply(const RotaryPlan&, const QK& in, const QK& out, const RotaryTable&,
                      const Positions&, Sense = Sense::forward,
                      const Executor& = default_executor());

}  // namespace posenc
