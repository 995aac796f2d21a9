// SPDX-License-Identifier: Apache-2.0
// Schemes of images: rows of offsets, class tokens, the law of gradients, refusals; whole passes of
// their programs are in the suite relative_bias.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/relative/beit.h"
#include "posenc/relative/bros.h"
#include "posenc/relative/decomposed.h"
#include "posenc/relative/indexed.h"
#include "posenc/relative/levit.h"
#include "posenc/relative/modality_pairs.h"
#include "posenc/relative/swin.h"
#include "posenc/relative/swin_v2.h"
#include "posenc/relative/tupe.h"
#include "support/refusal.h"
#include "support/scheme_laws.h"

namespace posenc {
namespace {

using test::check_scheme_laws;
using test::LawCall;
using test::refusal;
using ::testing::HasSubstr;

const ScoreShape kImageShape{.heads = 2, .head_dim = 4, .distance = {{-5, 5}, {-5, 5}}};

// Tokens row by row on a grid of this width.
LawCall image_call(Index width) {
  LawCall call;
  call.axes = 2;
  call.position = [width](std::int32_t axis, Index order) {
    return axis == 0 ? order / width : order % width;
  };
  return call;
}

TEST(Image, LawsOfWindows) {
  check_scheme_laws(Swin{.height = 3, .width = 3}, image_call(3));
  check_scheme_laws(Swin{.height = 2,
                         .width = 2,
                         .sign = DistanceSign::key_minus_query,
                         .table = WindowTable::grid},
                    image_call(2));
  check_scheme_laws(Levit{.height = 3, .width = 3}, image_call(3));
  check_scheme_laws(Beit{.height = 3, .width = 3}, image_call(3));
  check_scheme_laws(Beit{.height = 2, .width = 3, .heads_first = true}, image_call(3));
}

TEST(Image, LawsOfSwinV2) {
  LawCall call = image_call(3);
  call.scale.reset();
  check_scheme_laws(SwinV2{.height = 3, .width = 3, .hidden = 3}, call);
  check_scheme_laws(SwinV2{.height = 3, .width = 3, .hidden = 2, .form = SwinV2Form::cr}, call);
  check_scheme_laws(
      SwinV2{.height = 3, .width = 3, .hidden = 2, .cosine = false, .class_token = true},
      image_call(3));
}

TEST(Image, LawsOfDecomposedAxes) {
  check_scheme_laws(Decomposed{.size = {3, 3}}, image_call(3));
  check_scheme_laws(Decomposed{.size = {3, 3}, .table_rows = {9, 4}}, image_call(3));
  check_scheme_laws(Decomposed{.size = {3, 3}, .class_token = true}, image_call(3));
  // A ratio that is no whole number: thresholds in place of whole distances.
  check_scheme_laws(Decomposed{.size = {3, 3}, .key_size = {2, 2}}, image_call(3));
  LawCall video;
  video.axes = 3;
  check_scheme_laws(Decomposed{.size = {9, 5, 3}}, video);
}

TEST(Image, LawsOfIndexedTables) {
  for (const IndexedMeets meets :
       {IndexedMeets::nothing, IndexedMeets::query, IndexedMeets::key, IndexedMeets::value})
    for (const IndexedTable table : {IndexedTable::rows, IndexedTable::channels})
      check_scheme_laws(Indexed{.rows = 2,
                                .meets = meets,
                                .groups = 2,
                                .table = table,
                                .content_scale = true,
                                .key_first = meets == IndexedMeets::key});
}

TEST(Image, LawsOfTupe) {
  LawCall call;
  check_scheme_laws(Tupe{.positions = 9}, call);
  check_scheme_laws(Tupe{.positions = 8, .reset = false}, call);
  check_scheme_laws(Tupe{.positions = 8, .num_buckets = 8, .max_distance = 6}, call);
}

TEST(Image, LawsOfBros) {
  check_scheme_laws(Bros{.coordinates = 3, .frequencies = 2, .base = 5, .unit = 1.5});
  check_scheme_laws(Bros{.coordinates = 1, .frequencies = 1, .unit = 2});
}

// The term is q_i . W e of the difference, made for one pair by the formula.
TEST(Image, BrosIsASinusoidOfTheDifference) {
  const Bros bros{.coordinates = 1, .frequencies = 2, .base = 100, .unit = 3};
  const std::vector<double> w{1, 2, 3, 4}, q{0.5}, from{0.2}, to{0.9};
  const ConstTensorView p[] = {tensor(w.data(), {1, 4})};
  const ConstTensorView in[] = {tensor(q.data(), {1, 1, 1, 1}), tensor(from.data(), {1, 1, 1}),
                                tensor(to.data(), {1, 1, 1})};
  LoweredTerms low;
  const ScoreShape s{.heads = 1, .head_dim = 1};
  bros.lower(s, p, low);
  const CallData call{.queries = 1, .keys = 1, .inputs = in};
  bros.bind(s, p, call, low.terms, low);
  const auto* x = static_cast<const double*>(std::get<ProductTerm>(low.terms[0]).query.given.data);
  const auto* y = static_cast<const double*>(std::get<ProductTerm>(low.terms[0]).key.given.data);
  double got = 0;
  for (Index c = 0; c < 4; ++c) got += x[c] * y[c];
  EXPECT_NEAR(
      got, 0.5 * (1 * std::sin(2.1) + 2 * std::sin(0.21) + 3 * std::cos(2.1) + 4 * std::cos(0.21)),
      1e-14);
}

TEST(Image, LawsOfModalityPairs) {
  LawCall call;
  call.classes = {{"query_modality", 3}, {"key_modality", 3}};
  check_scheme_laws(ModalityPairs{.modalities = 3}, call);
  check_scheme_laws(ModalityPairs{.modalities = 3,
                                  .query_modality = {0, 1, 1, 2},
                                  .key_modality = {0, 1, 1, 0},
                                  .axis = {0, 1, 2, 0},
                                  .clip = {3, 2, 1, 0}},
                    call);
}

// Keys pooled from four to two: distances of steps of two, and rows from 0.
TEST(Image, RowsOfPooledAxes) {
  const Decomposed s{.size = {4, 3}, .key_size = {2, 2}};
  std::vector<double> h(7), w(5);
  for (std::size_t i = 0; i < 7; ++i) h[i] = static_cast<double>(i);
  const ConstTensorView p[] = {tensor(std::as_const(h).data(), {7, 1}),
                               tensor(std::as_const(w).data(), {5, 1})};
  LoweredTerms low;
  s.lower({.heads = 1, .head_dim = 1}, p, low);
  ASSERT_EQ(low.terms.size(), 2U);
  for (Index q = 0; q < 4; ++q)
    for (Index k = 0; k < 2; ++k)
      EXPECT_EQ(
          row_of(std::get<ProductTerm>(low.terms[0]).lines[0], static_cast<double>(q - 2 * k)),
          q - 2 * k + 2);
  for (Index q = 0; q < 3; ++q)
    for (Index k = 0; k < 2; ++k) {
      const double d = static_cast<double>(q) - 1.5 * static_cast<double>(k);
      EXPECT_EQ(row_of(std::get<ProductTerm>(low.terms[1]).lines[0], d),
                static_cast<Index>(d + 1.5));
    }
}

// Equation 4 of the paper: the first row is the offset from the first place to the last one.
TEST(Image, RowsOfAWindow) {
  const Swin s{.height = 2, .width = 3};
  EXPECT_EQ(s.rows(), 15);
  EXPECT_EQ(s.row(-1, -2), 0);
  EXPECT_EQ(s.row(0, 0), 7);
  EXPECT_EQ(s.row(1, 2), 14);
  EXPECT_EQ((Swin{.height = 2, .width = 3, .sign = DistanceSign::key_minus_query}.row(1, 2)), 0);
  std::vector<double> table;
  for (Index i = 0; i < 15; ++i) table.push_back(static_cast<double>(i));
  const ConstTensorView p[] = {tensor(std::as_const(table).data(), {15, 1})};
  LoweredTerms low;
  s.lower({.heads = 1, .head_dim = 2}, p, low);
  for (Index y = -2; y < 3; ++y)
    for (Index x = -3; x < 4; ++x)
      EXPECT_EQ(row_of(std::get<ProductTerm>(low.terms[0]).lines[0], static_cast<double>(y)) +
                    row_of(std::get<ProductTerm>(low.terms[0]).lines[1], static_cast<double>(x)),
                s.row(y, x));
}

TEST(Image, CoordinatesOfSwinV2) {
  const std::vector<double> c =
      SwinV2{.height = 1, .width = 3, .pretrained_width = 5}.coordinates();
  ASSERT_EQ(c.size(), 10U);
  EXPECT_EQ(c[0], 0);
  EXPECT_NEAR(c[1], -std::log2(5.0) / 3, 1e-15);
  EXPECT_NEAR(c[9], std::log2(5.0) / 3, 1e-15);
  // Of the whole window: log2(9) / 3.
  EXPECT_NEAR((SwinV2{.height = 3, .width = 3}.coordinates().back()), std::log2(9.0) / 3, 1e-15);
}

TEST(Image, LogitScaleIsCapped) {
  const SwinV2 s{.height = 1, .width = 1, .hidden = 1};
  const std::vector<double> logit{std::log(10.0), 9}, w{0, 0}, one{0};
  const ConstTensorView p[] = {tensor(logit.data(), {2, 1, 1}), tensor(w.data(), {1, 2}),
                               tensor(one.data(), {1}), tensor(w.data(), {2, 1})};
  LoweredTerms low;
  s.lower(kImageShape, p, low);
  EXPECT_EQ(low.requests.scale, 1);
  ASSERT_EQ(low.requests.prepare.size(), 1U);
  EXPECT_EQ(low.requests.prepare[0].kind, StageKind::l2);
  EXPECT_NEAR(data_of<double>(low.requests.head_scale)[0], 10, 1e-13);
  EXPECT_NEAR(data_of<double>(low.requests.head_scale)[1], 100, 1e-12);
}

TEST(Image, Refusals) {
  const ScoreShape s = kImageShape;
  LoweredTerms low;
  EXPECT_THAT(refusal([&] { (Swin{.height = 0}.parameters(s)); }), HasSubstr("height"));
  EXPECT_THAT(refusal([&] { (Levit{.width = 4097}.parameters(s)); }), HasSubstr("width"));
  EXPECT_THAT(refusal([&] { (Beit{.height = -1}.parameters(s)); }), HasSubstr("height"));
  EXPECT_THAT(refusal([&] { (SwinV2{.hidden = 0}.parameters(s)); }), HasSubstr("hidden"));
  EXPECT_THAT(refusal([&] { (SwinV2{.pretrained_width = -1}.parameters(s)); }),
              HasSubstr("pretrained_width"));
  EXPECT_THAT(refusal([&] { (Decomposed{.size = {3}}.parameters(s)); }), HasSubstr("size"));
  EXPECT_THAT(refusal([&] { (Decomposed{.size = {3, 0}}.parameters(s)); }), HasSubstr("size"));
  EXPECT_THAT(refusal([&] {
                (Decomposed{.size = {3, 3}, .key_size = {1}}.parameters(s));
              }),
              HasSubstr("key_size"));
  EXPECT_THAT(refusal([&] { (Indexed{}.parameters(s)); }), HasSubstr("rows"));
  EXPECT_THAT(refusal([&] { (Indexed{.rows = 1, .groups = 3}.parameters(s)); }),
              HasSubstr("groups"));
  EXPECT_THAT(refusal([&] { (Tupe{.positions = 0}.parameters(s)); }), HasSubstr("positions"));
  EXPECT_THAT(refusal([&] { (Tupe{.num_buckets = 5}.parameters(s)); }), HasSubstr("num_buckets"));
  EXPECT_THAT(refusal([&] { (Bros{.coordinates = 0}.parameters(s)); }), HasSubstr("coordinates"));
  EXPECT_THAT(refusal([&] { (Bros{}.bind(s, {}, {}, {}, low)); }), HasSubstr("query_bbox"));
  EXPECT_THAT(refusal([&] { (ModalityPairs{.query_modality = {0}}.parameters(s)); }),
              HasSubstr("clip"));
  EXPECT_THAT(
      refusal([&] {
        (ModalityPairs{.query_modality = {0}, .key_modality = {2}, .clip = {1}}.parameters(s));
      }),
      HasSubstr("key_modality"));
  const std::vector<std::int32_t> index{0, 3};
  const ConstTensorView matrix[] = {tensor(index.data(), {1, 2})};
  std::vector<Term> terms(1);
  TermStore store;
  const CallData call{.queries = 1, .keys = 2, .inputs = matrix};
  EXPECT_THAT(refusal([&] { (Indexed{.rows = 3}.bind(s, {}, call, terms, store)); }),
              HasSubstr("index must be below rows"));
  EXPECT_THAT(refusal([&] { (Swin{}.lower(s, {}, low)); }), HasSubstr("[swin]"));
  EXPECT_THAT(refusal([&] { (Beit{}.bind(s, {}, {}, {}, low)); }), HasSubstr("query_class"));
}

}  // namespace
}  // namespace posenc
