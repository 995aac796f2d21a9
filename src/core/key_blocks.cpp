// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/key_blocks.h"

#include "core/q8_0.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

template <class Data>
BasicHeads<Data> blocks_of(BasicTensorView<Data> v, HeadsLayout layout) {
  if (v.dtype != DType::u8)
    refuse_field("heads", "dtype", "of q8_0 blocks must be u8", dtype_name(v.dtype));
  v.dtype = DType::f32;  // any that heads have
  BasicHeads<Data> h = heads(v, layout);
  h.dtype = DType::u8;
  return h;
}

}  // namespace

Heads key_blocks(const TensorView& v, HeadsLayout layout) {
  return blocks_of(v, layout);
}
ConstHeads key_blocks(const ConstTensorView& v, HeadsLayout layout) {
  return blocks_of(v, layout);
}

Index head_size(const ConstHeads& h) noexcept {
  return h.dtype == DType::u8 ? h.dim / detail::kQ8Bytes * detail::kQ8Numbers : h.dim;
}

}  // namespace posenc::v0
