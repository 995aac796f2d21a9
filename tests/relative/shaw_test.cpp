// SPDX-License-Identifier: Apache-2.0
// Shaw's relative vectors against twelve programs, and the law of their gradients.
#include "posenc/relative/shaw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "content_case.h"
#include "posenc/registry.h"
#include "support/refusal.h"
#include "support/scheme_laws.h"

namespace posenc::test {
namespace {

using ::testing::HasSubstr;

Shaw shaw_preset(const std::string& name, std::vector<Index> sizes) {
  for (const Preset<Shaw>& p : Shaw::presets())
    if (p.name == name) return p.make(sizes);
  ADD_FAILURE() << name;
  return {};
}
Shaw learned_keys(Index left, Index right) {
  return {.left = left, .right = right, .values = ShawValues::none};
}

TEST(Shaw, Tensor2tensor) {
  const std::map<std::string, std::string> names{{"table_k", "relative_positions_keys"},
                                                 {"table_v", "relative_positions_values"}};
  for (const auto& [name, distance] :
       {std::pair{"t2t_shaw", Index{3}}, std::pair{"t2t_shaw_causal_padding", Index{2}},
        std::pair{"t2t_shaw_decode", Index{3}}, std::pair{"t2t_shaw_memory", Index{3}}})
    check_content({.name = name, .arrays = names, .scale = 1},
                  shaw_preset("tensor2tensor", {distance}));
}

TEST(Shaw, Opennmt) {
  for (const auto& [name, distance] :
       {std::pair{"opennmt_shaw_clipped", Index{3}}, std::pair{"opennmt_shaw_decode", Index{3}},
        std::pair{"opennmt_shaw_padding_causal", Index{2}},
        std::pair{"opennmt_shaw_unclipped", Index{6}}})
    check_content({.name = name}, shaw_preset("opennmt", {distance}));
  check_content({.name = "opennmt_shaw_module", .q = "q_scaled", .scale = 1},
                shaw_preset("opennmt", {2}));
}

TEST(Shaw, BertAndEsm) {
  for (const auto& [name, positions] : {std::pair{"bert_relative_key_causal", Index{16}},
                                        std::pair{"bert_relative_key_decode", Index{12}},
                                        std::pair{"bert_relative_key_module", Index{9}},
                                        std::pair{"bert_relative_key_padding", Index{6}}})
    check_content({.name = name}, shaw_preset("bert_relative_key", {positions}));
  for (const auto& [name, positions] : {std::pair{"bert_relative_key_query_decode", Index{9}},
                                        std::pair{"bert_relative_key_query_module", Index{8}}})
    check_content({.name = name}, shaw_preset("bert_relative_key_query", {positions}));
  check_content({.name = "esm_relative_key_query"}, shaw_preset("esm_relative_key_query", {8}));
}

// With a cache transformers puts every query of a chunk at the position of the last key.
TEST(Shaw, BertWithACacheHasOnePositionForAllQueries) {
  ContentRun run({.name = "bert_relative_key_chunk_with_cache_peer_bug"},
                 shaw_preset("bert_relative_key", {12}));
  const OwnedPositions last = explicit_positions(
      std::vector<Index>(static_cast<std::size_t>(run.args().q.tokens), run.args().k.tokens - 1));
  run.args().query_positions = last;
  run.check();
}

TEST(Shaw, VitsHasNothingBeyondItsTable) {
  check_content({.name = "vits_window"}, shaw_preset("vits", {3, 6}));
  check_content({.name = "vits_short_text"}, shaw_preset("vits", {4, 6}));
  check_content({.name = "vits_module_padding", .q = "q_scaled", .scale = 1},
                shaw_preset("vits", {4, 4}));
}

TEST(Shaw, Wav2vec2BertClipsEachSideByItself) {
  check_content({.name = "wav2vec2_bert_relative_key"}, shaw_preset("wav2vec2_bert", {4, 2}));
  check_content({.name = "wav2vec2_bert_relative_key_module"},
                shaw_preset("wav2vec2_bert", {2, 3}));
}

TEST(Shaw, LucidrainsCountsQueryMinusKey) {
  Shaw s = learned_keys(3, 3);
  s.sign = ShawSign::query_minus_key;
  check_content({.name = "lucidrains_conformer_module"}, s);
}

TEST(Shaw, MusicTransformer) {
  const std::map<std::string, std::string> keys{{"table", "key_relative_embeddings"}};
  const std::map<std::string, std::string> both{{"table_k", "key_relative_embeddings"},
                                                {"table_v", "value_relative_embeddings"}};
  check_content({.name = "t2t_music_transformer", .arrays = keys, .scale = 1},
                shaw_preset("music_transformer", {4, 2, 4}));
  Shaw s{.left = 8, .beyond = ShawBeyond::zero};
  check_content({.name = "t2t_music_transformer_shared_values", .arrays = both, .scale = 1}, s);
  s = {.left = 3, .right = 3, .beyond = ShawBeyond::zero, .groups = 2};
  check_content({.name = "t2t_unmasked_v2", .arrays = both, .scale = 1}, s);
  Shaw one = learned_keys(7, 0);
  one.beyond = ShawBeyond::zero;
  check_content({.name = "music_transformer_gwinndr", .q = "q_scaled", .scale = 1}, one);
  one.left = 5;
  check_content({.name = "music_transformer_jason9693"}, one);
  one.left = 8;
  check_content({.name = "music_transformer_jason9693_short"}, one);
}

// The peer makes its sinusoid in float32 and gives a row for every pair: the rows taken out of it
// give the peer's numbers, and our sinusoid differs from them by what float32 rounds.
TEST(Shaw, Nezha) {
  for (const auto& [name, clip] :
       {std::pair{"nezha_clipped", Index{3}}, std::pair{"nezha_padding", Index{15}}}) {
    const support::SuiteArray e = content_suite()(name, "positions_encoding");
    const Index n = e.dim(0), dim = e.dim(2), rows = 2 * clip + 1;
    const Shaw ours = shaw_preset("nezha", {clip});
    std::vector<double> table(static_cast<std::size_t>(rows * dim));
    LoweredTerms low;
    ours.lower({.heads = 1, .head_dim = dim, .distance = {{-n, n}}}, {}, low);
    const double* made = data_of<double>(std::get<ProductTerm>(low.terms[0]).table);
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j)
        for (Index c = 0; c < dim; ++c) {
          const double peer = e.value[static_cast<std::size_t>((i * n + j) * dim + c)];
          const Index at = ours.row(i - j) * dim + c;
          EXPECT_NEAR(made[at], peer, 2e-6) << i << " " << j << " " << c;
          table[static_cast<std::size_t>(at)] = peer;
        }
    Shaw given = ours;
    given.table = ShawTable::learned;
    check_content({.name = name, .given = {{"table", tensor(table.data(), {rows, dim})}}}, given);
  }
}

TEST(Shaw, Laws) {
  check_scheme_laws(Shaw{.left = 2, .right = 1});
  check_scheme_laws(Shaw{.left = 3,
                         .right = 2,
                         .sign = ShawSign::query_minus_key,
                         .beyond = ShawBeyond::zero,
                         .key_term = true,
                         .key_scale = 0.7,
                         .groups = 2});
  check_scheme_laws(
      Shaw{.left = 1, .right = 1, .values = ShawValues::shared, .key_term = true, .groups = 4},
      {.value_dim = 4});
  check_scheme_laws(Shaw{.left = 1, .right = 1, .query_term = false});
  check_scheme_laws(
      Shaw{.left = 2, .right = 2, .values = ShawValues::separate, .table = ShawTable::sinusoid});
}

TEST(Shaw, RowsOfDistances) {
  const Shaw s{.left = 2, .right = 1};
  EXPECT_EQ(s.row(9), 0);
  EXPECT_EQ(s.row(1), 1);
  EXPECT_EQ(s.row(0), 2);
  EXPECT_EQ(s.row(-1), 3);
  EXPECT_EQ(s.row(-kUnbounded), 3);
  EXPECT_EQ((Shaw{.left = 2, .right = 1, .sign = ShawSign::query_minus_key}.row(9)), 3);
  EXPECT_EQ((Shaw{.left = 2, .right = 1, .beyond = ShawBeyond::zero}.row(3)), -1);
}

TEST(Shaw, Refusals) {
  const ScoreShape shape{.heads = 4, .head_dim = 2, .value_dim = 3, .distance = {{-2, 5}}};
  const auto says = [&](const Shaw& s) { return refusal([&] { s.parameters(shape); }); };
  EXPECT_THAT(says({.left = -1}), HasSubstr("[shaw] left"));
  EXPECT_THAT(says({.left = 1, .right = -1}), HasSubstr("[shaw] right"));
  EXPECT_THAT(says({.groups = 3}), HasSubstr("[shaw] groups"));
  EXPECT_THAT(says({.groups = 1, .table = ShawTable::sinusoid}), HasSubstr("[shaw] groups"));
  EXPECT_THAT(says({.values = ShawValues::none, .query_term = false}),
              HasSubstr("[shaw] one of query_term"));
  EXPECT_THAT(says({.values = ShawValues::shared}), HasSubstr("[shaw] with shared values"));
  EXPECT_THAT(says({.key_scale = INFINITY}), HasSubstr("[shaw] key_scale"));
  EXPECT_THAT(says({.init = -1}), HasSubstr("[shaw] init"));
  Shaw s = learned_keys(4, 2);
  s.beyond = ShawBeyond::refuse;
  const std::vector<double> numbers(14);
  const ConstTensorView p = tensor(numbers.data(), {7, 2});
  LoweredTerms out;
  EXPECT_THAT(refusal([&] { s.lower(shape, std::span(&p, 1), out); }),
              HasSubstr("must not be above left, got 5"));
  s.left = 5;
  s.right = 1;
  EXPECT_THAT(refusal([&] { s.lower(shape, std::span(&p, 1), out); }),
              HasSubstr("must not be above right, got 2"));
}

TEST(Shaw, PresetsByText) {
  const auto text = [](const char* t) { return to_text(parse_encoding(t)); };
  EXPECT_EQ(text("shaw preset=music_transformer length=4 heads=2 head_dim=4"),
            "shaw left=3 beyond=zero values=none groups=2 init=0.5");
  EXPECT_EQ(text("shaw preset=nezha distance=3"),
            "shaw left=3 right=3 values=shared table=sinusoid");
  EXPECT_EQ(text("shaw preset=esm_relative_key_query positions=8"),
            "shaw left=7 right=7 sign=query_minus_key beyond=refuse values=none key_term=true "
            "key_scale=1 init=0.02");
}

// Glorot's uniform law unless a deviation is given.
TEST(Shaw, HowItStarts) {
  const ScoreShape shape{.heads = 4, .head_dim = 5};
  const std::vector<Parameter> p = Shaw{.left = 1, .right = 1, .groups = 2}.parameters(shape);
  ASSERT_EQ(p.size(), 2u);
  EXPECT_EQ(p[1].name, "table_v");
  EXPECT_EQ(p[0].shape, (std::vector<Index>{2, 3, 5}));
  EXPECT_EQ(p[0].initial.kind, InitialKind::uniform);
  EXPECT_EQ(p[0].initial.b, std::sqrt(6.0 / 8));
  EXPECT_EQ(shaw_preset("opennmt", {2}).parameters(shape)[0].initial.kind, InitialKind::normal);
}

}  // namespace
}  // namespace posenc::test
