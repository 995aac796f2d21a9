// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/heads.h"

#include "core/known_enum.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {
constexpr std::array<std::string_view, 5> kLayoutNames{"thd", "bthd", "bhtd", "tbhd", "htd"};

template <class Data>
BasicHeads<Data> heads_of(const BasicTensorView<Data>& v, HeadsLayout layout) {
  const std::string_view axes = layout_name(layout);
  if (layout > HeadsLayout::htd)
    refuse("heads", "order of the axes must be thd, bthd, bhtd, tbhd or htd",
           static_cast<Index>(layout));
  if (v.rank != static_cast<std::int32_t>(axes.size()))
    refuse_field("heads", "rank", "must fit the order " + std::string(axes), Index{v.rank});
  if (!is_float(v.dtype))
    refuse_field("heads", "dtype", "must be f64, f32, f16 or bf16", dtype_name(v.dtype));
  if (v.device != Device::cpu) refuse("heads", "memory must be the CPU's");
  BasicHeads<Data> h;
  h.data = v.data;
  h.dtype = v.dtype;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Index n = v.shape[i], s = v.stride[i];
    switch (axes[i]) {
      case 'b':
        h.batch = n, h.batch_stride = s;
        break;
      case 't':
        h.tokens = n, h.token_stride = s;
        break;
      case 'h':
        h.heads = n, h.head_stride = s;
        break;
      default:
        h.dim = n, h.dim_stride = s;
        break;
    }
  }
  return h;
}

template <class Data>
BasicHeads<Data> slice_of(const BasicHeads<Data>& h, Index first, Index count) {
  if (first < 0 || count < 0 || first > h.heads - count)
    refuse_field("heads", "slice", "must lie inside the " + std::to_string(h.heads) + " heads",
                 first + count);
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  BasicHeads<Data> r = h;
  r.heads = count;
  if (r.data) r.data = static_cast<Byte*>(h.data) + first * h.head_stride * size_of(h.dtype);
  return r;
}

}  // namespace

std::string_view layout_name(HeadsLayout l) noexcept {
  return detail::name_of(kLayoutNames, static_cast<std::size_t>(l));
}

HeadsLayout layout_from_name(std::string_view text) {
  for (std::size_t i = 0; i < kLayoutNames.size(); ++i)
    if (kLayoutNames[i] == text) return static_cast<HeadsLayout>(i);
  refuse("heads", "order of the axes must be thd, bthd, bhtd, tbhd or htd", text);
}

Heads heads(const TensorView& v, HeadsLayout layout) {
  return heads_of(v, layout);
}
ConstHeads heads(const ConstTensorView& v, HeadsLayout layout) {
  return heads_of(v, layout);
}

Heads slice_heads(const Heads& h, Index first, Index count) {
  return slice_of(h, first, count);
}
ConstHeads slice_heads(const ConstHeads& h, Index first, Index count) {
  return slice_of(h, first, count);
}

}  // namespace posenc::v0
