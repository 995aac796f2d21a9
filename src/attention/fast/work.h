// SPDX-License-Identifier: Apache-2.0
// What the fast engine reads of a call, and the memory of one thread.
#pragma once
#include "attention/fast/prepare.h"
#include "attention/fast/row_blocks.h"

namespace posenc::inline v0::detail {

// Element `at` of a tensor and the channels after it; copied to `memory` where they are not adjacent.
const void* adjacent(const ConstHeads&, Index at, std::byte* memory) noexcept;

struct FastCall : ReadyCall {
  FastCall(const ReadyCall&, const LoweredCall&, CallArena&, const Executor&);

  const FastKernels& kernels;
  ConstHeads q, k;                     // as prepared
  std::span<const std::uint8_t> seen;  // PreparedQK::seen
  Starts starts;
  std::span<const FastRowBlock> blocks;
  bool filtered;  // some mask is read for each key
  Index panel, value_vectors, value_panels;

  std::size_t copy_bytes = 0;  // of a token whose channels are not adjacent

  // Token j of a row of keys or values; its channels are adjacent, or copied to `memory`.
  const void* token(const ConstHeads&, Index row, Index group, Index j,
                    std::byte* memory) const noexcept;
};

// Memory of one thread: rows of a block, a block of keys and values, one strip.
struct FastWork {
  FastWork(const FastCall&, CallArena&);

  BoundedList<FastRow> rows;  // of the block, strips one after the other
  BoundedList<RowGroup> groups;
  std::span<std::uint8_t> left;      // by row: another engine must compute it
  std::span<float> q;                // [rows][D], times scale and log2(e)
  std::span<float> out;              // [groups][value panels][rows of the strip][panel]
  std::span<float> sums;             // [rows][lanes]
  std::span<double> reference;       // [rows]
  std::span<float> keys, values;     // packed
  std::span<float> weights, starts;  // [rows of a strip][keys of a block and more]
  std::span<const void*> tokens;
  std::span<std::byte> copies;  // of tokens whose channels are not adjacent
  std::span<double> start;      // of one row and a block of keys
  RunList runs;
};

// Start values of the rows of a strip, and what is added to them.
struct StripStarts {
  const float* at[12];
  double base[12];
  float shift[12];
  Index keys = 0;  // that some row sees, from the first on
};
// Of a block of keys that all rows see: from lines.
void fill_line_starts(const FastCall&, FastWork&, const RowGroup&, Run keys, StripStarts&) noexcept;
// Of any: written to w.starts, -inf where a row does not see a key. Rows whose values float cannot work with are
// left.
void fill_masked_starts(const FastCall&, FastWork&, const RowGroup&, Run keys,
                        StripStarts&) noexcept;

}  // namespace posenc::v0::detail
