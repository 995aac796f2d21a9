// SPDX-License-Identifier: Apache-2.0
// Up to which length a scheme computes nothing that it did not compute in training.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "laws/checks.h"
#include "posenc/laws.h"

namespace posenc::inline v0 {
namespace {

std::string tokens(Index n) {
  return std::to_string(n) + (n == 1 ? " token" : " tokens");
}

TrainedRange fixed(std::string reason) {
  return {Unseen::none, std::nullopt, std::move(reason)};
}

// `now` computes what `then` computed in training. An incomplete pair shows in training the angles up to
// (trained - 1) w, and reaches more of them from the first position with p w' above that.
TrainedRange angles(const Spectrum& then, const Spectrum& now, Index trained) {
  const auto old_turns = turns_over(then, trained), new_turns = turns_over(now, trained);
  double farthest = std::numeric_limits<double>::infinity();
  Index incomplete = 0;
  for (std::size_t i = 0; i < new_turns.size(); ++i) {
    const PairTurns& past = old_turns[old_turns.size() == new_turns.size() ? i : 0];
    if (past.is_complete() || new_turns[i].is_still()) continue;
    ++incomplete;
    const double ratio = std::abs(past.frequency / new_turns[i].frequency);
    // The quotient may be below a whole number by rounding alone.
    farthest = std::min(farthest, static_cast<double>(trained - 1) * ratio * (1 + 1e-12));
  }
  const std::string of = std::to_string(incomplete) + " of " + std::to_string(new_turns.size()) +
                         (incomplete == 1 ? " pairs completes" : " pairs complete") +
                         " no rotation in " + tokens(trained);
  if (incomplete == 0) return fixed("every pair completes a rotation in " + tokens(trained));
  if (farthest >= 9e15) return fixed(of + ", and none of them rotates now");
  const Index longest = static_cast<Index>(std::floor(farthest)) + 1;
  return {Unseen::angles, longest,
          of + "; beyond " + tokens(longest) + " one of them reaches an angle that did not occur"};
}

// Of a table by distance: the first distance beyond `trained` - 1 whose row is another.
template <class Row>
TrainedRange distance_rows(Row&& row, Index trained) {
  const auto last = row(trained - 1);
  Index same = trained - 1, other = std::max<Index>(1, 2 * trained);
  while (row(other) == last) {
    if (other > (Index{1} << 40))
      return fixed("the last row of the table serves all larger distances, and " + tokens(trained) +
                   " train it");
    same = other;
    other *= 2;
  }
  while (other - same > 1) {
    const Index middle = same + (other - same) / 2;
    (row(middle) == last ? same : other) = middle;
  }
  return {Unseen::rows, other,
          "distance " + std::to_string(other) + " reads a row of the table that " +
              tokens(trained) + " do not train"};
}

TrainedRange range_of(const Learned& s, Index trained) {
  const Index rows = s.rows - s.offset;
  if (rows > trained)
    return {Unseen::rows, trained,
            "the table has rows for " + tokens(rows) + ", and those from position " +
                std::to_string(trained) + " on were not trained"};
  return {Unseen::rows, std::max<Index>(rows, 0), "the table has rows for " + tokens(rows)};
}
TrainedRange range_of(const T5& s, Index trained) {
  const std::vector<Index> thresholds = t5_thresholds(s.side(), s.max_distance);
  return distance_rows([&](Index d) { return s.bucket(d, thresholds); }, trained);
}
TrainedRange range_of(const Clipped& s, Index trained) {
  return distance_rows([&](Index d) { return std::min(d, s.clip); }, trained);
}
TrainedRange range_of(const Shaw& s, Index trained) {
  return distance_rows(
      [&](Index d) { return std::min(d, s.left + (s.beyond != ShawBeyond::clip)); }, trained);
}
TrainedRange range_of(const Deberta& s, Index trained) {
  return distance_rows([&](Index d) { return s.row(d); }, trained);
}
template <class S>
requires(std::is_same_v<S, Alibi> || std::is_same_v<S, MarianAlibi> || std::is_same_v<S, Kerple> ||
         std::is_same_v<S, Sandwich>) TrainedRange range_of(const S&, Index) {
  return fixed(
      "the bias is a fixed function of the distance, without a table or an angle of its own");
}
TrainedRange range_of(const Fire&, Index) {
  return fixed(
      "the distance is divided by the query's position, so the network reads 0 .. 1 at any length");
}
template <class S>
requires(std::is_same_v<S, Nope> || std::is_same_v<S, Forgetting> ||
         std::is_same_v<S, StickBreaking>) TrainedRange range_of(const S&, Index) {
  return fixed("no position is read");
}

}  // namespace

TrainedRange trained_range(const Encoding& e, Index trained, Context context) {
  require_positive("trained", trained);
  return std::visit(
      [&](const auto& scheme) -> TrainedRange {
        using S = std::decay_t<decltype(scheme)>;
        if constexpr (requires { range_of(scheme, trained); })
          return range_of(scheme, trained);
        else if constexpr (requires {
                             { scheme.spectrum() } -> std::same_as<Spectrum>;
                           })
          return angles(scheme.spectrum(), resolve_spectrum(e, context), trained);
        else
          refuse(
              "law",
              "no rule is known for what " + std::string(S::card.name) +
                  " computes beyond its trained length; there are rules for schemes with "
                  "frequencies, learned, t5, clipped, shaw, deberta, alibi, marian_alibi, kerple, "
                  "sandwich, fire, nope, forgetting and stick_breaking");
      },
      static_cast<const Schemes::Variant&>(e.scheme));
}

}  // namespace posenc::v0
