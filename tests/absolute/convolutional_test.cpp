// SPDX-License-Identifier: Apache-2.0
// wav2vec 2.0's convolutional positions against transformers; without weight normalisation and at
// other sizes against differences and a loop that shares nothing.
#include "posenc/absolute/convolutional.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/suite.h"

namespace posenc {
namespace {

using support::Suite;
using ::testing::HasSubstr;

struct Numbers {
  std::vector<double> value;
  std::vector<Index> shape;
  TensorView view() { return tensor(static_cast<void*>(value.data()), DType::f64, shape); }
};
Numbers waves(std::vector<Index> shape, double phase) {
  Numbers n{{}, std::move(shape)};
  Index count = 1;
  for (const Index s : n.shape) count *= s;
  for (Index i = 0; i < count; ++i)
    n.value.push_back(0.7 * std::sin(1.3 * static_cast<double>(i) + phase));
  return n;
}
Numbers zeros_like(const Numbers& n) {
  return {std::vector<double>(n.value.size(), 0.0), n.shape};
}
void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-13) << what << " " << i;
}
std::vector<TensorView> views(std::vector<Numbers>& all) {
  std::vector<TensorView> v;
  for (Numbers& n : all) v.push_back(n.view());
  return v;
}

TEST(Convolutional, AsTransformersForwardAndBackward) {
  const Suite suite("absolute");
  const auto read = [&](const char* array) {
    const auto a = suite("conv_hf_wav2vec2", array);
    return Numbers{a.value, a.shape};
  };
  const Convolutional s{.width = 4, .kernel = 6, .groups = 2, .add = false};
  Numbers g = read("weight_g");
  g.shape = {6};
  std::vector<Numbers> p{g, read("weight_v"), read("bias")}, d;
  for (const Numbers& n : p) d.push_back(zeros_like(n));
  Numbers x = read("x"), up = read("grad_out"), y = zeros_like(x), d_x = zeros_like(x);
  convolutional_positions(s, const_views(views(p)), x.view(), y.view());
  expect_near(y.value, read("out").value, "out");
  convolutional_gradient(s, const_views(views(p)), x.view(), up.view(), d_x.view(), views(d));
  expect_near(d_x.value, read("grad_x").value, "grad_x");
  expect_near(d[0].value, read("grad_weight_g").value, "grad_weight_g");
  expect_near(d[1].value, read("grad_weight_v").value, "grad_weight_v");
  expect_near(d[2].value, read("grad_bias").value, "grad_bias");
}

TEST(Convolutional, GradientsOfEverySetting) {
  for (const bool norm : {true, false})
    for (const Index kernel : {1, 2, 3, 5}) {
      const Convolutional s{.width = 4, .kernel = kernel, .groups = 2, .weight_norm = norm};
      std::vector<Numbers> p, d;
      for (const Parameter& q : s.parameters()) {
        p.push_back(waves(q.shape, static_cast<double>(p.size())));
        d.push_back(zeros_like(p.back()));
      }
      Numbers x = waves({2, 3, 4}, 4), up = waves({2, 3, 4}, 5), d_x = x, y = x;
      convolutional_gradient(s, const_views(views(p)), x.view(), up.view(), d_x.view(), views(d));
      p.push_back(x), d.push_back(d_x);
      for (std::size_t a = 0; a < p.size(); ++a)
        for (std::size_t i = 0; i < p[a].value.size(); ++i) {
          const double kept = p[a].value[i], e = 1e-5;
          const auto at = [&](double v) {
            p[a].value[i] = v;
            std::vector<Numbers> only(p.begin(), p.end() - 1);
            convolutional_positions(s, const_views(views(only)), p.back().view(), y.view());
            p[a].value[i] = kept;
            double sum = 0;
            for (std::size_t j = 0; j < y.value.size(); ++j) sum += up.value[j] * y.value[j];
            return sum;
          };
          EXPECT_NEAR(d[a].value[i], (at(kept + e) - at(kept - e)) / (2 * e), 1e-8)
              << norm << kernel << a << i;
        }
    }
}

TEST(Convolutional, RowsDoNotSeeEachOther) {
  const Convolutional s{.width = 2, .kernel = 4, .groups = 1, .weight_norm = false};
  std::vector<Numbers> p{waves({2, 2, 4}, 0), waves({2}, 1)};
  Numbers x = waves({2, 5, 2}, 2), y = x, one = waves({5, 2}, 0);
  convolutional_positions(s, const_views(views(p)), x.view(), y.view());
  for (Index b = 0; b < 2; ++b) {
    convolutional_positions(s, const_views(views(p)), tensor(x.value.data() + b * 10, {5, 2}),
                            one.view());
    for (std::size_t i = 0; i < 10; ++i)
      EXPECT_EQ(one.value[i], y.value[static_cast<std::size_t>(b) * 10 + i]);
  }
}

TEST(Convolutional, RefusesByName) {
  const auto says = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(says([] { (Convolutional{.width = 6, .groups = 4}.parameters()); }),
              HasSubstr("[convolutional] groups"));
  const Convolutional s{.width = 2, .kernel = 2, .groups = 1};
  std::vector<Numbers> p{waves({2}, 0), zeros_like(waves({2, 2, 2}, 0)), waves({2}, 0)};
  Numbers x = waves({3, 2}, 0), y = x;
  EXPECT_THAT(says([&] { convolutional_positions(s, const_views(views(p)), x.view(), y.view()); }),
              HasSubstr("must not all be 0"));
  EXPECT_THAT(says([&] { convolutional_positions(s, const_views(views(p)), x.view(), x.view()); }),
              HasSubstr("[convolutional]"));
}

}  // namespace
}  // namespace posenc
