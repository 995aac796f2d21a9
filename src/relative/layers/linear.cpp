// SPDX-License-Identifier: Apache-2.0
#include "relative/layers/linear.h"

#include <algorithm>
#include <utility>

#include "kernels/matmul.h"
#include "relative/lowering.h"

namespace posenc::inline v0::detail {
namespace {

Index size_of_list(const std::vector<double>& v) {
  return static_cast<Index>(v.size());
}
std::vector<double> zeros_of(Index n) {
  return std::vector<double>(static_cast<std::size_t>(n));
}

// Of one head, W [width, head_dim].
ConstMatrix head_weights(const HeadProjection& p, const std::vector<double>& w, Index head) {
  if (p.in_out) return {w.data() + head * p.head_dim, p.width, p.head_dim, p.heads * p.head_dim, 1};
  return {w.data() + head * p.head_dim * p.width, p.width, p.head_dim, 1, p.width};
}

// to [columns] += the sums over the rows of d.
void add_row_sums(const std::vector<double>& d, std::vector<double>& to) {
  const std::size_t n = to.size();
  for (std::size_t r = 0; r < d.size(); r += n)
    for (std::size_t c = 0; c < n; ++c) to[c] += d[r + c];
}

constexpr Index kBlock = 512;  // rows that stay in the cache

// Rows [first, first + count) of table [heads, n, head_dim]: to [count, heads head_dim].
void gather_heads(const HeadProjection& p, const double* table, Index n, Index first, Index count,
                  std::vector<double>& to) {
  to.resize(static_cast<std::size_t>(count * p.heads * p.head_dim));
  for (Index h = 0; h < p.heads; ++h)
    for (Index i = 0; i < count; ++i)
      std::copy_n(table + (h * n + first + i) * p.head_dim, p.head_dim,
                  to.data() + (i * p.heads + h) * p.head_dim);
}

// visit(rows, first, count) of every block.
template <class Visit>
void each_block(const RowBlock& r, Index n, const Visit& visit) {
  for (Index first = 0; first < n; first += kBlock) {
    const Index count = std::min(kBlock, n - first);
    visit(r(first, count), first, count);
  }
}

}  // namespace

RowBlock rows_of(const std::vector<double>& r, Index width) {
  return [&r, width](Index first, Index) { return r.data() + first * width; };
}

std::vector<double> linear(const std::vector<double>& x, const std::vector<double>& w,
                           const std::vector<double>& b, Index in) {
  return linear(rows_of(x, in), size_of_list(x) / in, w, b, in);
}

std::vector<double> linear(const RowBlock& x, Index rows, const std::vector<double>& w,
                           const std::vector<double>& b, Index in) {
  const Index out = size_of_list(w) / in;
  std::vector<double> y;
  if (b.empty()) y = zeros_of(rows * out);
  y.reserve(static_cast<std::size_t>(rows * out));
  for (Index r = 0; r < rows && !b.empty(); ++r) y.insert(y.end(), b.begin(), b.end());
  each_block(x, rows, [&](const double* block, Index first, Index count) {
    double* to = y.data() + first * out;
    add_product({block, count, in, in, 1}, {w.data(), in, out, 1, in}, {to, out, 1});
  });
  return y;
}

LinearGradient linear_gradient(const std::vector<double>& d, const std::vector<double>& x,
                               const std::vector<double>& w, Index in) {
  return linear_gradient(d, rows_of(x, in), w, in);
}

LinearGradient linear_gradient(const std::vector<double>& d, const RowBlock& x,
                               const std::vector<double>& w, Index in, std::vector<double> dx) {
  const Index out = size_of_list(w) / in, rows = size_of_list(d) / out;
  LinearGradient g{zeros_of(out * in), zeros_of(out), std::move(dx)};
  if (g.x.empty()) g.x = zeros_of(rows * in);
  each_block(x, rows, [&](const double* block, Index first, Index count) {
    const ConstMatrix dy{d.data() + first * out, count, out, out, 1};
    add_product(transposed(dy), {block, count, in, in, 1}, {g.w.data(), in, 1});
    add_product(dy, {w.data(), out, in, in, 1}, {g.x.data() + first * in, in, 1});
  });
  add_row_sums(d, g.b);
  return g;
}

std::vector<double> HeadProjection::table(const RowBlock& r, Index n, const std::vector<double>& w,
                                          const std::vector<double>& b) const {
  check_distances("projection", n, heads * head_dim);
  std::vector<double> table = zeros_of(heads * n * head_dim);
  each_block(r, n, [&](const double* rows, Index first, Index count) {
    for (Index h = 0; h < heads; ++h) {
      double* to = table.data() + (h * n + first) * head_dim;
      for (Index i = 0; i < count && !b.empty(); ++i)
        std::copy_n(b.data() + h * head_dim, head_dim, to + i * head_dim);
      add_product({rows, count, width, width, 1}, head_weights(*this, w, h), {to, head_dim, 1});
    }
  });
  return table;
}

std::vector<double> HeadProjection::weight_gradient(const RowBlock& r, Index n,
                                                    const double* d_table) const {
  const Index out = heads * head_dim;
  std::vector<double> d = zeros_of(out * width), of_rows;
  each_block(r, n, [&](const double* rows, Index first, Index count) {
    gather_heads(*this, d_table, n, first, count, of_rows);
    add_product({of_rows.data(), out, count, 1, out}, {rows, count, width, width, 1},
                {d.data(), width, 1});
  });
  return in_out ? transposed_list(d, out, width) : d;
}

// v . (R W): with S = e R, dv = S W, dW = S v and dR = e (W v) of each head.
std::vector<double> HeadProjection::dots_gradient(const RowBlock& r, Index n,
                                                  const std::vector<double>& w,
                                                  const std::vector<double>& v, const double* e,
                                                  std::vector<double>& dw,
                                                  std::vector<double>* dr) const {
  std::vector<double> sums = zeros_of(heads * width), dv = zeros_of(heads * head_dim);
  each_block(r, n, [&](const double* rows, Index first, Index count) {
    add_product({e + first, heads, count, n, 1}, {rows, count, width, width, 1},
                {sums.data(), width, 1});
  });
  std::vector<double> weighted = zeros_of(heads * width);
  for (Index h = 0; h < heads; ++h) {
    const ConstMatrix of_head = head_weights(*this, w, h);
    const ConstMatrix sum{sums.data() + h * width, 1, width, width, 1};
    const ConstMatrix vector{v.data() + h * head_dim, head_dim, 1, 1, 1};
    add_product(sum, of_head, {dv.data() + h * head_dim, head_dim, 1});
    add_product(transposed(sum), transposed(vector),
                {dw.data() + (of_head.data - w.data()), of_head.row_stride, of_head.column_stride});
    add_product(of_head, vector, {weighted.data() + h * width, 1, 1});
  }
  if (dr != nullptr)
    add_product({e, n, heads, 1, n}, {weighted.data(), heads, width, width, 1},
                {dr->data(), width, 1});
  return dv;
}

std::vector<double> HeadProjection::bias_gradient(Index n, const double* d_table) const {
  std::vector<double> d = zeros_of(heads * head_dim);
  for (Index h = 0; h < heads; ++h)
    for (Index i = 0; i < n; ++i)
      for (Index c = 0; c < head_dim; ++c)
        d[static_cast<std::size_t>(h * head_dim + c)] += d_table[(h * n + i) * head_dim + c];
  return d;
}

void HeadProjection::add_row_gradient(const std::vector<double>& w, Index n, const double* d_table,
                                      std::vector<double>& d) const {
  const Index out = heads * head_dim;
  const ConstMatrix weights = in_out ? ConstMatrix{w.data(), out, width, 1, out}
                                     : ConstMatrix{w.data(), out, width, width, 1};
  std::vector<double> of_rows;
  for (Index first = 0; first < n; first += kBlock) {
    const Index count = std::min(kBlock, n - first);
    gather_heads(*this, d_table, n, first, count, of_rows);
    add_product({of_rows.data(), count, out, out, 1}, weights,
                {d.data() + first * width, width, 1});
  }
}

}  // namespace posenc::v0::detail
