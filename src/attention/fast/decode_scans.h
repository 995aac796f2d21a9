// SPDX-License-Identifier: Apache-2.0
// Gates and sticks of few queries (gates.h, sticks.h): their keys are passed from the last to the first, one key after the
// other. The last slice of the keys comes first. Gates need the count behind a slice, so the slices follow each other until
// all rows have reached the last level. What a stick leaves is a factor of all slices before, so they are independent.
#pragma once
#include "attention/fast/decode.h"

namespace posenc::inline v0::detail {

// Memory of one thread.
struct DecodeScanWork {
  DecodeScanWork(const DecodeCall&, CallArena&);

  std::span<float> products;      // [rows of a block][kDecodeKeys]: of gates that have products
  std::span<float> sums;          // FastDecodeHeads::sums
  std::span<const void*> tokens;  // of keys that gates have
  std::span<float> copies;
  std::span<float> own;       // value of the key of a query's own order
  std::span<std::byte> copy;  // of a token, as FastCall::token
};

class DecodeScans {
 public:
  DecodeScans(const DecodeCall&, CallArena&);
  // Before all slices. Rows that float cannot work with are left.
  void begin(bool wants_rest) noexcept;

  bool none() const noexcept { return state_.empty(); }
  // Before a slice is computed; before all of the first `slices`, which need nothing of those behind.
  void begin_slice(Index slice) noexcept;
  void begin_rest(Index slices) noexcept;
  // Whether the slices before one need what it counted. careful: of blocks that are low.
  bool counts(Index slice, bool careful) const noexcept;
  // Whether all weights of a block in a slice are 0.
  bool is_done(const DecodeBlock&, Index slice) const noexcept;

  // Products of gates of a block with a unit of keys, unless they are q.k.
  void multiply_gates(const DecodeBlock&, Run keys, std::span<const void* const> k,
                      const std::byte* zeros, DecodeScanWork&) noexcept;
  // Adds levels to row n of a block, of which `group` holds the head. False: float cannot work with its products.
  bool add_levels(const DecodeBlock&, const RowGroup& group, Index n, Index slice, Run keys,
                  FastDecodeRow&, DecodeScanWork&) noexcept;
  // Weights of a stick. False: float cannot work with its scores.
  bool break_stick(Index row, Index slice, const FastDecodeRow&) noexcept;

  // What is left of a stick, after its slices; `reference` becomes the logarithm of their factors.
  RowTotal join_sticks(DecodeCall&, Index row) const noexcept;

 private:
  double& state(Index slice, Index row) noexcept { return state_[call_->at(slice, row)]; }
  double state(Index slice, Index row) const noexcept { return state_[call_->at(slice, row)]; }
  void take_block(const DecodeBlock&) noexcept;

  const DecodeCall* call_;
  bool wants_rest_ = true;
  std::span<double> state_;  // [slices][rows]: counts, or log2 of what the slice leaves
  // Of gates.
  std::span<float> levels_;   // [rows][level_stride]
  std::span<float> vectors_;  // [rows of a strip][D]
  std::span<float> q_;        // [rows][width]
  Index width_ = 0;
};

}  // namespace posenc::v0::detail
