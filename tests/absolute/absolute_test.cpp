// SPDX-License-Identifier: Apache-2.0
// Sinusoidal and learned positions against the programs that use them; laws; refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "posenc/positions.h"
#include "posenc/registry.h"
#include "support/refusal.h"
#include "support/suite.h"

namespace posenc {
namespace {

using support::Suite;
using support::SuiteArray;
using test::refusal;
using ::testing::HasSubstr;

const Suite& suite() {
  static const Suite s("absolute");
  return s;
}
TensorView view(std::vector<double>& v, std::vector<Index> shape) {
  return tensor(static_cast<void*>(v.data()), DType::f64, shape);
}

// The encoding alone at positions, [t, width].
std::vector<double> rows(const Sinusoidal& s, const Positions& p) {
  LoweredInput low;
  s.lower({}, low);
  std::vector<double> y(static_cast<std::size_t>(p.count * s.width));
  apply_input({}, p, low, view(y, {p.count, s.width}));
  return y;
}
void expect_near(const std::vector<double>& got, const SuiteArray& want, double tolerance,
                 const std::string& name) {
  ASSERT_EQ(got.size(), want.value.size()) << name;
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want.value[i], tolerance) << name << " at " << i;
}

TEST(Sinusoidal, TablesOfPrograms) {
  const auto check = [](const char* name, const char* array, const Sinusoidal& s,
                        const OwnedPositions& p, double tolerance) {
    expect_near(rows(s, p), suite()(name, array), tolerance, name);
  };
  const auto halves = SineLayout::halves;
  const auto t2t = SineSpacing::t2t;
  check("sin_t2t_d4", "signal", {.width = 4, .layout = halves, .spacing = t2t}, arange(0, 6), 2e-6);
  check("sin_t2t_d512", "signal", {.width = 512, .layout = halves, .spacing = t2t}, arange(0, 8),
        3e-6);
  check("sin_t2t_d7_odd", "signal",
        {.width = 7, .layout = halves, .spacing = t2t, .odd = OddWidth::zero_pad}, arange(0, 9),
        2e-6);
  check("sin_t2t_min2_max500", "signal",
        {.width = 10, .layout = halves, .spacing = t2t, .base = 500, .min_timescale = 2},
        arange(3, 12), 4e-6);
  check("sin_deepmind_negative", "table", {.width = 8, .layout = halves}, arange(-6, 12), 1e-14);
  check("sin_hf_marian_d9", "table", {.width = 9, .layout = halves, .odd = OddWidth::truncate},
        arange(0, 13), 1e-7);
  check("sin_tatp22_1d_odd", "pe", {.width = 7, .exponent_width = 8, .odd = OddWidth::truncate},
        arange(0, 6), 2e-6);
}

TEST(Sinusoidal, RealPositionsAndGainAsMlx) {
  const auto x = suite()("sin_mlx_default", "x");
  expect_near(
      rows({.width = 8, .layout = SineLayout::halves, .spacing = SineSpacing::t2t, .gain = 0.5},
           explicit_positions(x.value)),
      suite()("sin_mlx_default", "out"), 2e-6, "sin_mlx_default");
}

TEST(Sinusoidal, PaddingReadsZeroAsFairseq) {
  const std::vector<Index> ids = suite()("sin_fairseq_forward_padding", "input_ids").integers();
  const Sinusoidal s{
      .width = 10, .layout = SineLayout::halves, .spacing = SineSpacing::t2t, .zero_position = 1};
  const OwnedPositions p = from_tokens(tensor(ids.data(), {5, 6}), 1);
  EXPECT_EQ(std::get<std::vector<Index>>(p.value),
            suite()("sin_fairseq_forward_padding", "position_ids").integers());
  LoweredInput low;
  s.lower({}, low);
  std::vector<double> y(5 * 6 * 10);
  apply_input({}, p, low, view(y, {5, 6, 10}));
  expect_near(y, suite()("sin_fairseq_forward_padding", "out"), 2e-6, "fairseq");
}

TEST(Sinusoidal, LearnedGainAndItsGradientAsXTransformers) {
  const char* name = "sin_xtransformers_scaled_theta500";
  const Sinusoidal s{.width = 16, .layout = SineLayout::halves, .base = 500, .learned_gain = true};
  EXPECT_EQ(s.parameters()[0].initial.a, 0.25);
  std::vector<double> gain{0.25}, y(6 * 16), up = suite()(name, "grad_out").value, d{0};
  const ConstTensorView g = view(gain, {1});
  const TensorView dg = view(d, {1});
  LoweredInput low;
  s.lower(std::span(&g, 1), low);
  const OwnedPositions p = arange(11, 6);
  apply_input({}, p, low, view(y, {6, 16}));
  expect_near(y, suite()(name, "out"), 1e-14, name);
  InputGradient t;
  std::vector<double> raw{0};
  t.gain = view(raw, {1});
  input_gradient({}, p, low, view(up, {6, 16}), {}, std::span(&t, 1));
  s.pull_back(std::span(&g, 1), std::span(&t, 1), std::span(&dg, 1));
  EXPECT_NEAR(d[0], suite()(name, "grad_scale").value[0], 1e-12);
}

TEST(Sinusoidal, AddsMultipliesAndScalesTheEmbedding) {
  {
    const char* name = "sin_bert4keras_mul";
    std::vector<double> x = suite()(name, "x").value, y(x.size());
    LoweredInput low;
    Sinusoidal{.width = 6, .compose = Compose::one_plus}.lower({}, low);
    apply_input(view(x, {2, 5, 6}), arange(0, 5), low, view(y, {2, 5, 6}));
    expect_near(y, suite()(name, "out"), 1e-6, name);
  }
  const char* name = "sin_ctranslate2_d8";
  const SuiteArray e = suite()(name, "embeddings");
  std::vector<float> x(e.value.begin(), e.value.end()), y(x.size());
  LoweredInput low;
  Sinusoidal{.width = 8,
             .layout = SineLayout::halves,
             .spacing = SineSpacing::t2t,
             .offset = 1,
             .input_gain = std::sqrt(8.0)}
      .lower({}, low);
  apply_input(tensor(x.data(), {1, 9, 8}), arange(0, 9), low, tensor(y.data(), {1, 9, 8}));
  expect_near({y.begin(), y.end()}, suite()(name, "out"), 1e-6, name);
}

TEST(Sinusoidal, StaysExactFarAway) {
  const Sinusoidal s{.width = 2};
  for (const Index p : {Index{131071}, Index{1048575}, (Index{1} << 31) - 1, -(Index{1} << 31)}) {
    const std::vector<double> r = rows(s, arange(p, 1));
    EXPECT_NEAR(r[0], std::sin(static_cast<long double>(p)), 3e-16) << p;
    EXPECT_NEAR(r[1], std::cos(static_cast<long double>(p)), 3e-16) << p;
  }
}

TEST(Sinusoidal, PositionsHaveAGradient) {
  const Sinusoidal s{.width = 5, .odd = OddWidth::truncate, .gain = 0.7};
  LoweredInput low;
  s.lower({}, low);
  std::vector<double> at{0.3, -2.25, 17.5}, up(15), d(3, 0);
  for (std::size_t i = 0; i < up.size(); ++i) up[i] = std::cos(static_cast<double>(i));
  const auto loss = [&] {
    std::vector<double> y(15);
    apply_input({}, positions(std::span<const double>(at)), low, view(y, {3, 5}));
    double total = 0;
    for (std::size_t i = 0; i < y.size(); ++i) total += up[i] * y[i];
    return total;
  };
  InputGradient g;
  g.position = view(d, {1, 1, 3});
  input_gradient({}, positions(std::span<const double>(at)), low, view(up, {3, 5}), {},
                 std::span(&g, 1));
  for (std::size_t i = 0; i < 3; ++i) {
    const double kept = at[i];
    at[i] = kept + 1e-6;
    const double above = loss();
    at[i] = kept - 1e-6;
    const double below = loss();
    at[i] = kept;
    EXPECT_NEAR(d[i], (above - below) / 2e-6, 1e-9);
  }
}

TEST(Learned, FusionsOfBert4KerasForwardAndBackward) {
  const std::pair<const char*, Compose> cases[] = {{"fusion_bert4keras_add", Compose::add},
                                                   {"fusion_bert4keras_mul", Compose::one_plus},
                                                   {"fusion_bert4keras_concat", Compose::concat}};
  for (const auto& [name, compose] : cases) {
    std::vector<double> x = suite()(name, "x").value, table = suite()(name, "table").value;
    std::vector<double> up = suite()(name, "grad_out").value;
    const Index out = compose == Compose::concat ? 8 : 4;
    std::vector<double> y(static_cast<std::size_t>(10 * out)), dx(x.size()), dt(table.size(), 0),
        dp(table.size(), 0);
    const Learned s{.width = 4, .rows = 6, .compose = compose};
    const ConstTensorView p = view(table, {6, 4});
    const TensorView d = view(dp, {6, 4});
    LoweredInput low;
    s.lower(std::span(&p, 1), low);
    apply_input(view(x, {2, 5, 4}), arange(0, 5), low, view(y, {2, 5, out}));
    expect_near(y, suite()(name, "out"), 1e-14, name);
    InputGradient g;
    g.table = view(dt, {6, 4});
    input_gradient(view(x, {2, 5, 4}), arange(0, 5), low, view(up, {2, 5, out}),
                   view(dx, {2, 5, 4}), std::span(&g, 1));
    s.pull_back(std::span(&p, 1), std::span(&g, 1), std::span(&d, 1));
    expect_near(dx, suite()(name, "grad_x"), 1e-13, name);
    expect_near(dp, suite()(name, "grad_table"), 1e-13, name);
  }
}

TEST(Learned, BeyondTheTable) {
  {
    const char* name = "learned_opennmt_tf_clamp";
    const SuiteArray a = suite()(name, "x"), t = suite()(name, "table");
    std::vector<float> x(a.value.begin(), a.value.end()), y(x.size());
    std::vector<double> table = t.value;
    const ConstTensorView p = view(table, {5, 3});
    LoweredInput low;
    Learned{.width = 3, .rows = 5, .offset = 1, .beyond = Beyond::clamp}.lower(std::span(&p, 1),
                                                                               low);
    apply_input(tensor(x.data(), {2, 6, 3}), arange(0, 6), low, tensor(y.data(), {2, 6, 3}));
    expect_near({y.begin(), y.end()}, suite()(name, "out"), 1e-6, name);
  }
  const char* name = "learned_t2t_beyond_end";
  std::vector<double> x = suite()(name, "x").value, table = suite()(name, "table").value;
  std::vector<double> y(x.size()), up = suite()(name, "grad_out").value, dt(table.size(), 0);
  const ConstTensorView p = view(table, {5, 4});
  LoweredInput low;
  Learned{.width = 4, .rows = 5, .beyond = Beyond::zero}.lower(std::span(&p, 1), low);
  apply_input(view(x, {1, 7, 4}), arange(0, 7), low, view(y, {1, 7, 4}));
  expect_near(y, suite()(name, "out"), 1e-6, name);
  InputGradient g;
  g.table = view(dt, {5, 4});
  input_gradient(view(x, {1, 7, 4}), arange(0, 7), low, view(up, {1, 7, 4}), {}, std::span(&g, 1));
  expect_near(dt, suite()(name, "grad_table"), 1e-6, name);
}

TEST(Learned, RowsOfAMaskAsOpt) {
  const char* name = "learned_hf_opt_mask";
  const std::vector<Index> mask = suite()(name, "attention_mask").integers();
  std::vector<double> table = suite()(name, "weight").value, y(4 * 5 * 4);
  std::vector<double> up = suite()(name, "grad_out").value, dt(table.size(), 0);
  const ConstTensorView p = view(table, {12, 4});
  LoweredInput low;
  Learned{.width = 4, .rows = 12, .offset = 2}.lower(std::span(&p, 1), low);
  const OwnedPositions at = from_mask(tensor(mask.data(), {4, 5}), -1);
  apply_input({}, at, low, view(y, {4, 5, 4}));
  expect_near(y, suite()(name, "out"), 1e-15, name);
  InputGradient g;
  g.table = view(dt, {12, 4});
  input_gradient({}, at, low, view(up, {4, 5, 4}), {}, std::span(&g, 1));
  expect_near(dt, suite()(name, "grad_weight"), 1e-13, name);
}

TEST(ApplyInput, SeveralTermsWindowsAndInPlace) {
  std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8}, rows_of{10, 20, 30, 40};
  LoweredInput low;
  InputTerm t;
  t.rows = view(rows_of, {2, 2});
  t.first = 1;
  t.width = 2;
  low.terms = {t};
  t.compose = Compose::multiply;
  t.first = 2;
  low.terms.push_back(t);
  low.input_gain = 2;
  apply_input(view(x, {2, 4}), {}, low, view(x, {2, 4}));
  EXPECT_THAT(x, ::testing::ElementsAre(2, 14, 260, 160, 10, 42, 54 * 30, 640));
}

