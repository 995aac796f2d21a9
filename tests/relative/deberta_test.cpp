// SPDX-License-Identifier: Apache-2.0
// DeBERTa against Microsoft's and transformers' programs.
#include "posenc/relative/deberta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/refusal.h"
#include "support/scheme_case.h"
#include "support/scheme_laws.h"

namespace posenc {
namespace {

using support::SchemeCase;
using support::Suite;
using test::refusal;
using ::testing::HasSubstr;

const Suite& deberta_suite() {
  static const Suite s("relative_content");
  return s;
}

TEST(Deberta, BucketsOfTransformersAndMicrosoft) {
  const Index sizes[][2] = {{128, 512}, {256, 512}, {32, 128}, {4, 16}};
  for (const auto& [buckets, most] : sizes)
    for (const bool microsoft : {false, true}) {
      const std::string name = std::string(microsoft ? "deberta_ms" : "deberta_v2") +
                               "_log_buckets_" + std::to_string(buckets) + "_" +
                               std::to_string(most);
      const Deberta d{
          .max_relative_positions = most, .position_buckets = buckets, .clamp_distance = microsoft};
      const auto distance = deberta_suite()(name, "relative_pos").integers();
      const auto bucket = deberta_suite()(name, "bucket").integers();
      for (std::size_t i = 0; i < distance.size(); ++i) {
        const Index row = std::clamp(bucket[i] + buckets, Index{0}, 2 * buckets - 1);
        ASSERT_EQ(d.row(distance[i]), row) << name << " " << distance[i];
        if (std::abs(bucket[i]) >= buckets) continue;
        ASSERT_EQ(d.bucket(distance[i]), bucket[i]) << name << " " << distance[i];
      }
    }
}

TEST(Deberta, AnExactHitIsWholeNumbers) {
  const Deberta d{.max_relative_positions = 512, .position_buckets = 256};
  EXPECT_EQ(d.bucket(511), 255);
  EXPECT_EQ(d.bucket(512), 256);
  EXPECT_EQ(d.row(-512), 0);
  EXPECT_EQ(d.row(512), 511);
  EXPECT_EQ(Deberta({.clamp_distance = true}).row(-512), 1);
}

struct DebertaCase {
  const char* name;
  Index span, buckets;
  bool clamp;
};

void set_masks(SchemeCase& c, const std::string& name) {
  if (c.has("visible")) c.args.mask.visible = c.flags("visible");
  if (name == "deberta_ms_real_buckets") {
    static const OwnedPositions at = explicit_positions(std::vector<Index>{0, 350, 700});
    c.args.query_positions = at;
  }
}

TEST(Deberta, IsWhatProgramsCompute) {
  const DebertaCase cases[] = {{"deberta_ms_both", 4, 0, false},
                               {"deberta_ms_buckets", 12, 5, true},
                               {"deberta_ms_c2p", 3, 0, false},
                               {"deberta_ms_chunk_with_positions", 5, 0, false},
                               {"deberta_ms_padding", 4, 0, false},
                               {"deberta_ms_real_buckets", 512, 256, true},
                               {"deberta_v2_buckets", 12, 5, false},
                               {"deberta_v2_c2p_only", 3, 0, false},
                               {"deberta_v2_module_own_projections", 4, 0, false},
                               {"deberta_v2_module_share_att_key", 3, 0, false},
                               {"deberta_v2_norm_rel_ebd", 3, 0, false},
                               {"deberta_v2_p2c_only", 3, 0, false},
                               {"deberta_v2_query_states", 3, 0, false}};
  for (const DebertaCase& t : cases)
    for (const bool tables : {true, false}) {
      SchemeCase c(deberta_suite(), t.name);
      SCOPED_TRACE(t.name);
      Deberta d{.max_relative_positions = t.span,
                .position_buckets = t.buckets,
                .c2p = c.has("pos_key"),
                .p2c = c.has("pos_query"),
                .clamp_distance = t.clamp,
                .projection = DebertaProjection::tables,
                .norm = false};
      const bool own = c.has("w_pos_k") || c.has("w_pos_q"), shared = c.has("w_k");
      if (!tables && !own && !shared) continue;
      c.given["e_rel"] = c.view("E_rel");
      if (tables) {
        for (const char* name : {"pos_key", "pos_query"})
          if (c.has(name))
            c.given[name] = support::without_batch(support::first_of_batch(c.view(name)));
      } else {
        d.projection = own ? DebertaProjection::own : DebertaProjection::shared;
        d.norm = c.has("norm_weight");
      }
      set_masks(c, t.name);
      c.run_with(d, {.distance = {{-701, 701}}});
      c.expect_core();
      if (tables) {
        for (const char* name : {"pos_key", "pos_query"})
          if (c.has(name)) c.expect_gradient(name, std::string("grad_") + name);
      } else {
        c.expect_gradient("e_rel", "grad_E_rel");
        for (const char* name : {"w_pos_k", "b_pos_k", "w_pos_q", "b_pos_q", "norm_weight"})
          if (c.gradients.count(name) != 0) c.expect_gradient(name, std::string("grad_") + name);
      }
    }
}

// transformers' scale is sqrt(c head_dim) in float32.
TEST(Deberta, TheFloat32ScaleOfTransformersIsACallsOwn) {
  SchemeCase c(deberta_suite(), "deberta_v2_float32_scale");
  c.given["e_rel"] = c.view("E_rel");
  c.run_with(Deberta{.max_relative_positions = 3,
                     .position_buckets = 0,
                     .projection = DebertaProjection::own,
                     .norm = false},
             {.scale = 1 / static_cast<double>(std::sqrt(24.0f))});
  c.expect_core();
  c.expect_gradient("e_rel", "grad_E_rel");
}

// transformers' v1: no bias of keys, and a count of what it does not compute.
TEST(Deberta, TheFirstVersionOfTransformers) {
  const std::pair<const char*, Index> cases[] = {
      {"deberta_v1_short_text", 9}, {"deberta_v1_module_clipped", 4},    {"deberta_v1_c2p_only", 3},
      {"deberta_v1_p2c_only", 3},   {"deberta_v1_p2p_only_rescales", 3}, {"deberta_v1_padding", 4}};
  for (const auto& [name, span] : cases) {
    SchemeCase c(deberta_suite(), name);
    SCOPED_TRACE(name);
    c.given["e_rel"] = c.view("E_rel");
    set_masks(c, name);
    c.run_with(Deberta{.max_relative_positions = span,
                       .position_buckets = 0,
                       .c2p = c.has("w_pos_k"),
                       .p2c = c.has("w_pos_q"),
                       .count = std::string(name) == "deberta_v1_p2p_only_rescales" ? 4 : 0,
                       .projection = DebertaProjection::own,
                       .key_bias = false,
                       .norm = false});
    // The peer gives rows without keys the mean of all values; their upstream gradient is 0.
    if (!c.has("visible")) c.expect("out", c.out);
    c.expect("grad_q", c.d_q);
    c.expect("grad_k", c.d_k);
    c.expect_gradient("e_rel", "grad_E_rel");
    for (const char* p : {"w_pos_k", "w_pos_q", "b_pos_q"})
      if (c.gradients.count(p) != 0) c.expect_gradient(p, std::string("grad_") + p);
  }
}

// Microsoft's first release scales q and the projected rows of p2c beforehand.
TEST(Deberta, TheFirstReleaseOfMicrosoft) {
  const std::pair<const char*, Index> cases[] = {{"deberta_ms_v1_chunk", 4},
                                                 {"deberta_ms_v1_decode", 3}};
  for (const auto& [name, span] : cases) {
    SchemeCase c(deberta_suite(), name, HeadsLayout::bhtd, "q_scaled");
    SCOPED_TRACE(name);
    c.given["pos_key"] = support::without_batch(c.view("pos_key"));
    c.given["pos_query"] = support::without_batch(c.view("pos_query_scaled"));
    c.run_with(Deberta{.max_relative_positions = span,
                       .position_buckets = 0,
                       .projection = DebertaProjection::tables},
               {.scale = 1});
    c.expect("out", c.out);
    c.expect("grad_q_scaled", c.d_q);
    c.expect("grad_k", c.d_k);
    c.expect("grad_v", c.d_v);
    c.expect_gradient("pos_key", "grad_pos_key");
    c.expect_gradient("pos_query", "grad_pos_query_scaled");
  }
}

TEST(Deberta, PositionWithPosition) {
  // S of one query and key from the definition, both rows of p2c.
  const std::vector<double> key{1, 2, 3, 4}, query{5, 7, 11, 13};
  const ConstTensorView p[] = {tensor(key.data(), {1, 4, 1}), tensor(query.data(), {1, 4, 1})};
  for (const DebertaP2c index : {DebertaP2c::code, DebertaP2c::paper}) {
    LoweredTerms low;
    Deberta{.max_relative_positions = 2,
            .position_buckets = 0,
            .c2p = false,
            .p2c = false,
            .p2p = true,
            .p2c_index = index,
            .projection = DebertaProjection::tables}
        .lower({.heads = 1, .head_dim = 1, .distance = {{-9, 9}}}, p, low);
    ASSERT_EQ(low.terms.size(), 1u);
    EXPECT_EQ(low.requests.scale, 1 / std::sqrt(2.0));
    for (Index delta = -9; delta <= 9; ++delta) {
      const auto row = [](Index x) {
        return static_cast<std::size_t>(std::clamp(x + 2, Index{0}, Index{3}));
      };
      const double want = key[row(delta)] * query[row(index == DebertaP2c::code ? delta : -delta)];
      EXPECT_EQ(data_of<double>(std::get<ProductTerm>(low.terms[0]).table)[row_of(
                    std::get<ProductTerm>(low.terms[0]).lines[0], static_cast<double>(delta))],
                want)
          << delta;
    }
  }
}

TEST(Deberta, GradientsAreDerivatives) {
  const Deberta tables{.max_relative_positions = 3,
                       .position_buckets = 0,
                       .p2p = true,
                       .projection = DebertaProjection::tables};
  test::check_scheme_laws(tables, {.scale = {}});
  test::check_scheme_laws(Deberta{.max_relative_positions = 4,
                                  .position_buckets = 0,
                                  .p2p = true,
                                  .p2c_index = DebertaP2c::paper,
                                  .projection = DebertaProjection::own,
                                  .width = 3,
                                  .norm = false},
                          {.heads = 2, .key_heads = 1, .scale = {}});
  test::check_scheme_laws(Deberta{.max_relative_positions = 6, .position_buckets = 4, .width = 3},
                          {.heads = 2, .key_heads = 2, .scale = {}});
  test::check_scheme_laws(Deberta{.max_relative_positions = 3,
                                  .position_buckets = 0,
                                  .p2c = false,
                                  .projection = DebertaProjection::own,
                                  .width = 2,
                                  .key_bias = false},
                          {.heads = 2, .key_heads = 2, .scale = {}});
}

// make_log_bucket_position of transformers 5.23 with 2 and 3 buckets, which have no logarithmic part.
TEST(Deberta, TwoAndThreeBucketsKnowTheSideAlone) {
  for (const Index buckets : {2, 3}) {
    const Deberta d{.position_buckets = buckets};
    for (Index delta = -6; delta <= 6; ++delta)
      EXPECT_EQ(d.bucket(delta), (delta > 0) - (delta < 0)) << buckets << " " << delta;
    EXPECT_EQ(d.bucket(Index{1} << 40), 1);
    test::check_scheme_laws(d);
  }
}

TEST(Deberta, Refusals) {
  const ScoreShape s{.heads = 1, .head_dim = 2};
  const auto of = [&](const Deberta& d) { return refusal([&] { (void)d.parameters(s); }); };
  EXPECT_THAT(of({.position_buckets = 1}),
              HasSubstr("position_buckets must be 0 or lie between 2 and 65536, got 1"));
  EXPECT_THAT(of({.max_relative_positions = 128}),
              HasSubstr("max_relative_positions must be above half"));
  EXPECT_THAT(of({.max_relative_positions = 0, .position_buckets = 0}),
              HasSubstr("max_relative_positions must lie"));
  EXPECT_THAT(of({.position_buckets = 0, .clamp_distance = true}), HasSubstr("clamp_distance"));
  EXPECT_THAT(of({.c2p = false, .p2c = false}), HasSubstr("must be on"));
  EXPECT_THAT(of({.count = 5}), HasSubstr("count must lie"));
  EXPECT_THAT(of({.width = -1}), HasSubstr("width must not be negative"));
}

}  // namespace
}  // namespace posenc
