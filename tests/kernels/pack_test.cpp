// SPDX-License-Identifier: Apache-2.0
// The inner rotation with elements of two types: bf16 rows become f32 ones on the way, bit for bit
// what the f32 kernel makes of them; f32 rows become bf16 ones, rounded once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pack_test.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/rotate_chunk-inl.h"

#ifndef POSENC_TESTS_KERNELS_PACK_ONCE_
#define POSENC_TESTS_KERNELS_PACK_ONCE_
namespace posenc::inline v0::detail {
// Heads of one token at a position, from x to y, both dense.
struct PackCall {
  const RotaryTables* tables;
  Index position, heads;
  const void* x;
  void* y;
};
struct PackKernels {
  void (*bf16_to_f32)(const PackCall&);
  void (*f32_to_bf16)(const PackCall&);
  void (*plain)(const PackCall&);  // bf16 to f32, pair by pair
};
}  // namespace posenc::v0::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

template <class In, class Out, bool kPlain>
void pack(const PackCall& call) {
  using H = TokenHeads<In, Out>;
  const RotaryTables& t = *call.tables;
  alignas(64) float c[8][kChunk + kPadding];
  const CoefficientScratch<float> scratch{c[0], c[1], c[2], c[3], c[4], c[6]};
  TokenPosition position{};
  position.whole[0] = static_cast<std::uint64_t>(call.position);
  const PairLayout order = LayoutOf(t, true, RotateMode::forward);
  const CoefficientSource source{&t, &kNoRows, 0, RotateMode::forward};
  for (Index first = 0; first < t.pairs; first += kChunk) {
    Chunk<float> chunk = CoefficientsOf(source, position, 0, 0, 0, first, scratch);
    PrepareCoefficients<H>(chunk, order);
    const Index channel = t.offset + first * order.step;
    const H heads{static_cast<const In*>(call.x) + channel, static_cast<Out*>(call.y) + channel,
                  call.heads, t.head_dim, t.head_dim};
    if (kPlain)
      RotatePlainRuns(chunk.f, heads, order, order, 0, chunk.n);
    else
      RotateRuns(chunk, heads, order, 1, 1);
  }
}
constexpr PackKernels kKernels{pack<BFloat16, float, false>, pack<float, BFloat16, false>,
                               pack<BFloat16, float, true>};
}  // namespace

const PackKernels* table_of_pack() {
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "core/isa_table.h"
#include "posenc/rotary/plan.h"

namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_pack);
const PackKernels& pack_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_pack), isa);
}
}  // namespace posenc::v0::detail

namespace posenc {
namespace {

constexpr Index kHeads = 3, kPosition = 4711;

RotarySpec spec_of(Index pairs, Pairing pairing) {
  RotarySpec spec;
  spec.head_dim = 2 * pairs;
  RotaryBlock b;
  b.pairing = pairing;
  b.spectrum = geometric_spectrum(10000, 2 * pairs);
  b.spectrum.gain = 1.25;
  spec.blocks.push_back(b);
  return spec;
}

// Random bf16 numbers, and the same as floats.
struct Row {
  std::vector<std::uint16_t> bf16;
  std::vector<float> f32;
};
Row random_row(Index n) {
  std::mt19937 gen(11);
  Row r;
  for (Index i = 0; i < n; ++i) {
    const float x = std::uniform_real_distribution<float>(-3, 3)(gen);
    r.bf16.push_back(bf16_from(x));
    r.f32.push_back(f32_from_bf16(r.bf16.back()));
  }
  return r;
}

class Pack : public testing::Test {
 protected:
  void TearDown() override { reset_isa(); }
};

TEST_F(Pack, BFloat16RotatedIntoFloatsIsTheFloatKernel) {
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved})
      for (const Index pairs : {1, 4, 13, 32, 64, 100, 300}) {
        const RotarySpec spec = spec_of(pairs, pairing);
        const RotaryPlan plan(spec, DType::f32);
        const Index n = kHeads * spec.head_dim;
        const Row x = random_row(n);
        std::vector<float> want = x.f32, got(static_cast<std::size_t>(n), NAN), plain = got;
        plan.apply({heads(want.data(), 1, kHeads, spec.head_dim), {}},
                   positions(std::span<const Index>(&kPosition, 1)));
        const RotaryTables& tables = plan.tables()[0];
        const detail::PackKernels& k = detail::pack_kernels(isa);
        k.bf16_to_f32({&tables, kPosition, kHeads, x.bf16.data(), got.data()});
        EXPECT_EQ(got, want) << isa_name(isa) << " " << pairs << " " << enum_text(pairing);
        k.plain({&tables, kPosition, kHeads, x.bf16.data(), plain.data()});
        for (std::size_t i = 0; i < plain.size(); ++i)
          ASSERT_NEAR(plain[i], got[i], 1e-6) << isa_name(isa) << " " << pairs;
        // The other way the same sums are rounded once.
        std::vector<std::uint16_t> back(static_cast<std::size_t>(n));
        k.f32_to_bf16({&tables, kPosition, kHeads, x.f32.data(), back.data()});
        for (std::size_t i = 0; i < back.size(); ++i)
          ASSERT_EQ(back[i], bf16_from(want[i])) << isa_name(isa) << " " << pairs << " " << i;
      }
  }
}

