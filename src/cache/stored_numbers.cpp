// SPDX-License-Identifier: Apache-2.0
#include "cache/stored_numbers.h"

#include <algorithm>
#include <cstring>

#include "core/element.h"
#include "core/head_views.h"
#include "kernels/attention/fast_strips.h"
#include "kernels/q8_0.h"

namespace posenc::inline v0::detail {
namespace {

template <class Data>
auto* head_data(const BasicHeads<Data>& h, Index token, Index head) noexcept {
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  return static_cast<Byte*>(h.data) +
         (token * h.token_stride + head * h.head_stride) * size_of(h.dtype);
}

template <class F>
void for_each_head(const ConstHeads& h, const F& f) noexcept {
  for (Index t = 0; t < h.tokens; ++t)
    for (Index n = 0; n < h.heads; ++n) f(t, n);
}

// A loop for each pair of types, so that the compiler sees them.
void convert_head(const void* from, DType type, Index stride, void* to, DType to_type,
                  Index n) noexcept {
  const auto loop = [&](auto read_type, auto write_type) {
    for (Index i = 0; i < n; ++i) {
      if constexpr (read_type() == DType::f64)
        put_element(to, write_type(), i, static_cast<const double*>(from)[i * stride]);
      else
        put_element(to, write_type(), i,
                    static_cast<float>(float_element(from, read_type(), i * stride)));
    }
  };
  const auto with = [&](auto read_type) {
    switch (to_type) {
      case DType::f64:
        return loop(read_type, std::integral_constant<DType, DType::f64>());
      case DType::f32:
        return loop(read_type, std::integral_constant<DType, DType::f32>());
      case DType::f16:
        return loop(read_type, std::integral_constant<DType, DType::f16>());
      default:
        return loop(read_type, std::integral_constant<DType, DType::bf16>());
    }
  };
  switch (type) {
    case DType::f64:
      return with(std::integral_constant<DType, DType::f64>());
    case DType::f32:
      return with(std::integral_constant<DType, DType::f32>());
    case DType::f16:
      return with(std::integral_constant<DType, DType::f16>());
    default:
      return with(std::integral_constant<DType, DType::bf16>());
  }
}

// A few blocks of floats at once, on the stack.
constexpr Index kBlocksAtOnce = 8;

void read_blocks(const std::byte* blocks, Index channels, double* to) noexcept {
  float x[kBlocksAtOnce * kQ8Numbers];
  const Q8Kernels& q8 = q8_kernels(active_isa());
  for (Index done = 0; done < channels; done += kBlocksAtOnce * kQ8Numbers) {
    const Index n = std::min(channels - done, kBlocksAtOnce * kQ8Numbers);
    q8.read(blocks + done / kQ8Numbers * kQ8Bytes, n / kQ8Numbers, x);
    std::copy_n(x, n, to + done);
  }
}
void write_blocks(const void* from, DType type, Index stride, Index channels,
                  std::byte* blocks) noexcept {
  float x[kBlocksAtOnce * kQ8Numbers];
  const Q8Kernels& q8 = q8_kernels(active_isa());
  for (Index done = 0; done < channels; done += kBlocksAtOnce * kQ8Numbers) {
    const Index n = std::min(channels - done, kBlocksAtOnce * kQ8Numbers);
    convert_head(static_cast<const std::byte*>(from) + done * stride * size_of(type), type, stride,
                 x, DType::f32, n);
    q8.write(x, n / kQ8Numbers, blocks + done / kQ8Numbers * kQ8Bytes);
  }
}

}  // namespace

FloatTokens::FloatTokens(Index tokens, Index heads, Index channels, bool wide)
    : heads_(heads),
      channels_(channels),
      wide_(wide),
      memory_(static_cast<std::size_t>(wide ? tokens * heads * channels
                                            : (tokens * heads * channels + 1) / 2)) {}

Heads FloatTokens::view(Index n) noexcept {
  return dense_heads(memory_.data(), wide_ ? DType::f64 : DType::f32, n, heads_, channels_);
}

void read_stored(const ConstHeads& from, KeyType type, const Heads& to) noexcept {
  const auto& take_row = fast_kernels(active_isa()).take_row;  // numbers and blocks to floats
  for_each_head(to, [&](Index t, Index h) {
    const std::byte* const x = head_data(from, t, h);
    std::byte* const y = head_data(to, t, h);
    if (to.dtype == DType::f32 && from.dtype != DType::f64 && from.dim_stride == 1)
      take_row[fast_type(from.dtype)](reinterpret_cast<float*>(y), x, to.dim, 1);
    else if (type == KeyType::q8_0)
      read_blocks(x, to.dim, reinterpret_cast<double*>(y));
    else
      convert_head(x, from.dtype, from.dim_stride, y, to.dtype, to.dim);
  });
}

void store_numbers(const ConstHeads& from, KeyType type, const Heads& to) noexcept {
  for_each_head(from, [&](Index t, Index h) {
    if (type == KeyType::q8_0)
      write_blocks(head_data(from, t, h), from.dtype, from.dim_stride, from.dim,
                   head_data(to, t, h));
    else if (from.dtype == to.dtype && from.dim_stride == 1)
      std::memcpy(head_data(to, t, h), head_data(from, t, h),
                  static_cast<std::size_t>(from.dim * size_of(from.dtype)));
    else
      convert_head(head_data(from, t, h), from.dtype, from.dim_stride, head_data(to, t, h),
                   to.dtype, from.dim);
  });
}

}  // namespace posenc::v0::detail
