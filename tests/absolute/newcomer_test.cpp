// SPDX-License-Identifier: Apache-2.0
// A scheme that is not of the registry and no phase of the position: the sine of the logarithm of
// the position. It fills a table in its own lower, and all that reads lowered terms works.
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/absolute/learned_axes.h"
#include "posenc/absolute/plan.h"
#include "posenc/absolute/sinusoidal.h"

namespace posenc {
namespace {

// row_c(p) = sin((c + 1) ln(1 + p)), p = 0 .. positions - 1.
struct SineOfLog {
  static constexpr Card card{"sine_of_log", "sine of log-position", "", ""};
  Index width = 0, positions = 0;
  std::vector<Parameter> parameters() const { return {}; }
  void lower(std::span<const ConstTensorView>, LoweredInput& out) const {
    std::vector<double> rows;
    for (Index p = 0; p < positions; ++p)
      for (Index c = 0; c < width; ++c)
        rows.push_back(std::sin(static_cast<double>(c + 1) * std::log1p(static_cast<double>(p))));
    InputTerm t;
    t.table = out.table(std::move(rows), positions, width);
    t.width = width;
    out.terms.push_back(std::move(t));
  }
  void pull_back(std::span<const ConstTensorView>, std::span<const InputGradient>,
                 std::span<const TensorView>) const {}
  bool operator==(const SineOfLog&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width, Field{.doc = "channels", .min = 1, .max = 1e6, .required = true});
    v("positions", s.positions, Field{.doc = "rows", .min = 1, .max = 1e7, .required = true});
  }
};
static_assert(AbsoluteScheme<SineOfLog>);

template <class S>
LoweredInput lowered(const S& scheme) {
  LoweredInput out;
  std::vector<std::vector<double>> values;
  std::vector<ConstTensorView> parameters;
  for (const Parameter& p : scheme.parameters()) {
    Index n = 1;
    for (const Index d : p.shape) n *= d;
    values.emplace_back(static_cast<std::size_t>(n), 0.5);
    parameters.push_back(tensor(static_cast<void*>(values.back().data()), DType::f64, p.shape));
  }
  scheme.lower(parameters, out);
  return out;
}

TEST(Newcomer, AFunctionOfThePositionIsATable) {
  const LoweredInput rows = lowered(SineOfLog{.width = 4, .positions = 32});
  EXPECT_EQ(positions_with_rows(rows), 32);
  std::vector<double> slow(32 * 4);
  apply_input({}, arange(0, 32), rows, tensor(slow.data(), {32, 4}));
  std::vector<float> fast(32 * 4);
  InputPlan(rows, DType::f32).apply({}, arange(0, 32), tensor(fast.data(), {32, 4}));
  for (std::size_t i = 0; i < slow.size(); ++i) {
    const double p = static_cast<double>(i / 4), c = static_cast<double>(i % 4 + 1);
    EXPECT_EQ(slow[i], std::sin(c * std::log1p(p)));
    EXPECT_EQ(fast[i], static_cast<float>(slow[i]));
  }
  double one[4];
  EXPECT_THROW(apply_input({}, arange(32, 1), rows, tensor(one, {1, 4})), std::invalid_argument);
}

TEST(Newcomer, PositionsThatTablesHaveRowsFor) {
  EXPECT_EQ(positions_with_rows(lowered(Sinusoidal{.width = 8})), std::nullopt);
  EXPECT_EQ(positions_with_rows(LoweredInput{}), std::nullopt);
  const auto with = [](const auto& change) {
    LoweredInput out;
    for (const Index rows : {Index{20}, Index{7}}) {
      InputTerm t;
      t.table = out.table(std::vector<double>(static_cast<std::size_t>(2 * rows)), rows, 2);
      t.width = 2;
      change(t);
      out.terms.push_back(t);
    }
    return positions_with_rows(out);
  };
  EXPECT_EQ(with([](InputTerm&) {}), 7);  // the shorter one
  EXPECT_EQ(with([](InputTerm& t) { t.offset = 2; }), 5);
  EXPECT_EQ(with([](InputTerm& t) { t.divide = 3; }), 21);
  EXPECT_EQ(with([](InputTerm& t) { t.wrap = 7; }), std::nullopt);
  EXPECT_EQ(with([](InputTerm& t) { t.wrap = 8; }), 7);
  EXPECT_EQ(with([](InputTerm& t) { t.beyond = Beyond::extend; }), std::nullopt);
  EXPECT_EQ(with([](InputTerm& t) { t.minus = 1; }), std::nullopt);
  EXPECT_EQ(with([](InputTerm& t) { t.divide = kUnbounded; }), kUnbounded);
}

}  // namespace
}  // namespace posenc
