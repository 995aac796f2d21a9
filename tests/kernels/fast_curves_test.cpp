// SPDX-License-Identifier: Apache-2.0
// The loops of functions of the distance beside plain ones in double, on every instruction set.
#include "kernels/attention/fast_curves.h"

#include <gtest/gtest.h>

#include <vector>

#include "posenc/core/isa.h"
#include "support/random.h"

namespace posenc::inline v0::detail {
namespace {

TEST(FastCurves, Sums) {
  test::Random random(4);
  std::vector<float> x[3];
  for (std::vector<float>& of : x)
    for (const double number : random.normals(100)) of.push_back(static_cast<float>(number));
  for (const Isa isa : supported_isas())
    for (const std::size_t n : {1u, 3u, 16u, 17u, 80u}) {
      float got[3];
      fast_curve_kernels(isa).sums(x[0].data(), x[1].data(), x[2].data(), static_cast<Index>(n),
                                   got);
      double want[3] = {0, 0, 0};
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t k = 0; k < 3; ++k)
          want[k] += static_cast<double>(x[0][j]) * (k == 0 ? 1 : static_cast<double>(x[k][j]));
      for (std::size_t k = 0; k < 3; ++k)
        EXPECT_NEAR(static_cast<double>(got[k]), want[k], 1e-4) << isa_name(isa) << n << k;
    }
}

// A curve with knots at 0.2, 0.5 and 0.6, of all pieces and of one.
TEST(FastCurves, Rows) {
  const float slope[] = {1, -2, 3, 0.5f}, knot[] = {0.2f, 0.5f, 0.6f}, more[] = {-3, 5, -2.5f};
  const float level[] = {0.1f, 0.7f, -1.8f, -0.3f};
  std::vector<float> u(100);
  for (std::size_t j = 0; j < u.size(); ++j) u[j] = static_cast<float>(j * 37 % 100) * 0.02f;
  for (const Isa isa : supported_isas())
    for (const std::size_t keys : {1u, 17u, 64u, 70u}) {
      std::vector<float> all(96, 9.0f), one = all;
      const FastCurveRow rows[] = {{u.data(), 0.5f, 0, 3, all.data()},
                                   {u.data(), 0.05f, 0, 0, one.data()}};
      const FastCurveKernels& k = fast_curve_kernels(isa);
      EXPECT_TRUE(k.rows({slope, level, knot, more}, rows, 2, static_cast<Index>(keys), 1.5f));
      EXPECT_FALSE(k.rows({slope, level, knot, more}, rows, 2, static_cast<Index>(keys), 0.05f));
      for (std::size_t j = 0; j < keys; ++j) {
        const float x = u[j] * 0.5f;
        const std::size_t piece = x < 0.2f ? 0 : x < 0.5f ? 1 : x < 0.6f ? 2 : 3;
        EXPECT_NEAR(all[j], slope[piece] * x + level[piece], 1e-6) << isa_name(isa) << j;
        EXPECT_NEAR(one[j], u[j] * 0.05f + 0.1f, 1e-6);
      }
    }
}

}  // namespace
}  // namespace posenc::v0::detail
