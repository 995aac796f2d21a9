// SPDX-License-Identifier: Apache-2.0
// The same as fast_pack-inl.h of rows in q8_0 blocks, which become floats on the way, a block at a time.
#include "kernels/attention/fast_strips.h"

#if defined(POSENC_KERNELS_FAST_PACK_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_FAST_PACK_BLOCKS_INL_H_
#undef POSENC_KERNELS_FAST_PACK_BLOCKS_INL_H_
#else
#define POSENC_KERNELS_FAST_PACK_BLOCKS_INL_H_
#endif
#include "kernels/attention/fast_pack-inl.h"
#include "kernels/q8_0-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {

// fn(first channel, 32 floats) for the blocks of a row.
template <class F>
HWY_INLINE void EachBlock(const void* row, Index channels, const F& fn) {
  const auto* block = static_cast<const std::byte*>(row);
  HWY_ALIGN float x[kQ8Numbers];
  for (Index c = 0; c < channels; c += kQ8Numbers, block += kQ8Bytes) {
    ReadBlock(block, x);
    fn(c, x);
  }
}

inline bool TakeRowsOfBlocks(float* HWY_RESTRICT to, Index width, const void* const* from,
                             Index count, Index channels, const float* factors) noexcept {
  Bounds bounds;
  for (Index n = 0; n < count; ++n, to += width) {
    const float factor = factors == nullptr ? 1 : factors[n];
    if (from[n] == nullptr)
      std::fill_n(to, channels, 0.0f);
    else
      EachBlock(from[n], channels, [&](Index c, const float* x) HWY_ATTR {
        TakeChannels(to + c, x, kQ8Numbers, factor, bounds);
      });
  }
  return bounds.Hold();
}
inline bool TakeRowOfBlocks(float* HWY_RESTRICT to, const void* from, Index channels,
                            float factor) noexcept {
  return TakeRowsOfBlocks(to, 0, &from, 1, channels, &factor);
}
inline bool AreBlocksBounded(const void* from, Index stride, Index count, Index channels,
                             float factor) noexcept {
  const auto* row = static_cast<const std::byte*>(from);
  Bounds bounds;
  for (Index n = 0; n < count; ++n, row += stride)
    EachBlock(row, channels, [&](Index, const float* x) HWY_ATTR {
      for (Index c = 0; c < kQ8Numbers; c += kLanes) bounds.Add(MulF(SetF(factor), LoadF(x + c)));
    });
  return bounds.Hold();
}

inline bool DotRowsOfBlocks(const void* first, Index first_stride, const void* second,
                            Index second_stride, Index count, Index channels,
                            float* sums) noexcept {
  const auto *a = static_cast<const std::byte*>(first), *b = static_cast<const std::byte*>(second);
  Bounds bounds;
  for (Index n = 0; n < count; ++n, a += first_stride, b += second_stride) {
    F sum = SetF(0);
    EachBlock(a, channels, [&](Index c, const float* x) HWY_ATTR {
      HWY_ALIGN float y[kQ8Numbers];
      ReadBlock(b + c / kQ8Numbers * kQ8Bytes, y);
      for (Index i = 0; i < kQ8Numbers; i += kLanes) {
        bounds.Add(LoadF(x + i)), bounds.Add(LoadF(y + i));
        sum = MulAddF(LoadF(x + i), LoadF(y + i), sum);
      }
    });
    sums[n] = SumF(sum);
  }
  return bounds.Hold();
}

// A panel of keys at a time, 32 channels of all of them.
inline bool PackKeyBlocks(float* HWY_RESTRICT to, const void* const* from, Index count,
                          Index channels, Index panel_channels) noexcept {
  HWY_ALIGN float rows[kPanel][kQ8Numbers];
  const void* keys[kPanel];
  bool bounded = true;
  for (Index j = 0; j < count; j += kPanel, to += kPanel * panel_channels) {
    const Index some = HWY_MIN(kPanel, count - j);
    for (Index c = 0; c < channels; c += kQ8Numbers) {
      for (Index n = 0; n < some; ++n) {
        const auto* row = static_cast<const std::byte*>(from[j + n]);
        keys[n] = row == nullptr ? nullptr : rows[n];
        if (row != nullptr) ReadBlock(row + c / kQ8Numbers * kQ8Bytes, rows[n]);
      }
      // Not the constant 32, of which gcc 12 makes a loop without end.
      const Index part = HWY_MIN(kQ8Numbers, channels - c);
      bounded = PackKeys<float>(to + c * kPanel, keys, some, part, panel_channels) && bounded;
    }
  }
  return bounded;
}
inline bool PackValueBlocks(float* HWY_RESTRICT to, const void* const* from, Index count,
                            Index channels) noexcept {
  static_assert(kQ8Numbers % kPanel == 0);
  HWY_ALIGN static constexpr float kZeros[kQ8Numbers] = {};
  bool bounded = true;
  Bounds bounds;
  for (Index j = 0; j < count; ++j, to += kPanel) {
    const auto put = [&](Index c, const float* x) HWY_ATTR {
      bounded = PutValues(to + c * kBlockKeys, x, kQ8Numbers, bounds) && bounded;
    };
    if (from[j] != nullptr)
      EachBlock(from[j], channels, put);
    else
      for (Index c = 0; c < channels; c += kQ8Numbers) put(c, kZeros);
  }
  return bounds.Hold() && bounded;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
