// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/random.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "posenc/core/philox.h"
#include "posenc/positions/grid.h"
#include "positions/exact.h"

namespace posenc::inline v0 {
namespace {

// Kinds of draws of one sequence: independent of each other.
enum Purpose : std::uint32_t { kShift = 1, kLocal = 2, kScale = 3, kOffset = 4, kSubset = 5 };

Draws draws(const DrawKey& key, Index row, Purpose purpose) {
  return Draws(key.seed, key.step, key.first_sequence + static_cast<std::uint64_t>(row), purpose);
}
double symmetric(const Draws& d, Index i, double bound) {
  return (2 * d.uniform(static_cast<std::uint64_t>(i)) - 1) * bound;
}

void check_cape(const Cape& c) {
  for (const double x : {c.max_global_shift, c.max_local_shift})
    if (!(x >= 0) || !std::isfinite(x))
      refuse("cape", "bounds of shifts must be finite and not negative", x);
  if (!(c.max_global_scaling >= 1) || !std::isfinite(c.max_global_scaling))
    refuse_field("cape", "max_global_scaling", "must be finite and at least 1",
                 c.max_global_scaling);
}

void check_sizes(std::string_view who, Index batch, Index tokens) {
  if (batch < 1) refuse_field(who, "batch", "must be positive", batch);
  if (tokens < 0 || tokens > kMaxTokens / batch)
    refuse_field(who, "tokens", "must not be negative and at most 2^40 in all", tokens);
}

void check_draws(const CapeDraws& d, Index axes, Index batch, Index tokens) {
  const auto fits = [](const std::vector<double>& v, Index n, const char* name, const char* rule) {
    if (!v.empty() && static_cast<Index>(v.size()) != n)
      refuse_field("cape", name, rule, static_cast<Index>(v.size()));
    for (const double x : v)
      if (!std::isfinite(x)) refuse_field("cape", "draws", "must be finite", x);
  };
  fits(d.shift, axes * batch, "shift", "must have one number a row and axis, count");
  fits(d.local, axes * batch * tokens, "local", "must have one number a token and axis, count");
  fits(d.log_scale, batch, "log_scale", "must have one number a row, count");
}

double at_or(const std::vector<double>& v, Index i, double otherwise) {
  return v.empty() ? otherwise : v[static_cast<std::size_t>(i)];
}

// One number a row, one for all, or none.
double of_row(std::span<const double> v, Index b, double otherwise) {
  return v.empty() ? otherwise : v[v.size() == 1 ? 0 : static_cast<std::size_t>(b)];
}
void check_rows(std::span<const double> v, Index batch, const char* rule) {
  if (v.size() > 1 && static_cast<Index>(v.size()) != batch)
    refuse("cape", rule, static_cast<Index>(v.size()));
  for (const double x : v)
    if (!std::isfinite(x)) refuse("cape", rule, x);
}

// n distinct values of first .. first + count - 1, in order (Floyd's sampling: n draws).
std::vector<Index> subset(Index first, Index count, Index n, const DrawKey& key) {
  const Draws d = draws(key, 0, kSubset);
  if (n > count / 2) {  // dense: keep each with the probability that is left
    std::vector<Index> out;
    for (Index i = 0; i < count && n > 0; ++i)
      if (static_cast<Index>(
              d.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(count - i))) < n) {
        out.push_back(first + i);
        --n;
      }
    return out;
  }
  std::set<Index> chosen;
  for (Index j = count - n; j < count; ++j) {
    const auto r = static_cast<Index>(
        d.below(static_cast<std::uint64_t>(j), static_cast<std::uint64_t>(j + 1)));
    if (!chosen.insert(first + r).second) chosen.insert(first + j);
  }
  return {chosen.begin(), chosen.end()};
}

void check_randomised(Index max_length, Index tokens) {
  if (tokens < 0 || max_length < 0 || tokens > max_length || tokens > kMaxTokens)
    refuse_field("randomised", "tokens", "must lie between 0 and max_length", tokens);
}

}  // namespace

CapeDraws draw_cape(const Cape& c, Index batch, Index tokens, std::int32_t axes,
                    const DrawKey& key) {
  check_cape(c);
  check_sizes("cape", batch, tokens);
  if (axes < 1 || axes > 2) refuse_field("cape", "axes", "must be 1 or 2", Index{axes});
  const double local = c.max_local_shift / (c.local == CapeLocal::half ? 2 : 1);
  const double scale = std::log(c.max_global_scaling);
  CapeDraws d;
  for (Index a = 0; a < axes; ++a)
    for (Index b = 0; b < batch; ++b) {
      d.shift.push_back(symmetric(draws(key, b, kShift), a, c.max_global_shift));
      const Draws of = draws(key, b, kLocal);
      for (Index t = 0; t < tokens; ++t) d.local.push_back(symmetric(of, t * axes + a, local));
    }
  for (Index b = 0; b < batch; ++b)
    d.log_scale.push_back(symmetric(draws(key, b, kScale), 0, scale));
  return d;
}

