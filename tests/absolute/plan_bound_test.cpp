// SPDX-License-Identifier: Apache-2.0
// The bound that plan.h states for one added term, with gains of any kind: f32 against the double
// path, every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "posenc/absolute/learned.h"
#include "posenc/absolute/plan.h"
#include "posenc/absolute/sinusoidal.h"
#include "posenc/core/isa.h"
#include "posenc/positions.h"
#include "support/random.h"

namespace posenc {
namespace {

constexpr Index kTokens = 300, kWidth = 70;
constexpr double kUnit = 0x1p-24;

bool is_power_of_two(double x) {
  int exponent = 0;
  return std::abs(std::frexp(x, &exponent)) == 0.5;
}

// The largest error over `bound(x, row, y)` of one call.
template <class Bound>
double worst(LoweredInput& low, const Positions& p, std::uint64_t seed, const Bound& bound) {
  const std::vector<float> x = test::Random(seed).normals<float>(kTokens * kWidth);
  std::vector<float> y(x.size());
  std::vector<double> row(x.size()), wide(x.begin(), x.end()), want(x.size());
  const std::initializer_list<Index> shape{kTokens, kWidth};
  apply_input({}, p, low, tensor(row.data(), shape));
  apply_input(tensor(wide.data(), shape), p, low, tensor(want.data(), shape));
  InputPlan(low, DType::f32).apply(tensor(x.data(), shape), p, tensor(y.data(), shape));
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(y[i]) - want[i]) /
                              bound(low.input_gain * wide[i], row[i], want[i]));
  return most;
}

struct Case {
  std::string name;
  double e, gain_of_two;   // of a table times |row|; where the gain is a power of two
  bool table, holds_gain;  // the rounding of the gain is in e
  OwnedPositions at;
  std::function<void(LoweredInput&)> lower;
};

std::vector<Case> cases(std::vector<double>& table) {
  const ConstTensorView rows = tensor(table.data(), {40, kWidth});
  const auto learned = [rows](LoweredInput& low) {
    Learned{.width = kWidth, .rows = 40, .beyond = Beyond::clamp}.lower(std::span(&rows, 1), low);
  };
  const auto sines = [](LoweredInput& low) { Sinusoidal{.width = kWidth}.lower({}, low); };
  std::vector<double> real;
  for (Index t = 0; t < kTokens; ++t) real.push_back(1e4 * std::sin(static_cast<double>(t)));
  const auto plane = [](LoweredInput& low) {
    Spectrum two;
    two.axes = 2;
    for (int i = 0; i < kWidth; ++i) two.frequency.push_back(std::pow(1e-4, i / 70.));
    InputTerm t;
    t.phase = low.spectrum(two), t.width = kWidth;
    low.terms.push_back(t);
  };
  return {{"table", kUnit, kUnit, true, false, arange(0, kTokens), learned},
          {"phase", 6e-8, 3.1e-8, false, true, arange(1 << 20, kTokens), sines},
          {"real", 1.1e-7, 1.1e-7, false, false, explicit_positions(real), sines},
          {"axes", 1.1e-7, 1.1e-7, false, false, repeated_axes(arange(7, kTokens), 2), plane}};
}

TEST(InputPlan, ErrorsOfAnyGainStayWithinTheBound) {
  test::Random random(9);
  std::vector<double> table = random.normals(40 * kWidth);
  const double root = std::sqrt(512.0);
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Case& c : cases(table)) {
      double most = 0, without = 0;
      for (int draw = 0; draw < 24; ++draw) {
        LoweredInput low;
        c.lower(low);
        const double gain = draw % 4 == 0 ? 1 : random.uniform(0.5, 3.3);
        low.input_gain = draw % 3 == 0 ? root : draw % 3 == 1 ? 1 : random.uniform(0.5, 30);
        low.terms[0].gain = gain;
        const double by_gain = is_power_of_two(gain) || c.holds_gain ? 0 : 2 * kUnit;
        const double by_input = is_power_of_two(low.input_gain) ? 0 : 2 * kUnit;
        const auto e = [&](double row) {  // |gain| e
          if (c.table) return c.e * std::abs(row);
          return std::abs(gain) * (is_power_of_two(gain) ? c.gain_of_two : c.e);
        };
        const auto seed = static_cast<std::uint64_t>(draw);
        most = std::max(most, worst(low, c.at, seed, [&](double x, double row, double y) {
                          return e(row) + by_gain * std::abs(row) + by_input * std::abs(x) +
                                 kUnit * std::abs(y);
                        }));
        without = std::max(without, worst(low, c.at, seed, [&](double, double row, double y) {
                             return e(row) + kUnit * std::abs(y);
                           }));
      }
      EXPECT_LE(most, 1 + 1e-6) << isa_name(isa) << ' ' << c.name;
      EXPECT_GT(without, 1) << isa_name(isa) << ' ' << c.name;
    }
  }
  reset_isa();
}

}  // namespace
}  // namespace posenc
