// SPDX-License-Identifier: Apache-2.0
// How far a bias by distance and a stack of windows reach.
#include <cmath>

#include "laws/checks.h"
#include "posenc/laws.h"

namespace posenc::inline v0 {
namespace {

constexpr Index kEvery = 4096;  // distances compared one by one
constexpr int kLongestPower = 40;

class Search {
 public:
  Search(const BiasByDistance& bias, Index heads, double share)
      : bias_(bias), heads_(static_cast<std::size_t>(heads)), log_share_(std::log(share)) {
    const std::vector<double> near = values({0, 1, -1});
    for (std::size_t h = 0; h < heads_; ++h) {
      const double* bias = &near[3 * h];
      reference_.push_back(std::isfinite(bias[0]) ? bias[0] : std::max(bias[1], bias[2]));
    }
  }

  // sign: 1 for keys before the query, -1 after it.
  std::vector<std::optional<Index>> run(Index sign) {
    std::vector<Index> distances;
    for (Index d = 1; d <= kEvery; ++d) distances.push_back(sign * d);
    const std::size_t dense = distances.size();
    for (int p = 13; p <= kLongestPower; ++p) distances.push_back(sign * (Index{1} << p));
    const std::vector<double> bias = values(distances);
    std::vector<std::optional<Index>> found(heads_);
    for (std::size_t h = 0; h < heads_; ++h)
      for (std::size_t i = 0; i < distances.size() && !found[h]; ++i)
        if (is_small(h, bias[h * distances.size() + i]))
          found[h] = i < dense ? sign * distances[i]
                               : between(h, sign * distances[i - 1], sign * distances[i], sign);
    return found;
  }

 private:
  std::vector<double> values(const std::vector<Index>& distances) const {
    std::vector<double> bias = bias_(distances);
    if (bias.size() != heads_ * distances.size())
      refuse_field("law", "bias",
                   "must be [heads, distances], another number of values was returned",
                   static_cast<Index>(bias.size()));
    return bias;
  }
  bool is_small(std::size_t h, double bias) const { return bias - reference_[h] <= log_share_; }
  // The weight at `large` is small, at `small` it is not.
  Index between(std::size_t h, Index small, Index large, Index sign) const {
    while (large - small > 1) {
      const Index middle = small + (large - small) / 2;
      (is_small(h, values({sign * middle})[h]) ? large : small) = middle;
    }
    return large;
  }

  const BiasByDistance& bias_;
  std::size_t heads_;
  double log_share_;
  std::vector<double> reference_;  // at distance 0, or beside it where a head does not see that
};

// One side of a stack.
class SideReach {
 public:
  // Of a layer; none: unbounded.
  void add_window(std::optional<Index> window) {
    if (window)
      since_ += *window;
    else
      is_bounded_ = false;
  }
  // A layer of chunks reaches the border of the chunk that the layers so far have reached: from a border of
  // the same chunks a whole number of them.
  void add_chunk(Index chunk) {
    sum_ += chunk == chunk_ ? (since_ + chunk - 1) / chunk * chunk : since_ + chunk - 1;
    since_ = 0;
    chunk_ = chunk;
  }
  std::optional<Index> reach() const {
    return is_bounded_ ? std::optional(sum_ + since_) : std::nullopt;
  }

 private:
  Index sum_ = 0;    // up to the last border
  Index since_ = 0;  // windows after it
  Index chunk_ = 0;
  bool is_bounded_ = true;
};

}  // namespace

std::vector<BiasReach> bias_reach(const BiasByDistance& bias, Index heads, double share) {
  require_positive("heads", heads);
  if (!(share > 0) || !(share < 1)) refuse_field("law", "share", "must be between 0 and 1", share);
  Search search(bias, heads, share);
  const auto past = search.run(1), future = search.run(-1);
  std::vector<BiasReach> all(past.size());
  for (std::size_t h = 0; h < all.size(); ++h) all[h] = {past[h], future[h]};
  return all;
}

ReceptiveField receptive_field(std::span<const AttentionSpec> layers) {
  SideReach back, ahead;
  for (const AttentionSpec& layer : layers) {
    switch (layer.kind) {
      case AttentionKind::none:
        break;
      case AttentionKind::linear:  // a state of all tokens so far
        back.add_window(std::nullopt);
        break;
      case AttentionKind::chunked:
        if (layer.chunk) {
          back.add_chunk(*layer.chunk);
          if (layer.right != Index{0}) ahead.add_chunk(*layer.chunk);
          break;
        }
        [[fallthrough]];
      case AttentionKind::full:
      case AttentionKind::sliding:
        back.add_window(layer.left);
        ahead.add_window(layer.by_token_type ? std::nullopt : layer.right);
        break;
    }
  }
  return {back.reach(), ahead.reach()};
}

}  // namespace posenc::v0
