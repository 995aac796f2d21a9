// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/alibi.h"

#include <bit>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "posenc/core/error.h"
#include "relative/image_terms.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {

std::vector<double> Alibi::slope(Index heads) const {
  std::vector<double> m = slopes_of_all(all_heads(heads));
  if (total_heads == 0) return m;
  const auto first = m.begin() + static_cast<std::ptrdiff_t>(first_head);
  return {first, first + static_cast<std::ptrdiff_t>(heads)};
}

std::vector<double> Alibi::slopes_of_all(Index heads) const {
  if (future == AlibiFuture::half_heads) {
    Alibi half = *this;
    half.future = AlibiFuture::symmetric;
    std::vector<double> m = half.slopes_of_all(heads / 2);
    m.insert(m.end(), m.begin(), m.begin() + static_cast<std::ptrdiff_t>(heads / 2));
    return m;
  }
  const Index n = alibi_heads > 0 ? alibi_heads : heads;
  const Index whole = static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(n)));
  std::vector<double> m(static_cast<std::size_t>(heads), 0.0);
  for (Index h = 0; h < n; ++h) {
    double exponent = max_bias * static_cast<double>(h + 1) / static_cast<double>(whole);
    if (slopes == AlibiSlopes::literal)
      exponent = max_bias * static_cast<double>(h + 1) / static_cast<double>(n);
    else if (h >= whole)
      exponent =
          max_bias * static_cast<double>(2 * (h - whole) + 1) / static_cast<double>(2 * whole);
    m[static_cast<std::size_t>(h)] = std::exp2(-exponent);
  }
  return m;
}

namespace {

std::string alibi_future(const Alibi& x) {
  return std::string(enum_text(x.learned)) + "_future";
}

// d: of the slopes of the past and of the future, of which fields may leave out one or both.
void alibi_accumulate(const Alibi& x, const detail::LearnedValues& value,
                      std::vector<std::vector<double>>& d, std::span<const TensorView> to) {
  detail::LearnedGradients sum(value);
  const std::string_view past = enum_text(x.learned);
  if (value.has(past)) sum[past] = std::move(d[0]);
  if (value.has(alibi_future(x))) sum[alibi_future(x)] = std::move(d[1]);
  sum.accumulate(to);
}

}  // namespace

std::vector<Parameter> Alibi::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  if (learned == AlibiLearned::fixed) return {};
  const Index rows = sequences > 0 ? sequences : batch;
  ArrayShape shape{axes.heads};
  if (rows > 1 || sequences > 0) shape.add_front(rows);
  Parameter p{std::string(enum_text(learned)), shape, {}, {}};
  if (learned == AlibiLearned::logits) {
    p.initial = {InitialKind::normal, -2, 1};
  } else {
    const std::vector<double> m = slope(s.heads);
    for (Index row = 0; row < rows; ++row)
      p.initial_values.insert(p.initial_values.end(), m.begin(), m.end());
    if (learned == AlibiLearned::log_slopes)
      for (double& x : p.initial_values) x = std::log(x);
  }
  if (future != AlibiFuture::own_slopes) return {p};
  Parameter other = p;
  other.name = alibi_future(*this);
  return {p, other};
}

void Alibi::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                  LoweredTerms& out) const {
  const auto [past, ahead] = slopes_of(s, p);
  if (sequences > 0) return lower_sequences(s, out);
  if (precision == AlibiPrecision::falcon_bfloat16) {
    DecayTerm keys;
    keys.scale = bias_scale;
    return out.add(keys);
  }
  if (height > 0) {
    detail::check_distances(Alibi::card.name, height * width, s.heads * batch);
    const std::vector<double> distance = far();
    std::vector<double> table;
    for (const double m : past)
      for (const double d : distance) table.push_back(-m * d);
    ProductTerm t = detail::number_term(
        out.table(std::move(table), s.heads, static_cast<Index>(distance.size()), 1, batch), {},
        bias_scale);
    detail::WindowRows{height, width, false, true}.add_lines(Alibi::card.name, t, out);
    return out.add(t);
  }
  std::vector<double> sides, offset;
  for (std::size_t n = 0; n < past.size(); ++n) {
    sides.push_back(-past[n]);
    sides.push_back(future == AlibiFuture::signed_distance ? ahead[n] : -ahead[n]);
    offset.push_back(0);
    offset.push_back(past_offset * past[n]);
  }
  LinearTerm t;
  t.axis = static_cast<std::int32_t>(axis);
  t.scale = bias_scale;
  t.table = out.table(std::move(sides), s.heads, 1, 2, batch);
  out.add(t);
  ask_sides(s, out);
  if (past_offset == 0) return;
  ProductTerm strict;
  strict.scale = bias_scale;
  strict.lines[0] = out.line({0, 1}, 0, t.axis);
  strict.table = out.table(std::move(offset), s.heads, 2, 1, batch);
  out.add(strict);
}

