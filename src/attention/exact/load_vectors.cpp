// SPDX-License-Identifier: Apache-2.0
#include "attention/exact/load_vectors.h"

#include <algorithm>

#include "attention/call/order_view.h"
#include "core/element.h"
#include "core/parallel.h"

namespace posenc::inline v0::detail {

VectorSource::VectorSource(const ConstHeads& x, const ConstTensorView& block_table)
    : x_(x), block_table_(block_table), widen_(&widen_kernels(active_isa(), x.dtype)) {}

template <class F>
void VectorSource::each_token(Index row, Index group, Run some, const F& fn) const noexcept {
  const Index head = group * x_.head_stride;
  if (block_table_.empty()) {
    Index from = row * x_.batch_stride + some.begin * x_.token_stride + head;
    for (Index j = some.begin; j < some.end; ++j, from += x_.token_stride) fn(j, from);
    return;
  }
  for (Index j = some.begin; j < some.end;) {
    const Index page = j / x_.tokens, slot = j - page * x_.tokens;
    const Index end = std::min(some.end, j + x_.tokens - slot);
    Index from =
        read_index(block_table_, row, page) * x_.batch_stride + slot * x_.token_stride + head;
    for (; j < end; ++j, from += x_.token_stride) fn(j, from);
  }
}

void VectorSource::load_strided(Index element, double* to, Index step) const noexcept {
  for (Index d = 0; d < x_.dim; ++d)
    to[d * step] = float_element(x_.data, x_.dtype, element + d * x_.dim_stride);
}

void VectorSource::load_rows(Index row, Index group, Run some, double* to) const noexcept {
  each_token(row, group, some, [&](Index, Index from) {
    if (x_.dim_stride == 1)
      widen_->row(to, at(from), x_.dim);
    else
      load_strided(from, to, 1);
    to += x_.dim;
  });
}

void VectorSource::load_tiles(Index row, Index group, Run some, double* to) const noexcept {
  const void* rows[kTile];
  each_token(row, group, some, [&](Index j, Index from) {
    const Index in_tile = (j - some.begin) % kTile;
    if (x_.dim_stride == 1)
      rows[in_tile] = at(from);
    else
      load_strided(from, to + in_tile, kTile);
    const Index count = in_tile + 1;
    if (count < kTile && j + 1 < some.end) return;
    if (x_.dim_stride == 1)
      widen_->tile(to, rows, count, x_.dim);
    else
      for (Index d = 0; d < x_.dim; ++d)
        std::fill(to + d * kTile + count, to + (d + 1) * kTile, 0.0);
    to += kTile * x_.dim;
  });
}

void read_vector(const ConstHeads& x, Index b, Index t, Index h, double* to) noexcept {
  const Index at = b * x.batch_stride + t * x.token_stride + h * x.head_stride;
  for (Index d = 0; d < x.dim; ++d) to[d] = float_element(x.data, x.dtype, at + d * x.dim_stride);
}

void put_result_row(const AttentionResult& to, Index b, Index h, Index i, const double* out,
                    double log_sum_exp) noexcept {
  const Heads& o = to.out;
  const Index at = b * o.batch_stride + i * o.token_stride + h * o.head_stride;
  for (Index d = 0; d < o.dim; ++d) put_element(o.data, o.dtype, at + d * o.dim_stride, out[d]);
  const TensorView& l = to.log_sum_exp;
  if (!l.empty())
    put_element(l.data, l.dtype, b * l.stride[0] + h * l.stride[1] + i * l.stride[2], log_sum_exp);
}

std::span<double> load_by_heads(const ConstHeads& h, CallArena& arena, const Executor& executor) {
  const std::span<double> x = arena.array<double>(h.batch * h.heads * h.tokens * h.dim);
  if (x.empty() || arena.counts()) return x;
  const VectorSource source(h);
  constexpr Index kSome = 64;
  const Index blocks = block_count(h.tokens, kSome);
  parallel_for(executor, h.batch * h.heads * blocks, static_cast<Index>(x.size()) / kValuesPerTask,
               [&](Index begin, Index end) noexcept {
                 for (Index n = begin; n < end; ++n) {
                   const Index slab = n / blocks, first = n % blocks * kSome;
                   source.load_rows(slab / h.heads, slab % h.heads,
                                    {first, std::min(h.tokens, first + kSome)},
                                    x.data() + (slab * h.tokens + first) * h.dim);
                 }
               });
  return x;
}

}  // namespace posenc::v0::detail
