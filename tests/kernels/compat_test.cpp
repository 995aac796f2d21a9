// SPDX-License-Identifier: Apache-2.0
// Rotation in the arithmetic of other programs, bit for bit against what they computed.
#include <algorithm>

#include <gtest/gtest.h>

#include "posenc/rotary/plan.h"
#include "posenc/rotary/rope.h"
#include "support/rotate_reference.h"
#include "support/suite.h"

namespace posenc {
namespace {

using support::Suite;
using support::SuiteArray;
using test::read_element;
using test::write_element;

// Elements of a 16-bit dtype in memory.
std::vector<std::uint16_t> pack(const SuiteArray& a, DType type) {
  std::vector<std::uint16_t> r(a.value.size());
  for (std::size_t i = 0; i < r.size(); ++i)
    write_element(r.data(), type, static_cast<Index>(i), a.value[i]);
  return r;
}
TensorView view(std::vector<std::uint16_t>& v, DType type, std::initializer_list<Index> shape) {
  return tensor(static_cast<void*>(v.data()), type,
                std::span<const Index>(shape.begin(), shape.size()));
}
// How many elements differ at all, and by how much of themselves (at least of 1: they are sums).
struct Difference {
  std::size_t count = 0;
  double relative = 0;
};
Difference compare(const std::vector<std::uint16_t>& got, DType type, const SuiteArray& want) {
  Difference r;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double x = read_element(got.data(), type, static_cast<Index>(i)), y = want.value[i];
    if (x == y) continue;
    ++r.count;
    r.relative = std::max(r.relative, std::fabs(x - y) / std::max(std::fabs(y), 1.0));
  }
  return r;
}

RotarySpec spec_of(double base, Index dim, Precision precision, bool once, Pairing pairing) {
  RotarySpec spec = resolve(Rope{.head_dim = dim, .base = base, .pairing = pairing});
  spec.precision = precision, spec.bfloat16_rounds_once = once;
  return spec;
}

// The stored table, then a table made again.
void hugging_face(const std::string& name, const RotarySpec& spec, DType table_type) {
  const Suite suite("rotary_hugging_face");
  const SuiteArray q = suite(name, "q"), k = suite(name, "k");
  const SuiteArray wq = suite(name, "q_out"), wk = suite(name, "k_out");
  SuiteArray cos = suite(name, "table_cos"), sin = suite(name, "table_sin");
  const Index t = q.dim(2), d = q.dim(3);
  const std::vector<Index> at = suite(name, "position_ids").integers();
  const RotaryPlan plan(spec, DType::bf16);
  const auto turn = [&](bool stored) {
    std::vector<std::uint16_t> bq = pack(q, DType::bf16), bk = pack(k, DType::bf16);
    const QK x{heads(view(bq, DType::bf16, {1, q.dim(1), t, d}), HeadsLayout::bhtd),
               heads(view(bk, DType::bf16, {1, k.dim(1), t, d}), HeadsLayout::bhtd)};
    if (!stored) {
      plan.apply(x, positions(std::span<const Index>(at)));
    } else {
      std::vector<std::uint16_t> c = pack(cos, DType::bf16), s = pack(sin, DType::bf16);
      std::vector<float> cf(cos.value.begin(), cos.value.end());
      std::vector<float> sf(sin.value.begin(), sin.value.end());
      CallerRows rows;
      rows.layout = TableLayout::duplicated;
      rows.cos =
          table_type == DType::f32 ? tensor(cf.data(), {1, t, d}) : view(c, DType::bf16, {1, t, d});
      rows.sin =
          table_type == DType::f32 ? tensor(sf.data(), {1, t, d}) : view(s, DType::bf16, {1, t, d});
      plan.apply_rows(x, x, rows);
    }
    const Difference a = compare(bq, DType::bf16, wq), b = compare(bk, DType::bf16, wk);
    return Difference{a.count + b.count, std::max(a.relative, b.relative)};
  };
  EXPECT_EQ(turn(true).count, 0u) << name;
  // The table made again may differ by a step where libm and torch round a cosine differently.
  const Difference again = turn(false);
  EXPECT_LE(again.relative, 0x1p-7) << name;
  EXPECT_LE(again.count, wq.value.size() / 50) << name;
}

TEST(Compat, HuggingFaceLlamaBFloat16) {
  hugging_face("bfloat16_llama",
               spec_of(500000, 64, Precision::hf_bfloat16_table, false, Pairing::half_split),
               DType::bf16);
}
TEST(Compat, HuggingFaceOlmo2KeepsAFloatTable) {
  hugging_face("bfloat16_olmo2",
               spec_of(10000, 64, Precision::hf_float32, false, Pairing::half_split), DType::f32);
}

TEST(Compat, HuggingFaceCohereRoundsOnce) {
  const RotarySpec spec =
      spec_of(10000, 64, Precision::hf_bfloat16_table, true, Pairing::interleaved);
  const Suite suite("rotary_hugging_face");
  const std::string name = "bfloat16_cohere";
  const SuiteArray q = suite(name, "q"), want = suite(name, "q_out");
  SuiteArray cos = suite(name, "table_cos"), sin = suite(name, "table_sin");
  std::vector<std::uint16_t> b = pack(q, DType::bf16);
  const Heads x = heads(view(b, DType::bf16, {1, q.dim(1), q.dim(2), q.dim(3)}), HeadsLayout::bhtd);
  std::vector<std::uint16_t> c = pack(cos, DType::bf16), s = pack(sin, DType::bf16);
  CallerRows rows;
  rows.layout = TableLayout::repeated;
  rows.cos = view(c, DType::bf16, {1, q.dim(2), q.dim(3)});
  rows.sin = view(s, DType::bf16, {1, q.dim(2), q.dim(3)});
  RotaryPlan(spec, DType::bf16).apply_rows({x, {}}, {x, {}}, rows);
  EXPECT_EQ(compare(b, DType::bf16, want).count, 0u);
}

TEST(Compat, VllmBFloat16) {
  const Suite suite("rotary_engines");
  const std::string name = "vllm_bf16_neox";
  const SuiteArray q = suite(name, "q"), k = suite(name, "k");
  const RotarySpec spec =
      spec_of(10000, 16, Precision::hf_bfloat16_table, false, Pairing::half_split);
  std::vector<std::uint16_t> bq = pack(q, DType::bf16), bk = pack(k, DType::bf16);
  const std::vector<Index> at = suite(name, "positions").integers();
  RotaryPlan(spec, DType::bf16)
      .apply({heads(view(bq, DType::bf16, {6, 2, 16}), HeadsLayout::thd),
              heads(view(bk, DType::bf16, {6, 1, 16}), HeadsLayout::thd)},
             positions(std::span<const Index>(at)));
  EXPECT_EQ(compare(bq, DType::bf16, suite(name, "q_out")).count, 0u);
  EXPECT_EQ(compare(bk, DType::bf16, suite(name, "k_out")).count, 0u);
}

void ggml(const std::string& name, Index n_dims, Pairing pairing) {
  const Suite suite("rotary_engines");
  RotarySpec spec = resolve(Rope{.head_dim = 16, .rotary_dim = n_dims, .pairing = pairing});
  spec.precision = Precision::ggml;
  const RotaryPlan plan(spec, DType::f16);
  const std::vector<Index> at = suite(name, "positions").integers();
  const auto check = [&](const char* in, const char* out, RotateMode sense) {
    std::vector<std::uint16_t> x = pack(suite(name, in), DType::f16);
    plan.apply({heads(view(x, DType::f16, {6, 2, 16}), HeadsLayout::thd), {}},
               positions(std::span<const Index>(at)), sense);
    const Difference d = compare(x, DType::f16, suite(name, out));
    EXPECT_EQ(d.count, 0u) << name << " " << out << " " << d.relative;
  };
  check("x", "out", RotateMode::forward);
  check("grad_out", "grad_x", RotateMode::gradient);
}
TEST(Compat, GgmlHalf) {
  ggml("ggml_norm_f16", 16, Pairing::interleaved);
  ggml("ggml_neox_f16", 8, Pairing::half_split);
}

}  // namespace
}  // namespace posenc
