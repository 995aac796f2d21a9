// SPDX-License-Identifier: Apache-2.0
// XLNet, the Conformers, TENER and Transformer-XL's learned rows against their programs, and the
// laws of their gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "content_case.h"
#include "posenc/relative/conformer.h"
#include "posenc/relative/conformer_absolute_key.h"
#include "posenc/relative/tener.h"
#include "posenc/relative/transformer_xl.h"
#include "posenc/relative/transformer_xl_learned.h"
#include "posenc/relative/xlnet.h"
#include "support/refusal.h"
#include "support/scheme_laws.h"

namespace posenc::test {
namespace {

using ::testing::HasSubstr;

Index xl_width(const std::string& name, std::size_t axis = 1) {
  return content_suite()(name, "R").dim(axis);
}

TEST(TransformerXl, AuthorsAndTransformers) {
  for (const char* name :
       {"kimiyoung_xl_two_segments", "kimiyoung_xl_same_length", "kimiyoung_xl_same_length_filling",
        "transfo_xl_module_memory", "transfo_xl_module_pre_lnorm", "transfo_xl_no_memory",
        "transfo_xl_decode", "transfo_xl_same_length"})
    check_content({.name = name}, TransformerXl{.d_model = xl_width(name)});
  check_content({.name = "kimiyoung_xl_clamp_len"}, TransformerXl{.d_model = 8, .clamp_len = 3});
  check_content({.name = "transfo_xl_clamp_len"}, TransformerXl{.d_model = 10, .clamp_len = 4});
}

// The rows of layer 1; those of the other layers have no gradient.
TEST(TransformerXlLearned, Authors) {
  for (const auto& [name, clamp] : {std::pair{"kimiyoung_xl_learned", Index{0}},
                                    std::pair{"kimiyoung_xl_learned_clamp", Index{3}}}) {
    ContentCase c{.name = name};
    const TransformerXlLearned scheme{.rows = 7, .clamp_len = clamp};
    std::map<std::string, support::SuiteArray> layer;
    for (const Parameter& p : scheme.parameters({.heads = 2, .head_dim = 4})) {
      support::SuiteArray& a = layer[p.name] = content_suite()(name, p.name + "_all_layers");
      a.value.erase(a.value.begin(),
                    a.value.begin() + static_cast<std::ptrdiff_t>(a.value.size() / 2));
      c.given[p.name] = tensor(static_cast<const void*>(a.value.data()), DType::f64, p.shape);
    }
    ContentRun run(c, scheme);
    run.check();
    for (const auto& [parameter, values] : layer) {
      std::vector<double> want = content_suite()(name, "grad_" + parameter + "_all_layers").value;
      const std::vector<double> got = run.gradients.at(parameter);
      want.erase(want.begin(), want.begin() + static_cast<std::ptrdiff_t>(want.size() / 2));
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], want[i], 2e-12) << name << " " << parameter << " " << i;
    }
  }
}

TEST(XlNet, Transformers) {
  for (const char* name :
       {"xlnet_bi_square", "xlnet_decode", "xlnet_uni_memory", "xlnet_uni_same_length"})
    check_content({.name = name}, XlNet{.d_model = xl_width(name, 2)});
}

// Half of the batch reads backwards: its positions are negated.
TEST(XlNet, BothWaysInOneBatch) {
  ContentRun run({.name = "xlnet_clamp_bi_data"}, XlNet{.d_model = 8, .clamp_len = 3});
  std::vector<Index> q, k;
  for (Index b = 0; b < 4; ++b) {
    const Index way = b < 2 ? 1 : -1;
    for (Index i = 0; i < 5; ++i) q.push_back(way * (2 + i));
    for (Index j = 0; j < 7; ++j) k.push_back(way * j);
  }
  const OwnedPositions queries = explicit_positions(q, 4), keys = explicit_positions(k, 4);
  run.args().query_positions = queries;
  run.args().key_positions = keys;
  run.check();
}

