// SPDX-License-Identifier: Apache-2.0
// What holds for attention with any scheme of the registry, whatever its fields are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "attention/engine_compare.h"
#include "attention/scheme_tokens.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using Cut = SchemeTokens::Cut;
using Result = SchemeTokens::Result;
using Vector = SchemeTokens::Vector;
using ::testing::HasSubstr;

constexpr double kClose = 2e-13;

bool is(const SchemeTokens& t, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), t.made.scheme.card().name) != names.end();
}
// fn(tokens) of every scheme with several fields at random.
template <class F>
void each_scheme(const F& fn) {
  for (std::size_t which = 0; which < scheme_count(); ++which)
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      SchemeTokens tokens(which, seed);
      SCOPED_TRACE(tokens.made.text + ", seed " + std::to_string(seed));
      fn(tokens);
    }
}

Vector part(const Vector& x, Index first, Index n, Index width) {
  return {x.begin() + first * width, x.begin() + (first + n) * width};
}
Vector sum_of(Vector x, const Vector& y) {
  for (std::size_t n = 0; n < x.size(); ++n) x[n] += y[n];
  return x;
}
double largest(const Vector& x) {
  double most = 0;
  for (const double y : x) most = std::fmax(most, std::fabs(y));
  return most;
}

// A key after the query changes nothing, not one bit: k, v and all that a call brings for keys.
TEST(SchemeLaws, LaterKeysChangeNothing) {
  each_scheme([&](SchemeTokens& t) {
    const Result before = t.run({});
    for (const Index first : {8, 4, 1}) {
      t.change_keys(first);
      const Result after = t.run({});
      EXPECT_TRUE(part(after.out, 0, first, 16) == part(before.out, 0, first, 16)) << first;
      EXPECT_FALSE(after.out == before.out);
    }
  });
}

// A network whose layers read several keys: hidden ones beside a visible key count, with the units
// of a 0, so that a row depends on whether later keys are there at all.
bool reads_neighbours(const SchemeTokens& t) {
  const auto wide = [](const Term& x) {
    const auto* net = std::get_if<ScoreMlpTerm>(&x);
    return net != nullptr && net->mlp.in.shape[2] > 1;
  };
  return std::any_of(t.lowered().terms.begin(), t.lowered().terms.end(), wide);
}

TEST(SchemeLaws, DecodeIsTheRowOfThePrefill) {
  each_scheme([&](SchemeTokens& t) {
    const Result all = t.run({});
    for (const auto& [first, n] : {std::pair<Index, Index>{8, 1}, {5, 4}, {5, 3}, {0, 4}}) {
      if (reads_neighbours(t) && first + n < SchemeTokens::T) continue;
      const Result some = t.run({.q0 = first, .queries = n, .keys = first + n});
      EXPECT_LE(difference(some.out, part(all.out, first, n, 16)), kClose) << first;
    }
  });
}

TEST(SchemeLaws, PackingIsSeparateRuns) {
  each_scheme([&](SchemeTokens& t) {
    const Cut packed{.sequences = {0, 4, 9}}, one{.queries = 4, .keys = 4},
        two{.q0 = 4, .queries = 5, .k0 = 4, .keys = 5, .start = 4};
    const Result all = t.run(packed, true), first = t.run(one, true), second = t.run(two, true);
    EXPECT_LE(difference(part(all.out, 0, 4, 16), first.out), kClose);
    EXPECT_LE(difference(part(all.out, 4, 5, 16), second.out), kClose);
    EXPECT_LE(difference(part(all.d_q, 0, 4, 16), first.d_q), kClose);
    EXPECT_LE(difference(part(all.d_q, 4, 5, 16), second.d_q), kClose);
    EXPECT_LE(difference(part(all.d_k, 0, 4, 8), first.d_k), kClose);
    EXPECT_LE(difference(part(all.d_v, 4, 5, 8), second.d_v), kClose);
    EXPECT_LE(difference(all.d_learned, sum_of(first.d_learned, second.d_learned)), 1e-11);
  });
}

TEST(SchemeLaws, PagesAreContiguousKeys) {
  each_scheme([&](SchemeTokens& t) {
    if (t.reads_keys()) {
      const std::string says = test::refusal([&] { t.run({.pages = true}); });
      EXPECT_TRUE(says == "accepted" || says.find("needs them without pages") != says.npos) << says;
      if (says != "accepted") return;
    }
    const Result plain = t.run({}, true), paged = t.run({.pages = true}, true);
    EXPECT_EQ(paged.out, plain.out);
    EXPECT_EQ(paged.lse, plain.lse);
    EXPECT_EQ(paged.d_q, plain.d_q);
    EXPECT_EQ(paged.d_learned, plain.d_learned);
  });
}

