// SPDX-License-Identifier: Apache-2.0
// A list of positions, as every plan and kernel accepts it. posenc/positions.h makes them.
#pragma once
#include "posenc/core/dtype.h"

namespace posenc::inline v0 {

// A view: [axes][batch][tokens] of i64, i32 or f64. batch_stride 0: every batch entry has the same.
struct Positions {
  const void* data = nullptr;
  DType type = DType::i64;
  std::int32_t axes = 1;
  Index count = 0;  // tokens
  Index batch = 1;  // 1 serves every batch, whatever its stride
  Index token_stride = 1, batch_stride = 0, axis_stride = 0;
};

}  // namespace posenc::v0