// The cases say which pairs differ; the row of the first query says which segment each key has.
TEST(XlNet, Segments) {
  for (const char* name : {"xlnet_padding_segments", "xlnet_module_memory_segments"}) {
    ContentCase c{.name = name};
    const support::SuiteArray differs = content_suite()(name, "segment_differs");
    const Index batch = differs.dim(0), tq = differs.dim(1), tk = differs.dim(2);
    std::vector<Index> key, query;
    for (Index b = 0; b < batch; ++b) {
      for (Index j = 0; j < tk; ++j)
        key.push_back(static_cast<Index>(differs.value[static_cast<std::size_t>(b * tq * tk + j)]));
      for (Index i = 0; i < tq; ++i) {
        const double of_key_0 = differs.value[static_cast<std::size_t>((b * tq + i) * tk)];
        const Index first = key[static_cast<std::size_t>(b * tk)];
        query.push_back(of_key_0 != 0 ? 1 - first : first);
      }
    }
    c.given["key_segment"] =
        tensor(static_cast<const void*>(key.data()), DType::i64, std::vector<Index>{batch, tk});
    c.given["query_segment"] =
        tensor(static_cast<const void*>(query.data()), DType::i64, std::vector<Index>{batch, tq});
    check_content(c, XlNet{.d_model = xl_width(name, 2), .segments = 2});
  }
}

// Content stream and query stream are two calls with the same keys.
TEST(XlNet, TwoStreams) {
  const std::string name = "xlnet_two_stream";
  const support::SuiteArray types = content_suite()(name, "token_type_ids");
  std::vector<Index> key, query;
  for (Index b = 0; b < 2; ++b) {
    key.insert(key.end(), {0, 0});  // memory
    for (Index i = 0; i < 5; ++i) {
      query.push_back(static_cast<Index>(types.value[static_cast<std::size_t>(b * 5 + i)]));
      key.push_back(query.back());
    }
  }
  for (const char* stream : {"_h", "_g"}) {
    ContentCase c{.name = name, .stream = stream};
    c.given["key_segment"] =
        tensor(static_cast<const void*>(key.data()), DType::i64, std::vector<Index>{2, 7});
    c.given["query_segment"] =
        tensor(static_cast<const void*>(query.data()), DType::i64, std::vector<Index>{2, 5});
    check_content(c, XlNet{.d_model = 8, .segments = 2});
  }
}

TEST(Conformer, EspnetFairseqNemoWav2vec2) {
  for (const char* name :
       {"espnet_module", "espnet_padding", "fairseq_conformer", "nemo_conformer",
        "nemo_conformer_cache", "wav2vec2_conformer_module", "wav2vec2_conformer_padding"}) {
    const support::SuiteArray r = content_suite()(name, "R");
    const Conformer scheme{.d_model = r.dim(1), .rows = r.dim(0)};
    check_content({.name = name}, scheme);
    const std::vector<double> made =
        scheme.parameters({.heads = 1, .head_dim = 1})[0].initial_values;
    ASSERT_EQ(made.size(), r.value.size());
    for (std::size_t i = 0; i < made.size(); ++i)
      EXPECT_NEAR(made[i], r.value[i], 2e-6) << name << " " << i;  // theirs is float32
  }
}

// One sine for both sides, the scale of the model's width, and u and v reshaped, not transposed.
TEST(Conformer, Speechbrain) {
  const std::string name = "speechbrain_conformer_peer_bug";
  const support::SuiteArray r = content_suite()(name, "R");
  ContentCase c{.name = name, .scale = 1 / std::sqrt(8.0)};
  std::map<std::string, support::SuiteArray> bias;
  for (const char* p : {"u", "v_bias"}) {
    bias[p] = content_suite()(name, std::string(p) + "_peer_shape");
    c.given[p] = tensor(static_cast<const void*>(bias[p].value.data()), DType::f64,
                        std::vector<Index>{2, 4});
    c.arrays[p] = std::string(p) + "_peer_shape";
  }
  const Conformer scheme{.d_model = 8, .rows = r.dim(0), .even = true};
  check_content(c, scheme);
  const std::vector<double> made = scheme.parameters({.heads = 1, .head_dim = 1})[0].initial_values;
  for (std::size_t i = 0; i < made.size(); ++i) EXPECT_NEAR(made[i], r.value[i], 2e-6) << i;
}

