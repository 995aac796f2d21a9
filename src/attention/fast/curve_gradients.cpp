// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/curve_gradients.h"

#include <algorithm>
#include <cmath>

#include "attention/call/add_to.h"
#include "core/parallel.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {
namespace {

// Units whose knots are kept for each query.
constexpr Index kMostUnits = 128;

bool is_wanted(const TermGradient& g) noexcept {
  return !g.table.empty() || !g.mlp.in.empty() || !g.mlp.in_bias.empty() || !g.mlp.out.empty() ||
         !g.mlp.out_bias.empty();
}

// The first number of [low, high) that holds, near a guess, where all after one hold too; else high.
template <class Holds>
Index first_that(Index low, Index high, double guess, const Holds& holds) noexcept {
  Index at =
      guess < static_cast<double>(high) ? static_cast<Index>(std::max(guess, 0.0)) : high - 1;
  at = std::clamp(at, low, std::max(low, high - 1));
  bool above = false, below = false;
  for (Index step = 1; low < high; step *= 2) {
    if (holds(at))
      high = at, above = true;
    else
      low = at + 1, below = true;
    if (above && below)
      at = low + (high - low) / 2;
    else
      at = above ? std::max(low, high - step) : std::min(high - 1, low + step - 1);
  }
  return low;
}

}  // namespace

std::string_view CurveGradients::why_not(const ReadyCall& c, const Term& t) noexcept {
  if (term_class(t) != TermClass::distance_curve) return {};
  const auto& term = std::get<DistanceMlpTerm>(t);
  if (term.mlp.in.shape[0] > kMostUnits)
    return "it computes no gradients of a function of the distance with more than 128 units";
  if (!consecutive_distances(c, term.axis))
    return "it computes gradients of a function of the distance only where positions of keys "
           "count up by one";
  return {};
}

CurveGradients::CurveGradients(const FastCall& c, const AttentionGradients& g, Index slices,
                               CallArena& arena)
    : call_(c), kernels_(fast_curve_kernels(active_isa())), slices_(slices) {
  const std::span<const Term> terms = c.args.terms;
  const auto wanted = [&](std::size_t n) {
    return n < g.terms.size() && term_class(terms[n]) == TermClass::distance_curve &&
           is_wanted(g.terms[n]);
  };
  Index count = 0;
  for (std::size_t n = 0; n < terms.size(); ++n) count += wanted(n) ? 1 : 0;
  curves_ = arena.objects<Curve>(count);
  std::size_t number = 0, curve = 0;
  for (std::size_t n = 0; n < terms.size(); ++n) {
    if (term_class(terms[n]) != TermClass::distance_curve) continue;
    const DistanceCurve& from = c.starts.curves()[curve++];
    if (!wanted(n)) continue;
    Curve& to = curves_[number++];
    const Index units = from.units();
    to.curve = &from, to.to = g.terms[n];
    to.first_piece = pieces_, to.most_pieces = 2 * units + 1, pieces_ += to.most_pieces;
    to.knots = arena.array<double>(units);
    to.ends = arena.array<std::int32_t>(c.B * from.groups() * c.Tq * 2 * units);
    to.by_c = arena.array<float>(from.line_numbers());
    to.numbers = arena.array<double>(2 * units + c.H * (units + 1) + 2 * from.slabs());
  }
  kept_ = arena.array<CurvePiece>(c.B * c.H * slices * pieces_);
}

CurveGradientsWork CurveGradients::work(CallArena& arena) const {
  return {arena.array<CurvePiece>(pieces_)};
}

