// SPDX-License-Identifier: Apache-2.0
#include "posenc/attention/selective.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "attention/call/check_overlap.h"
#include "attention/call/check_parts.h"
#include "core/element.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kSelective = "selective";
constexpr Index kSelectiveRows = 64;

template <class View>
View selective_rows(View v, std::int32_t axis, Index begin, Index rows) {
  if (v.empty()) return v;
  const auto a = static_cast<std::size_t>(axis);
  using Byte = std::conditional_t<std::is_same_v<View, TensorView>, std::byte, const std::byte>;
  v.data = static_cast<Byte*>(v.data) + begin * v.stride[a] * size_of(v.dtype);
  v.shape[a] = rows;
  return v;
}
template <class H>
H selective_tokens(H h, Index begin, Index rows) {
  if (h.data == nullptr) return h;
  using Byte = std::conditional_t<std::is_same_v<H, Heads>, std::byte, const std::byte>;
  h.data = static_cast<Byte*>(h.data) + begin * h.token_stride * size_of(h.dtype);
  h.tokens = rows;
  return h;
}

void check_selective(const AttentionArgs& a, const SelectiveOptions& o) {
  const auto no = [](bool given, const char* what) {
    if (given)
      refuse(kSelective, std::string(what) + " must not be given: selective attention has none");
  };
  const Mask& m = a.mask;
  no(!a.terms.empty(), "terms");
  no(!a.regions.empty(), "regions");
  no(!a.prepare.empty(), "prepare");
  no(a.softcap != 0, "softcap");
  no(!a.head_scale.empty(), "head_scale");
  no(!a.query_factor.empty(), "query_factor");
  no(!a.sink.empty(), "sink");
  no(!a.mix_before.empty() || !a.mix_after.empty(), "mix_before or mix_after");
  no(a.normalisation != Normalisation::softmax, "normalisation");
  no(!a.block_table.empty(), "block_table");
  no(!m.bias.empty(), "mask.bias");
  no(!m.query_cu_seqlens.empty() || !m.key_cu_seqlens.empty(), "cu_seqlens");
  no(!m.query_order.empty() || !m.key_order.empty(), "query_order or key_order");
  no(!m.query_offsets.empty(), "mask.query_offsets");
  no(!m.head_side.empty(), "mask.head_side");
  no(m.visible.rank == 4 && m.visible.shape[1] != 1, "mask.visible of several heads");
  no(m.chunk_origin.rank == 2 && m.chunk_origin.shape[1] != 1,
     "mask.chunk_origin of several heads");
  if (o.head < 0 || o.head >= a.q.heads)
    refuse(kSelective, "head must be one of the query heads", o.head);
  constexpr Index most = Index{1} << 62;  // of the offset of the last block too
  if (m.query_offset > most - a.q.tokens)
    refuse(kSelective, "query_offset must lie below 2^62 - queries", m.query_offset);
  check_attention_indices(a);
}

// One pass over blocks of rows: the scores of the head that masks, and what it has masked so far.
class SelectiveBlocks {
 public:
  SelectiveBlocks(const AttentionArgs& a, const SelectiveOptions& o, const Executor& executor)
      : args_(a),
        options_(o),
        executor_(executor),
        batch_(a.q.batch),
        queries_(a.q.tokens),
        keys_(a.k.tokens),
        masked(static_cast<std::size_t>(batch_ * keys_), 0.0),
        scores(static_cast<std::size_t>(batch_ * kSelectiveRows * keys_)),
        bias(scores.size()) {}

  Index count() const { return (queries_ + kSelectiveRows - 1) / kSelectiveRows; }
  Index begin(Index n) const { return n * kSelectiveRows; }
  Index rows(Index n) const { return std::min(kSelectiveRows, queries_ - begin(n)); }
  Index batch() const { return batch_; }
  Index keys() const { return keys_; }
  std::size_t at(Index b, Index rows, Index r, Index j) const {
    return static_cast<std::size_t>((b * rows + r) * keys_ + j);
  }
  // Whether query i of the call may mask key j.
  bool masks(Index i, Index j) const {
    return j != args_.mask.query_offset + i && !(options_.keep_first && j == 0);
  }
  TensorView pairs(std::vector<double>& x, Index rows) const {
    return tensor(x.data(), {batch_, 1, rows, keys_});
  }

  // Rows of block n as a call of its own.
  AttentionArgs call(Index n) const {
    AttentionArgs a = args_;
    a.q = selective_tokens(a.q, begin(n), rows(n));
    a.query_positions = a.key_positions = {};  // checked with the whole call, and read by nothing
    Mask& m = a.mask;
    m.query_offset += begin(n);
    if (m.query_document.rank == 2)
      m.query_document = selective_rows(m.query_document, 1, begin(n), rows(n));
    m.visible = selective_rows(m.visible, m.visible.rank == 4 ? 2 : 0, begin(n), rows(n));
    return a;
  }
  // Scores and bias of block n; `masked` goes on to the next block.
  void fill(Index n) {
    AttentionArgs a = call(n);
    const Index group = options_.head / (a.q.heads / a.k.heads), count = rows(n);
    a.q = slice_heads(a.q, options_.head, 1);
    a.k = slice_heads(a.k, group, 1);
    a.v = slice_heads(a.v, group, 1);
    AttentionScores s;
    s.scores = pairs(scores, count);
    attend_scores(a, s, executor_);
    for (Index b = 0; b < batch_; ++b)
      for (Index r = 0; r < count; ++r)
        for (Index j = 0; j < keys_; ++j) {
          double& so_far = masked[static_cast<std::size_t>(b * keys_ + j)];
          bias[at(b, count, r, j)] = -so_far;
          if (masks(begin(n) + r, j)) so_far += std::max(scores[at(b, count, r, j)], 0.0);
        }
  }