// R as a parameter that holds what is made otherwise gives the same terms.
TEST(Conformer, RowsGivenAndMade) {
  const ScoreShape s{.heads = 2, .head_dim = 3, .distance = {{-2, 2}}};
  std::vector<double> w(24), bias(6, 0.5);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::sin(static_cast<double>(i));
  const Conformer made{.d_model = 4}, given{.d_model = 4, .rows = 5};
  const std::vector<double> r = given.parameters(s)[0].initial_values;
  const ConstTensorView p[] = {tensor(r.data(), {5, 4}), tensor(w.data(), {6, 4}),
                               tensor(bias.data(), {2, 3}), tensor(bias.data(), {2, 3})};
  LoweredTerms a, b;
  made.lower(s, std::span(p).subspan(1), a);
  given.lower(s, p, b);
  for (Index i = 0; i < 30; ++i)
    EXPECT_EQ(data_of<double>(term_arrays(a.terms[1]).table)[i],
              data_of<double>(term_arrays(b.terms[1]).table)[i]);
}

TEST(ConformerAbsoluteKey, Wenet) {
  const std::string name = "wenet_conformer_without_shift_peer_bug";
  const ConformerAbsoluteKey scheme{.d_model = 8, .rows = 6};
  check_content({.name = name}, scheme);
  const std::vector<double> made = scheme.parameters({.heads = 1, .head_dim = 1})[0].initial_values;
  const support::SuiteArray p = content_suite()(name, "P");
  for (std::size_t i = 0; i < made.size(); ++i) EXPECT_NEAR(made[i], p.value[i], 2e-6) << i;
}

TEST(Tener, Authors) {
  check_content({.name = "tener_square", .scale = 0}, Tener{});
  check_content({.name = "tener_padding", .scale = 0}, Tener{});
  check_content({.name = "tener_scaled"}, Tener{.scaled = true});
}

TEST(ConformerAbsoluteKey, PositionsOfKeys) {
  const ConformerAbsoluteKey scheme{.d_model = 2, .rows = 3};
  const ScoreShape s{.heads = 1, .head_dim = 2};
  std::vector<double> p(6), w(4), u(2);
  const ConstTensorView all[] = {
      tensor(std::as_const(p).data(), {3, 2}), tensor(std::as_const(w).data(), {2, 2}),
      tensor(std::as_const(u).data(), {1, 2}), tensor(std::as_const(u).data(), {1, 2})};
  LoweredTerms low;
  scheme.lower(s, all, low);
  CallData call{.queries = 1, .keys = 2};
  EXPECT_EQ(refusal([&] { scheme.bind(s, all, call, low.terms, low); }), "accepted");
  const OwnedPositions far = explicit_positions(std::vector<Index>{0, 3});
  call.key_positions = far;
  EXPECT_THAT(refusal([&] { scheme.bind(s, all, call, low.terms, low); }),
              HasSubstr("[conformer_absolute_key] the position of a key must have a row"));
  const OwnedPositions real = explicit_positions(std::vector<double>{0, 1});
  call.key_positions = real;
  EXPECT_THAT(refusal([&] { scheme.bind(s, all, call, low.terms, low); }),
              HasSubstr("must be i64 or i32"));
}

// The paper's score has the other sign and no key term.
TEST(Tener, PaperAndCodeDiffer) {
  const std::vector<Preset<Tener>> p = Tener::presets();
  ASSERT_EQ(p.size(), 2u);
  const Tener paper = p[0].make({}), code = p[1].make({});
  const std::vector<double> zeros(4);
  const ConstTensorView bias[] = {tensor(zeros.data(), {1, 4}), tensor(zeros.data(), {1, 4})};
  const ScoreShape s{.heads = 1, .head_dim = 4, .distance = {{-1, 2}}};
  LoweredTerms a, b;
  paper.lower(s, bias, a);
  code.lower(s, bias, b);
  EXPECT_EQ(a.terms.size(), 3u);
  EXPECT_EQ(b.terms.size(), 4u);
  EXPECT_EQ(a.requests.scale, 1);
  const auto sine = [](const Term& term, double delta, Index c) {
    const auto& t = std::get<ProductTerm>(term);
    return data_of<double>(t.table)[row_of(t.lines[0], delta) * 4 + c];
  };
  EXPECT_EQ(sine(a.terms[1], 1, 0), std::sin(1.0));
  EXPECT_EQ(sine(b.terms[1], 1, 0), std::sin(-1.0));
  EXPECT_EQ(sine(b.terms[3], 1, 0), std::sin(1.0));
  EXPECT_NEAR(sine(a.terms[1], 2, 1), std::sin(2 * 0.01), 1e-17);
  EXPECT_NEAR(sine(b.terms[3], 2, 1), std::sin(2 * 0.0001), 1e-18);
}

