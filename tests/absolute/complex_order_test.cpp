// SPDX-License-Identifier: Apache-2.0
// Complex word order against the authors' code (where it follows the paper, or its option is
// named), the paper's algebra, gradients by differences.
#include "posenc/absolute/complex_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <functional>

#include "posenc/positions.h"
#include "support/refusal.h"
#include "support/suite.h"

namespace posenc {
namespace {

using support::Suite;
using test::refusal;
using ::testing::HasSubstr;

const Suite& suite() {
  static const Suite s("absolute");
  return s;
}
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
Numbers of_suite(const char* name, const char* array) {
  const auto a = suite()(name, array);
  return {a.value, a.shape};
}
void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance) << what << " " << i;
}
double slope(double& x, const std::function<double()>& loss) {
  const double kept = x, e = 1e-5;
  x = kept + e;
  const double above = loss();
  x = kept - e;
  const double below = loss();
  x = kept;
  return (above - below) / (2 * e);
}
double dot(const Numbers& a, const Numbers& b) {
  double s = 0;
  for (std::size_t i = 0; i < a.value.size(); ++i) s += a.value[i] * b.value[i];
  return s;
}

TEST(ComplexOrder, EmbeddingOfTheAuthorsTransformer) {
  const char* name = "complex_order_embedding_transformer";
  Numbers r = of_suite(name, "amplitude"), w = of_suite(name, "frequency");
  Numbers up_re = of_suite(name, "grad_re"), up_im = of_suite(name, "grad_im");
  const std::vector<Index> ids = suite()(name, "ids").integers();
  const ComplexOrder s{.width = 6, .vocabulary = 9, .padding_word = 0};
  const std::vector<ConstTensorView> p{r.view(), w.view()};
  Numbers re = zeros_like(up_re), im = re, d_r = zeros_like(r), d_w = zeros_like(w);
  const OwnedPositions at = reversed(arange(0, 4));
  complex_embedding(s, p, tensor(ids.data(), {2, 4}), at, {re.view(), im.view()});
  expect_near(re.value, of_suite(name, "re").value, 2e-15, "re");
  expect_near(im.value, of_suite(name, "im").value, 2e-15, "im");
  complex_embedding_gradient(s, p, tensor(ids.data(), {2, 4}), at, {up_re.view(), up_im.view()},
                             std::vector<TensorView>{d_r.view(), d_w.view()});
  expect_near(d_r.value, of_suite(name, "grad_amplitude").value, 5e-15, "amplitude");
  expect_near(d_w.value, of_suite(name, "grad_frequency").value, 1e-14, "frequency");
}

TEST(ComplexOrder, EveryKindOfSharingHasItsGradients) {
  const std::vector<Index> ids{1, 0, 2, 2, 1, 1};
  for (const WordSharing frequency :
       {WordSharing::per_word_and_channel, WordSharing::per_channel, WordSharing::per_word})
    for (const WordSharing phase : {WordSharing::none, WordSharing::per_word_and_channel,
                                    WordSharing::per_channel, WordSharing::per_word}) {
      ComplexOrder s{.width = 2, .vocabulary = 3, .frequency = frequency, .phase = phase};
      s.amplitude_gain = 1.5;
      std::vector<Numbers> p, d;
      for (const Parameter& q : s.parameters()) {
        p.push_back(waves(q.shape, static_cast<double>(p.size())));
        d.push_back(zeros_like(p.back()));
      }
      const auto views = [](std::vector<Numbers>& all) {
        std::vector<TensorView> v;
        for (Numbers& x : all) v.push_back(x.view());
        return v;
      };
      std::vector<double> at{0.5, 3, -2.25};
      Numbers up_re = waves({2, 3, 2}, 5), up_im = waves({2, 3, 2}, 6), d_at{{0, 0, 0}, {1, 3}};
      const auto loss = [&] {
        Numbers re = zeros_like(up_re), im = re;
        complex_embedding(s, const_views(views(p)), tensor(ids.data(), {2, 3}),
                          positions(std::span<const double>(at)), {re.view(), im.view()});
        return dot(re, up_re) + dot(im, up_im);
      };
      complex_embedding_gradient(s, const_views(views(p)), tensor(ids.data(), {2, 3}),
                                 positions(std::span<const double>(at)),
                                 {up_re.view(), up_im.view()}, views(d), d_at.view());
      for (std::size_t a = 0; a < p.size(); ++a)
        for (std::size_t i = 0; i < p[a].value.size(); ++i)
          EXPECT_NEAR(d[a].value[i], slope(p[a].value[i], loss), 1e-9);
      for (std::size_t i = 0; i < at.size(); ++i)
        EXPECT_NEAR(d_at.value[i], slope(at[i], loss), 1e-9);
    }
}

