// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/t5.h"

#include "posenc/core/error.h"

namespace posenc {
namespace {

// Whole numbers of any size, little-endian limbs: just what the comparison needs.
class Natural {
 public:
  explicit Natural(std::uint64_t x) : limb_{static_cast<std::uint32_t>(x)} {
    if (x >> 32 != 0) limb_.push_back(static_cast<std::uint32_t>(x >> 32));
  }
  void multiply(const Natural& other) {
    std::vector<std::uint32_t> r(limb_.size() + other.limb_.size(), 0);
    for (std::size_t i = 0; i < limb_.size(); ++i) {
      std::uint64_t carry = 0;
      for (std::size_t j = 0; j < other.limb_.size() || carry != 0; ++j) {
        carry += r[i + j];
        if (j < other.limb_.size()) carry += std::uint64_t{limb_[i]} * other.limb_[j];
        r[i + j] = static_cast<std::uint32_t>(carry);
        carry >>= 32;
      }
    }
    while (r.size() > 1 && r.back() == 0) r.pop_back();
    limb_ = std::move(r);
  }
  bool operator>=(const Natural& o) const {
    if (limb_.size() != o.limb_.size()) return limb_.size() > o.limb_.size();
    for (std::size_t i = limb_.size(); i-- > 0;)
      if (limb_[i] != o.limb_[i]) return limb_[i] > o.limb_[i];
    return true;
  }

 private:
  std::vector<std::uint32_t> limb_;
};

Natural power(Index base, Index exponent) {
  Natural r(1), square(static_cast<std::uint64_t>(base));
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) r.multiply(square);
    if (exponent > 1) square.multiply(square);
  }
  return r;
}

// (n / me)^K >= (max / me)^k, in whole numbers.
bool reaches(Index n, Index k, Index me, Index big_k, Index max_distance) {
  Natural left = power(n, big_k), right = power(max_distance, k);
  right.multiply(power(me, big_k - k));
  return left >= right;
}

}  // namespace

std::vector<Index> t5_thresholds(Index nb, Index max_distance) {
  if (nb < 2 || nb > 65536) refuse("t5", "buckets of a side must lie between 2 and 65536", nb);
  const Index me = nb / 2, big_k = nb - me;
  if (max_distance <= me)
    refuse("t5", "max_distance must be above half the buckets of a side", max_distance);
  std::vector<Index> first;
  for (Index k = 1; k < big_k; ++k) {
    const long double ratio = static_cast<long double>(max_distance) / static_cast<long double>(me);
    const long double x =
        static_cast<long double>(me) *
        std::pow(ratio, static_cast<long double>(k) / static_cast<long double>(big_k));
    // The power is right to some 1e-17; only next to a whole number can that decide wrongly.
    const long double whole = std::round(x);
    if (std::fabs(x - whole) > 1e-12L * x)
      first.push_back(static_cast<Index>(std::ceil(x)));
    else
      first.push_back(static_cast<Index>(whole) +
                      (reaches(static_cast<Index>(whole), k, me, big_k, max_distance) ? 0 : 1));
  }
  return first;
}

}  // namespace posenc
