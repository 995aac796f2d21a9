// SPDX-License-Identifier: Apache-2.0
// The sum of cos(m w_i) over whole distances m, by rotation from distance to distance.
#pragma once
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "posenc/core/dtype.h"

namespace posenc::inline v0 {

class CosineSum {
 public:
  // offset: added to every sum, for pairs that do not rotate.
  CosineSum(std::size_t pairs, double offset) : offset_(offset), frequency_(pairs) {}

  std::span<double> frequency() noexcept { return frequency_; }
  double at(double m) const {
    double sum = offset_;
    for (const double w : frequency_) sum += std::cos(m * w);
    return sum;
  }

  // Calls visit(m, sum) for every m of [first, end) with a negative sum, until it returns false. The
  // angles start anew every 1024 distances: within 1e-9 of `at` for m < 2^20.
  template <class Visit>
  void negative(Index first, Index end, Visit&& visit) {
    prepare();
    for (Index m = first; m < end;) {
      start(m);
      for (const Index last = std::min(end, m + 1024); m < last; m += kLanes) {
        double sum[kLanes];
        if (!step(sum)) continue;
        for (Index k = 0; k < std::min(kLanes, last - m); ++k)
          if (sum[k] < 0 && !visit(m + k, sum[k])) return;
      }
    }
  }

 private:
  static constexpr Index kLanes = 8;  // consecutive distances side by side

  // Rotation by one distance and by kLanes of them.
  void prepare() {
    const std::size_t n = frequency_.size();
    angle_.resize(2 * n * kLanes);
    turn_.resize(2 * n);
    for (std::size_t i = 0; i < n; ++i) {
      turn_[2 * i] = std::cos(static_cast<double>(kLanes) * frequency_[i]);
      turn_[2 * i + 1] = std::sin(static_cast<double>(kLanes) * frequency_[i]);
    }
  }
  void start(Index m) {
    for (std::size_t i = 0; i < frequency_.size(); ++i) {
      const double w = frequency_[i], angle = static_cast<double>(m) * w;
      const double x = std::cos(w), y = std::sin(w);
      double c = std::cos(angle), s = std::sin(angle);
      for (std::size_t k = 0; k < kLanes; ++k) {
        angle_[2 * i * kLanes + k] = c;
        angle_[(2 * i + 1) * kLanes + k] = s;
        const double next = c * x - s * y;
        s = s * x + c * y;
        c = next;
      }
    }
  }
  // The sums of the current distances; then goes on. Whether one is negative.
  bool step(double* sum) {
    std::fill(sum, sum + kLanes, offset_);
    for (std::size_t i = 0; i < frequency_.size(); ++i) {
      double* c = &angle_[2 * i * kLanes];
      double* s = c + kLanes;
      const double x = turn_[2 * i], y = turn_[2 * i + 1];
      for (std::size_t k = 0; k < kLanes; ++k) {
        sum[k] += c[k];
        const double next = c[k] * x - s[k] * y;
        s[k] = s[k] * x + c[k] * y;
        c[k] = next;
      }
    }
    bool is_negative = false;
    for (Index k = 0; k < kLanes; ++k) is_negative |= sum[k] < 0;
    return is_negative;
  }

  double offset_;
  std::vector<double> frequency_, angle_, turn_;
};

}  // namespace posenc::v0
