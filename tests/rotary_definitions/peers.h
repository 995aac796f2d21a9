// SPDX-License-Identifier: Apache-2.0
// Rotations that other programs computed (conformance/), against our definitions and a dumb
// reference: what is tested is where every pair stands, which stream it follows, how fast it turns.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "posenc/core/array_lookup.h"
#include "posenc/registry.h"
#include "rotary_definitions/reference.h"
#include "support/suite.h"

namespace posenc::test {

// Position of token t of row b, one number a stream.
using PositionOf = std::function<std::vector<double>(Index b, Index t)>;

inline const support::Suite& hugging_face() {
  static const support::Suite suite("rotary_hugging_face");
  return suite;
}
inline const support::Suite& engines() {
  static const support::Suite suite("rotary_engines");
  return suite;
}

struct Check {
  const support::Suite& suite;
  std::string test_case, in, out;
  std::string letters;  // of the axes: b t h d, each at most once
  double tolerance = 1e-10;
  Role role = Role::query;
  std::vector<Index> shape = {};  // instead of the array's own, for merged axes
};

inline void expect_rotation(const Check& c, const RotarySpec& spec, const PositionOf& position) {
  SCOPED_TRACE(c.test_case + "/" + c.out);
  const support::SuiteArray x = c.suite(c.test_case, c.in), y = c.suite(c.test_case, c.out);
  const std::vector<Index> shape = c.shape.empty() ? x.shape : c.shape;
  ASSERT_EQ(shape.size(), c.letters.size());
  const auto axis = [&](char letter, Index& size, Index& stride) {
    size = 1;
    stride = 0;
    Index dense = 1;
    for (std::size_t i = shape.size(); i-- > 0; dense *= shape[i])
      if (c.letters[i] == letter) size = shape[i], stride = dense;
  };
  Index batch, tokens, heads, dim, b_stride, t_stride, h_stride, d_stride;
  axis('b', batch, b_stride);
  axis('t', tokens, t_stride);
  axis('h', heads, h_stride);
  axis('d', dim, d_stride);
  ASSERT_EQ(static_cast<Index>(x.value.size()), batch * tokens * heads * dim);
  ASSERT_EQ(dim, spec.head_dim);
  for (Index b = 0; b < batch; ++b)
    for (Index t = 0; t < tokens; ++t)
      for (Index h = 0; h < heads; ++h) {
        const Index base = b * b_stride + t * t_stride + h * h_stride;
        std::vector<double> v;
        for (Index d = 0; d < dim; ++d)
          v.push_back(x.value[static_cast<std::size_t>(base + d * d_stride)]);
        const std::vector<double> r = reference_rotate(spec, v, position(b, t), h, c.role);
        for (Index d = 0; d < dim; ++d)
          ASSERT_NEAR(r[static_cast<std::size_t>(d)],
                      y.value[static_cast<std::size_t>(base + d * d_stride)], c.tolerance)
              << "row " << b << " token " << t << " head " << h << " channel " << d;
      }
}

inline RotarySpec spec_of(const std::string& scheme, Index length = 0,
                          const ArrayLookup& arrays = {}) {
  return resolve(parse_encoding(scheme, arrays), Context{length});
}

// positions [t], [b, t], or [streams, b, t], [streams, t] when `streams` stand first.
inline PositionOf from_array(const support::SuiteArray& p, bool streams_first = false) {
  return [p, streams_first](Index b, Index t) {
    std::vector<double> v;
    const Index streams = streams_first ? p.shape.front() : 1;
    const Index tokens = p.shape.back();
    const Index rows = static_cast<Index>(p.value.size()) / (streams * tokens);
    for (Index s = 0; s < streams; ++s)
      v.push_back(p.value[static_cast<std::size_t>((s * rows + b % rows) * tokens + t)]);
    return v;
  };
}
// positions [t, streams], in the order given.
inline PositionOf token_major(const support::SuiteArray& p,
                              std::vector<std::size_t> order = {0, 1}) {
  return [p, order](Index, Index t) {
    std::vector<double> v;
    const auto streams = static_cast<std::size_t>(p.shape.back());
    for (const std::size_t s : order)
      v.push_back(p.value[static_cast<std::size_t>(t) * streams + s]);
    return v;
  };
}
inline PositionOf counted(double from = 0) {
  return [from](Index, Index t) { return std::vector{from + static_cast<double>(t)}; };
}
// (row, column) of token t of a grid, row by row, through f.
inline PositionOf grid(Index columns, std::function<std::vector<double>(double, double)> f) {
  return [columns, f](Index, Index t) {
    return f(static_cast<double>(t / columns), static_cast<double>(t % columns));
  };
}
inline std::vector<double> row_column(double r, double c) {
  return {r, c};
}
inline std::vector<double> column_row(double r, double c) {
  return {c, r};
}

struct Named {
  const char* test_case;
  const char* scheme;
  Index length = 0;
};

}  // namespace posenc::test