// Every bf16 number, NaN and infinities among them: the float kernel's result, rounded once to nearest even. A gain of
// 1.5 at position 0 makes every second result a tie.
TEST_F(Pack, BFloat16IsTheFloatKernelRoundedOnce) {
  enable_native_features(false);  // its conversion makes small numbers 0
  constexpr Index kRow = 128, kRows = 65536 / kRow;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved})
      for (const Index position : {Index{0}, kPosition}) {
        RotarySpec spec = spec_of(kRow / 2, pairing);
        spec.blocks[0].spectrum.gain = 1.5;
        std::vector<std::uint16_t> got;
        std::vector<float> want;
        for (std::uint32_t i = 0; i < 65536; ++i) {
          got.push_back(static_cast<std::uint16_t>(i * 40503));  // odd: each comes once
          want.push_back(f32_from_bf16(got.back()));
        }
        const auto at = positions(std::span<const Index>(&position, 1));
        RotaryPlan(spec, DType::bf16)
            .apply({heads(tensor(static_cast<void*>(got.data()), DType::bf16, {1, 1, kRows, kRow}),
                          HeadsLayout::bthd),
                    {}},
                   at);
        RotaryPlan(spec, DType::f32).apply({heads(want.data(), 1, kRows, kRow), {}}, at);
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_EQ(got[i], bf16_from(want[i]))
              << isa_name(isa) << " " << enum_text(pairing) << " " << i << " " << want[i];
      }
  }
  enable_native_features(true);
}

// Rows of the caller may hold NaN of any bits, such as all ones, which rounding to the upper half must not carry into
// the sign; the others may be read from memory or held in registers (64 pairs, 8 pairs).
TEST_F(Pack, NaNOfTheCallersRowsStaysNaN) {
  enable_native_features(false);
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved})
      for (const Index pairs : {8, 64}) {
        std::vector<float> rows(static_cast<std::size_t>(2 * pairs), 0.75f);
        for (const std::size_t i : {0u, 3u})
          rows[i] = std::bit_cast<float>(0x7fffffffu),
          rows[i + 4] = std::bit_cast<float>(0xffc08000u);
        std::vector<std::uint16_t> got(static_cast<std::size_t>(6 * pairs));
        std::vector<float> want;
        for (std::size_t i = 0; i < got.size(); ++i) {
          got[i] = static_cast<std::uint16_t>(0x3f80 + i);
          want.push_back(f32_from_bf16(got[i]));
        }
        const RotarySpec spec = spec_of(pairs, pairing);
        const ConstTensorView view = tensor(rows.data(), {1, 2 * pairs});
        RotaryPlan(spec, DType::bf16)
            .apply_rows(
                {heads(tensor(static_cast<void*>(got.data()), DType::bf16, {1, 1, 3, 2 * pairs}),
                       HeadsLayout::bthd),
                 {}},
                view);
        RotaryPlan(spec, DType::f32).apply_rows({heads(want.data(), 1, 3, 2 * pairs), {}}, view);
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_EQ(got[i], bf16_from(want[i]))
              << isa_name(isa) << " " << enum_text(pairing) << " " << i;
      }
  }
  enable_native_features(true);
}

}  // namespace
}  // namespace posenc
#endif
