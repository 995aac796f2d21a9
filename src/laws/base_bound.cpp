// SPDX-License-Identifier: Apache-2.0
// The bound of RoPE's base by the sum of cosines, arXiv:2405.14591.
#include <cmath>
#include <numeric>

#include "laws/checks.h"
#include "laws/similarity.h"
#include "posenc/laws.h"

namespace posenc::inline v0 {
namespace {

// The pairs of one head of all blocks, and half of the channels that none of them rotates.
CosineSum sum_of(const RotarySpec& spec, Index head) {
  std::vector<double> all;
  Index rotated = 0;
  for (const RotaryBlock& block : spec.blocks) {
    const Spectrum& s = block.spectrum;
    rotated += block.width();
    for (Index i = 0; i < s.pairs(); ++i) {
      double w = 0;
      for (Index a = 0; a < s.axes; ++a)
        w += s.frequency[static_cast<std::size_t>(
            ((s.heads == 1 ? 0 : head) * s.axes + a) * s.pairs() + i)];
      all.push_back(w);
    }
  }
  CosineSum sum(all.size(), static_cast<double>(spec.head_dim - rotated) / 2);
  std::copy(all.begin(), all.end(), sum.frequency().begin());
  return sum;
}

Index heads_of(const RotarySpec& spec) {
  Index heads = 1;
  for (const RotaryBlock& block : spec.blocks) heads = std::max(heads, block.spectrum.heads);
  return heads;
}

// Goes up from base 1. `step` is how far ln b may grow until the sum at m, now negative, can be 0:
// |d cos(m w_i) / d ln b| <= m s_i w_i with s_i = 2i / width, and w_i only falls.
class BaseSearch {
 public:
  BaseSearch(Index width, Index length, Index still)
      : width_(width),
        length_(length),
        sum_(static_cast<std::size_t>(width / 2), static_cast<double>(still)) {}

  double run() {
    for (;;) {
      set_base();
      if (!known_negative() && !near_negative() && !any_negative()) return std::exp(log_base_);
      const Index m = negative_.front();
      const double depth = -sum_.at(static_cast<double>(m));
      log_base_ += std::max(depth / (static_cast<double>(m) * slope_), kLeastStep);
    }
  }

 private:
  static constexpr double kLeastStep = 1e-6;
  static constexpr Index kNear = 128;        // a valley of the sum moves slowly with the base
  static constexpr std::size_t kKept = 256;  // valleys that are tried before a whole search

  void set_base() {
    slope_ = 0;
    const auto frequency = sum_.frequency();
    for (std::size_t i = 0; i < frequency.size(); ++i) {
      const double s = 2 * static_cast<double>(i) / static_cast<double>(width_);
      frequency[i] = std::exp(-s * log_base_);
      slope_ += s * frequency[i];
    }
  }
  // The valley that is still negative comes first.
  bool use(std::size_t k, Index m) {
    negative_.erase(negative_.begin() + static_cast<std::ptrdiff_t>(k));
    negative_.insert(negative_.begin(), m);
    return true;
  }
  bool known_negative() {
    for (std::size_t k = 0; k < negative_.size(); ++k)
      if (sum_.at(static_cast<double>(negative_[k])) < 0) return use(k, negative_[k]);
    return false;
  }
  bool near_negative() {
    for (std::size_t k = 0; k < negative_.size(); ++k) {
      double deepest = 0;
      Index at = 0;
      sum_.negative(std::max<Index>(1, negative_[k] - kNear),
                    std::min(length_, negative_[k] + kNear), [&](Index m, double x) {
                      if (x < deepest) deepest = x, at = m;
                      return true;
                    });
      if (at > 0) return use(k, at);
    }
    return false;
  }
  bool any_negative() {
    negative_.clear();
    double deepest = 0;
    sum_.negative(1, length_, [&](Index m, double x) {
      if (negative_.empty() || m > negative_.back() + kNear)
        negative_.push_back(m), deepest = x;
      else if (x < deepest)
        negative_.back() = m, deepest = x;
      return negative_.size() < kKept;
    });
    return !negative_.empty();
  }

  Index width_, length_;
  CosineSum sum_;
  double log_base_ = 0, slope_ = 0;
  std::vector<Index> negative_;
};

void check_search(std::string_view field, Index length) {
  require_positive(field, length);
  if (length > kLongestSearch)
    refuse_field("law", field, "must be at most 1048576, because every distance is searched",
                 length);
}

}  // namespace

double similarity(const RotarySpec& spec, double distance) {
  check_rotary(spec);
  double least = 0;
  for (Index h = 0; h < heads_of(spec); ++h) {
    const double sum = sum_of(spec, h).at(distance);
    least = h == 0 ? sum : std::min(least, sum);
  }
  return least;
}

std::optional<Index> first_negative(const RotarySpec& spec, Index most) {
  check_rotary(spec);
  check_search("most", most);
  std::optional<Index> first;
  for (Index h = 0; h < heads_of(spec); ++h)
    sum_of(spec, h).negative(1, first ? *first : most + 1, [&](Index m, double) {
      first = m;
      return false;
    });
  return first;
}

double least_base(Index width, Index length, Index still) {
  // One pair alone: its frequency is 1 with every base.
  if (width < 4 || width % 2 != 0 || width > 4096)
    refuse_field("law", "width", "must be even and 4 .. 4096", width);
  if (still < 0) refuse_field("law", "still", "must not be negative", still);
  check_search("length", length);
  return BaseSearch(width, length, still).run();
}

}  // namespace posenc::v0
