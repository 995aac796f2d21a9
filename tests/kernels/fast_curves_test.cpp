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

}  // namespace
}  // namespace posenc::v0::detail