// Of one row of a batch entry and group of the table: see Curve::ends.
void CurveGradients::find_ends(const Curve& c, Index row) const noexcept {
  const DistanceCurve& curve = *c.curve;
  const double scale = curve.scale_of_row(row), below = curve.below_of_row(row).value;
  const auto x = [&](Index n) {
    return curve.psi(scale, static_cast<double>(curve.least() + n)) / below;
  };
  std::int32_t* to = c.ends.data() + row * 2 * static_cast<Index>(c.knots.size());
  const Index count = curve.distances();
  Index first = 0;
  for (const double knot : c.knots) {
    const double size = std::expm1(std::fabs(knot) * below) / std::fabs(scale);
    const double guess = std::ceil(knot < 0 ? -size : size) - static_cast<double>(curve.least());
    first = first_that(first, count, guess, [&](Index n) { return x(n) >= knot; });
    *to++ = static_cast<std::int32_t>(first);
    first =
        first_that(first, count, static_cast<double>(first), [&](Index n) { return x(n) > knot; });
    *to++ = static_cast<std::int32_t>(first);
  }
}

bool CurveGradients::find_knots(const Executor& executor) noexcept {
  for (Curve& c : curves_) {
    if (!c.curve->is_line()) return false;
    const std::span<const double> all = c.curve->knots();
    const auto last = std::unique_copy(all.begin(), all.end(), c.knots.begin());
    c.knots = c.knots.first(static_cast<std::size_t>(last - c.knots.begin()));
    const Index rows = call_.B * c.curve->groups() * call_.Tq;
    for (Index row = 0; row < rows; ++row) {
      const double below = c.curve->below_of_row(row).value;
      if (!(below > 0) || !std::isfinite(below) || !std::isfinite(c.curve->scale_of_row(row)))
        return false;
    }
    c.curve->fill_slopes(c.by_c);
    parallel_for(executor, rows, rows * static_cast<Index>(c.knots.size()) / 512,
                 [&](Index begin, Index end) noexcept {
                   for (Index row = begin; row < end; ++row) find_ends(c, row);
                 });
  }
  for (CurvePiece& p : kept_) p = {};
  return true;
}

void CurveGradients::begin_head(CurveGradientsWork& w) const noexcept {
  for (CurvePiece& p : w.pieces) p = {};
}

struct CurveGradients::Row {
  const float *psi, *by_c;  // of key 0
  const std::int32_t* ends;
  Index near;      // distance of key 0
  double inverse;  // 1 / below
  double by_c_of_below, by_limit_of_below;
};

CurveGradients::Row CurveGradients::row_of(const Curve& c, const FastRow& r) const noexcept {
  const DistanceCurve::Place at = c.curve->place(r.b, r.h, r.i, r.place.row);
  const DistanceCurve::Below below = c.curve->below_of_row(at.row);
  return {c.curve->line() + at.entry,
          c.by_c.data() + at.entry,
          c.ends.data() + at.row * 2 * static_cast<Index>(c.knots.size()),
          at.near,
          1 / below.value,
          below.by_c,
          below.by_limit};
}

void CurveGradients::add_run(const Row& r, const float* s, Index key, Index count,
                             CurvePiece& to) const noexcept {
  float sums[3];
  kernels_.sums(s, r.psi + key, r.by_c + key, count, sums);
  const double x = static_cast<double>(sums[1]) * r.inverse;
  to.s += static_cast<double>(sums[0]), to.x += x;
  to.by_c += r.inverse * (static_cast<double>(sums[2]) - x * r.by_c_of_below);
  to.by_limit -= r.inverse * r.by_limit_of_below * x;
}

// Keys whose measure falls by one from key to key, then those along which it rises.
void CurveGradients::add_row(const Curve& c, const Row& r, const float* s, Run keys,
                             CurvePiece* pieces) const noexcept {
  const Index count = 2 * static_cast<Index>(c.knots.size()), least = c.curve->least();
  const Index turn =
      c.curve->keeps_sign() ? keys.end : std::clamp(r.near + 1, keys.begin, keys.end);
  Index piece = 0;
  for (Index j = keys.begin; j < turn;) {
    const Index at = r.near - j - least;
    piece = j == keys.begin ? std::upper_bound(r.ends, r.ends + count, at) - r.ends : piece;
    while (piece > 0 && r.ends[piece - 1] > at) --piece;
    const Index end = piece > 0 ? std::min(turn, j + at - r.ends[piece - 1] + 1) : turn;
    add_run(r, s + (j - keys.begin), j, end - j, pieces[piece]);
    j = end;
  }
  for (Index j = turn; j < keys.end;) {
    const Index at = j - r.near - least;
    piece = j == turn ? std::upper_bound(r.ends, r.ends + count, at) - r.ends : piece;
    while (piece < count && r.ends[piece] <= at) ++piece;
    const Index end = piece < count ? std::min(keys.end, j + r.ends[piece] - at) : keys.end;
    add_run(r, s + (j - keys.begin), j, end - j, pieces[piece]);
    j = end;
  }
}

