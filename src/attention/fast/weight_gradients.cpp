// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/weight_gradients.h"

#include <algorithm>

#include "core/element.h"

namespace posenc::inline v0::detail {

WeightGradients::WeightGradients(const FastCall& c, const FastTileKernels& tiles,
                                 const AttentionGradients& g, Index slices, CallArena& arena)
    : call_(c), tiles_(tiles), gradients_(g), slices_(slices) {
  bool wanted = false;
  for (std::size_t n = 0; n < g.terms.size(); ++n)
    wanted = wanted || (ContentWeights::has(c.args.terms[n]) && !g.terms[n].table.empty());
  if (!wanted) return;
  lines_ = arena.array<double>(c.B * c.H * slices * c.weights.entries());
  if (!arena.counts()) std::fill(lines_.begin(), lines_.end(), 0.0);
}

void WeightGradients::add(const WeightTile& x, Index slice) const noexcept {
  const Index count = x.keys.end - x.keys.begin;
  const FastRow& r = *x.row;
  double* line = lines_.data() +
                 ((r.b * call_.H + r.h) * slices_ + slice) * call_.weights.entries() + x.keys.begin;
  const Index first = call_.weights.entry(r);
  bool neighbours = true;
  for (Index i = 1; i < x.rows; ++i)
    neighbours = neighbours && call_.weights.entry(x.row[i]) + i == first;
  if (neighbours) {
    tiles_.diagonals(x.diagonals, x.content, x.rows, count);
    for (Index n = 0; n < x.rows - 1 + count; ++n)
      if (x.diagonals[n] != 0)
        line[first - (x.rows - 1) + n] += static_cast<double>(x.diagonals[n]);
    return;
  }
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < count; ++j)
      line[call_.weights.entry(x.row[i]) + j] +=
          static_cast<double>(x.content[i * tiles_.tile_stride + j]);
}

void WeightGradients::pull(const WeightTile& x, Index slice) const noexcept {
  const Index stride = tiles_.tile_stride, count = x.keys.end - x.keys.begin;
  const FastWeightKernels& k = call_.weight_kernels;
  if (!lines_.empty()) {
    for (Index i = 0; i < x.rows; ++i) k.multiply(x.content + i * stride, x.s + i * stride, count);
    add(x, slice);
  }
  for (Index i = 0; i < x.rows; ++i)
    k.multiply(x.s + i * stride, call_.weights.of(x.row[i]) + x.keys.begin, count);
}

void WeightGradients::finish() noexcept {
  if (lines_.empty()) return;
  const Index entries = call_.weights.entries();
  for (std::size_t n = 0; n < gradients_.terms.size(); ++n) {
    if (!ContentWeights::has(call_.args.terms[n])) continue;
    const auto& t = std::get<ProductTerm>(call_.args.terms[n]);
    const TensorView& to = gradients_.terms[n].table;
    if (to.empty()) continue;
    // q came times the scale of q.k and log2(e).
    const double factor = call_.weights.factor(t) * kLn2;
    for (Index entry = 0; entry < entries; ++entry) {
      const Index row = call_.weights.row(t, entry);
      for (Index head = 0; row >= 0 && head < call_.B * call_.H; ++head) {
        const Index batch = to.shape[0] == 1 ? 0 : head / call_.H;
        const Index group = Grouping{call_.H, to.shape[1]}.of(head % call_.H);
        double sum = 0;
        for (Index slice = 0; slice < slices_; ++slice)
          sum += lines_[static_cast<std::size_t>((head * slices_ + slice) * entries + entry)];
        add_element(to.data, to.dtype,
                    batch * to.stride[0] + group * to.stride[1] + row * to.stride[2], factor * sum);
      }
    }
  }
}

}  // namespace posenc::v0::detail