// Parts over disjoint keys and their merge, stick-breaking from the last keys on.
TEST(SchemeLaws, PartsMergeToTheWhole) {
  each_scheme([&](SchemeTokens& t) {
    // Sums over keys and kernels over keys need all keys in one call.
    if (t.has<GatesTerm>() || reads_neighbours(t)) return;
    if (t.normalisation() == Normalisation::stick_breaking_own) return;
    const Cut late{.q0 = 4, .queries = 5, .k0 = 4, .keys = 5, .causal = true, .one_order = true},
        early{.q0 = 4, .queries = 5, .keys = 4}, whole{.q0 = 4, .queries = 5};
    if (is(t, {"forgetting"})) {  // its sums are by the place of a query among the keys
      EXPECT_THAT(test::refusal([&] { t.run(early); }),
                  HasSubstr("queries must be among the keys"));
      return;
    }
    Result part[2] = {t.run(late), t.run(early)}, want = t.run(whole);
    std::vector<ConstAttentionResult> parts;
    for (Result& r : part)
      parts.push_back(
          AttentionResult{heads(r.out.data(), 5, 4, 4), tensor(r.lse.data(), {1, 4, 5})});
    Vector out(want.out.size()), lse(want.lse.size());
    merge(parts, {heads(out.data(), 5, 4, 4), tensor(lse.data(), {1, 4, 5})}, t.normalisation());
    EXPECT_LE(difference(out, want.out), kClose);
    EXPECT_LE(difference(lse, want.lse), kClose);
  });
}

// All distances are kept: nothing changes but for those that read positions themselves.
TEST(SchemeLaws, ShiftsOfAllPositionsChangeNothing) {
  std::map<std::string_view, double> most;  // of those that do
  each_scheme([&](SchemeTokens& t) {
    const Result here = t.run({.causal = false}), there = t.run({.causal = false, .shift = 11});
    const double changed = difference(here.out, there.out);
    // Inkling's bias grows with the position of the query.
    const bool grows = t.made.text.find("log_scaling_n_floor") != std::string::npos;
    if (grows || is(t, {"fire", "tupe", "conformer_absolute_key"}))
      most[t.made.scheme.card().name] = std::fmax(most[t.made.scheme.card().name], changed);
    else
      EXPECT_LE(changed, kClose);
  });
  EXPECT_EQ(most.size(), 4U);
  for (const auto& [name, changed] : most) EXPECT_GT(changed, 1e-3) << name;
}

// sum_j dS_ij = 0, so that what is the same for all keys of a row has no gradient: not where the
// weights do not sum to 1, nor where a network or a cap reads the scores.
TEST(SchemeLaws, WhatIsConstantInARowHasNoGradient) {
  each_scheme([&](SchemeTokens& t) {
    Vector x(SchemeTokens::T * SchemeTokens::H, 0.3), d_x;
    DecayTerm row;
    row.query.given = heads(std::as_const(x).data(), SchemeTokens::T, SchemeTokens::H, 1);
    const Term terms[] = {row};
    const auto gradient = [&](bool capped) {
      d_x.assign(x.size(), 0.0);
      const TermGradient d{.query = heads(d_x.data(), SchemeTokens::T, SchemeTokens::H, 1)};
      t.run({.cap_after_terms = capped, .terms = terms, .term_gradients = {&d, 1}}, true);
      return largest(d_x);
    };
    const bool reads_scores =
        t.has<ScoreMlpTerm>() && term_arrays(t.lowered().terms.back()).mlp.in.shape[1] > 4;
    const bool sums_to_1 = t.normalisation() == Normalisation::softmax;
    if (sums_to_1 && !reads_scores)
      EXPECT_LE(gradient(false), 1e-14);
    else
      EXPECT_GT(gradient(false), 1e-4);
    EXPECT_GT(gradient(true), 1e-6);
  });
}

// Along a random direction of each array, with fields at random.
TEST(SchemeLaws, GradientsAreDerivatives) {
  each_scheme([&](SchemeTokens& t) {
    const Cut cut{.q0 = 3, .queries = 6};
    // Its numbers are clamped: those between the clamps.
    for (Vector& x : t.learned)
      for (double& y : x) y = is(t, {"kerple"}) ? 1.5 + 0.4 * std::sin(9 * y) : y;
    const Result r = t.run(cut, true);
    test::Random random(5);
    std::size_t at = 0;
    const auto check = [&](Vector& x, std::span<const double> d, const char* what) {
      const Vector along = random.normals(x.size()), kept = x;
      double want = 0;
      for (std::size_t n = 0; n < d.size(); ++n) want += d[n] * along[n + x.size() - d.size()];
      const auto moved = [&](double e) {
        for (std::size_t n = x.size() - d.size(); n < x.size(); ++n) x[n] = kept[n] + e * along[n];
        return t.loss(cut);
      };
      const double slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
      x = kept;
      EXPECT_NEAR(want, slope, 1e-7 * (1 + std::fabs(slope))) << what;
    };
    check(t.q, r.d_q, "q");
    check(t.k, r.d_k, "k");
    check(t.v, r.d_v, "v");
    for (Vector& x : t.learned) {
      check(x, std::span(r.d_learned).subspan(at, x.size()), "learned");
      at += x.size();
    }
  });
}

}  // namespace
}  // namespace posenc
