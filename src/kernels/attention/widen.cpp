// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/widen.h"

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/widen.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/q8_0-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<double>;

HWY_INLINE hn::Vec<D> as_doubles(const double* p) {
  return hn::LoadU(D(), p);
}
template <class T>
HWY_INLINE hn::Vec<D> as_doubles(const T* p) {
  return hn::PromoteTo(D(), ReadVector(hn::Rebind<float, D>(), p));
}

template <class T>
HWY_INLINE void widen(double* HWY_RESTRICT to, const T* HWY_RESTRICT from, Index channels) {
  const auto lanes = static_cast<Index>(hn::Lanes(D()));
  Index c = 0;
  for (; c + lanes <= channels; c += lanes) hn::StoreU(as_doubles(from + c), D(), to + c);
  for (; c < channels; ++c) to[c] = static_cast<double>(Widen(from[c]));
}

template <class T>
void row(double* to, const void* from, Index channels) noexcept {
  widen(to, static_cast<const T*>(from), channels);
}

// A few channels of all rows at a time: they stay in the first cache while they change places.
template <class T>
void tile(double* HWY_RESTRICT to, const void* const* from, Index rows, Index channels) noexcept {
  constexpr Index kSome = 16;
  HWY_ALIGN double some[kTile][kSome] = {};
  for (Index c = 0; c < channels; c += kSome, to += kSome * kTile) {
    const Index n = channels - c < kSome ? channels - c : kSome;
    for (Index j = 0; j < rows; ++j) widen(some[j], static_cast<const T*>(from[j]) + c, n);
    for (Index x = 0; x < n; ++x)
      for (Index j = 0; j < kTile; ++j) to[x * kTile + j] = some[j][x];
  }
}

// Blocks by way of floats, which hold their numbers.
void row_of_blocks(double* to, const void* from, Index channels) noexcept {
  const auto* block = static_cast<const std::byte*>(from);
  HWY_ALIGN float x[kQ8Numbers];
  for (Index c = 0; c < channels; c += kQ8Numbers, block += kQ8Bytes) {
    ReadBlock(block, x);
    widen(to + c, x, kQ8Numbers);
  }
}
void tile_of_blocks(double* HWY_RESTRICT to, const void* const* from, Index rows,
                    Index channels) noexcept {
  HWY_ALIGN float x[kTile][kQ8Numbers];
  const void* some[kTile];
  for (Index c = 0; c < channels; c += kQ8Numbers, to += kQ8Numbers * kTile) {
    for (Index j = 0; j < rows; ++j) {
      ReadBlock(static_cast<const std::byte*>(from[j]) + c / kQ8Numbers * kQ8Bytes, x[j]);
      some[j] = x[j];
    }
    tile<float>(to, some, rows, kQ8Numbers);
  }
}

template <class T>
constexpr WidenKernels kWiden{row<T>, tile<T>};
constexpr WidenTable kTable{kWiden<double>,
                            kWiden<float>,
                            kWiden<Float16>,
                            kWiden<BFloat16>,
                            {row_of_blocks, tile_of_blocks}};
}  // namespace

const WidenTable* table_of_widen() {
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_widen);
const WidenKernels& widen_kernels(Isa isa, DType type) {
  const auto& t = isa_kernels(HWY_DISPATCH_TABLE(table_of_widen), isa);
  return type == DType::u8 ? t.q8_0 : *kernels_of_type(type, t.f64, t.f32, t.f16, t.bf16);
}
}  // namespace posenc::v0::detail
#endif
