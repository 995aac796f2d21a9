// SPDX-License-Identifier: Apache-2.0
#include "relative/xl_rows.h"

#include <cmath>
#include <utility>

#include "core/matmul.h"
#include "posenc/core/error.h"
#include "posenc/core/parameter.h"

namespace posenc::inline v0::detail {
namespace {

std::vector<double> xl_zeros(Index n) {
  return std::vector<double>(static_cast<std::size_t>(n), 0.0);
}

// Of one head, W [width, head_dim].
ConstMatrix xl_head_weights(const XlProjection& p, const std::vector<double>& w, Index head) {
  if (p.in_out) return {w.data() + head * p.head_dim, p.width, p.head_dim, p.heads * p.head_dim, 1};
  return {w.data() + head * p.head_dim * p.width, p.width, p.head_dim, 1, p.width};
}

}  // namespace

std::vector<double> xl_sinusoid(Index delta, Index width, double base, XlLayout layout, bool t2t) {
  const Index half = width / 2;
  const double most =
      t2t ? std::fmax(static_cast<double>(half - 1), 1) : static_cast<double>(width) / 2;
  std::vector<double> r = xl_zeros(width);
  for (Index m = 0; m < half; ++m) {
    const double angle =
        static_cast<double>(delta) * std::pow(base, -static_cast<double>(m) / most);
    const bool halves = layout == XlLayout::halves;
    r[static_cast<std::size_t>(halves ? m : 2 * m)] = std::sin(angle);
    r[static_cast<std::size_t>(halves ? half + m : 2 * m + 1)] = std::cos(angle);
  }
  return r;
}

void xl_check_sinusoid(const char* who, const char* field, Index width, double base) {
  if (width < 2 || width % 2 != 0)
    refuse(who, std::string(field) + " must be positive and even", width);
  if (!std::isfinite(base) || base <= 0) refuse(who, "base must be finite and positive", base);
}

std::vector<double> XlProjection::table(const std::vector<double>& r, Index n,
                                        const std::vector<double>& w) const {
  std::vector<double> table = xl_zeros(heads * n * head_dim);
  for (Index h = 0; h < heads; ++h)
    add_product({r.data(), n, width, width, 1}, xl_head_weights(*this, w, h),
                {table.data() + h * n * head_dim, head_dim, 1});
  return table;
}

std::vector<double> XlProjection::weight_gradient(const std::vector<double>& r, Index n,
                                                  const std::vector<double>& d_table) const {
  std::vector<double> d = xl_zeros(heads * head_dim * width);
  const ConstMatrix rows{r.data(), n, width, width, 1};
  for (Index h = 0; h < heads; ++h) {
    const ConstMatrix dt{d_table.data() + h * n * head_dim, n, head_dim, head_dim, 1};
    if (in_out)
      add_product(transposed(rows), dt, {d.data() + h * head_dim, heads * head_dim, 1});
    else
      add_product(transposed(dt), rows, {d.data() + h * head_dim * width, width, 1});
  }
  return d;
}

std::vector<double> XlProjection::row_gradient(const std::vector<double>& w, Index n,
                                               const std::vector<double>& d_table) const {
  std::vector<double> d = xl_zeros(n * width);
  for (Index h = 0; h < heads; ++h)
    add_product({d_table.data() + h * n * head_dim, n, head_dim, head_dim, 1},
                transposed(xl_head_weights(*this, w, h)), {d.data(), width, 1});
  return d;
}

std::vector<double> xl_numbers(const ScoreShape& s, const std::vector<double>& bias,
                               const std::vector<double>& table, Index groups, Index n) {
  const Index dim = s.head_dim;
  std::vector<double> numbers = xl_zeros(s.heads * n);
  for (Index h = 0; h < s.heads; ++h)
    add_product({table.data() + (groups == 1 ? 0 : h) * n * dim, n, dim, dim, 1},
                {bias.data() + h * dim, dim, 1, 1, 1}, {numbers.data() + h * n, 1, 1});
  return numbers;
}

std::vector<double> xl_numbers_back(const ScoreShape& s, const std::vector<double>& d_numbers,
                                    const std::vector<double>& bias,
                                    const std::vector<double>& table, Index groups, Index n,
                                    std::vector<double>& d_table) {
  const Index dim = s.head_dim;
  std::vector<double> d = xl_zeros(s.heads * dim);
  for (Index h = 0; h < s.heads; ++h) {
    const Index at = (groups == 1 ? 0 : h) * n * dim;
    add_product({d_numbers.data() + h * n, n, 1, 1, 1}, {bias.data() + h * dim, 1, dim, dim, 1},
                {d_table.data() + at, dim, 1});
    add_product({d_numbers.data() + h * n, 1, n, n, 1}, {table.data() + at, n, dim, dim, 1},
                {d.data() + h * dim, dim, 1});
  }
  return d;
}

std::vector<double> xl_vector_gradient(const char* who, const Heads& g, const ScoreShape& s) {
  const std::vector<Index> shape{1, 1, s.heads, s.head_dim};
  if (g.data == nullptr) return gradient_values(who, ConstTensorView{}, shape);
  const Index sizes[] = {g.batch, g.tokens, g.heads, g.dim};
  const Index strides[] = {g.batch_stride, g.token_stride, g.head_stride, g.dim_stride};
  return gradient_values(who, tensor(static_cast<const void*>(g.data), g.dtype, sizes, strides),
                         shape);
}

Term xl_key_term(const ScoreShape& s, std::vector<double> u, LoweredTerms& out) {
  Term t;
  t.scale = s.content_scale();
  t.query.given = out.vectors(std::move(u), 1, 1, s.heads, s.head_dim);
  t.key = kContent;
  return t;
}

Term xl_query_term(const ScoreShape& s, const ConstTensorView& table, const IndexLine& line) {
  Term t = xl_number_term(s, table, line);
  t.query = kContent;
  return t;
}

Term xl_number_term(const ScoreShape& s, const ConstTensorView& numbers, const IndexLine& line) {
  Term t;
  t.scale = s.content_scale();
  t.table = numbers;
  t.lines[0] = line;
  return t;
}

}  // namespace posenc::v0::detail