 private:
  const AttentionArgs& args_;
  const SelectiveOptions& options_;
  const Executor& executor_;
  Index batch_, queries_, keys_;

 public:
  std::vector<double> masked;        // [batch, keys]
  std::vector<double> scores, bias;  // [batch, 1, rows, keys]
};

double selective_at(const ConstHeads& h, Index b, Index t, Index head, Index d) {
  return detail::float_element(
      h.data, h.dtype,
      b * h.batch_stride + t * h.token_stride + head * h.head_stride + d * h.dim_stride);
}
void selective_add(const Heads& h, Index b, Index t, Index head, Index d, double x) {
  if (h.data == nullptr) return;
  const Index at =
      b * h.batch_stride + t * h.token_stride + head * h.head_stride + d * h.dim_stride;
  detail::add_element(h.data, h.dtype, at, x);
}

// d: the gradient of the scores of the head that masks, [batch, 1, rows, keys] of block n.
void pull_selective(const AttentionArgs& a, const SelectiveOptions& o,
                    const SelectiveBlocks& blocks, Index n, const std::vector<double>& d,
                    const AttentionGradients& to) {
  const Index group = o.head / (a.q.heads / a.k.heads), rows = blocks.rows(n);
  for (Index b = 0; b < blocks.batch(); ++b)
    for (Index r = 0; r < rows; ++r)
      for (Index j = 0; j < blocks.keys(); ++j) {
        const double x = *a.scale * d[blocks.at(b, rows, r, j)];
        if (x == 0) continue;
        const Index i = blocks.begin(n) + r;
        for (Index c = 0; c < a.q.dim; ++c) {
          selective_add(to.q, b, i, o.head, c, x * selective_at(a.k, b, j, group, c));
          selective_add(to.k, b, j, group, c, x * selective_at(a.q, b, i, o.head, c));
        }
      }
}

}  // namespace

void attend_selective(const AttentionArgs& a, const AttentionResult& result,
                      const SelectiveOptions& options, const Executor& executor) {
  check_attention(a, result);
  check_selective(a, options);
  SelectiveBlocks blocks(a, options, executor);
  for (Index n = 0; n < blocks.count(); ++n) {
    blocks.fill(n);
    AttentionArgs call = blocks.call(n);
    call.mask.bias = blocks.pairs(blocks.bias, blocks.rows(n));
    attend(call,
           {selective_tokens(result.out, blocks.begin(n), blocks.rows(n)),
            selective_rows(result.log_sum_exp, 2, blocks.begin(n), blocks.rows(n))},
           executor);
  }
}

// From the last block to the first: what a query masked is in the scores of all later ones.
void attend_selective_backward(const AttentionArgs& a, const ConstAttentionResult& result,
                               const ConstAttentionResult& d_result, const AttentionGradients& to,
                               const SelectiveOptions& options, const Executor& executor) {
  check_attention(a, to);
  check_selective(a, options);
  detail::check_read(a, result, "the result");
  detail::check_read(a, d_result, "the gradient of the result");
  detail::check_overlap(d_result, to);
  SelectiveBlocks blocks(a, options, executor);
  std::vector<std::vector<double>> starts;
  for (Index n = 0; n < blocks.count(); ++n) {
    starts.push_back(blocks.masked);
    if (n + 1 < blocks.count()) blocks.fill(n);
  }
  const auto rows_of = [&](const ConstAttentionResult& r, Index n) {
    return ConstAttentionResult(selective_tokens(r.out, blocks.begin(n), blocks.rows(n)),
                                selective_rows(r.log_sum_exp, 2, blocks.begin(n), blocks.rows(n)));
  };
  std::vector<double> later(blocks.masked.size(), 0.0);
  for (Index n = blocks.count(); n-- > 0;) {
    const Index rows = blocks.rows(n);
    blocks.masked = starts[static_cast<std::size_t>(n)];
    blocks.fill(n);
    AttentionArgs call = blocks.call(n);
    call.mask.bias = blocks.pairs(blocks.bias, rows);
    std::vector<double> d(static_cast<std::size_t>(blocks.batch() * rows * blocks.keys()), 0.0);
    AttentionGradients g;
    g.q = selective_tokens(to.q, blocks.begin(n), rows);
    g.k = to.k;
    g.v = to.v;
    g.bias = blocks.pairs(d, rows);
    attend_backward(call, rows_of(result, n), rows_of(d_result, n), g, executor);
    for (Index b = 0; b < blocks.batch(); ++b)
      for (Index r = rows; r-- > 0;)
        for (Index j = 0; j < blocks.keys(); ++j) {
          const std::size_t at = blocks.at(b, rows, r, j);
          double& sum = later[static_cast<std::size_t>(b * blocks.keys() + j)];
          const double own = d[at];
          const bool masked = blocks.masks(blocks.begin(n) + r, j) && blocks.scores[at] > 0;
          d[at] = masked ? sum : 0;
          sum -= own;
        }
    pull_selective(a, options, blocks, n, d, to);
  }
}

}  // namespace posenc::v0
