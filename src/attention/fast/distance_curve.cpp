// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/distance_curve.h"

#include <algorithm>
#include <cmath>

#include "attention/fast/starts.h"

namespace posenc::inline v0::detail {
namespace {

// Units whose knots are kept for each query.
constexpr Index kMostEnds = 64;

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
      below_(arena.array<double>(c.B * groups_ * c.Tq)) {
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
  find_ends(arena);
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

void DistanceCurve::find_ends(CallArena& arena) {
  const std::optional<WholeDistances> d = consecutive_distances(*call_, term_->axis);
  if (!d || units_ > kMostEnds) return;
  const Index rows = call_->B * groups_ * call_->Tq;
  const std::span<Index> memory = arena.array<Index>(rows * units_);
  if (arena.counts() || !has_lines_) return;
  const auto knots = static_cast<Index>(knots_.size());
  ends_ = memory.first(static_cast<std::size_t>(rows * knots));
  for (Index n = 0; n < rows * knots; ++n) {
    const Index row = n / knots, group = row / call_->Tq % groups_,
                batch = batches_ == 1 ? 0 : row / call_->Tq / groups_;
    const double c = std::fabs(read_number(term_->table, batch, group, 0, 0)),
                 x = knots_[static_cast<std::size_t>(n % knots)];
    const double end =
        x <= 0 ? 0 : std::ceil(std::expm1(x * below_[static_cast<std::size_t>(row)]) / c);
    constexpr auto kNever = static_cast<double>(kUnbounded);
    ends_[static_cast<std::size_t>(n)] =
        end < kNever ? static_cast<Index>(std::max(end, 0.0)) : kUnbounded;
  }
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

// Numbers of a piece: where u falls or rises, the first and the last are the smallest and the largest.
bool DistanceCurve::write_piece(double slope, double level, const Row& r, const float* u,
                                Index count, float most, float* to) noexcept {
  const auto a = static_cast<float>(slope * r.inverse), c = static_cast<float>(level);
  for (Index n = 0; n < count; ++n) to[n] = a * u[n] + c;
  return std::fabs(to[0]) <= most && std::fabs(to[count - 1]) <= most;
}

// Of keys along which u falls, or rises: from one knot to the next.
bool DistanceCurve::write_part(const double* slope, const double* level, const Row& r,
                               const float* u, Index count, bool falls, float most,
                               float* to) const noexcept {
  for (Index j = 0; j < count;) {
    const double x = static_cast<double>(u[j]) * r.inverse;
    const auto piece = std::upper_bound(knots_.begin(), knots_.end(), x) - knots_.begin();
    // The knot that u comes to.
    const bool last = falls ? piece == 0 : piece == static_cast<Index>(knots_.size());
    Index end = count;
    if (!last) {
      const double knot = knots_[static_cast<std::size_t>(falls ? piece - 1 : piece)] * r.below;
      const auto before = [&](float y) {
        return falls ? static_cast<double>(y) >= knot : static_cast<double>(y) < knot;
      };
      if (!before(u[count - 1]))
        end =
            std::max(j + 1, static_cast<Index>(std::partition_point(u + j, u + count, before) - u));
    }
    if (!write_piece(slope[piece], level[piece], r, u + j, end - j, most, to + j)) return false;
    j = end;
  }
  return true;
}

// Of keys whose distance, without its sign, is `near` and goes up or down by one.
bool DistanceCurve::write_ends(const double* slope, const double* level, const Row& r,
                               const float* u, Index near, Index step, Index count,
                               const Index* ends, float most, float* to) const noexcept {
  const auto knots = static_cast<Index>(knots_.size());
  Index piece = std::upper_bound(ends, ends + knots, near) - ends;
  for (Index j = 0; j < count; piece += step) {
    Index end = count;
    if (step < 0 && piece > 0) end = std::min(count, near - ends[piece - 1] + 1);
    if (step > 0 && piece < knots) end = std::min(count, ends[piece] - near);
    if (end <= j) continue;
    if (!write_piece(slope[piece], level[piece], r, u + j, end - j, most, to + j)) return false;
    j = end;
  }
  return true;
}

bool DistanceCurve::write(Index b, Index h, Index i, Index row, Run keys, float most,
                          float* to) const noexcept {
  if (!has_lines_) return false;
  const Row r = row_of(b, h, i);
  if (!(r.inverse > 0) || !std::isfinite(r.inverse) || !std::isfinite(r.c)) return false;
  const Index group = Grouping{call_->H, groups_}.of(h);
  const Index query = axis_->query_whole[axis_->query_at(b, i)],
              first = axis_->key_whole[axis_->key_at(row, 0)];
  const float* u = psi_.data() + ((batches_ == 1 ? 0 : b) * groups_ + group) * size_ +
                   (high_ - (query - first)) + keys.begin;
  const double* slope = slopes_.data() + h * static_cast<Index>(knots_.size() + 1);
  const double* level = levels_.data() + h * static_cast<Index>(knots_.size() + 1);
  // Keys up to the position of the query, and those after it.
  const Index here = std::clamp(query - first + 1, keys.begin, keys.end) - keys.begin;
  const Index after = keys.end - keys.begin - here;
  if (ends_.empty())
    return write_part(slope, level, r, u, here, true, most, to) &&
           write_part(slope, level, r, u + here, after, term_->keep_sign, most, to + here);
  const Index* ends =
      ends_.data() + ((b * groups_ + group) * call_->Tq + i) * static_cast<Index>(knots_.size());
  const Index near = query - first - keys.begin;
  if (!write_ends(slope, level, r, u, near, -1, here, ends, most, to)) return false;
  if (term_->keep_sign) return write_part(slope, level, r, u + here, after, true, most, to + here);
  return write_ends(slope, level, r, u + here, here - near, 1, after, ends, most, to + here);
}

}  // namespace posenc::v0::detail