TEST(ComplexOrder, FrequenciesStartAsTheAuthorsStartThem) {
  const ComplexOrder s{.width = 4, .vocabulary = 3};
  const std::vector<double> t = complex_frequencies(s, ComplexStart::transformer);
  EXPECT_THAT(t, ::testing::ElementsAre(1, 1, 0.01, 0.01, 1, 1, 0.01, 0.01, 1, 1, 0.01, 0.01));
  const std::vector<double> c = complex_frequencies(s, ComplexStart::convolutional);
  EXPECT_THROW(complex_frequencies(s, static_cast<ComplexStart>(2)), std::invalid_argument);
  EXPECT_EQ(c[0], 0);
  EXPECT_NEAR(c[2 * 4 + 1], 2 * 0.01, 1e-17);
}

// x W with W = A + iB, in std::complex.
TEST(ComplexOrder, LinearMapsAreComplex) {
  Numbers x = waves({3, 2}, 0), y = waves({3, 2}, 1), a = waves({4, 2}, 2), b = waves({4, 2}, 3);
  Numbers c = waves({4}, 4), d = waves({4}, 5), re = waves({3, 4}, 0), im = re;
  const ComplexMap m{{a.view(), b.view()}, {c.view(), d.view()}};
  complex_linear(m, {x.view(), y.view()}, {re.view(), im.view()});
  for (std::size_t t = 0; t < 3; ++t)
    for (std::size_t i = 0; i < 4; ++i) {
      std::complex<double> sum{c.value[i], d.value[i]};
      for (std::size_t j = 0; j < 2; ++j)
        sum += std::complex<double>{a.value[2 * i + j], b.value[2 * i + j]} *
               std::complex<double>{x.value[2 * t + j], y.value[2 * t + j]};
      EXPECT_NEAR(re.value[4 * t + i], sum.real(), 1e-15);
      EXPECT_NEAR(im.value[4 * t + i], sum.imag(), 1e-15);
    }
  Numbers up_re = waves({3, 4}, 7), up_im = waves({3, 4}, 8), d_x = x, d_y = y;
  Numbers d_a = zeros_like(a), d_b = zeros_like(b), d_c = zeros_like(c), d_d = zeros_like(d);
  complex_linear_gradient(m, {x.view(), y.view()}, {up_re.view(), up_im.view()},
                          {d_x.view(), d_y.view()},
                          {{d_a.view(), d_b.view()}, {d_c.view(), d_d.view()}});
  const auto loss = [&] {
    complex_linear(m, {x.view(), y.view()}, {re.view(), im.view()});
    return dot(re, up_re) + dot(im, up_im);
  };
  const std::pair<Numbers*, Numbers*> all[] = {{&x, &d_x}, {&y, &d_y}, {&a, &d_a},
                                               {&b, &d_b}, {&c, &d_c}, {&d, &d_d}};
  for (const auto& [value, gradient] : all)
    for (std::size_t i = 0; i < value->value.size(); ++i)
      EXPECT_NEAR(gradient->value[i], slope(value->value[i], loss), 1e-9);
  // Without an imaginary weight both parts go through one real map.
  complex_linear({{a.view(), {}}, {}}, {x.view(), y.view()}, {re.view(), im.view()});
  EXPECT_NEAR(im.value[0], a.value[0] * y.value[0] + a.value[1] * y.value[1], 1e-15);
}

// e^{i w p} and e^{i w q} with the sinusoid's frequencies of 16 channels: the Hermitian product
// depends on p - q (6.615 for all three), the bilinear one on p + q.
TEST(ComplexOrder, HermitianScoresDependOnTheDifference) {
  const std::pair<Index, Index> pairs[] = {{3, 5}, {13, 15}, {103, 105}};
  const double bilinear[] = {5.39, 2.96, 4.63};
  for (std::size_t n = 0; n < 3; ++n) {
    Numbers q_re{{}, {8}}, q_im = q_re, k_re = q_re, k_im = q_re;
    for (int m = 0; m < 8; ++m) {
      const double w = std::pow(10000.0, -m / 8.0);
      q_re.value.push_back(std::cos(w * static_cast<double>(pairs[n].first)));
      q_im.value.push_back(std::sin(w * static_cast<double>(pairs[n].first)));
      k_re.value.push_back(std::cos(w * static_cast<double>(pairs[n].second)));
      k_im.value.push_back(std::sin(w * static_cast<double>(pairs[n].second)));
    }
    // Two keys, one all zero: the probability gives the score back, S = ln(p / (1 - p)).
    std::vector<double> kr = k_re.value, ki = k_im.value, zero(16, 0.0), out(16, 0.0), weight(2);
    kr.resize(16, 0.0);
    ki.resize(16, 0.0);
    for (const ComplexScore score : {ComplexScore::hermitian, ComplexScore::bilinear}) {
      ComplexAttention a;
      a.score = score;
      a.scale = 1;
      complex_attention(a, {heads(q_re.value.data(), 1, 1, 8), heads(q_im.value.data(), 1, 1, 8)},
                        {heads(kr.data(), 2, 1, 8), heads(ki.data(), 2, 1, 8)},
                        {heads(zero.data(), 2, 1, 8), heads(zero.data(), 2, 1, 8)},
                        {heads(out.data(), 1, 1, 8), heads(out.data() + 8, 1, 1, 8)},
                        tensor(weight.data(), {1, 1, 1, 2}));
      const double size = std::log(weight[0] / weight[1]);
      if (score == ComplexScore::hermitian)
        EXPECT_NEAR(size, 6.615, 5e-4);
      else
        EXPECT_NEAR(size, bilinear[n], 5e-3);
    }
  }
}

