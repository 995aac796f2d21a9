// SPDX-License-Identifier: Apache-2.0
// Whole numbers of any size: just what comparing products of powers needs, where a logarithm would
// decide an exact hit by its rounding.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "posenc/core/dtype.h"

namespace posenc::inline v0::detail {

// Little-endian limbs.
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

inline Natural power(Index base, Index exponent) {
  Natural r(1), square(static_cast<std::uint64_t>(base));
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) r.multiply(square);
    if (exponent > 1) square.multiply(square);
  }
  return r;
}

}  // namespace posenc::v0::detail
