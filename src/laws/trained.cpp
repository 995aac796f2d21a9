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

// Frequencies of a sinusoid by distance: base^(-2i/width), or from 1 to 1/base as in Tensor2Tensor.
Spectrum sinusoid(double base, Index width, bool t2t = false) {
  const Index pairs = std::max<Index>(width / 2, 1);
  const double last =
      t2t ? std::max<double>(static_cast<double>(pairs - 1), 1) : static_cast<double>(width) / 2;
  Spectrum s;
  for (Index i = 0; i < pairs; ++i)
    s.frequency.push_back(std::pow(base, -static_cast<double>(i) / last));
  return s;
}

// Sinusoids of distances up to `clamp` (0: of every distance). With keys after the query, a pair has shown the
// angles of 2 trained - 1 distances.
TrainedRange relative_angles(const Spectrum& s, Index trained, bool both_sides, Index clamp = 0) {
  if (clamp > 0 && clamp < trained)
    return fixed("distances above " + std::to_string(clamp) + " count as it, and " +
                 tokens(trained) + " show all others");
  const auto turns = turns_over(s, both_sides ? 2 * trained - 1 : trained);
  const auto incomplete =
      std::ranges::count_if(turns, [](const PairTurns& t) { return !t.is_complete(); });
  if (incomplete == 0)
    return fixed("every pair completes a rotation over the distances of " + tokens(trained));
  return {Unseen::angles, trained,
          std::to_string(incomplete) + " of " + std::to_string(turns.size()) +
              (incomplete == 1 ? " pairs completes" : " pairs complete") +
              " no rotation over the distances of " + tokens(trained) + "; distance " +
              std::to_string(trained) + " has an angle that did not occur"};
}

TrainedRange learned_function(std::string_view of, Index trained) {
  return {Unseen::inputs, trained,
          "a learned function of the " + std::string(of) + " reads " + std::to_string(trained) +
              ", which did not occur in " + tokens(trained)};
}

// Of a table by position with rows for `rows` tokens.
TrainedRange position_rows(Index rows, Index trained) {
  if (rows > trained)
    return {Unseen::rows, trained,
            "the table has rows for " + tokens(rows) + ", and those from position " +
                std::to_string(trained) + " on were not trained"};
  return {Unseen::rows, std::max<Index>(rows, 0), "the table has rows for " + tokens(rows)};
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
  return position_rows(s.rows - s.offset, trained);
}
TrainedRange range_of(const Tupe& s, Index trained) {
  return position_rows(s.positions, trained);
}
TrainedRange range_of(const ConformerAbsoluteKey& s, Index trained) {
  return position_rows(s.rows, trained);
}
TrainedRange range_of(const T5& s, Index trained) {
  const std::vector<Index> thresholds = t5_thresholds(s.side(), s.max_distance);
  return distance_rows([&](Index d) { return s.bucket(d, thresholds); }, trained);
}
// Those with the buckets of T5, of both sides or of past keys alone.
template <class S>
requires(std::is_same_v<S, WavLm> || std::is_same_v<S, CpmAnt> ||
         std::is_same_v<S, ProphetNet>) TrainedRange range_of(const S& s, Index trained) {
  T5 rule;
  rule.bidirectional = !std::is_same_v<S, ProphetNet>;
  rule.num_buckets = s.num_buckets;
  rule.max_distance = s.max_distance;
  return range_of(rule, trained);
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
TrainedRange range_of(const TransformerXlLearned& s, Index trained) {
  return distance_rows([&](Index d) { return s.row(d); }, trained);
}
TrainedRange range_of(const RelativeProjection& s, Index trained) {
  return distance_rows([&](Index d) { return d < s.max_distance ? d : -1; }, trained);
}
TrainedRange range_of(const Cope& s, Index trained) {
  // A sum of gates counts the query's own key: it is at most the number of tokens.
  if (s.positions - 1 <= trained)
    return fixed("the last row serves every larger sum of gates, and the gates of " +
                 tokens(trained) + " can add up to it");
  return {Unseen::rows, trained,
          "the gates of more tokens can add up to row " + std::to_string(trained + 1) + ", which " +
              tokens(trained) + " cannot reach"};
}
TrainedRange range_of(const TransformerXl& s, Index trained) {
  return relative_angles(sinusoid(s.base, s.d_model), trained, false, s.clamp_len);
}
TrainedRange range_of(const XlNet& s, Index trained) {
  return relative_angles(sinusoid(s.base, s.d_model), trained, true, s.clamp_len);
}
TrainedRange range_of(const Conformer& s, Index trained) {
  if (s.rows > 0) return position_rows((s.rows + 1) / 2, trained);
  return relative_angles(sinusoid(s.base, s.d_model, s.t2t), trained, !s.even);
}
TrainedRange range_of(const Enformer&, Index trained) {
  return learned_function("distance", trained);
}
TrainedRange range_of(const DynamicPositionBias&, Index trained) {
  return learned_function("distance", trained);
}
template <class S>
requires(std::is_same_v<S, LearnableFourier> || std::is_same_v<S, ContinuousAxial>) TrainedRange
    range_of(const S&, Index trained) {
  return learned_function("position", trained);
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
TrainedRange range_of(const Dape&, Index) {
  return fixed("the network reads scores and the biases of other schemes, and no position");
}
template <class S>
requires(std::is_same_v<S, Nope> || std::is_same_v<S, Forgetting> ||
         std::is_same_v<S, StickBreaking> || std::is_same_v<S, Convolutional>) TrainedRange
    range_of(const S&, Index) {
  return fixed("no position is read");
}

}  // namespace

TrainedRange trained_range(const Encoding& e, Index trained, Context context, Index head_dim) {
  require_positive("trained", trained);
  require_positive("head_dim", head_dim);
  return std::visit(
      [&](const auto& scheme) -> TrainedRange {
        using S = std::decay_t<decltype(scheme)>;
        if constexpr (std::is_same_v<S, Tener>)
          return relative_angles(
              sinusoid(scheme.base, head_dim, scheme.spacing == TenerSpacing::t2t), trained, true);
        else if constexpr (requires { range_of(scheme, trained); })
          return range_of(scheme, trained);
        else if constexpr (requires {
                             { scheme.spectrum() } -> std::same_as<Spectrum>;
                           })
          return angles(scheme.spectrum(), resolve_spectrum(e, context), trained);
        else
          refuse("law", "no rule is known for what " + std::string(S::card.name) +
                            " computes beyond its trained length; docs/laws.md lists the schemes "
                            "with a rule");
      },
      static_cast<const Schemes::Variant&>(e.scheme));
}

}  // namespace posenc::v0
