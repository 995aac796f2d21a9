// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/content_weights.h"

#include <algorithm>
#include <cmath>

#include "attention/fast/gates.h"
#include "attention/fast/sticks.h"
#include "attention/fast/wide_products.h"
#include "core/element.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {
namespace {

// Start values of a block of keys or a tile.
constexpr Index kZeros = 512;

template <class F>
void each_weight(const AttentionArgs& a, const F& fn) {
  for (const Term& t : a.terms)
    if (ContentWeights::has(t)) fn(std::get<ProductTerm>(t));
}

}  // namespace

bool ContentWeights::has(const Term& t) noexcept {
  if (term_class(t) != TermClass::weighted_product) return false;
  const auto& product = std::get<ProductTerm>(t);
  return product.query.content && product.key.content;
}

std::string_view ContentWeights::why_not(const ReadyCall& c) noexcept {
  const AttentionArgs& a = c.args;
  bool any = false, by_line = true;
  std::int32_t axis = -1;
  each_weight(a, [&](const ProductTerm& t) {
    const std::optional<BandSource> source = band_source(t);
    by_line = by_line && source && (!any || source->axis == axis) &&
              consecutive_distances(c, source->axis);
    if (source) axis = source->axis;
    any = true;
  });
  if (!any) return {};
  if (!by_line)
    return "a term multiplies q.k by a number that is not one of the distance to consecutive keys";
  if (*a.scale == 0 || !a.head_scale.empty())
    return "a term multiplies q.k by a number, and the scale of the call is 0 or one of each head";
  if (a.softcap != 0) return "a term multiplies q.k by a number, and the call has a soft cap";
  if (breaks_sticks(a) || std::any_of(a.terms.begin(), a.terms.end(), Gates::has))
    return "a term multiplies q.k by a number, and the call has gates or stick-breaking";
  if (std::any_of(a.terms.begin(), a.terms.end(), WideProducts::takes))
    return "a term multiplies q.k by a number, and others are products of vectors";
  return {};
}

ContentWeights::ContentWeights(const ReadyCall& c, CallArena& arena) : call_(c) {
  bool any = false;
  each_weight(c.args, [&](const ProductTerm& t) {
    axis_ = band_source(t)->axis, any = true;
    if (!t.table.empty()) batches_ = std::max(batches_, t.table.shape[0]);
  });
  if (!any) return;
  const WholeDistances d = *consecutive_distances(c, axis_);
  high_ = d.high, size_ = d.high - d.low + 1 + 2 * kLineMargin;
  const Index lines = batches_ * c.H;
  const std::span<float> to = arena.array<float>(lines * size_);
  const std::span<double> numbers = arena.array<double>(lines * entries());
  const std::span<std::uint8_t> bounded = arena.array<std::uint8_t>(lines);
  const std::span<float> zeros = arena.array<float>(kZeros);
  lines_ = to, bounded_ = bounded, zeros_ = zeros;
  if (arena.counts()) return;
  std::fill(zeros.begin(), zeros.end(), 0.0f);
  std::fill(numbers.begin(), numbers.end(), 1.0);
  each_weight(c.args, [&](const ProductTerm& t) { add(t, numbers); });
  for (Index n = 0; n < lines; ++n) {
    const std::span<double> line = numbers.subspan(static_cast<std::size_t>(n * entries()),
                                                   static_cast<std::size_t>(entries()));
    const bool all = std::all_of(line.begin(), line.end(), [](double x) {
      return std::fabs(x) <= static_cast<double>(kLargestWeight);
    });
    bounded[static_cast<std::size_t>(n)] = all ? 1 : 0;
    float* x = to.data() + n * size_;
    std::fill_n(x, size_, 1.0f);
    if (all)
      std::transform(line.begin(), line.end(), x + kLineMargin,
                     [](double y) { return static_cast<float>(y); });
  }
}

std::int32_t ContentWeights::row(const ProductTerm& t, Index entry) const noexcept {
  const BandSource source = *band_source(t);
  return source.line == nullptr ? 0 : row_of(*source.line, static_cast<double>(high_ - entry));
}

void ContentWeights::add(const ProductTerm& t, std::span<double> lines) const noexcept {
  for (Index n = 0; n < entries(); ++n) {
    const Index at = row(t, n);
    if (at < 0) continue;
    double* x = lines.data() + n;
    for (Index b = 0; b < batches_; ++b)
      for (Index h = 0; h < call_.H; ++h, x += entries()) {
        double number = 1;
        if (!t.table.empty())
          number = read_number(t.table, t.table.shape[0] == 1 ? 0 : b,
                               Grouping{call_.H, t.table.shape[1]}.of(h), at, 0);
        *x += factor(t) * number;
      }
  }
}

bool ContentWeights::are_bounded() const noexcept {
  return std::all_of(bounded_.begin(), bounded_.end(), [](std::uint8_t x) { return x != 0; });
}

Index ContentWeights::entry(const FastRow& r) const noexcept {
  const AxisView& a = call_.axes[static_cast<std::size_t>(axis_)];
  return high_ - (a.query_whole[a.query_at(r.b, r.i)] - a.key_whole[a.key_at(r.place.row, 0)]);
}

const float* ContentWeights::of(const FastRow& r) const noexcept {
  return lines_.data() + line(r.b, r.h) * size_ + kLineMargin + entry(r);
}

}  // namespace posenc::v0::detail