TEST(XlFamily, Laws) {
  check_scheme_laws(TransformerXl{.d_model = 6, .clamp_len = 3});
  check_scheme_laws(TransformerXlLearned{.rows = 4}, {.causal = true});
  check_scheme_laws(TransformerXlLearned{.rows = 5, .clamp_len = 3});
  check_scheme_laws(XlNet{.d_model = 6});
  check_scheme_laws(XlNet{.d_model = 4, .clamp_len = 2, .segments = 3},
                    {.classes = {{"query_segment", 3}, {"key_segment", 3}}});
  check_scheme_laws(Conformer{.d_model = 6});
  check_scheme_laws(Conformer{.d_model = 4, .rows = 15, .even = true});
  check_scheme_laws(ConformerAbsoluteKey{.d_model = 4, .rows = 7});
  check_scheme_laws(Tener{}, {.scale = {}});
  check_scheme_laws(Tener{.sign = TenerSign::query_minus_key, .key_term = false, .scaled = true});
}

TEST(XlFamily, Refusals) {
  const ScoreShape s{.heads = 2, .head_dim = 3, .distance = {{-2, 5}}};
  const auto says = [&](const auto& x) { return refusal([&] { x.parameters(s); }); };
  EXPECT_THAT(says(XlNet{}), HasSubstr("[xlnet] d_model must be positive and even"));
  EXPECT_THAT(says(XlNet{.d_model = 4, .clamp_len = -1}), HasSubstr("[xlnet] clamp_len"));
  EXPECT_THAT(says(XlNet{.d_model = 4, .segments = -1}), HasSubstr("[xlnet] segments"));
  EXPECT_THAT(says(XlNet{.d_model = 4, .init = -1}), HasSubstr("[xlnet] init"));
  EXPECT_THAT(says(Conformer{.d_model = 3}), HasSubstr("[conformer] d_model"));
  EXPECT_THAT(says(Conformer{.d_model = 4, .base = 0}), HasSubstr("[conformer] base"));
  EXPECT_THAT(says(Conformer{.d_model = 4, .rows = 4}), HasSubstr("[conformer] rows"));
  EXPECT_THAT(says(ConformerAbsoluteKey{.d_model = 4}), HasSubstr("[conformer_absolute_key] rows"));
  EXPECT_THAT(says(Tener{}), HasSubstr("[tener] head_dim must be positive and even, got 3"));
  EXPECT_THAT(says(TransformerXlLearned{}), HasSubstr("[transformer_xl_learned] rows"));
  EXPECT_THAT(says(TransformerXlLearned{.rows = 1, .clamp_len = -1}),
              HasSubstr("[transformer_xl_learned] clamp_len"));
  std::vector<double> r(5 * 4), w(24), bias(6);
  const ConstTensorView p[] = {
      tensor(std::as_const(r).data(), {5, 4}), tensor(std::as_const(w).data(), {6, 4}),
      tensor(std::as_const(bias).data(), {2, 3}), tensor(std::as_const(bias).data(), {2, 3})};
  LoweredTerms out;
  EXPECT_THAT(refusal([&] { Conformer{.d_model = 4, .rows = 5}.lower(s, p, out); }),
              HasSubstr("[conformer] rows must hold every distance of the positions, from -"));
}

}  // namespace
}  // namespace posenc::test