TEST(ApplyInput, RefusesByName) {
  std::vector<double> x(8), table(4);
  const ConstTensorView p = view(table, {2, 2});
  const auto says = [&](const Learned& s, const Positions& at, const TensorView& y) {
    return refusal([&] {
      LoweredInput low;
      s.lower(std::span(&p, 1), low);
      apply_input(view(x, {4, 2}), at, low, y);
    });
  };
  const Learned s{.width = 2, .rows = 2};
  const OwnedPositions good = arange(0, 4);
  const TensorView y = view(x, {4, 2});
  EXPECT_EQ(says(s, good, y), "[apply_input] position must have a row in the table of 2, got 2");
  EXPECT_THAT(says(s, arange(0, 3), y), HasSubstr("one for each of the 4 tokens, got 3"));
  EXPECT_THAT(says(s, arange(-1, 4), y), HasSubstr("got -1"));
  EXPECT_THAT(says(s, shifted(good, 0.5), y), HasSubstr("integer positions"));
  EXPECT_THAT(says(s, good, view(x, {2, 2})), HasSubstr("tokens of x"));
  EXPECT_THAT(says({.width = 2, .rows = 2, .first = 1}, good, y), HasSubstr("inside those of x"));
  EXPECT_THAT(says({.width = 2, .rows = 2, .gain = NAN}, good, y), HasSubstr("[learned] gain"));
  EXPECT_THAT(refusal([] { Sinusoidal{.width = 3}.parameters(); }),
              HasSubstr("[sinusoidal] width"));
  EXPECT_THAT(refusal([] { Sinusoidal{.width = 0}.parameters(); }),
              HasSubstr("[sinusoidal] width"));
  EXPECT_THAT(refusal([] { (Sinusoidal{.width = 4, .base = INFINITY}.parameters()); }),
              HasSubstr("[sinusoidal] base"));
  LoweredInput none;
  apply_input(view(x, {0, 2}), {}, none, view(x, {0, 2}));
}