OwnedPositions cape_positions(const Cape& c, Index batch, Index tokens,
                              std::span<const double> time_steps, std::span<const double> lengths,
                              const CapeDraws& d, Index padded) {
  check_cape(c);
  check_sizes("cape", batch, tokens);
  check_rows(time_steps, batch, "time steps must be finite, one a row or one for all");
  check_rows(lengths, batch, "lengths must be finite, one a row or one for all");
  check_draws(d, 1, batch, tokens);
  std::vector<double> v;
  for (Index b = 0; b < batch; ++b) {
    const double step = of_row(time_steps, b, 1), length = of_row(lengths, b, 0);
    const auto is_padding = [&](double p) {
      if (lengths.empty()) return false;
      return c.padding == CapePadding::at_length ? p >= length : p > length;
    };
    double mean = 0;
    Index count = 0;
    for (Index t = 0; c.normalise && t < tokens; ++t) {
      const double p = static_cast<double>(t) * step;
      if (!is_padding(p)) mean += p, ++count;
    }
    if (c.normalise && tokens > 0 && count == 0)
      refuse("cape", "a batch entry must have positions to normalise, entry", b);
    if (count > 0) mean /= static_cast<double>(count);
    const double shift = at_or(d.shift, b, 0), scale = std::exp(at_or(d.log_scale, b, 0));
    for (Index t = 0; t < tokens; ++t) {
      const double p = static_cast<double>(t) * step;
      v.push_back(is_padding(p)
                      ? static_cast<double>(padded)
                      : (p - mean + shift + at_or(d.local, b * tokens + t, 0) * step) * scale);
    }
  }
  return own(std::move(v), batch);
}

OwnedPositions cape_grid_positions(Index first, Index second, Index batch, const CapeDraws& d,
                                   CapeStep unit) {
  if (first < 1 || second < 1 || first > kMaxTokens / second)
    refuse("cape", "a grid must have rows and columns", std::min(first, second));
  const Index tokens = first * second;
  check_sizes("cape", batch, tokens);
  check_draws(d, 2, batch, tokens);
  const OwnedPositions grid = linspace_grid({{first, second}});
  const auto& c = std::get<std::vector<double>>(grid.value);
  std::vector<double> v;
  for (Index a = 0; a < 2; ++a) {
    const Index n = a == 0 || unit == CapeStep::first_axis ? first : second;
    const double step = n > 1 ? 2 / static_cast<double>(n - 1) : 0;
    for (Index b = 0; b < batch; ++b)
      for (Index t = 0; t < tokens; ++t)
        v.push_back((c[static_cast<std::size_t>(a * tokens + t)] +
                     at_or(d.shift, a * batch + b, 0) +
                     at_or(d.local, (a * batch + b) * tokens + t, 0) * step) *
                    std::exp(at_or(d.log_scale, b, 0)));
  }
  return own(std::move(v), batch, 2);
}

std::vector<Index> shape_offsets(const ShapeShift& s, Index batch, Index tokens,
                                 const DrawKey& key) {
  check_sizes("shape", batch, tokens);
  if (s.max_shift < 0 || s.max_shift == kUnbounded)
    refuse_field("shape", "max_shift", "must lie between 0 and 2^63 - 2", s.max_shift);
  Index values = s.max_shift + 1;
  if (s.variant == ShapeVariant::code) {
    values = s.table > 0 ? std::min(s.table - tokens, s.max_shift) : s.max_shift;
    if (values < 1)
      refuse("shape", "the code's variant has no offset to draw: min(table - tokens, max_shift)",
             values);
  }
  std::vector<Index> out;
  for (Index b = 0; b < batch; ++b)
    out.push_back(
        static_cast<Index>(draws(key, b, kOffset).below(0, static_cast<std::uint64_t>(values))));
  return out;
}

Index shape_evaluation_offset(const ShapeShift& s) {
  return s.variant == ShapeVariant::code ? s.max_shift : 0;
}

OwnedPositions random_positions(Index max_length, Index tokens, const DrawKey& key,
                                RandomisedFirst first) {
  check_randomised(max_length, tokens);
  std::vector<Index> p = subset(0, max_length, tokens, key);
  if (first == RandomisedFirst::zero && !p.empty()) p.front() = 0;  // the others stay as drawn
  return own(std::move(p));
}

std::vector<Index> random_distances(Index max_length, Index tokens, const DrawKey& key) {
  check_randomised(max_length, tokens);
  if (tokens == 0) return {};
  std::vector<Index> out = subset(1, max_length - 1, tokens - 1, key);
  out.insert(out.begin(), 0);
  return out;
}

}  // namespace posenc::v0
