// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "posenc/phase.h"

namespace posenc::test {

inline void expect_frequencies(const std::vector<double>& got, const std::vector<double>& want,
                               double relative) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], relative * std::abs(want[i])) << "pair " << i;
}

// what() of the refusal, "" when nothing was thrown.
inline std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

}  // namespace posenc::test