struct Attention {
  Numbers q1, q2, k1, k2, v1, v2, up1, up2;
  ComplexAttention a;
  static ComplexHeads parts(Numbers& re, Numbers& im) {
    return {heads(re.view(), HeadsLayout::bhtd), heads(im.view(), HeadsLayout::bhtd)};
  }
  double loss() {
    Numbers re = zeros_like(up1), im = re;
    complex_attention(a, parts(q1, q2), parts(k1, k2), parts(v1, v2), parts(re, im));
    return dot(re, up1) + dot(im, up2);
  }
};

TEST(ComplexOrder, AttentionHasItsGradients) {
  for (const ComplexScore score : {ComplexScore::hermitian, ComplexScore::bilinear}) {
    std::vector<std::uint8_t> mask{1, 0, 1, 1, 0, 0, 0, 0};  // the second query sees nothing
    Attention t{waves({1, 2, 2, 3}, 1), waves({1, 2, 2, 3}, 2), waves({1, 2, 4, 3}, 3),
                waves({1, 2, 4, 3}, 4), waves({1, 2, 4, 2}, 5), waves({1, 2, 4, 2}, 6),
                waves({1, 2, 2, 2}, 7), waves({1, 2, 2, 2}, 8), {}};
    t.a.score = score;
    t.a.mask = tensor(mask.data(), {1, 1, 2, 4});
    Numbers d[] = {t.q1, t.q2, t.k1, t.k2, t.v1, t.v2};
    complex_attention_gradient(t.a, Attention::parts(t.q1, t.q2), Attention::parts(t.k1, t.k2),
                               Attention::parts(t.v1, t.v2), Attention::parts(t.up1, t.up2),
                               Attention::parts(d[0], d[1]), Attention::parts(d[2], d[3]),
                               Attention::parts(d[4], d[5]));
    Numbers* value[] = {&t.q1, &t.q2, &t.k1, &t.k2, &t.v1, &t.v2};
    for (int n = 0; n < 6; ++n)
      for (std::size_t i = 0; i < d[n].value.size(); ++i)
        EXPECT_NEAR(d[n].value[i], slope(value[n]->value[i], [&] { return t.loss(); }), 1e-9)
            << n << " " << i;
    Numbers re = zeros_like(t.up1), im = re;
    complex_attention(t.a, Attention::parts(t.q1, t.q2), Attention::parts(t.k1, t.k2),
                      Attention::parts(t.v1, t.v2), Attention::parts(re, im));
    EXPECT_EQ(re.value[2], 0);  // head 0, query 1
    EXPECT_EQ(im.value[3], 0);
  }
}

TEST(ComplexOrder, RefusesByName) {
  EXPECT_THAT(refusal([] { (ComplexOrder{.width = 0, .vocabulary = 3}.parameters()); }),
              HasSubstr("[complex_order] width"));
  EXPECT_THAT(
      refusal([] {
        (ComplexOrder{.width = 2, .vocabulary = 3, .frequency = WordSharing::none}.parameters());
      }),
      HasSubstr("[complex_order] frequency"));
  Numbers r = waves({3, 2}, 0), w = waves({3, 2}, 1), re = waves({2, 2}, 0), im = re;
  const std::vector<Index> ids{1, 3};
  const ComplexOrder s{.width = 2, .vocabulary = 3};
  const std::vector<ConstTensorView> p{r.view(), w.view()};
  const auto says = [&](const Positions& at, Numbers& part) {
    return refusal([&] {
      complex_embedding(s, p, tensor(ids.data(), {2}), at, {part.view(), im.view()});
    });
  };
  EXPECT_EQ(says(arange(0, 2), re), "[complex_order] a word must have a row, got 3");
  EXPECT_THAT(says(arange(0, 3), re),
              HasSubstr("one for each of the 2 tokens, on one axis, got 3"));
  Numbers narrow = waves({2, 1}, 0);
  EXPECT_THAT(says(arange(0, 2), narrow), HasSubstr("both parts"));
  const std::vector<Index> known{1, 2};
  Numbers d_r = waves({3, 2}, 0), d_w = d_r, far = waves({1, 3}, 0), flat = waves({2}, 0);
  const auto gradient = [&](Numbers& by_word, Numbers& position) {
    const std::vector<TensorView> d{by_word.view(), d_w.view()};
    return refusal([&] {
      complex_embedding_gradient(s, p, tensor(known.data(), {2}), arange(0, 2),
                                 {re.view(), im.view()}, d, position.view());
    });
  };
  EXPECT_THAT(gradient(d_r, far), HasSubstr("must be [1, 2] of f64, got [1, 3] of f64"));
  EXPECT_THAT(gradient(d_r, flat), HasSubstr("must be [1, 2] of f64, got [2] of f64"));
}

}  // namespace
}  // namespace posenc
