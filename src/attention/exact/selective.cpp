// SPDX-License-Identifier: Apache-2.0
#include "posenc/attention/selective.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "attention/call/add_to.h"
#include "attention/call/check_overlap.h"
#include "attention/call/check_parts.h"
#include "attention/exact/backward_rows.h"
#include "attention/exact/forward_rows.h"
#include "attention/exact/row_blocks.h"
#include "core/extent.h"
#include "core/parallel.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

constexpr const char* kSelective = "selective";
constexpr Index kSelectiveRows = 64;  // queries of a block
constexpr Index kSelectiveCuts = 4;   // tasks of a block of a backward pass, at least

void check_selective(const AttentionArgs& a, const SelectiveOptions& o) {
  const auto no = [](bool given, const char* what) {
    if (given)
      refuse_field(kSelective, what, "must not be given: selective attention does not support it");
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
    refuse_field(kSelective, "head", "must be one of the query heads", o.head);
  const TensorView& f = o.masked;
  if (!f.empty() && (f.dtype != DType::f64 || f.rank != 2 || f.shape[0] != a.q.batch ||
                     f.shape[1] != a.k.tokens || f.device != Device::cpu))
    refuse_shape(kSelective, "masked", "must be [batch, keys] of f64", f);
  if (!f.empty()) check_extent(kSelective, "masked", f);
  constexpr Index most = Index{1} << 62;  // of the offset of the last block too
  if (m.query_offset > most - a.q.tokens)
    refuse_field(kSelective, "query_offset", "must lie below 2^62 - queries", m.query_offset);
  check_attention_indices(a);
}

// A call by blocks of queries: the scores of the head that masks, and what it has masked so far.
class SelectiveCall {
 public:
  SelectiveCall(const AttentionArgs& a, const SelectiveOptions& o, bool backward,
                const Executor& executor)
      : c_(ReadyCall(a, arena_), {}, backward, arena_, executor),
        options_(o),
        executor_(executor),
        works_(row_works(c_, backward ? RowsFor::gradients : RowsFor::output,
                         task_count(executor, pieces(c_.H), most_tasks(c_)), arena_)),
        masked_(pair_count(1), 0.0),
        scores_(pair_count(kSelectiveRows)),
        bias_(scores_.size()) {
    each_masked([](double& sum, double& given) { sum = given; });
  }

  void store_masked() {
    each_masked([](double& sum, double& given) { given = sum; });
  }
  Index block_count() const { return detail::block_count(c_.Tq, kSelectiveRows); }
  void forward(Index block, const AttentionResult& result) {
    fill_bias(block);
    each_rows(queries(block), 0, c_.H, [&](Index first, Index count, RowWork& w) noexcept {
      w.bias = bias(block);
      fill_rows(c_, first, count, w);
      write_rows(c_, w, result);
    });
  }
  // From the last block to the first: what a query masked is in the scores of all later ones.
  void backward(const ConstAttentionResult& d_result, const AttentionGradients& to);

 private:
  std::size_t pair_count(Index rows) const { return static_cast<std::size_t>(c_.B * rows * c_.Tk); }
  Run queries(Index block) const {
    return {block * kSelectiveRows, std::min(c_.Tq, (block + 1) * kSelectiveRows)};
  }
  QueryBias<const double> bias(Index block) const {
    return {bias_.data(), block * kSelectiveRows, kSelectiveRows, c_.Tk};
  }
  template <class F>
  void each_masked(const F& fn) {
    const TensorView& f = options_.masked;
    if (f.empty()) return;
    for (Index b = 0; b < c_.B; ++b)
      for (Index j = 0; j < c_.Tk; ++j)
        fn(masked_[static_cast<std::size_t>(b * c_.Tk + j)],
           static_cast<double*>(f.data)[b * f.stride[0] + j * f.stride[1]]);
  }
  // Row r of a block in an array [B, kSelectiveRows, Tk].
  std::size_t at(Index b, Index r) const {
    return static_cast<std::size_t>((b * kSelectiveRows + r) * c_.Tk);
  }
  Index pieces(Index heads) const {
    return c_.B * heads * detail::block_count(kSelectiveRows, rows_at_once(c_));
  }
  // fn(first row, count, work) for rows of these queries and heads [head, head + heads).
  template <class F>
  void each_rows(Run queries, Index head, Index heads, const F& fn) {
    const Index at_once = rows_at_once(c_);
    const Index blocks = detail::block_count(queries.end - queries.begin, at_once);
    each_piece(executor_, c_.B * heads * blocks, static_cast<Index>(works_.size()),
               [&](Index n, Index task) noexcept {
                 const Index slab = n / blocks, b = slab / heads, h = head + slab % heads;
                 const Index first = queries.begin + n % blocks * at_once;
                 fn((b * c_.H + h) * c_.Tq + first, std::min(at_once, queries.end - first),
                    works_[static_cast<std::size_t>(task)]);
               });
  }
  // fn(b, keys) in parallel.
  template <class F>
  void each_keys(const F& fn) const {
    constexpr Index kKeys = 64;
    const Index blocks = detail::block_count(c_.Tk, kKeys);
    parallel_for(executor_, c_.B * blocks, static_cast<Index>(works_.size()),
                 [&](Index begin, Index end) noexcept {
                   for (Index n = begin; n < end; ++n) {
                     const Index first = n % blocks * kKeys;
                     fn(n / blocks, Run{first, std::min(c_.Tk, first + kKeys)});
                   }
                 });
  }
  bool masks(Index i, Index j) const noexcept {
    return j != c_.args.mask.query_offset + i && !(options_.keep_first && j == 0);
  }
  void fill_bias(Index block);
  void pull_block(Index block, const ConstAttentionResult& d_result, std::vector<Pull>& pulls,
                  Index cuts);
  void fill_masking_gradient(Index block);
  void pull_masking_head(Index block, std::vector<Pull>& pulls, Index cuts);

  CallArena arena_;
  CallView c_;
  const SelectiveOptions& options_;
  const Executor& executor_;
  std::span<RowWork> works_;
  DoubleBuffer masked_;         // [B, Tk]
  DoubleBuffer scores_, bias_;  // [B, kSelectiveRows, Tk]
  // Backward: of the bias, for each key head; then, in the first, of the scores of the head that
  // masks. What later queries give back, [B, Tk].
  std::vector<DoubleBuffer> d_bias_;
  DoubleBuffer later_;
};

// Scores and bias of a block; `masked` goes on to the next block.
void SelectiveCall::fill_bias(Index block) {
  const Run some = queries(block);
  each_rows(some, options_.head, 1, [&](Index first, Index count, RowWork& w) noexcept {
    w.bias = {};
    fill_scores(c_, first, count, w);
    each_head(w, [&](HeadRow& r) {
      double* to = scores_.data() + at(r.b, r.i - some.begin);
      std::fill(to, to + c_.Tk, -HUGE_VAL);
      for (const Run& run : r.runs)
        std::copy(r.scores + run.begin, r.scores + run.end, to + run.begin);
    });
  });
  each_keys([&](Index b, Run keys) noexcept {
    double* sum = masked_.data() + b * c_.Tk;
    for (Index r = 0; r < some.end - some.begin; ++r) {
      const double* s = scores_.data() + at(b, r);
      double* to = bias_.data() + at(b, r);
      for (Index j = keys.begin; j < keys.end; ++j) {
        to[j] = -sum[j];
        if (masks(some.begin + r, j)) sum[j] += std::max(s[j], 0.0);
      }
    }
  });
}

// All heads of a block. A task has the sums of one key head and one cut of the queries.
void SelectiveCall::pull_block(Index block, const ConstAttentionResult& d_result,
                               std::vector<Pull>& pulls, Index cuts) {
  const Run some = queries(block);
  const Index count = some.end - some.begin, at_once = rows_at_once(c_), shared = c_.H / c_.G;
  for (DoubleBuffer& d : d_bias_) std::fill(d.begin(), d.end(), 0.0);
  each_piece(
      executor_, c_.B * c_.G * cuts, static_cast<Index>(works_.size()),
      [&](Index n, Index task) noexcept {
        const Index cut = n % cuts, g = n / cuts % c_.G, b = n / cuts / c_.G;
        RowWork& w = works_[static_cast<std::size_t>(task)];
        w.bias = bias(block);
        const Run cut_of{some.begin + count * cut / cuts, some.begin + count * (cut + 1) / cuts};
        for (Index h = g * shared; h < (g + 1) * shared; ++h)
          for (Index i = cut_of.begin; i < cut_of.end; i += at_once)
            pull_rows(c_, (b * c_.H + h) * c_.Tq + i, std::min(at_once, cut_of.end - i),
                      {.result = d_result}, w, pulls[static_cast<std::size_t>(g * cuts + cut)]);
      });
}

// F_ij is subtracted from the scores of all heads: its gradient is minus theirs, and goes to the
// positive scores of earlier queries.
void SelectiveCall::fill_masking_gradient(Index block) {
  const Run some = queries(block);
  each_keys([&](Index b, Run keys) noexcept {
    double* later = later_.data() + b * c_.Tk;
    for (Index r = some.end - some.begin; r-- > 0;) {
      const double* s = scores_.data() + at(b, r);
      double* d = d_bias_[0].data() + at(b, r);
      for (Index j = keys.begin; j < keys.end; ++j) {
        double own = d[j];
        for (std::size_t g = 1; g < d_bias_.size(); ++g)
          own += d_bias_[g][at(b, r) + static_cast<std::size_t>(j)];
        d[j] = masks(some.begin + r, j) && s[j] > 0 ? later[j] : 0;
        later[j] -= own;
      }
    }
  });
}

void SelectiveCall::pull_masking_head(Index block, std::vector<Pull>& pulls, Index cuts) {
  const Run some = queries(block);
  const Index count = some.end - some.begin, at_once = rows_at_once(c_);
  const Index g = c_.group(options_.head);
  each_piece(
      executor_, c_.B * cuts, static_cast<Index>(works_.size()), [&](Index n, Index task) noexcept {
        const Index cut = n % cuts, b = n / cuts;
        RowWork& w = works_[static_cast<std::size_t>(task)];
        w.bias = {};
        Pull& pull = pulls[static_cast<std::size_t>(g * cuts + cut)];
        const Index end = some.begin + count * (cut + 1) / cuts;
        for (Index i = some.begin + count * cut / cuts; i < end; i += at_once) {
          fill_scores(c_, (b * c_.H + options_.head) * c_.Tq + i, std::min(at_once, end - i), w);
          each_head(w, [&](HeadRow& r) {
            std::fill(r.d_query, r.d_query + c_.D, 0.0);
            c_.lanes.scale(r.d_content, *c_.args.scale, d_bias_[0].data() + at(b, r.i - some.begin),
                           r.runs);
          });
          pull_products(c_, w, pull);
          each_head(w, [&](HeadRow& r) { pull_query(c_, r, pull); });
        }
      });
}

void SelectiveCall::backward(const ConstAttentionResult& d_result, const AttentionGradients& to) {
  const Index blocks = block_count();
  // F before each block.
  std::vector<DoubleBuffer> starts;
  for (Index n = 0; n < blocks; ++n) {
    starts.push_back(masked_);
    if (n + 1 < blocks) fill_bias(n);
  }
  // A few sums of k and v, where key heads are few: by the shape alone.
  const Index cuts = std::clamp<Index>(kSelectiveCuts / std::max<Index>(1, c_.B * c_.G), 1, 4);
  GradientSums sums(c_, to, arena_);
  sums.start(c_, 1, cuts, arena_);
  std::vector<Pull> pulls;
  for (Index g = 0; g < c_.G; ++g) d_bias_.emplace_back(scores_.size());
  for (Index n = 0; n < c_.G * cuts; ++n) {
    pulls.emplace_back(sums, to, 0, arena_);
    pulls.back().use_cut(n % cuts);
    pulls.back().query_bias = d_bias_[static_cast<std::size_t>(n / cuts)].data();
  }
  later_.assign(masked_.size(), 0.0);
  for (Index n = blocks; n-- > 0;) {
    masked_ = starts[static_cast<std::size_t>(n)];
    fill_bias(n);
    pull_block(n, d_result, pulls, cuts);
    fill_masking_gradient(n);
    pull_masking_head(n, pulls, cuts);
  }
  sums.add_all(c_, to, executor_);
}

}  // namespace
}  // namespace detail

void attend_selective(const AttentionArgs& a, const AttentionResult& result,
                      const SelectiveOptions& options, const Executor& executor) {
  check_attention(a, result);
  detail::check_selective(a, options);
  detail::SelectiveCall call(a, options, false, executor);
  for (Index n = 0; n < call.block_count(); ++n) call.forward(n, result);
  call.store_masked();
}

void attend_selective_backward(const AttentionArgs& a, const ConstAttentionResult& result,
                               const ConstAttentionResult& d_result, const AttentionGradients& to,
                               const SelectiveOptions& options, const Executor& executor) {
  check_attention(a, to);
  detail::check_selective(a, options);
  if (!options.masked.empty())
    refuse_field(detail::kSelective, "masked", "must not be given to gradients");
  detail::check_read(a, result, "the result");
  detail::check_read(a, d_result, "the gradient of the result");
  detail::check_overlap(d_result, to);
  detail::SelectiveCall call(a, options, true, executor);
  detail::clear_overwritten(to);
  call.backward(d_result, to);
}

}  // namespace posenc::v0
