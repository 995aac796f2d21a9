// SPDX-License-Identifier: Apache-2.0
// k = g R(p) x is known, k' = g' R'(p') x is wanted:   k' = (g' / g) R'(p') R(p)^-1 k
// The angle of each pair, p' f' - p f, is the difference of two exact turns. Su et al.,
// arXiv:2104.09864v5, eq. 34; xPos (arXiv:2212.10554, eq. 19) adds 2^(-d (p' - p) / scale).
#pragma once
#include <cstdint>
#include <vector>

#include "core/element.h"
#include "kernels/rows.h"
#include "phase/rows.h"
#include "posenc/rotary/spec.h"

namespace posenc::inline v0::detail {

// A block's turns, in the form that phases are made from. Moving keeps the vectors' memory.
struct BlockTurns {
  std::vector<std::uint64_t> hi, lo;
  std::vector<double> per_unit;
  PhaseTurns view;

  explicit BlockTurns(const Spectrum&);
};

// The rotation that keys have, or that they are to get.
struct KeyRotation {
  RotarySpec spec;
  std::vector<BlockTurns> turns;

  explicit KeyRotation(const RotarySpec&);
};

// Makes the rows of cosine and sine that move keys: within 2.3e-16 where both rotations are exact.
struct KeyRows {
  const KeyRotation &from, &to;
  const RowKernels& kernels;
  Positions old_positions, new_positions;  // batch 0 is read

  alignas(64) std::uint64_t old_phase[kRowChunk + kRowPadding], phase[kRowChunk + kRowPadding];
  alignas(64) double c[kRowChunk + kRowPadding], s[kRowChunk + kRowPadding];

  KeyRows(const KeyRotation& f, const KeyRotation& t, const RowKernels& k)
      : from(f), to(t), kernels(k) {}

  // A block after the other: the cosines [heads, pairs], then the sines; gain and decay in. T is
  // float or double.
  template <class T>
  void row(Index token, T* out) noexcept;

 private:
  struct Pairs {
    std::size_t block;
    Index token, head, first, n;
  };
  void one_side(const KeyRotation&, const Positions&, const Pairs&, double* cosine,
                double* sine) noexcept;
  void by_division(const Pairs&) noexcept;
  void by_difference(const Pairs&) noexcept;
};

// p' - p of the first axis, without loss for integers.
double moved_by(const Positions& from, const Positions& to, Index token) noexcept;

}  // namespace posenc::v0::detail