void Alibi::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
                      const LoweredGradient& g, std::span<const TensorView> dp,
                      std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const auto m = slopes_of(s, p);
  if (precision == AlibiPrecision::falcon_bfloat16) return;
  if (sequences > 0) {
    std::vector<std::vector<double>> of_sequences = pull_sequences(s, call, g);
    slopes_from_sides(of_sequences, m);
    return alibi_accumulate(*this, value, of_sequences, dp);
  }
  const std::vector<double> distance = far();
  const auto rows = static_cast<Index>(distance.size());
  const std::vector<double> d =
      gradient_values(Alibi::card.name, gradient_of(Alibi::card.name, g.terms, 0).table,
                      {batch, s.heads, height > 0 ? rows : 1, height > 0 ? 1 : 2});
  const std::vector<double> strict = gradient_values(
      Alibi::card.name,
      past_offset == 0 ? TensorView{} : gradient_of(Alibi::card.name, g.terms, 1).table,
      {batch, s.heads, 2, 1});
  std::vector<std::vector<double>> dm(2, std::vector<double>(m[0].size()));
  for (std::size_t h = 0; h < m[0].size(); ++h) {
    if (height > 0) {
      for (std::size_t r = 0; r < distance.size(); ++r)
        dm[0][h] -= d[h * distance.size() + r] * distance[r];
      continue;
    }
    dm[0][h] = -d[2 * h] + past_offset * strict[2 * h + 1];
    dm[1][h] = (future == AlibiFuture::signed_distance ? 1 : -1) * d[2 * h + 1];
    if (future != AlibiFuture::own_slopes) dm[0][h] += dm[1][h];
  }
  slopes_from_sides(dm, m);
  alibi_accumulate(*this, value, dm, dp);
}

// From the gradients of the slopes of the past and of the future to those of what is learned.
void Alibi::slopes_from_sides(std::vector<std::vector<double>>& dm,
                              const std::array<std::vector<double>, 2>& m) const {
  for (std::size_t side = 0; side < 2; ++side)
    for (std::size_t h = 0; h < m[side].size(); ++h) {
      if (learned == AlibiLearned::log_slopes) dm[side][h] *= m[side][h];
      if (learned == AlibiLearned::logits) dm[side][h] *= m[side][h] * (1 - m[side][h]);
    }
}

std::vector<double> Alibi::far() const {
  std::vector<double> d;
  for (Index y = 0; y < height; ++y)
    for (Index x = 0; x < width; ++x) d.push_back(std::sqrt(static_cast<double>(y * y + x * x)));
  return d;
}

// Which side each head sees, where that is asked.
void Alibi::ask_sides(const ScoreShape& s, LoweredTerms& out) const {
  if (future != AlibiFuture::half_heads) return;
  static_assert(sizeof(Side) == 1);
  std::vector<std::int32_t> packed(static_cast<std::size_t>((s.heads + 3) / 4), 0);
  auto* sides = reinterpret_cast<std::uint8_t*>(packed.data());
  const Index middle = all_heads(s.heads) / 2 - first_head;
  for (Index h = 0; h < s.heads; ++h)
    sides[h] = static_cast<std::uint8_t>(h < middle ? Side::past : Side::future);
  out.rows.push_back(std::move(packed));
  out.requests.head_side =
      tensor(static_cast<const void*>(out.rows.back().data()), DType::u8, {s.heads});
}

