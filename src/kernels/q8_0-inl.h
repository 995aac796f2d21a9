// SPDX-License-Identifier: Apache-2.0
// Reads ggml's q8_0 blocks (posenc/core/key_blocks.h) as vectors. Scale times byte is exact in float: 11 bits
// and 7.
#include <cstring>
#include <type_traits>

#include "kernels/q8_0.h"

#if defined(POSENC_KERNELS_Q8_0_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_Q8_0_INL_H_
#undef POSENC_KERNELS_Q8_0_INL_H_
#else
#define POSENC_KERNELS_Q8_0_INL_H_
#endif
#include "kernels/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {

HWY_INLINE const std::int8_t* BytesOf(const std::byte* block) {
  return reinterpret_cast<const std::int8_t*>(block + sizeof(Float16));
}
HWY_INLINE float ScaleOf(const std::byte* block) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // By the machine's conversion, of the scale and of bytes behind it.
  const hn::FixedTag<float, 4> d;
  return hn::GetLane(ReadVector(d, reinterpret_cast<const Float16*>(block)));
#else
  Float16 scale;
  std::memcpy(&scale, block, sizeof scale);
  return Widen(scale);
#endif
}
// Numbers of a block over its scale.
template <class D>
HWY_INLINE hn::Vec<D> ReadBytes(D d, const std::int8_t* q) {
  const hn::RebindToSigned<D> whole;
  const hn::Rebind<std::int8_t, D> bytes;
  return hn::ConvertTo(d, hn::PromoteTo(whole, hn::LoadU(bytes, q)));
}
// A token, by its numbers: Block names one in q8_0 blocks.
struct Block {};
struct BlockNumbers {
  const std::byte* blocks;
  HWY_INLINE float operator[](Index c) const {
    const std::byte* block = blocks + c / kQ8Numbers * kQ8Bytes;
    return ScaleOf(block) * static_cast<float>(BytesOf(block)[c % kQ8Numbers]);
  }
};
template <class T>
HWY_INLINE auto NumbersOf(const void* token) {
  if constexpr (std::is_same_v<T, Block>)
    return BlockNumbers{static_cast<const std::byte*>(token)};
  else
    return static_cast<const T*>(token);
}
// The 32 numbers of a block.
HWY_INLINE void ReadBlock(const std::byte* block, float* HWY_RESTRICT x) {
  const hn::CappedTag<float, kQ8Numbers> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto scale = hn::Set(d, ScaleOf(block));
  for (Index i = 0; i < kQ8Numbers; i += lanes)
    hn::StoreU(hn::Mul(ReadBytes(d, BytesOf(block) + i), scale), d, x + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
