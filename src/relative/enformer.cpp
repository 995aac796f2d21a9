// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/enformer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "posenc/core/error.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/xl_rows.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kEnformer = Enformer::card.name;

// The functions of a kind are numbered m = 0 .. kind - 1.
class EnformerBasis {
 public:
  explicit EnformerBasis(const Enformer& e)
      : length_(static_cast<double>(e.length)), kind_(e.features / 6), maximum_(e.gamma_maximum) {
    // ln Gamma of the whole numbers 4 (1 + m)^2.
    double sum = 0;
    Index next = 2;  // ln Gamma(next) = sum
    for (Index m = 0; m < kind_; ++m) {
      for (const Index c = 4 * (1 + m) * (1 + m); next < c; ++next)
        sum += std::log(static_cast<double>(next));
      log_gamma_.push_back(sum);
    }
    if (maximum_ == EnformerMaximum::distance) return;
    for (Index m = 0; m < kind_; ++m) {
      double largest = 0;
      for (Index x = 0; x < e.length; ++x) largest = std::max(largest, density(m, x));
      largest_.push_back(largest);
    }
    if (maximum_ == EnformerMaximum::all)
      largest_.assign(largest_.size(), *std::max_element(largest_.begin(), largest_.end()));
  }

  // The functions of a distance, of all three kinds.
  std::vector<double> at(Index x) const {
    std::vector<double> f;
    const double last = std::max<double>(static_cast<double>(kind_ - 1), 1);
    for (Index m = 0; m < kind_; ++m) {
      const double life = 3 + static_cast<double>(m) * (std::log2(length_) - 3) / last;
      f.push_back(std::exp2(-static_cast<double>(x) / std::exp2(life)));
    }
    for (Index m = 0; m < kind_; ++m)
      f.push_back(static_cast<double>(x) < std::exp2(static_cast<double>(m + 1)) - 1 ? 1 : 0);
    std::vector<double> gamma;
    for (Index m = 0; m < kind_; ++m) gamma.push_back(density(m, x));
    const double of_distance = *std::max_element(gamma.begin(), gamma.end());
    for (std::size_t m = 0; m < gamma.size(); ++m)
      f.push_back(gamma[m] / (largest_.empty() ? of_distance : largest_[m]));
    return f;
  }

 private:
  double length_;
  Index kind_;
  EnformerMaximum maximum_;
  std::vector<double> log_gamma_;
  std::vector<double> largest_;  // by m; none where the distance decides

  // Mean L (1 + m) / n, deviation L / (2 n): shape 4 (1 + m)^2, rate 4 n (1 + m) / L.
  double density(Index m, Index x) const {
    if (x == 0) return 1e-8;
    const double step = static_cast<double>(1 + m), shape = 4 * step * step;
    const double rate = 4 * static_cast<double>(kind_) * step / length_;
    const double at = static_cast<double>(x);
    return std::exp((shape - 1) * std::log(at) - rate * at + shape * std::log(rate) -
                    log_gamma_[static_cast<std::size_t>(m)]) +
           1e-8;
  }
};

void enformer_add_row(const EnformerBasis& basis, Index delta, std::vector<double>& rows) {
  const std::vector<double> f = basis.at(std::abs(delta));
  const double sign = delta < 0 ? 1 : delta > 0 ? -1 : 0;
  rows.insert(rows.end(), f.begin(), f.end());
  for (const double x : f) rows.push_back(sign * x);
}

std::vector<double> enformer_rows(const Enformer& e, const DistanceRange& r) {
  const EnformerBasis basis(e);
  std::vector<double> rows;
  detail::Distances(kEnformer, r, e.features).each([&](Index delta) {
    enformer_add_row(basis, delta, rows);
  });
  return rows;
}

DistanceRange enformer_range(const Enformer& e, const ScoreShape& s) {
  const DistanceRange& r = s.range();
  if (r.max >= e.length || r.min <= -e.length)
    refuse_field(kEnformer, "distances", "must lie below length", std::max(r.max, -r.min));
  return r;
}

// The scale of the content is that of q times rows; u and v have none.
detail::XlScore enformer_score(const ScoreShape& s, Index rows) {
  return {kEnformer, s, s.content_scale(), s.heads, rows, 1};
}

}  // namespace

std::vector<double> Enformer::basis(Index delta) const {
  std::vector<double> row;
  enformer_add_row(EnformerBasis(*this), delta, row);
  return row;
}

void Enformer::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kEnformer);
  if (length < 2 || length > 16777216)
    refuse_field(kEnformer, "length", "must lie between 2 and 2^24", length);
  if (features < 6 || features > 3072 || features % 6 != 0)
    refuse_field(kEnformer, "features", "must be a multiple of 6, 6 to 3072", features);
}

std::vector<Parameter> Enformer::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  const auto normal = [](Index inputs) {
    return Initial{InitialKind::truncated_normal, 0,
                   std::sqrt(2 / static_cast<double>(inputs)) / 0.87962566103423978};
  };
  return {{"w_r", {axes.heads * axes.head_dim, features}, normal(features), {}},
          {"u", {axes.heads, axes.head_dim}, normal(s.heads), {}},
          {"v_bias", {axes.heads, axes.head_dim}, normal(s.heads), {}}};
}

void Enformer::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                     LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const DistanceRange r = enformer_range(*this, s);
  const detail::Distances all(kEnformer, r, s.heads * s.head_dim);
  const Index n = all.count();
  const IndexLine line =
      detail::line_over(kEnformer, out, r, [&](Index delta) { return all.row(delta); });
  const std::vector<double> rows = enformer_rows(*this, r);
  const detail::HeadProjection to_heads{s.heads, s.head_dim, features, false};
  enformer_score(s, n).add(to_heads.table(detail::rows_of(rows, features), n, value["w_r"]),
                           value["u"], value["v_bias"], line, out);
}

void Enformer::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                         const LoweredGradient& g, std::span<const TensorView> dp,
                         std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const DistanceRange r = enformer_range(*this, s);
  const Index n = detail::Distances(kEnformer, r, s.heads * s.head_dim).count();
  const std::vector<double> rows = enformer_rows(*this, r);
  const detail::HeadProjection to_heads{s.heads, s.head_dim, features, false};
  detail::XlScore::Gradient d = enformer_score(s, n).pull_back(
      g, to_heads, detail::rows_of(rows, features), value["w_r"], value["v_bias"]);
  detail::LearnedGradients to(value);
  to["w_r"] = std::move(d.w);
  to["u"] = std::move(d.u);
  to["v_bias"] = std::move(d.v);
  to.accumulate(dp);
}

}  // namespace posenc::v0
