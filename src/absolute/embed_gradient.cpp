// SPDX-License-Identifier: Apache-2.0
// The gradient of embed. Back through the norm token by token; then for every table the tokens that
// read a row, in order, are summed at once.
#include <algorithm>
#include <memory>
#include <string>

#include "absolute/embed_call.h"
#include "core/overlap.h"
#include "core/parallel.h"
#include "core/shape.h"
#include "kernels/norm.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

using detail::EmbedCall;
constexpr const char* kWho = "embed";
constexpr Index kBlock = 64;  // tokens of a partial sum of gamma and beta, whatever the threads

void check_gradient(const ConstTensorView& g, const char* what) {
  if (g.device != Device::cpu) refuse(kWho, std::string(what) + " must be in the CPU's memory");
  if (g.dtype != DType::f64 && g.dtype != DType::f32)
    refuse(kWho, std::string(what) + " must be f64 or f32", dtype_name(g.dtype));
  detail::check_no_self_overlap(kWho, {what, detail::memory_of(g)});  // threads add to its rows
}

// n numbers, `stride` elements apart from `at` on.
template <class T>
void add_row(T* to, Index stride, const double* v, Index n) {
  const auto add = [&](Index at, double x) {
    to[at] = static_cast<T>(static_cast<double>(to[at]) + x);
  };
  if (stride == 1)
    for (Index i = 0; i < n; ++i) add(i, v[i]);
  else
    for (Index i = 0; i < n; ++i) add(i * stride, v[i]);
}
void add_row(const TensorView& to, Index at, Index stride, const double* v, Index n) {
  if (to.dtype == DType::f64)
    add_row(static_cast<double*>(to.data) + at, stride, v, n);
  else
    add_row(static_cast<float*>(to.data) + at, stride, v, n);
}

// d s of every token: [count, width] in double behind a norm or for 16-bit dtypes, else d_y itself;
// and the sums of gamma and beta, a partial sum a block of tokens, where they are wanted.
struct Back {
  std::unique_ptr<double[]> d;      // not cleared: it is large
  std::vector<double> gamma, beta;  // [blocks, width]

  bool direct() const { return d == nullptr; }
  const void* row(const EmbedCall& c, Index token) const {
    if (direct()) return c.y.at(token / c.tokens, token % c.tokens);
    return d.get() + token * c.width;
  }
};

// s: width; rows: part_count().
void back_block(const EmbedCall& c, Isa isa, Index block, Index begin, Index end, Back& back,
                double* s, const void** rows) noexcept {
  const detail::WeightedSumKernels& k = detail::weighted_sum_kernels(isa);
  const detail::NormKernels& norm = detail::norm_kernels(isa);
  const double one = 1;
  for (Index i = begin; i < end; ++i) {
    const void* up = c.y.at(i / c.tokens, i % c.tokens);
    double* d = back.d.get() + i * c.width;
    k.into_f64(c.dtype)({&up, &one, 1, c.width, d});
    if (!c.has_norm()) continue;
    c.sum(k, i, s, rows);
    const bool sums = !back.gamma.empty();
    norm.backward(s, c.width, c.epsilon, c.gamma.data(), d,
                  sums ? back.gamma.data() + block * c.width : nullptr,
                  sums ? back.beta.data() + block * c.width : nullptr);
  }
}

void back_tokens(const EmbedCall& c, Back& back, const Executor& executor) {
  const Isa isa = active_isa();
  const Index blocks = detail::block_count(c.count(), kBlock);
  const Index most = c.count() * c.width / detail::kValuesPerTask;
  const auto tasks = static_cast<std::size_t>(detail::task_count(executor, blocks, most));
  std::vector<double> s(tasks * static_cast<std::size_t>(c.width));
  std::vector<const void*> rows(tasks * c.scale.size());
  detail::parallel_blocks(executor, c.count(), kBlock, most,
                          [&](Index block, Index begin, Index end, Index task) noexcept {
                            back_block(c, isa, block, begin, end, back, s.data() + task * c.width,
                                       rows.data() + task * c.part_count());
                          });
}

