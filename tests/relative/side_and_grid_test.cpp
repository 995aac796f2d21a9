// SPDX-License-Identifier: Apache-2.0
// ALiBi with two slopes and Marian's, image RPE, LongT5, what Conformer and CoPE have in
// some programs: values of the papers' formulas, the law of gradients, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/attention/plan.h"
#include "posenc/positions/sequence.h"
#include "posenc/registry.h"
#include "posenc/relative/drawn_distances.h"
#include "support/refusal.h"
#include "support/scheme_laws.h"

namespace posenc {
namespace {

using test::check_scheme_laws;
using test::LawCall;
using test::refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The scores of a scheme where q and k are zero, [heads, queries, keys].
std::vector<double> bias_of(std::string_view text, Index heads_count, const OwnedPositions& query,
                            const OwnedPositions& key, std::span<const NamedArray> parameters,
                            std::span<const NamedArray> inputs = {}) {
  const AttentionPlan plan({text}, {.heads = heads_count, .head_dim = 2});
  const LoweredAttention lowered = plan.lower(parameters, distance_ranges(query, key));
  const Index n = query.count(), m = key.count();
  const std::vector<double> q(static_cast<std::size_t>(n * heads_count * 2));
  const std::vector<double> k(static_cast<std::size_t>(m * heads_count * 2));
  AttentionArgs a;
  a.q = heads(q.data(), n, heads_count, 2);
  a.k = a.v = heads(k.data(), m, heads_count, 2);
  a.query_positions = query;
  a.key_positions = key;
  std::vector<double> scores(static_cast<std::size_t>(heads_count * n * m));
  AttentionScores s;
  s.scores = tensor(scores.data(), {1, heads_count, n, m});
  lowered.scores(a, inputs, s);
  return scores;
}

TEST(AlibiSides, LawsOfTwoSlopesAHead) {
  for (const AlibiLearned learned :
       {AlibiLearned::slopes, AlibiLearned::log_slopes, AlibiLearned::logits})
    check_scheme_laws(Alibi{.future = AlibiFuture::own_slopes, .learned = learned});
  check_scheme_laws(Alibi{.future = AlibiFuture::own_slopes,
                          .learned = AlibiLearned::logits,
                          .past_offset = 0.5,
                          .bias_scale = 0.3,
                          .batch = 2});
  check_scheme_laws(Alibi{.learned = AlibiLearned::logits});
}

TEST(AlibiSides, EachSideHasItsOwnSlope) {
  const std::vector<double> past{0, -1}, ahead{1, 2};
  const NamedArray p[] = {{"logits", tensor(past.data(), {2})},
                          {"logits_future", tensor(ahead.data(), {2})}};
  const std::vector<double> b =
      bias_of("alibi future=own_slopes learned=logits", 2, arange(3, 1), arange(1, 5), p);
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t j = 0; j < 5; ++j) {
      const double d = 2 - static_cast<double>(j);
      EXPECT_NEAR(b[h * 5 + j], d > 0 ? -sigmoid(past[h]) * d : sigmoid(ahead[h]) * d, 1e-15);
    }
}

TEST(AlibiSides, StartsAsPublished) {
  const Alibi own{.future = AlibiFuture::own_slopes, .learned = AlibiLearned::log_slopes};
  const std::vector<Parameter> p = own.parameters({.heads = 2, .head_dim = 2});
  ASSERT_EQ(p.size(), 2u);
  EXPECT_EQ(p[1].name, "log_slopes_future");
  EXPECT_THAT(p[1].initial_values, ElementsAre(std::log(0.0625), std::log(0.00390625)));
  const Parameter logits =
      Alibi{.learned = AlibiLearned::logits}.parameters({.heads = 2, .head_dim = 2})[0];
  EXPECT_EQ(logits.initial.kind, InitialKind::normal);
  EXPECT_EQ(logits.initial.a, -2);
  EXPECT_EQ(logits.initial.b, 1);
  EXPECT_THAT(refusal([] {
                (Alibi{.future = AlibiFuture::own_slopes}.parameters({.heads = 2, .head_dim = 2}));
              }),
              HasSubstr("own_slopes are learned"));
}

TEST(MarianAlibi, Laws) {
  LawCall call;  // away from j - i = -b
  call.number = [](const std::string& name, Index i) {
    return name == "slopes" ? -0.3 + 0.2 * static_cast<double>(i)
                            : 0.4 * static_cast<double>(i) + 0.3;
  };
  check_scheme_laws(MarianAlibi{.absolute = false}, call);
  check_scheme_laws(MarianAlibi{.axis = 1}, call);
}

TEST(MarianAlibi, ValuesAndStarts) {
  const std::vector<double> slopes{-0.5, 2}, biases{3, -1.5};
  const NamedArray p[] = {{"slopes", tensor(slopes.data(), {2})},
                          {"biases", tensor(biases.data(), {2})}};
  const std::vector<double> b =
      bias_of("marian_alibi absolute=false", 2, arange(4, 1), arange(0, 3), p);
  // j - i = -4, -3, -2
  EXPECT_THAT(b, ElementsAre(-0.5, 0, -0.5, 11, 9, 7));
  EXPECT_THAT(bias_of("marian_alibi", 2, arange(4, 1), arange(0, 3), p),
              ElementsAre(-0.5, 0, -0.5, -11, -9, -7));
  const ScoreShape s{.heads = 10, .head_dim = 2};
  const auto start = [&](MarianAttention attention, std::size_t n) {
    return MarianAlibi{.attention = attention}.parameters(s)[n].initial_values;
  };
  EXPECT_THAT(start(MarianAttention::encoder, 0),
              ElementsAre(-2, -1, -0.5, -0.25, -0.05, -0.05, -0.05, -0.05, -0.05, -0.05));
  EXPECT_THAT(start(MarianAttention::encoder, 1), ElementsAre(1, -2, 3, -4, 5, -6, 7, -8, 0, 0));
  EXPECT_DOUBLE_EQ(start(MarianAttention::decoder, 0)[4], -0.0625);
  EXPECT_EQ(start(MarianAttention::cross, 1), std::vector<double>(10, 0.3));
}

// Where a key stands at j - i = -b the derivative is that of the side above.
TEST(MarianAlibi, DerivativeAtTheBestKey) {
  const ScoreShape s{.heads = 1, .head_dim = 2, .distance = {{0, 1}}};
  const std::vector<double> slopes{-0.5}, biases{1};
  const ConstTensorView p[] = {tensor(slopes.data(), {1}), tensor(biases.data(), {1})};
  const std::vector<double> up{0, 3};  // of distance 1 alone, where j - i = -b
  std::vector<double> table = up;
  TermGradient t;
  t.table = tensor(static_cast<void*>(table.data()), DType::f64, {1, 1, 2, 1});
  for (const bool absolute : {true, false}) {
    std::vector<double> d_slopes(1), d_biases(1);
    const TensorView d[] = {tensor(d_slopes.data(), {1}), tensor(d_biases.data(), {1})};
    MarianAlibi{.absolute = absolute}.pull_back(s, p, {}, {std::span(&t, 1), {}}, d, {});
    EXPECT_EQ(d_slopes[0], 0);
    EXPECT_EQ(d_biases[0], absolute ? -1.5 : 0);
  }
}

// Whole passes with the authors' numbers are in the suites relative_bias and relative_content.
TEST(Irpe, Laws) {
  LawCall call;
  call.position = [](std::int32_t axis, Index t) { return axis == 0 ? t / 3 : t % 3; };
  call.classes = {{"query_class", 2}, {"key_class", 2}};
  for (const IrpeMethod method :
       {IrpeMethod::euclidean, IrpeMethod::quantised, IrpeMethod::product, IrpeMethod::cross})
    for (const IndexedMeets meets :
         {IndexedMeets::nothing, IndexedMeets::query, IndexedMeets::key, IndexedMeets::value})
      check_scheme_laws(Irpe{.method = method,
                             .meets = meets,
                             .height = 3,
                             .width = 3,
                             .shared = meets == IndexedMeets::query,
                             .class_token = method != IrpeMethod::quantised},
                        call);
}

TEST(Irpe, Buckets) {
  const Irpe product;
  EXPECT_EQ(product.buckets(), 49);
  std::vector<Index> g;
  for (Index x = 0; x < 18; ++x) g.push_back(product.piecewise(x));
  // 1.9 + 1.9 ln(x / 1.9) / ln 8 passes 2.5 at 3.66; 3.5 lies at 10.95.
  EXPECT_THAT(g, ElementsAre(0, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3));
  EXPECT_EQ(product.piecewise(-4), -3);
  EXPECT_EQ(product.bucket(-1, 2), 2 * 7 + 5);
  const Irpe euclidean{.method = IrpeMethod::euclidean}, quantised{.method = IrpeMethod::quantised};
  EXPECT_EQ(euclidean.buckets(), 7);
  EXPECT_EQ(euclidean.bucket(1, 1), 4);   // sqrt 2 is nearest to 1
  EXPECT_EQ(euclidean.bucket(-2, 2), 5);  // sqrt 8 to 3
  const Irpe fine{.method = IrpeMethod::euclidean, .alpha = 4, .beta = 6, .gamma = 20};
  EXPECT_EQ(fine.bucket(2, 2), 3 + 6);
  EXPECT_EQ(fine.bucket(-1, 2), 2 + 6);
  EXPECT_EQ(quantised.bucket(1, 1), 5);
  EXPECT_EQ(quantised.bucket(0, -2), 6);
  EXPECT_THAT(refusal([] { (Irpe{.beta = 1}.parameters({.heads = 2, .head_dim = 2})); }),
              HasSubstr("beta must lie between"));
  EXPECT_THAT(refusal([] { (Irpe{.gamma = 1}.parameters({.heads = 2, .head_dim = 2})); }),
              HasSubstr("gamma must be finite"));
}

TEST(LongT5, Laws) {
  LawCall call;
  call.classes = {{"key_global", 2}};
  call.scale.reset();
  check_scheme_laws(LongT5{.num_buckets = 8, .max_distance = 6}, call);
}

// Tokens by T5 over tokens, summaries by T5 over blocks.
TEST(LongT5, IsT5OfTokensAndOfBlocks) {
  std::vector<double> local, global;
  for (int i = 0; i < 64; ++i) local.push_back(i), global.push_back(1000 + 3 * i);
  const NamedArray both[] = {{"table", tensor(local.data(), {32, 2})},
                             {"global_table", tensor(global.data(), {32, 2})}};
  // Six tokens in blocks of two, then three summaries.
  const OwnedPositions query =
      explicit_positions(std::vector<Index>{0, 1, 2, 3, 4, 5, 0, 0, 1, 1, 2, 2}, 1, 2);
  const OwnedPositions key = explicit_positions(
      std::vector<Index>{0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 1, 1, 2, 2, 0, 1, 2}, 1, 2);
  const std::vector<std::int64_t> kind{0, 0, 0, 0, 0, 0, 1, 1, 1};
  const NamedArray inputs[] = {
      {"key_global", tensor(static_cast<const void*>(kind.data()), DType::i64, {1, 9})}};
  const std::vector<double> b = bias_of("longt5", 2, query, key, both, inputs);
  const T5 rule;
  for (Index h = 0; h < 2; ++h)
    for (Index i = 0; i < 6; ++i)
      for (Index j = 0; j < 9; ++j) {
        const std::vector<double>& table = j < 6 ? local : global;
        const Index bucket = j < 6 ? rule.bucket(i - j) : rule.bucket(i / 2 - (j - 6));
        EXPECT_EQ(b[static_cast<std::size_t>((h * 6 + i) * 9 + j)],
                  table[static_cast<std::size_t>(2 * bucket + h)])
            << i << " " << j;
      }
}

TEST(ConformerForms, LawsOfGemma3nAudio) {
  check_scheme_laws(Conformer{.d_model = 6, .biases = false, .halves = true, .t2t = true});
  check_scheme_laws(Conformer{.d_model = 4, .rows = 17, .biases = false});
}

// Sines of all frequencies, then cosines; the last frequency is 1 / base.
TEST(ConformerForms, SinusoidOfGemma3nAudio) {
  const Conformer c = Conformer::presets()[0].make(std::vector<Index>{6});
  EXPECT_FALSE(c.biases);
  EXPECT_EQ(c.parameters({.heads = 2, .head_dim = 3}).size(), 1u);
  const std::vector<double> r = c.sinusoid(3);
  const double w[] = {1, 0.01, 0.0001};
  for (std::size_t m = 0; m < 3; ++m) {
    EXPECT_NEAR(r[m], std::sin(3 * w[m]), 1e-15);
    EXPECT_NEAR(r[3 + m], std::cos(3 * w[m]), 1e-15);
  }
}

TEST(CopeForms, LawsOfMixedGatesAndSpread) {
  LawCall call;
  call.causal = true;
  call.key_heads = call.heads;
  check_scheme_laws(Cope{.positions = 3, .gates = CopeGates::mixed}, call);
  check_scheme_laws(
      Cope{
          .positions = 4, .scaling = CopeScaling::content, .table = CopeTable::rows, .spread = 0.3},
      call);
  EXPECT_THAT(refusal([&] {
                LawCall grouped = call;
                grouped.key_heads = 2;
                check_scheme_laws(Cope{.positions = 3, .gates = CopeGates::mixed}, grouped);
              }),
              HasSubstr("as many heads of k"));
}

// T5 and ALiBi at distances 0, 2, 3, 7 to the past and 0, 1, 5, 6, 9 to the future.
TEST(DrawnDistances, Laws) {
  const std::vector<Index> past{0, 2, 3, 7, 8, 11, 12}, future{0, 1, 5, 6, 9, 10};
  check_scheme_laws(DrawnDistances<T5>{
      .scheme = {.num_buckets = 8, .max_distance = 10}, .past = past, .future = future});
  check_scheme_laws(DrawnDistances<Alibi>{
      .scheme = {.future = AlibiFuture::own_slopes, .learned = AlibiLearned::slopes, .batch = 2},
      .past = past});
  check_scheme_laws(DrawnDistances<Shaw>{.scheme = {.left = 4, .right = 3}, .past = past});
  LawCall call;
  call.classes = {{"query_segment", 3}, {"key_segment", 3}};
  check_scheme_laws(
      DrawnDistances<CpmAnt>{.scheme = {.num_buckets = 8, .max_distance = 6, .segments = 3},
                             .past = past},
      call);
}

TEST(DrawnDistances, ReadsTheDrawnDistance) {
  const std::vector<Index> past{0, 2, 5}, future{0, 4};
  const ScoreShape s{.heads = 2, .head_dim = 2, .distance = {{-1, 2}}};
  LoweredTerms low;
  const DrawnDistances<Alibi> drawn{.past = past, .future = future};
  drawn.lower(s, {}, low);
  const std::vector<double> m = Alibi{}.slope(2);
  const auto& t = std::get<ProductTerm>(low.terms[0]);
  for (const auto& [delta, distance] : {std::pair{-1.0, 4.0}, {0.0, 0.0}, {1.0, 2.0}, {2.0, 5.0}})
    for (Index h = 0; h < 2; ++h)
      EXPECT_EQ(data_of<double>(t.table)[4 * h + row_of(t.lines[0], delta)],
                -m[static_cast<std::size_t>(h)] * distance);
  EXPECT_THAT(refusal([&] {
                LoweredTerms other;
                drawn.lower({.heads = 2, .head_dim = 2, .distance = {{-2, 2}}}, {}, other);
              }),
              HasSubstr("entry for every distance"));
  EXPECT_THAT(
      refusal([&] {
        LoweredTerms other;
        const DrawnDistances<Fire> fire{.past = past};
        std::vector<std::vector<double>> values;
        std::vector<ConstTensorView> p;
        for (const Parameter& x : fire.parameters(s)) {
          Index n = 1;
          for (const Index size : x.shape) n *= size;
          values.emplace_back(static_cast<std::size_t>(n), 1.0);
          p.push_back(tensor(static_cast<const void*>(values.back().data()), DType::f64, x.shape));
        }
        fire.lower(s, p, other);
      }),
      HasSubstr("terms by distance"));
}

TEST(AlibiGrid, EuclideanDistances) {
  LawCall call;
  call.position = [](std::int32_t axis, Index t) { return axis == 0 ? t / 3 : t % 3; };
  check_scheme_laws(
      Alibi{.learned = AlibiLearned::slopes, .bias_scale = 2, .height = 3, .width = 3}, call);
  check_scheme_laws(Alibi{.learned = AlibiLearned::logits, .height = 3, .width = 3, .batch = 2},
                    call);
  // Places (1, 2) and (0, 0), (2, 1) of a grid of 3 x 3.
  const OwnedPositions query = explicit_positions(std::vector<Index>{1, 2}, 1, 2);
  const OwnedPositions key = explicit_positions(std::vector<Index>{0, 2, 0, 1}, 1, 2);
  const std::vector<double> b = bias_of("alibi height=3 width=3", 1, query, key, {});
  const double m = Alibi{}.slope(1)[0];
  EXPECT_DOUBLE_EQ(b[0], -m * std::sqrt(5.0));
  EXPECT_DOUBLE_EQ(b[1], -m * std::sqrt(2.0));
  EXPECT_THAT(refusal([] { (Alibi{.height = 3}.parameters({.heads = 2, .head_dim = 2})); }),
              HasSubstr("height and width"));
}

TEST(T5Forms, Contextual) {
  check_scheme_laws(T5{.num_buckets = 8, .max_distance = 6, .bias_scale = 0.5, .contextual = true},
                    {.scale = {}});
  const std::vector<Parameter> p = T5{.contextual = true}.parameters({.heads = 2, .head_dim = 4});
  EXPECT_EQ(p[0].shape, (std::vector<Index>{2, 4, 32}));
  EXPECT_EQ(p[0].initial.b, 0.5);
}

TEST(PresetsOfScores, T5AndDeberta) {
  const auto text = [](std::string_view t) { return to_text(parse_encoding(t)); };
  EXPECT_EQ(text("t5 preset=decoder"), "t5 bidirectional=false");
  EXPECT_EQ(text("t5 preset=encoder"), "t5 bidirectional=true");
  EXPECT_EQ(text("deberta preset=v3_base"), "deberta");
  EXPECT_EQ(text("deberta preset=v1"),
            "deberta position_buckets=0 projection=own key_bias=false norm=false");
  EXPECT_EQ(text("conformer preset=gemma3n_audio d_model=1536"),
            "conformer d_model=1536 biases=false halves=true t2t=true");
}

}  // namespace
}  // namespace posenc