TEST(Grammar, SchemesOfOtherPlacesReadBack) {
  const char* texts[] = {"sinusoidal width=10 layout=halves spacing=t2t",
                         "learned width=4 rows=8 offset=2", "alibi max_bias=16",
                         "t5 bidirectional=false num_buckets=32", "transformer_xl d_model=512"};
  for (const char* text : texts) {
    const Encoding e = parse_encoding(text);
    EXPECT_EQ(parse_encoding(to_text(e)), e) << text;
    EXPECT_FALSE(is_rotary(e.scheme));
  }
  EXPECT_THAT(refusal([] { resolve(parse_encoding("alibi")); }), HasSubstr("[alibi]"));
}

// Scalings of an encoding act on rows at the input too, or are refused.
TEST(Scaled, RowsOfSinusoids) {
  const auto rows = [](const std::string& text, double position) {
    const Encoding e = parse_encoding(text);
    LoweredInput low;
    std::visit(
        [&](const auto& s) {
          if constexpr (AbsoluteScheme<std::decay_t<decltype(s)>>) s.lower({}, low);
        },
        e.scheme);
    rescale(low, e);
    std::vector<double> y(8);
    apply_input({}, explicit_positions(std::vector<double>{position}), low,
                tensor(y.data(), {1, 8}));
    return y;
  };
  const auto plain = rows("sinusoidal width=8", 0.75),
             scaled = rows("sinusoidal width=8 + linear factor=4", 3);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(scaled[i], plain[i], 1e-15) << i;
  EXPECT_NEAR(rows("sinusoidal width=8 + linear factor=4", 1)[0], std::sin(0.25), 1e-15);
  const auto says = [](const std::string& text) {
    return test::refusal([&] {
      const Encoding e = parse_encoding(text);
      LoweredInput low;
      if (const auto* s = std::get_if<Sinusoidal>(&e.scheme)) s->lower({}, low);
      rescale(low, e);
    });
  };
  EXPECT_THAT(says("learned width=4 rows=3 + linear factor=4"),
              testing::HasSubstr("scalings act on frequencies"));
  EXPECT_EQ(says("sinusoidal width=8 + mscale_logit factor=4 mscale_all_dim=1"),
            "[encoding] a scaling of rows at the input must have no gain and no factor on logits, "
            "got \"mscale_logit\"");
}

}  // namespace
}  // namespace posenc
