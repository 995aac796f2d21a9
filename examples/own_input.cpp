// SPDX-License-Identifier: Apache-2.0
// Your own input encoding: rows of a table that a function of the position fills.
#include <cmath>
#include <cstdio>
#include <vector>

#include "posenc/absolute/plan.h"

using namespace posenc;

// row_c(p) = sin((c + 1) ln(1 + p)), p = 0 .. positions - 1.
struct SineOfLog {
  static constexpr Card card{"sine_of_log", "sine of log-position", "", ""};
  Index width = 0, positions = 0;
  std::vector<Parameter> parameters() const { return {}; }
  void lower(std::span<const ConstTensorView>, LoweredInput& out) const {
    std::vector<double> rows;
    for (Index p = 0; p < positions; ++p)
      for (Index c = 0; c < width; ++c)
        rows.push_back(std::sin(double(c + 1) * std::log1p(double(p))));
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

int main() {
  LoweredInput lowered;
  SineOfLog{.width = 4, .positions = 512}.lower({}, lowered);
  const InputPlan plan(lowered, DType::f32);
  std::vector<float> x(10 * 4, 1.0f);
  const TensorView tokens = tensor(x.data(), DType::f32, {10, 4});
  plan.apply(tokens, arange(0, 10), tokens);  // adds the rows in place
  std::printf("token 9: %.6f\n", x[9 * 4]);
  return std::abs(x[9 * 4] - 1 - std::sin(std::log(10.0))) < 1e-6 ? 0 : 1;
}
