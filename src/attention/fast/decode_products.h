// SPDX-License-Identifier: Apache-2.0
// Products of vectors that come with terms (wide_products.h), for few queries: their keys are read as they lie, after those
// of the call.
#pragma once
#include "attention/fast/decode.h"

namespace posenc::inline v0::detail {

// Memory of one thread.
struct DecodeProductWork {
  DecodeProductWork(const DecodeCall&, CallArena&);

  std::span<float> x;             // [rows of a block][kDecodeKeys]
  std::span<float> sums;          // FastDecodeHeads::sums
  std::span<const void*> tokens;  // of keys
  std::span<float> copies;
};

class DecodeProducts {
 public:
  DecodeProducts(const DecodeCall&, CallArena&);
  bool none() const noexcept { return width_ == 0; }
  // Row n of all: the channels behind those of q, of a row as FastCall::take_query writes it.
  void take_query(const float* row, Index n) noexcept;
  // x[r][j] += products of a block with a unit of keys.
  void add(const DecodeBlock&, Run keys, std::span<const void* const> k, const std::byte* zeros,
           float* x, DecodeProductWork&) const noexcept;

 private:
  const DecodeCall* call_;
  Index width_ = 0;     // of a row: all terms, each in whole vectors
  std::span<float> q_;  // [rows][width]
};

}  // namespace posenc::v0::detail
