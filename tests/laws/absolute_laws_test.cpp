// SPDX-License-Identifier: Apache-2.0
// What holds for every absolute scheme of the registry: gradients of parameters, positions and x
// against finite differences, refused positions. (arrangement_laws_test.cpp: batches.)
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "laws/absolute_samples.h"
#include "laws/numbers.h"

namespace posenc {
namespace {

constexpr Index kBatch = 2, kTokens = 3;

using test::Channels;
using test::Numbers;
using test::views;
using test::waves;

// One call of a scheme: x of some channels more than the terms need, and everything it gives.
template <class S>
struct Call {
  S scheme;
  std::vector<Numbers> parameters, d_parameters;
  Numbers x, up, d_x;
  OwnedPositions at;
  Index channels = 0, appended = 0;

  explicit Call(const S& s) : scheme(s), at(test::positions_for(s)) {
    parameters = test::waves_for(s.parameters());
    d_parameters = test::zeros_for(s.parameters());
    const Channels c = test::channels_of(lowered());
    channels = c.reached + 1;
    appended = c.appended;
    x = waves({kBatch, kTokens, channels}, 0.8, 0.1);
    d_x = x;
    up = waves({kBatch, kTokens, channels + appended}, 1, 2.2);
  }
  LoweredInput lowered() {
    LoweredInput low;
    scheme.lower(const_views(views(parameters)), low);
    return low;
  }
  std::vector<double> forward() {
    Numbers y = up;
    apply_input(x.view(), at, lowered(), y.view());
    return y.value;
  }
  double loss() {
    const std::vector<double> y = forward();
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += up.value[i] * y[i];
    return sum;
  }
};

// Five points: the error is of the fourth order in the step.
template <class F>
double slope(double& number, const F& loss) {
  const double kept = number, e = 1e-4;
  const auto at = [&](double x) {
    number = x;
    const double value = loss();
    number = kept;
    return value;
  };
  return (8 * (at(kept + e) - at(kept - e)) - at(kept + 2 * e) + at(kept - 2 * e)) / (12 * e);
}

template <class S>
void check_gradients(const S& scheme) {
  Call<S> c(scheme);
  const LoweredInput low = c.lowered();
  const OwnedInputGradients g = zero_gradients(low, c.at);
  input_gradient(c.x.view(), c.at, low, c.up.view(), c.d_x.view(), g.terms);
  scheme.pull_back(const_views(views(c.parameters)), g.terms, views(c.d_parameters));
  const auto loss = [&] { return c.loss(); };
  for (std::size_t a = 0; a < c.parameters.size(); ++a)
    for (std::size_t i = 0; i < c.parameters[a].value.size(); ++i)
      EXPECT_NEAR(c.d_parameters[a].value[i], slope(c.parameters[a].value[i], loss), 1e-9)
          << scheme.parameters()[a].name << " " << i;
  for (std::size_t i = 0; i < c.x.value.size(); ++i)
    EXPECT_NEAR(c.d_x.value[i], slope(c.x.value[i], loss), 1e-9) << "x " << i;
  auto* real = std::get_if<std::vector<double>>(&c.at.value);
  for (std::size_t i = 0; real != nullptr && i < real->size(); ++i) {
    double sum = 0;
    for (const InputGradient& t : g.terms)
      if (!t.position.empty()) sum += static_cast<const double*>(t.position.data)[i];
    EXPECT_NEAR(sum, slope((*real)[i], loss), 1e-9) << "position " << i;
  }
  // Accumulates, and takes nothing where nothing is wanted.
  const std::vector<Numbers> once = c.d_parameters;
  scheme.pull_back(const_views(views(c.parameters)), g.terms, views(c.d_parameters));
  for (std::size_t a = 0; a < once.size(); ++a)
    for (std::size_t i = 0; i < once[a].value.size(); ++i)
      EXPECT_NEAR(c.d_parameters[a].value[i], 2 * once[a].value[i], 1e-12);
  scheme.pull_back(const_views(views(c.parameters)), g.terms,
                   std::vector<TensorView>(c.parameters.size()));
}

// A gradient that does not fit is refused before any other was added to.
template <class S>
void check_nothing_half_added(const S& scheme) {
  Call<S> c(scheme);
  if (!c.parameters.empty()) {  // nor is a list of gradients that lacks its terms read beyond
    EXPECT_THROW(scheme.pull_back(const_views(views(c.parameters)), {}, views(c.d_parameters)),
                 std::invalid_argument);
  }
  if (c.parameters.empty()) return;
  const LoweredInput low = c.lowered();
  const OwnedInputGradients g = zero_gradients(low, c.at);
  input_gradient(c.x.view(), c.at, low, c.up.view(), c.d_x.view(), g.terms);
  const std::vector<Numbers> before = c.d_parameters;
  for (std::size_t wrong = 0; wrong < c.parameters.size(); ++wrong) {
    std::vector<TensorView> to = views(c.d_parameters);
    std::vector<double> other(1000);
    to[wrong] = tensor(other.data(), {10, 4, 25});
    EXPECT_THROW(scheme.pull_back(const_views(views(c.parameters)), g.terms, to),
                 std::invalid_argument);
    for (std::size_t a = 0; a < before.size(); ++a)
      EXPECT_EQ(c.d_parameters[a].value, before[a].value) << wrong << " wrong, " << a << " changed";
  }
  // A gradient of the right size and another shape is refused too, or not read at all.
  for (std::size_t term = 0; term < g.terms.size(); ++term) {
    std::vector<InputGradient> other = g.terms;
    std::vector<double> no_numbers(10000, std::numeric_limits<double>::quiet_NaN());
    const auto turn = [&](TensorView& v) {
      if (v.rank == 2 && v.shape[0] != v.shape[1])
        v = tensor(no_numbers.data(), {v.shape[1], v.shape[0]});
    };
    turn(other[term].table);
    turn(other[term].frequency);
    for (DenseGradient& l : other[term].layers) turn(l.weight);
    std::vector<Numbers> d = before;
    try {
      scheme.pull_back(const_views(views(c.parameters)), other, views(d));
      for (const Numbers& n : d)
        for (const double x : n.value) EXPECT_FALSE(std::isnan(x)) << "term " << term;
    } catch (const std::invalid_argument&) {
      for (std::size_t a = 0; a < before.size(); ++a) EXPECT_EQ(d[a].value, before[a].value);
    }
  }
}

template <class S>
void check_refusals(const S& scheme) {
  Call<S> c(scheme);
  auto* real = std::get_if<std::vector<double>>(&c.at.value);
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    if (real == nullptr) return;
    const double kept = (*real)[1];
    (*real)[1] = bad;
    EXPECT_THROW(c.forward(), std::invalid_argument);
    (*real)[1] = kept;
  }
}

template <class F>
void for_every_sample(F&& f) {
  test::for_absolute_samples([&](const auto& s) {
    SCOPED_TRACE(to_text(Scheme(s)));
    f(s);
  });
}

TEST(AbsoluteLaws, GradientsAreThoseOfFiniteDifferences) {
  for_every_sample([](const auto& s) { check_gradients(s); });
}
TEST(AbsoluteLaws, AGradientThatDoesNotFitLeavesTheOthersAlone) {
  for_every_sample([](const auto& s) { check_nothing_half_added(s); });
}
TEST(AbsoluteLaws, PositionsThatAreNoNumbersAreRefused) {
  for_every_sample([](const auto& s) { check_refusals(s); });
}
TEST(AbsoluteLaws, InitialisersFitTheirParameters) {
  for_every_sample([](const auto& s) {
    for (const Parameter& p : s.parameters()) {
      EXPECT_FALSE(p.name.empty());
      Index n = 1;
      for (const Index size : p.shape) n *= size;
      EXPECT_TRUE(p.initial_values.empty() || static_cast<Index>(p.initial_values.size()) == n)
          << p.name;
    }
  });
}
TEST(AbsoluteLaws, TextReadsBack) {
  for_every_sample([](const auto& s) {
    const Encoding e{Scheme(s), {}};
    EXPECT_EQ(parse_encoding(to_text(e)), e);
  });
}

}  // namespace
}  // namespace posenc
