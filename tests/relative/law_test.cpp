// SPDX-License-Identifier: Apache-2.0
// Settings of relative schemes worth running by themselves: pull_back is the transpose of lower and adds to the gradients,
// what does not fit is rejected before anything is written (support/scheme_laws.h), and parameters start as published.
// The same law holds for every type of the registry with random fields: SchemeLaws.GradientsAreDerivatives.
#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <vector>

#include "posenc/registry.h"
#include "support/scheme_laws.h"

namespace posenc {
namespace {

std::vector<AnyRelativeScheme> scores_by_distance() {
  return {
      Alibi{},
      Alibi{.learned = AlibiLearned::slopes},
      Alibi{.future = AlibiFuture::signed_distance,
            .learned = AlibiLearned::log_slopes,
            .past_offset = 0.5,
            .bias_scale = 0.25},
      Alibi{.future = AlibiFuture::own_slopes, .learned = AlibiLearned::logits},
      T5{},
      T5{.bidirectional = false, .num_buckets = 8, .max_distance = 20, .bias_scale = 3},
      LocalWindow{.window = 2},
      LocalWindow{.window = 0},
      Shaw{.left = 2, .right = 1},
      Shaw{.left = 3, .beyond = ShawBeyond::zero, .values = ShawValues::shared, .groups = 2},
      Shaw{.left = 2, .right = 2, .table = ShawTable::sinusoid},
      ProphetNet{.d_model = 3, .num_buckets = 6, .max_distance = 5},
      DynamicPositionBias{.width = 3},
      MarianAlibi{},
      Sandwich{},
      Fire{},
      Clipped{},
      Enformer{.length = 12, .features = 12},
  };
}

std::vector<AnyRelativeScheme> projected_tables() {
  return {
      TransformerXl{.d_model = 6},
      TransformerXl{.d_model = 4, .clamp_len = 3},
      XlNet{.d_model = 6},
      XlNet{.d_model = 4, .clamp_len = 3, .segments = 2},
      Conformer{.d_model = 6},
      Conformer{.d_model = 4, .rows = 19, .even = true},
      Conformer{.d_model = 4, .biases = false, .halves = true, .t2t = true},
      ConformerAbsoluteKey{.d_model = 4, .rows = 7},
      TransformerXlLearned{.rows = 5},
      TransformerXlLearned{.rows = 5, .clamp_len = 2},
      SegatronXl{.d_model = 6, .widths = {4, 2}},
      Tener{},
      Deberta{.max_relative_positions = 6,
              .position_buckets = 4,
              .p2p = true,
              .projection = DebertaProjection::tables},
  };
}

std::vector<AnyRelativeScheme> grids_and_pairs() {
  return {
      Swin{.height = 2, .width = 3},
      Swin{.height = 3,
           .width = 1,
           .sign = DistanceSign::key_minus_query,
           .table = WindowTable::grid},
      Levit{.height = 2, .width = 3},
      Levit{.height = 3, .width = 2, .heads_first = false},
      ModalityPairs{},
      ModalityPairs{.query_modality = {0, 1}, .axis = {0, 1}, .clip = {4, 2}},
      Decomposed{.size = {2, 3}},
      Decomposed{.size = {4, 3}, .key_size = {2, 2}, .table_rows = {5, 5}},
      Indexed{.rows = 3},
      Indexed{
          .rows = 3, .meets = IndexedMeets::query, .groups = 2, .table = IndexedTable::channels},
      Irpe{.height = 5, .width = 4},
      Irpe{.method = IrpeMethod::euclidean, .meets = IndexedMeets::key, .height = 3, .width = 2},
      Irpe{.method = IrpeMethod::cross, .meets = IndexedMeets::nothing, .shared = false},
  };
}

void check_all(const std::vector<AnyRelativeScheme>& schemes) {
  for (const AnyRelativeScheme& s : schemes) test::check_scheme_laws(s, {.value_dim = 4});
}
TEST(RelativeLaws, ScoresByDistance) {
  check_all(scores_by_distance());
}
TEST(RelativeLaws, ProjectedTables) {
  check_all(projected_tables());
}
TEST(RelativeLaws, GridsAndPairs) {
  check_all(grids_and_pairs());
}

// A bias that is added starts at zero; whatever else does not says so by its own numbers.
TEST(RelativeLaws, InitialisersArePublishedOnes) {
  const std::set<std::string_view> from_zero{"local_window", "clipped",        "levit",
                                             "decomposed",   "modality_pairs", "irpe"};
  const ScoreShape shape{
      .heads = 4, .head_dim = 2, .scale = 0.4, .distance = {{-6, 9}, {-3, 3}, {-3, 3}}};
  for (const auto& schemes : {scores_by_distance(), projected_tables(), grids_and_pairs()})
    for (const AnyRelativeScheme& s : schemes)
      for (const Parameter& p : s.parameters(shape)) {
        EXPECT_FALSE(p.name.empty());
        const bool zeros = from_zero.contains(s.card().name) || p.name == "bias_bias";
        const bool constant = p.initial.kind == InitialKind::constant && p.initial.a != 0;
        EXPECT_TRUE(!p.initial_values.empty() || p.initial.b > 0 || constant || zeros)
            << s.card().name << p.name;
      }
}

}  // namespace
}  // namespace posenc