void CurveGradients::add(const FastRow* row, const float* s, Index rows, Index stride, Run keys,
                         CurveGradientsWork& w) const noexcept {
  for (const Curve& c : curves_)
    for (Index i = 0; i < rows; ++i)
      add_row(c, row_of(c, row[i]), s + i * stride, keys, w.pieces.data() + c.first_piece);
}

void CurveGradients::end_head(Index b, Index h, Index slice, const CurveGradientsWork& w) noexcept {
  std::copy(w.pieces.begin(), w.pieces.end(),
            kept_.begin() + ((b * call_.H + h) * slices_ + slice) * pieces_);
}

// d out_u = sum of s act(y_u), d in_u = sum of s out_u act'(y_u) x; the rest goes by the slope of the piece.
void CurveGradients::pull(Curve& c) noexcept {
  const DistanceCurve& curve = *c.curve;
  const DistanceMlpTerm& term = curve.term();
  const Index units = curve.units(), heads = call_.H * slices_;
  const Index out_groups = term.mlp.out.shape[0], bias_groups = term.mlp.out_bias.shape[0];
  std::fill(c.numbers.begin(), c.numbers.end(), 0.0);
  double *in = c.numbers.data(), *in_bias = in + units, *out = in_bias + units,
         *out_bias = out + call_.H * units, *table = out_bias + call_.H;
  for (Index n = 0; n < call_.B * heads; ++n) {
    const Index b = n / heads, h = n % heads / slices_;
    const CurvePiece* from = kept_.data() + n * pieces_ + c.first_piece;
    double* out_of = out + Grouping{call_.H, out_groups}.of(h) * units;
    for (Index piece = 0; piece < c.pieces(); ++piece) {
      const CurvePiece& p = from[piece];
      const auto knot = static_cast<std::size_t>(piece / 2);
      const double inside = piece % 2 != 0 ? c.knots[knot] : DistanceCurve::inside(c.knots, knot);
      double slope = 0;
      for (Index u = 0; u < units; ++u) {
        const auto unit = curve.unit(h, u);
        const double act = unit.in * inside + unit.in_bias < 0 ? term.mlp.slope : 1;
        const double by = term.scale * unit.out * act;
        out_of[u] += term.scale * act * (unit.in * p.x + unit.in_bias * p.s);
        in[u] += by * p.x, in_bias[u] += by * p.s;
        slope += by * unit.in;
      }
      out_bias[Grouping{call_.H, bias_groups}.of(h)] += term.scale * p.s;
      double* of = table + 2 * curve.slab(b, h);
      of[0] += slope * p.by_c, of[1] += slope * p.by_limit;
    }
  }
  const auto put = [](const TensorView& to, const double* x, Index count) {
    if (!to.empty()) add_to(to, {x, static_cast<std::size_t>(count)});
  };
  put(c.to.mlp.in, in, units), put(c.to.mlp.in_bias, in_bias, units);
  put(c.to.mlp.out, out, out_groups * units), put(c.to.mlp.out_bias, out_bias, bias_groups);
  put(c.to.table, table, 2 * curve.slabs());
}

void CurveGradients::finish() noexcept {
  for (Curve& c : curves_) pull(c);
}

}  // namespace posenc::v0::detail