void Alibi::check_fields(const ScoreShape& s) const {
  check_score_shape(s, Alibi::card.name);
  check_shard(s);
  check_combinations();
  if (!std::isfinite(max_bias) || max_bias < 0)
    refuse_field(Alibi::card.name, "max_bias", "must be finite and not negative", max_bias);
  if (!std::isfinite(past_offset))
    refuse_field(Alibi::card.name, "past_offset", "must be finite", past_offset);
  if (!std::isfinite(bias_scale))
    refuse_field(Alibi::card.name, "bias_scale", "must be finite", bias_scale);
  if (future == AlibiFuture::half_heads && (all_heads(s.heads) % 2 != 0 || alibi_heads != 0))
    refuse_field(Alibi::card.name, "half_heads", "needs an even number of heads, all with a slope",
                 all_heads(s.heads));
  if (batch < 1) refuse_field(Alibi::card.name, "batch", "must be at least 1", batch);
  if (batch > 1 && learned == AlibiLearned::fixed)
    refuse(Alibi::card.name, "batch is of learned numbers; of fixed slopes it must be 1", batch);
  if (axis < 0 || axis > 7)
    refuse_field(Alibi::card.name, "axis", "must lie between 0 and 7", axis);
  if ((learned == AlibiLearned::log_slopes || learned == AlibiLearned::logits) && alibi_heads != 0)
    refuse(Alibi::card.name, "log_slopes and logits cannot be of heads without slope, alibi_heads",
           alibi_heads);
  if ((height == 0) != (width == 0) || height < 0 || height > 4096 || width < 0 || width > 4096)
    refuse(Alibi::card.name, "height and width must both be 0 or lie between 1 and 4096", height);
  if (height > 0 && (future != AlibiFuture::symmetric || past_offset != 0 || axis != 0))
    refuse(Alibi::card.name, "a grid has no sides and uses axes 0 and 1: future must be symmetric",
           enum_text(future));
  if (future == AlibiFuture::own_slopes && learned == AlibiLearned::fixed)
    refuse_field(Alibi::card.name, "own_slopes", "are learned: learned must not be",
                 enum_text(learned));
}

// The heads of the call among those of all shards.
void Alibi::check_shard(const ScoreShape& s) const {
  if (total_heads < 0 || total_heads > 65536)
    refuse_field(Alibi::card.name, "total_heads", "must lie between 0 and 65536", total_heads);
  if (total_heads == 0 && first_head != 0)
    refuse_field(Alibi::card.name, "first_head", "counts among total_heads, which must be given",
                 first_head);
  if (total_heads > 0 && (first_head < 0 || first_head > total_heads - s.heads))
    refuse_field(
        Alibi::card.name, "first_head",
        "must lie between 0 and total_heads - heads = " + std::to_string(total_heads - s.heads),
        first_head);
  if (alibi_heads < 0 || alibi_heads > all_heads(s.heads))
    refuse_field(
        Alibi::card.name, "alibi_heads",
        "must lie between 0 and " + std::to_string(all_heads(s.heads)) + ", the number of heads",
        alibi_heads);
}

void Alibi::check_combinations() const {
  if (sequences < 0 || sequences > 1000000000)
    refuse_field(Alibi::card.name, "sequences", "must lie between 0 and 1000000000", sequences);
  if (sequences > 0 && (learned == AlibiLearned::fixed || batch > 1 || height > 0 ||
                        future == AlibiFuture::half_heads))
    refuse_field(Alibi::card.name, "sequences",
                 "needs learned numbers, and neither batch, nor a grid, nor half_heads", sequences);
  if (precision == AlibiPrecision::falcon_bfloat16 &&
      (learned != AlibiLearned::fixed || future != AlibiFuture::symmetric || height > 0 ||
       past_offset != 0 || axis != 0 || slopes != AlibiSlopes::published))
    refuse(Alibi::card.name,
           "precision falcon_bfloat16 requires the published fixed slopes: slopes, learned, "
           "future, past_offset, axis, height and width must be at their defaults");
}

std::array<std::vector<double>, 2> Alibi::slopes_of(const ScoreShape& s,
                                                    std::span<const ConstTensorView> p) const {
  const detail::LearnedValues value(*this, s, p);
  if (learned == AlibiLearned::fixed) return {slope(s.heads), slope(s.heads)};
  const auto read = [&](std::string_view of) {
    std::vector<double> m = value[of];
    for (double& x : m) {
      if (learned == AlibiLearned::log_slopes) x = std::exp(x);
      if (learned == AlibiLearned::logits) x = 1 / (1 + std::exp(-x));
    }
    return m;
  };
  const std::string_view past = enum_text(learned);
  return {read(past), value.has(alibi_future(*this)) ? read(alibi_future(*this)) : read(past)};
}

}  // namespace posenc::v0
