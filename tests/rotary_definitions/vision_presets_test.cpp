// SPDX-License-Identifier: Apache-2.0
// Towers by name against the modules of transformers, run (data/vision_presets.json).
#include "posenc/rotary/vision_presets.h"

#include <gtest/gtest.h>

#include <cmath>

#include "posenc/io/json.h"
#include "posenc/positions.h"
#include "posenc/rotary/plan.h"

namespace posenc {
namespace {

RotarySpec spec_of(const Json& c) {
  using namespace axial_presets;
  const std::string& name = c.at("name").as_string();
  const Index dim = c.at("dim").as_integer();
  const double base = c.at("base").as_number();
  if (name == "sam3") return resolve(sam3_vision(dim, base));
  if (name == "step3p7") return resolve(step3_vision(dim, base));
  if (name == "inkling2") return resolve(inkling2_vision(dim, base));
  if (name == "minimax_m3_vl") return resolve(minimax_m3_vision(dim, base));
  if (name == "efficientloftr") return resolve(efficient_loftr(dim, base));
  return resolve(esmfold2(dim, c.at("spatial_pairs").as_integer(), base,
                          c.at("uid_pairs").as_integer(), c.at("uid_base").as_number()));
}

TEST(VisionPresets, TurnAsTransformers) {
  const Json file = read_json(std::string(POSENC_SOURCE_DIR) +
                              "/tests/rotary_definitions/data/vision_presets.json");
  Index cases = 0;
  for (const Json& c : file.at("cases").as_array()) {
    SCOPED_TRACE(c.at("name").as_string());
    const Index dim = c.at("dim").as_integer();
    std::vector<double> where;
    Index streams = 0;
    for (const Json& stream : c.at("positions").as_array()) {
      ++streams;
      for (const Json& p : stream.as_array()) where.push_back(p.as_number());
    }
    const OwnedPositions p = explicit_positions(where, 1, static_cast<std::int32_t>(streams));
    std::vector<double> q;
    for (Index t = 0; t < p.count(); ++t)
      for (Index d = 0; d < dim; ++d)
        q.push_back(static_cast<double>(static_cast<float>(
            std::sin(1.7 * static_cast<double>(t) + 0.9 * static_cast<double>(d) + 0.3))));
    const RotaryPlan plan(spec_of(c), DType::f64);
    EXPECT_EQ(plan.spec().axes(), streams);
    plan.apply(QK{heads(q.data(), p.count(), 1, dim), {}}, p);
    const auto& want = c.at("out").as_array();
    ASSERT_EQ(want.size(), q.size());
    // The peer's angles are products in float32: 6e-8 of at most 610 rad.
    for (std::size_t i = 0; i < q.size(); ++i)
      EXPECT_NEAR(q[i], want[i].as_number(), 2e-6) << "element " << i;
    ++cases;
  }
  EXPECT_EQ(cases, 7);
}

TEST(VisionPresets, WhatDoesNotFitIsRefused) {
  using namespace axial_presets;
  EXPECT_THROW(esmfold2(20, 4, 20, 3, 10000), std::invalid_argument);
  EXPECT_THROW(esmfold2(7, 1, 20, 0, 10000), std::invalid_argument);
  EXPECT_THROW(esmfold2(20, -1, 20, 3, 10000), std::invalid_argument);
  EXPECT_THROW(resolve(esmfold2(20, 2, NAN, 3, 10000)), std::invalid_argument);
  EXPECT_THROW(resolve(minimax_m3_vision(4, 10000)), std::invalid_argument);
  EXPECT_THROW(resolve(sam3_vision(10, 10000)), std::invalid_argument);
}

}  // namespace
}  // namespace posenc