// Tokens by the row they read: those of row r are token[start[r]] .. token[start[r + 1] - 1], in
// order.
struct ByRow {
  std::vector<Index> start, token, row;  // row: those that are read, ascending
  Index longest = 0;                     // tokens that read one row

  std::span<const Index> tokens_of(Index r) const noexcept {
    const auto at = static_cast<std::size_t>(r);
    return {token.data() + start[at], static_cast<std::size_t>(start[at + 1] - start[at])};
  }
};
ByRow by_row(const std::vector<Index>& row_of, Index rows, std::optional<Index> frozen) {
  ByRow s;
  s.start.assign(static_cast<std::size_t>(rows) + 1, 0);
  for (const Index r : row_of) ++s.start[static_cast<std::size_t>(r) + 1];
  for (Index r = 0; r < rows; ++r) {
    const auto at = static_cast<std::size_t>(r);
    if (s.start[at + 1] > 0 && frozen != r) {
      s.row.push_back(r);
      s.longest = std::max(s.longest, s.start[at + 1]);
    }
    s.start[at + 1] += s.start[at];
  }
  s.token.resize(row_of.size());
  std::vector<Index> next(s.start.begin(), s.start.end() - 1);
  for (std::size_t i = 0; i < row_of.size(); ++i)
    s.token[static_cast<std::size_t>(next[static_cast<std::size_t>(row_of[i])]++)] =
        static_cast<Index>(i);
  return s;
}

void table_gradient(const EmbedCall& c, std::size_t part, const Back& back, const TensorView& to,
                    const Executor& executor) {
  const ByRow sorted = by_row(c.row[part], c.parts[part].table.shape[0], c.parts[part].frozen);
  const detail::WeightedSumKernels& k = detail::weighted_sum_kernels(active_isa());
  const bool narrow = back.direct() && c.dtype == DType::f32;
  const auto kernel = narrow ? k.f32_f64 : k.f64_f64;
  const Index size = narrow ? sizeof(float) : sizeof(double);
  // Few rows (segments): channels are shared out; many: rows. Each sum is the same either way.
  const bool by_channel = static_cast<Index>(sorted.row.size()) < 4 * executor.concurrency;
  const auto rows = static_cast<Index>(sorted.row.size());
  // By channel whole vectors of 16, so that no channel changes its place in one.
  const Index count = by_channel ? detail::block_count(c.width, 16) : rows;
  const Index most = c.count() * c.width / detail::kValuesPerTask;
  const auto tasks = static_cast<std::size_t>(detail::task_count(executor, count, most));
  const auto longest = static_cast<std::size_t>(sorted.longest);
  const std::vector<double> weight(longest, c.scale[part]);
  std::vector<const void*> addends(tasks * longest);
  std::vector<double> sums(tasks * static_cast<std::size_t>(c.width));
  const auto sum = [&](Index row_from, Index row_to, Index from, Index end, Index task) noexcept {
    const void** addend = addends.data() + task * sorted.longest;
    double* out = sums.data() + task * c.width;
    for (Index i = row_from; i < row_to; ++i) {
      const Index r = sorted.row[static_cast<std::size_t>(i)];
      const std::span<const Index> tokens = sorted.tokens_of(r);
      for (std::size_t t = 0; t < tokens.size(); ++t)
        addend[t] = static_cast<const std::byte*>(back.row(c, tokens[t])) + from * size;
      kernel({addend, weight.data(), static_cast<Index>(tokens.size()), end - from, out});
      add_row(to, r * to.stride[0] + from * to.stride[1], to.stride[1], out, end - from);
    }
  };
  detail::parallel_for(executor, count, most, [&](Index from, Index end, Index task) noexcept {
    if (by_channel)
      sum(0, rows, from * 16, std::min(end * 16, c.width), task);
    else
      sum(from, end, 0, c.width, task);
  });
}

