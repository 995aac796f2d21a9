// SPDX-License-Identifier: Apache-2.0
// Rows that an encoding at the input adds, against numbers of transformers.
#pragma once
#include <string>
#include <vector>

#include "hugging_face_suite.h"
#include "posenc/absolute/plan.h"
#include "posenc/positions/view.h"
#include "posenc/registry.h"

namespace posenc::test {

// Rows of positions 0, 1 and 5; of a grid of four columns its cells 0, 1 and 5, or three cells at
// coordinates of their own.
inline std::vector<double> rows_of(const Scheme& scheme, Index width,
                                   const std::vector<double>& grid = {0, 0, 1, 0, 1, 1}) {
  std::vector<double> y(static_cast<std::size_t>(3 * width));
  const std::vector<Index> line{0, 1, 5};
  std::visit(
      [&](const auto& s) {
        if constexpr (AbsoluteScheme<std::decay_t<decltype(s)>>) {
          LoweredInput low;
          s.lower({}, low);
          const bool plane = card(scheme).name == "sinusoidal_nd";
          const Positions at = plane ? positions(tensor(grid.data(), {2, 1, 3}))
                                     : positions(std::span<const Index>(line));
          InputPlan(low, DType::f64).apply({}, at, tensor(y.data(), {3, width}));
        }
      },
      scheme);
  return y;
}

inline void check_rows(const Encoding& encoding, const Json& values, const std::string& who,
                       const std::vector<double>& grid = {0, 0, 1, 0, 1, 1}) {
  const auto width = static_cast<Index>(values.as_array().front().as_array().size());
  const auto got = rows_of(encoding.scheme, width, grid);
  ASSERT_EQ(values.as_array().size(), 3u);
  std::size_t k = 0;
  for (const Json& row : values.as_array())
    for (const Json& v : row.as_array())
      EXPECT_NEAR(got[k++], v.as_number(), 2e-6) << who << " place " << k - 1;  // float32 there
}

}  // namespace posenc::test
