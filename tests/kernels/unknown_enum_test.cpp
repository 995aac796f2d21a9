// SPDX-License-Identifier: Apache-2.0
// A number that an enum does not have is refused by name and number, and has a text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/absolute/extend.h"
#include "posenc/attention/attention.h"
#include "posenc/posenc.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;

RotarySpec a_spec() {
  return resolve(Rope{.head_dim = 8, .base = 10000, .pairing = Pairing::half_split});
}

TEST(UnknownEnum, HasAText) {
  EXPECT_EQ(enum_text(static_cast<RotateMode>(99)), "?");
  EXPECT_EQ(dtype_name(static_cast<DType>(99)), "?");
  EXPECT_EQ(layout_name(static_cast<HeadsLayout>(99)), "?");
  EXPECT_EQ(isa_name(static_cast<Isa>(99)), "?");
  EXPECT_EQ(refusal([] { RotaryPlan(a_spec(), static_cast<DType>(99)); }),
            "[rotary] dtype must be f64, f32, f16 or bf16, got \"?\"");
  EXPECT_EQ(refusal([] { force_isa(static_cast<Isa>(99)); }).substr(0, 5), "[isa]");
  float x[8] = {};
  EXPECT_EQ(refusal([&] { heads(tensor(x, {8}), static_cast<HeadsLayout>(99)); }),
            "[heads] order of the axes must be thd, bthd, bhtd, tbhd or htd, got 99");
}

TEST(UnknownEnum, OfASpec) {
  const auto with = [](auto&& change) {
    RotarySpec spec = a_spec();
    change(spec);
    return refusal([&] { RotaryPlan(spec, DType::f32); });
  };
  EXPECT_EQ(with([](RotarySpec& s) { s.blocks[0].pairing = static_cast<Pairing>(9); }),
            "[rotary] pairing must be one of half_split, interleaved, got 9");
  EXPECT_EQ(with([](RotarySpec& s) { s.blocks[0].output_order = static_cast<OutputOrder>(9); }),
            "[rotary] output_order must be one of in_place, even_then_odd, got 9");
  const std::string precision =
      "[rotary] precision must be one of exact, hf_float32, hf_bfloat16_table, ggml, got 9";
  EXPECT_EQ(with([](RotarySpec& s) { s.precision = static_cast<Precision>(9); }), precision);
  EXPECT_EQ(with([](RotarySpec& s) { s.blocks.clear(), s.precision = static_cast<Precision>(9); }),
            precision);
}

TEST(UnknownEnum, OfACall) {
  const RotarySpec spec = a_spec();
  const RotaryPlan plan(spec, DType::f32);
  const RotaryTable table(spec, 4);
  float x[24] = {}, rows[24] = {};
  const Index numbers[] = {0, 1, 2};
  const Positions at = positions(numbers);
  const auto mode = static_cast<RotateMode>(9);
  const std::string rule = " mode must be one of forward, gradient, inverse, shift, got 9";
  for (const Index tokens : {1, 3}) {
    const QK q{heads(x, tokens, 1, 8), {}};
    const Positions p = positions(std::span(numbers, static_cast<std::size_t>(tokens)));
    EXPECT_EQ(refusal([&] { plan.apply(q, p, mode); }), "[rotary]" + rule);
  }
  const QK q{heads(x, 3, 1, 8), {}};
  EXPECT_EQ(refusal([&] { plan.apply_rows(q, q, tensor(rows, {3, 8}), mode); }), "[rotary]" + rule);
  CallerRows caller{tensor(rows, {3, 4}), tensor(rows, {3, 4}), TableLayout::half, {}};
  EXPECT_EQ(refusal([&] { plan.apply_rows(q, q, caller, mode); }), "[rotary]" + rule);
  EXPECT_EQ(refusal([&] { apply(plan, q, q, table, at, mode); }), "[rotary table]" + rule);
  const auto layout = static_cast<TableLayout>(9);
  caller.layout = layout;
  const std::string layouts = "must be one of half, duplicated, repeated, pairs, got 9";
  EXPECT_EQ(refusal([&] { plan.apply_rows(q, q, caller); }),
            "[rotary] the layout of cos and sin " + layouts);
  const Spectrum& s = spec.blocks[0].spectrum;
  const TensorView out = tensor(rows, {3, 8});
  EXPECT_EQ(refusal([&] { phase_rows(s, at, out, layout); }), "[rows] layout " + layouts);
  EXPECT_EQ(refusal([&] { phase_rows(s, at, out, TableLayout::half, static_cast<Precision>(9)); }),
            "[rows] precision must be one of exact, hf_float32, hf_bfloat16_table, ggml, got 9");
  EXPECT_EQ(refusal([&] { table.save("unknown_layout.npy", layout); }),
            "[rotary table] layout " + layouts);
}

TEST(UnknownEnum, OfATable) {
  Extension e;
  e.how = static_cast<ExtendHow>(9);
  EXPECT_EQ(
      refusal([&] { axis_taps(4, 8, e); }),
      "[extend] how must be one of linear, bilinear, bicubic, geometric, hierarchical, stretch, "
      "tile, got 9");
  float old[4] = {}, made[4] = {};
  EXPECT_EQ(refusal([&] {
              extend_table(tensor(old, {4, 1}), {4}, tensor(made, {4, 1}), {4}, e);
            }),
            refusal([&] { axis_taps(4, 8, e); }));
  e = {};
  e.border = static_cast<ResizeBorder>(7);
  EXPECT_EQ(refusal([&] { axis_taps(4, 8, e); }),
            "[extend] border must be one of repeat, renormalise, extrapolate, got 7");
}

}  // namespace
}  // namespace posenc
