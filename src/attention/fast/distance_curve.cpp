// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/distance_curve.h"

#include <algorithm>
#include <cmath>

#include "attention/fast/starts.h"
#include "kernels/attention/fast_strips.h"

namespace posenc::inline v0::detail {
namespace {

// Up to these, sums of products in float stay finite.
constexpr float kLargestSlope = 0x1p60f, kLargestInverse = 0x1p40f;

double psi_of(bool keep_sign, double c, double y) noexcept {
  const double size = std::log(std::fabs(c * y) + 1);
  return keep_sign && y < 0 ? -size : size;
}

// d psi / d (c y), which is 0 where this is 0.
double slope_of(bool keep_sign, double c, double y) noexcept {
  const double z = c * y, sign = keep_sign && y < 0 ? -1 : 1;
  return (z > 0 ? sign : z < 0 ? -sign : 0) / (std::fabs(z) + 1);
}

bool are_finite(std::span<const double> x) noexcept {
  return std::all_of(x.begin(), x.end(), [](double y) { return std::isfinite(y); });
}

// A number before a knot (side -1) or behind it (1): further off where the knot is so large that 1 is rounded away.
double beside(double knot, double side) noexcept {
  return knot + side * std::max(1.0, std::fabs(knot) / 1024);
}

}  // namespace

DistanceCurve::DistanceCurve(const ReadyCall& c, const DistanceMlpTerm& t, CallArena& arena)
    : call_(&c),
      term_(&t),
      axis_(&c.axes[static_cast<std::size_t>(t.axis)]),
      units_(t.mlp.in.shape[0]),
      batches_(t.table.shape[0]),
      groups_(t.table.shape[1]),
      in_(arena.array<double>(units_)),
      in_bias_(arena.array<double>(units_)),
      out_(arena.array<double>(c.H * units_)),
      out_bias_(arena.array<double>(c.H)),
      below_(arena.array<double>(c.B * groups_ * c.Tq)),
      kernels_(&fast_curve_kernels(active_isa())) {
  for (Index u = 0; u < units_ && !arena.counts(); ++u) {
    const auto unit = static_cast<std::size_t>(u);
    in_[unit] = read_number(t.mlp.in, u), in_bias_[unit] = read_number(t.mlp.in_bias, u);
    for (Index h = 0; h < c.H; ++h)
      out_[static_cast<std::size_t>(h * units_ + u)] =
          read_number(t.mlp.out, Grouping{c.H, t.mlp.out.shape[0]}.of(h), u);
  }
  for (Index h = 0; h < c.H && !arena.counts(); ++h)
    out_bias_[static_cast<std::size_t>(h)] =
        read_number(t.mlp.out_bias, Grouping{c.H, t.mlp.out_bias.shape[0]}.of(h));
  for (Index n = 0; n < c.B * groups_ * c.Tq && !arena.counts(); ++n) {
    const Index b = n / c.Tq / groups_, group = n / c.Tq % groups_, batch = batches_ == 1 ? 0 : b;
    const double p = axis_->query[axis_->query_at(b, n % c.Tq)];
    const double limit = std::max(p, read_number(t.table, batch, group, 0, 1));
    below_[static_cast<std::size_t>(n)] =
        psi_of(t.keep_sign, read_number(t.table, batch, group, 0, 0), limit) + t.epsilon;
  }
  make_pieces(arena);
  make_lines(arena);
  narrow(arena);
}

// The slope changes where the input of a unit is 0.
void DistanceCurve::make_pieces(CallArena& arena) {
  const Index H = call_->H;
  const double leak = term_->mlp.slope, scale = term_->scale * kLog2E;
  const std::span<double> found = arena.array<double>(units_);
  slopes_ = arena.array<double>(H * (units_ + 1)), levels_ = arena.array<double>(H * (units_ + 1));
  if (arena.counts()) return;
  has_lines_ = are_finite(in_) && are_finite(in_bias_) && are_finite(out_) && are_finite(out_bias_);
  if (!has_lines_) return;
  std::size_t count = 0;
  for (std::size_t u = 0; u < in_.size(); ++u)
    if (in_[u] != 0 && std::isfinite(in_bias_[u] / in_[u])) found[count++] = -in_bias_[u] / in_[u];
  std::sort(found.begin(), found.begin() + static_cast<Index>(count));
  knots_ = found.first(count);
  for (Index h = 0; h < H; ++h)
    for (std::size_t piece = 0; piece <= count; ++piece) {
      // A number inside the piece says which units are above 0.
      const double between = inside(knots_, piece);
      double slope = 0, level = out_bias_[static_cast<std::size_t>(h)];
      for (std::size_t u = 0; u < in_.size(); ++u) {
        const double y = in_[u] * between + in_bias_[u];
        const double weight =
            out_[static_cast<std::size_t>(h) * in_.size() + u] * (y > 0 ? 1.0 : leak);
        slope += weight * in_[u], level += weight * in_bias_[u];
      }
      const std::size_t at = static_cast<std::size_t>(h) * (count + 1) + piece;
      slopes_[at] = scale * slope, levels_[at] = scale * level;
    }
}

void DistanceCurve::make_lines(CallArena& arena) {
  const std::optional<WholeDistances> d = consecutive_distances(*call_, term_->axis);
  if (!d) has_lines_ = false;
  if (!d) return;
  high_ = d->high, size_ = d->high - d->low + 1;
  psi_ = arena.array<float>(slabs() * size_ + kLineMargin);  // whole vectors are read
  if (arena.counts()) return;
  each_entry([&](Index n, double c, double distance) {
    psi_[static_cast<std::size_t>(n)] = static_cast<float>(psi(c, distance));
  });
  std::fill(psi_.end() - kLineMargin, psi_.end(), 0.0f);
}

// f(entry, c, distance) for all lines.
template <class F>
void DistanceCurve::each_entry(const F& f) const noexcept {
  for (Index n = 0; n < slabs() * size_; ++n) {
    const Index slab = n / size_;
    f(n, read_number(term_->table, slab / groups_, slab % groups_, 0, 0),
      static_cast<double>(high_ - n % size_));
  }
}

void DistanceCurve::fill_slopes(std::span<float> to) const noexcept {
  std::fill(to.begin(), to.end(), 0.0f);
  each_entry([&](Index n, double c, double distance) {
    to[static_cast<std::size_t>(n)] =
        static_cast<float>(slope_of(term_->keep_sign, c, distance) * distance);
  });
}

double DistanceCurve::inside(std::span<const double> knots, std::size_t n) noexcept {
  if (knots.empty()) return 0;
  if (n == 0) return beside(knots[0], -1);
  return n == knots.size() ? beside(knots[n - 1], 1) : knots[n - 1] / 2 + knots[n] / 2;
}

Index DistanceCurve::slab(Index b, Index h) const noexcept {
  return (batches_ == 1 ? 0 : b) * groups_ + Grouping{call_->H, groups_}.of(h);
}
DistanceCurve::Unit DistanceCurve::unit(Index h, Index u) const noexcept {
  const auto n = static_cast<std::size_t>(u);
  return {in_[n], in_bias_[n], out_[static_cast<std::size_t>(h * units_ + u)]};
}

DistanceCurve::Place DistanceCurve::place(Index b, Index h, Index i, Index key_row) const noexcept {
  const Index near =
      axis_->query_whole[axis_->query_at(b, i)] - axis_->key_whole[axis_->key_at(key_row, 0)];
  return {(b * groups_ + Grouping{call_->H, groups_}.of(h)) * call_->Tq + i,
          slab(b, h) * size_ + high_ - near, near};
}

double DistanceCurve::scale_of_row(Index row) const noexcept {
  const Index b = row / call_->Tq / groups_;
  return read_number(term_->table, batches_ == 1 ? 0 : b, row / call_->Tq % groups_, 0, 0);
}
double DistanceCurve::psi(double c, double distance) const noexcept {
  return psi_of(term_->keep_sign, c, distance);
}

DistanceCurve::Below DistanceCurve::below_of_row(Index row) const noexcept {
  const Index b = row / call_->Tq / groups_;
  const double c = scale_of_row(row), p = axis_->query[axis_->query_at(b, row % call_->Tq)],
               limit = read_number(term_->table, batches_ == 1 ? 0 : b, row / call_->Tq % groups_,
                                   0, 1),
               most = std::max(p, limit), slope = slope_of(term_->keep_sign, c, most);
  const double share = limit > p ? 1 : limit == p ? 0.5 : 0;  // of the gradient, which L gets
  return {below_[static_cast<std::size_t>(row)], slope * most, slope * c * share};
}

Index DistanceCurve::least() const noexcept {
  const Index low = high_ - size_ + 1;
  return keeps_sign() ? low : low > 0 ? low : high_ < 0 ? -high_ : 0;
}
Index DistanceCurve::distances() const noexcept {
  const Index low = high_ - size_ + 1;
  return (keeps_sign() ? high_ : std::max(std::abs(low), std::abs(high_))) - least() + 1;
}

void DistanceCurve::narrow(CallArena& arena) {
  const auto rows = static_cast<Index>(below_.size()), H = call_->H;
  inverse_ = arena.array<float>(rows);
  narrow_knots_ = arena.array<float>(units_), more_ = arena.array<float>(H * units_);
  narrow_slopes_ = arena.array<float>(H * (units_ + 1));
  narrow_levels_ = arena.array<float>(H * (units_ + 1));
  if (arena.counts() || !has_lines_) return;
  for (Index row = 0; row < rows; ++row) {
    const auto x = static_cast<float>(1 / below_[static_cast<std::size_t>(row)]);
    const bool usable = x > 0 && x <= kLargestInverse && std::isfinite(scale_of_row(row));
    inverse_[static_cast<std::size_t>(row)] = usable ? x : 0;
  }
  const std::size_t knots = knots_.size(), pieces = static_cast<std::size_t>(H) * (knots + 1);
  bool bounded = true;
  const auto number = [&](double x) {
    bounded = bounded && std::fabs(x) <= static_cast<double>(kLargestSlope);
    return static_cast<float>(x);
  };
  for (std::size_t n = 0; n < knots; ++n) narrow_knots_[n] = static_cast<float>(knots_[n]);
  for (std::size_t n = 0; n < pieces; ++n) {
    narrow_slopes_[n] = number(slopes_[n]), narrow_levels_[n] = number(levels_[n]);
    if (n % (knots + 1) < knots)
      more_[n / (knots + 1) * knots + n % (knots + 1)] = number(slopes_[n + 1] - slopes_[n]);
  }
  if (!bounded) std::fill(inverse_.begin(), inverse_.end(), 0.0f);
}

DistanceCurve::Row DistanceCurve::row_of(Index b, Index h, Index i) const noexcept {
  const Index group = Grouping{call_->H, groups_}.of(h);
  const double below = below_[static_cast<std::size_t>((b * groups_ + group) * call_->Tq + i)];
  return {read_number(term_->table, batches_ == 1 ? 0 : b, group, 0, 0), below, 1 / below};
}

double DistanceCurve::value(Index h, double x) const noexcept {
  double sum = out_bias_[static_cast<std::size_t>(h)];
  for (std::size_t u = 0; u < in_.size(); ++u) {
    const double y = in_[u] * x + in_bias_[u];
    sum += out_[static_cast<std::size_t>(h) * in_.size() + u] * (y > 0 ? y : term_->mlp.slope * y);
  }
  return term_->scale * kLog2E * sum;
}

void DistanceCurve::add(Index b, Index h, Index i, Index row, Run keys, double* to) const noexcept {
  const Row r = row_of(b, h, i);
  for (Index j = keys.begin; j < keys.end; ++j)
    to[j - keys.begin] +=
        value(h, psi_of(term_->keep_sign, r.c, axis_->delta(b, i, row, j)) / r.below);
}

Index DistanceCurve::entry(Index b, Index i, Index key_row) const noexcept {
  return high_ -
         (axis_->query_whole[axis_->query_at(b, i)] - axis_->key_whole[axis_->key_at(key_row, 0)]);
}

bool DistanceCurve::write(std::span<const FastRow> rows, Run keys, float most, float* to,
                          Index stride, Index* piece) const noexcept {
  if (!has_lines_) return false;
  const Index b = rows[0].b, h = rows[0].h, count = keys.end - keys.begin;
  const auto knots = static_cast<Index>(knots_.size());
  const float* psi = psi_.data() + slab(b, h) * size_ + keys.begin;
  const float* inverse =
      inverse_.data() + (b * groups_ + Grouping{call_->H, groups_}.of(h)) * call_->Tq;
  const float* knot = narrow_knots_.data();
  FastCurveRow list[kMostStripRows];
  for (std::size_t n = 0; n < rows.size(); ++n, to += stride) {
    const FastRow& r = rows[n];
    const float* u = psi + r.entry;
    const float by = inverse[r.i], x = u[0] * by, y = u[count - 1] * by;
    if (by == 0) return false;
    // Where the block has the distance 0, x falls up to there and then rises.
    const Index here = high_ - (r.entry + keys.begin);
    const bool turns = !term_->keep_sign && here >= 0 && here < count;
    const float low = turns ? 0 : std::min(x, y), high = std::max(x, y);
    Index first = piece[n];
    while (first > 0 && knot[first - 1] > low) --first;
    while (first < knots && knot[first] <= low) ++first;
    Index last = piece[n] = first;
    while (last < knots && knot[last] < high) ++last;
    list[n] = {u, by, first, last, to};
  }
  return kernels_->rows({narrow_slopes_.data() + h * (knots + 1),
                         narrow_levels_.data() + h * (knots + 1), knot, more_.data() + h * knots},
                        list, static_cast<Index>(rows.size()), count, most);
}

}  // namespace posenc::v0::detail
