// SPDX-License-Identifier: Apache-2.0
#include "kernels/q8_0.h"

#include <cstring>

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/q8_0.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/q8_0-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using F = hn::CappedTag<float, kQ8Numbers>;
using I = hn::RebindToSigned<F>;
using Bytes = hn::Rebind<std::int8_t, F>;

// 1.5 x 2^23: the sum with a small number ends in that number, rounded to the nearest integer.
constexpr float kRounder = 12582912.0f;

// Blocks at once: their scales are converted together, and none waits for another's sum.
constexpr Index kBlocks = 32;
constexpr auto kScalePadding = static_cast<Index>(hn::MaxLanes(hn::ScalableTag<float>()));

void read_q8(const std::byte* blocks, Index n, float* x) {
  const F d;
  const hn::ScalableTag<float> ds;
  const auto lanes = static_cast<Index>(hn::Lanes(d)), many = static_cast<Index>(hn::Lanes(ds));
  HWY_ALIGN Float16 bits[kBlocks + kScalePadding] = {};
  HWY_ALIGN float scales[kBlocks + kScalePadding];
  for (Index first = 0; first < n; first += kBlocks) {
    const Index count = HWY_MIN(kBlocks, n - first);
    for (Index b = 0; b < count; ++b) std::memcpy(bits + b, blocks + b * kQ8Bytes, sizeof *bits);
    for (Index b = 0; b < count; b += many) hn::StoreU(ReadVector(ds, bits + b), ds, scales + b);
    for (Index b = 0; b < count; ++b, blocks += kQ8Bytes, x += kQ8Numbers) {
      const auto scale = hn::Set(d, scales[b]);
      for (Index i = 0; i < kQ8Numbers; i += lanes)
        hn::StoreU(hn::Mul(ReadBytes(d, BytesOf(blocks) + i), scale), d, x + i);
    }
  }
}

// Four numbers whose largest is the largest absolute value of a block, as the bits of floats: those of a NaN
// are above those of any number. They go through memory, because shuffles are what a core has few of.
HWY_INLINE void largest_four(const float* x, std::int32_t* four) {
  const F d;
  const I di;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto bits = hn::Set(di, 0x7fffffff);
  auto most = hn::And(hn::BitCast(di, hn::LoadU(d, x)), bits);
  for (Index i = lanes; i < kQ8Numbers; i += lanes)
    most = hn::Max(most, hn::And(hn::BitCast(di, hn::LoadU(d, x + i)), bits));
  HWY_ALIGN std::int32_t part[hn::MaxLanes(I()) + 4] = {};
  hn::Store(most, di, part);
  const hn::CappedTag<std::int32_t, 4> d4;
  const auto step = static_cast<Index>(hn::Lanes(d4));
  for (Index i = 0; i < 4; i += step) {
    auto sum = hn::LoadU(d4, part + i);
    for (Index j = i + 4; j < lanes; j += 4) sum = hn::Max(sum, hn::LoadU(d4, part + j));
    hn::StoreU(sum, d4, four + i);
  }
}

void write_q8(const float* x, Index n, std::byte* blocks) {
  const F d;
  const hn::ScalableTag<float> ds;
  const auto lanes = static_cast<Index>(hn::Lanes(d)), many = static_cast<Index>(hn::Lanes(ds));
  HWY_ALIGN Float16 bits[kBlocks + kScalePadding];
  HWY_ALIGN float scales[kBlocks + kScalePadding];
  HWY_ALIGN std::int32_t fours[4 * (kBlocks + kScalePadding)] = {};
  const hn::RebindToSigned<decltype(ds)> di;
  for (Index first = 0; first < n; first += kBlocks) {
    const Index count = HWY_MIN(kBlocks, n - first);
    for (Index b = 0; b < count; ++b) largest_four(x + b * kQ8Numbers, fours + 4 * b);
    for (Index b = 0; b < count; b += many) {
      hn::Vec<decltype(di)> m0, m1, m2, m3;
      hn::LoadInterleaved4(di, fours + 4 * b, m0, m1, m2, m3);
      const auto most = hn::BitCast(ds, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3)));
      WriteVector<false>(hn::Div(most, hn::Set(ds, 127.0f)), ds, bits + b);
      const auto scale = ReadVector(ds, bits + b);
      // Of 0, of infinity and of NaN no number is left.
      const auto normal =
          hn::And(hn::Gt(scale, hn::Zero(ds)), hn::Lt(scale, hn::Set(ds, 65505.0f)));
      hn::StoreU(hn::IfThenElseZero(normal, hn::Div(hn::Set(ds, 1.0f), scale)), ds, scales + b);
    }
    for (Index b = 0; b < count; ++b, blocks += kQ8Bytes, x += kQ8Numbers) {
      const Float16 scale = (bits[b].bits & 0x7c00) == 0x7c00 ? Float16{0x7e00} : bits[b];
      std::memcpy(blocks, &scale, sizeof scale);
      auto* q = reinterpret_cast<std::int8_t*>(blocks + sizeof scale);
      const auto inverse = hn::Set(d, scales[b]);
      for (Index i = 0; i < kQ8Numbers; i += lanes) {
        const auto sum = hn::MulAdd(hn::LoadU(d, x + i), inverse, hn::Set(d, kRounder));
        const auto whole = hn::Sub(hn::BitCast(I(), sum), hn::BitCast(I(), hn::Set(d, kRounder)));
        hn::StoreU(hn::DemoteTo(Bytes(), whole), Bytes(), q + i);
      }
    }
  }
}

constexpr Q8Kernels kKernels{read_q8, write_q8};
}  // namespace

const Q8Kernels* table_of_q8() {
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_q8);
const Q8Kernels& q8_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_q8), isa);
}
}  // namespace posenc::v0::detail
#endif
