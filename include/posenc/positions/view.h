// SPDX-License-Identifier: Apache-2.0
// Positions from spans and tensors, and an owner of their memory.
#pragma once
#include <span>
#include <variant>
#include <vector>

#include "posenc/core/dtype.h"
#include "posenc/core/export.h"
#include "posenc/core/positions.h"
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0 {

POSENC_API Positions positions(std::span<const Index>);
POSENC_API Positions positions(std::span<const std::int32_t>);
POSENC_API Positions positions(std::span<const double>);
// From a tensor [t], [b, t] or [axes, b, t] of i64, i32 or f64, any strides. Throws [positions] ...
POSENC_API Positions positions(const ConstTensorView&);

// Length of a sequence with these positions: the largest position on any axis + 1, fractions rounded up;
// 0 if there are none, or only negative ones. They must be finite.
POSENC_API Index length_of(const Positions&) noexcept;

// Owns its memory: [axes][batch][tokens], dense. A temporary is safe as an argument of a call
// (plan.apply(qk, arange(0, 16))). To keep positions, store the owner (const auto p = arange(0, 16)), not
// a view of a temporary (Positions p = arange(0, 16): clang warns).
struct OwnedPositions {
  std::variant<std::vector<Index>, std::vector<double>> value;
  std::int32_t axes = 1;
  Index batch = 1;
  POSENC_API Index count() const noexcept;        // tokens of a batch entry
  POSENC_API operator Positions() const noexcept  // NOLINT(google-explicit-constructor): a view
      POSENC_LIFETIME_BOUND;
};

}  // namespace posenc::v0
