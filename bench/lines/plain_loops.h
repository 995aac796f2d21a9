// SPDX-License-Identifier: Apache-2.0
// Loops that anybody would write, compiled for each instruction set: what a line is held against, and what a machine's
// memory can do. Tensors are f32 unless a name says otherwise.
#pragma once
#include <cstddef>
#include <cstdint>

#include "posenc/core/dtype.h"

namespace posenc::bench {

using Copy = void (*)(float* to, const float* from, std::size_t n);
using Fill = void (*)(float* to, std::size_t n, float value);
using Read = float (*)(const float* from, std::size_t n);  // returns something that depends on all
// Rotary, half-split, of `tokens` tokens in memory, 64 pairs, rows of 64 cosines and sines; whole heads one behind the
// other, with a prefetch for writing some KiB ahead. The plainest loop for large tensors.
template <class T>
using Rotation = void (*)(T* x, Index tokens, Index heads, const float* cos, const float* sin);

struct PlainLoops {
  void (*scale_in_place)(float* x, std::size_t n, float factor);  // x *= factor
  Copy copy;
  Copy copy_streaming;  // non-temporal stores; both pointers and n divisible by 64 bytes
  Fill fill;
  Fill fill_streaming;
  Read read;
  Read read_ahead;  // with a prefetch
  // One token: the loop every engine starts from (cos and sin given).
  void (*token_rotation)(float* q, int q_heads, float* k, int k_heads, int pairs, const float* cos,
                         const float* sin);
  Rotation<float> rotation_f32;
  Rotation<std::uint16_t> rotation_bf16;
  Rotation<std::uint16_t> rotation_f16;  // null: the instruction set does not convert
};

// Those of active_isa(). A build of a shared library does not show which of Highway's targets that is, and gives those
// of the best instruction set.
const PlainLoops& plain_loops();

}  // namespace posenc::bench