void rows_gradient(const EmbedCall& c, std::size_t part, const Back& back, const TensorView& to) {
  const auto scaled =
      detail::weighted_sum_kernels(active_isa()).into_f64(back.direct() ? c.dtype : DType::f64);
  std::vector<double> d(static_cast<std::size_t>(c.width));
  for (Index i = 0; i < c.count(); ++i) {
    const void* row = back.row(c, i);
    scaled({&row, &c.scale[part], 1, c.width, d.data()});
    const bool one = to.rank == 2 || to.shape[0] == 1;
    const Index token = to.stride[static_cast<std::size_t>(to.rank - 2)];
    const Index at = (one ? 0 : i / c.tokens * to.stride[0]) + i % c.tokens * token;
    add_row(to, at, to.stride[static_cast<std::size_t>(to.rank - 1)], d.data(), c.width);
  }
}

void check_parts(const EmbedCall& c, std::span<const EmbedPart> parts, const EmbedGradients& g) {
  if (!g.parts.empty() && g.parts.size() != parts.size())
    refuse(kWho, "there must be a gradient for each part, or none",
           static_cast<Index>(g.parts.size()));
  for (std::size_t n = 0; n < g.parts.size(); ++n) {
    const TensorView& d = g.parts[n];
    if (d.empty()) continue;
    check_gradient(d, "a gradient");
    const ConstTensorView& of = detail::is_given(parts[n].rows) ? parts[n].rows : parts[n].table;
    bool same = d.rank == of.rank;
    for (std::int32_t i = 0; same && i < d.rank; ++i)
      same = d.shape[static_cast<std::size_t>(i)] == of.shape[static_cast<std::size_t>(i)];
    if (!same) detail::refuse_shape(kWho, "a gradient must have the shape of its part", d);
  }
  for (const TensorView* v : {&g.gamma, &g.beta}) {
    if (v->empty()) continue;
    check_gradient(*v, "a gradient of the norm");
    if (!c.has_norm() || v->rank != 1 || v->shape[0] != c.width)
      detail::refuse_shape(
          kWho,
          "a gradient of the norm must be [" + std::to_string(c.width) + "] and the norm be there",
          *v);
  }
}

}  // namespace

void embed_gradient(std::span<const EmbedPart> parts, const std::optional<EmbedNorm>& norm,
                    const ConstTensorView& d_y, const EmbedGradients& g, const Executor& executor) {
  const EmbedCall c = detail::check_embed(parts, norm, d_y, "d_y");
  check_parts(c, parts, g);
  if (c.count() == 0) return;
  const detail::Operand up{"d_y", detail::memory_of(d_y)};
  for (const TensorView& d : g.parts)
    detail::check_separate(kWho, up, {"a gradient", detail::memory_of(d)});
  const Index blocks = detail::block_count(c.count(), kBlock);
  Back back;
  if (c.has_norm() || size_of(c.dtype) == 2)
    back.d =
        std::make_unique_for_overwrite<double[]>(static_cast<std::size_t>(c.count() * c.width));
  if (c.has_norm() && !(g.gamma.empty() && g.beta.empty())) {
    back.gamma.resize(static_cast<std::size_t>(blocks * c.width));
    back.beta.resize(back.gamma.size());
  }
  if (!back.direct()) back_tokens(c, back, executor);
  const auto add_blocks = [&](const TensorView& to, const std::vector<double>& from) {
    if (to.empty()) return;
    std::vector<double> sum(static_cast<std::size_t>(c.width));
    for (Index b = 0; b < blocks; ++b) add_row(sum.data(), 1, from.data() + b * c.width, c.width);
    add_row(to, 0, to.stride[0], sum.data(), c.width);
  };
  add_blocks(g.gamma, back.gamma);
  add_blocks(g.beta, back.beta);
  for (std::size_t n = 0; n < g.parts.size(); ++n) {
    if (g.parts[n].empty()) continue;
    if (c.row[n].empty())
      rows_gradient(c, n, back, g.parts[n]);
    else
      table_gradient(c, n, back, g.parts[n], executor);
  }
}

}  // namespace posenc::v0
