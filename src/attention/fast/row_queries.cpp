// SPDX-License-Identifier: Apache-2.0
// q of a group of rows, times scale and log2(e).
#include <algorithm>
#include <cmath>

#include "attention/fast/work.h"

namespace posenc::inline v0::detail {
namespace {

// A row that is not bounded becomes 0, and another engine computes it.
void keep(FastWork& w, const RowGroup& g, Index n, bool bounded, float* to,
          Index channels) noexcept {
  if (bounded) return;
  w.left[static_cast<std::size_t>(g.first + n)] = 1;
  std::fill_n(to, channels, 0.0f);
}

}  // namespace

void take_queries(const FastCall& c, FastWork& w, const RowGroup& g) noexcept {
  float* to = w.q.data() + g.slot * c.channels;
  // With the channels of products, row by row.
  for (Index n = 0; !c.wide.none() && n < g.rows; ++n, to += c.channels) {
    const FastRow& r = g.row[n];
    keep(w, g, n, c.take_query(r.b, r.h, r.i, to, c.D), to, c.channels);
  }
  if (!c.wide.none()) return;
  const std::size_t type = fast_type(c.q.dtype);
  const ConstHeads& q = c.q;
  const FastRow& r = *g.row;  // the others follow it
  const Index at = r.b * q.batch_stride + r.i * q.token_stride + r.h * q.head_stride;
  const void* from[kMostStripRows];
  for (Index n = 0; n < g.rows; ++n)
    from[n] = adjacent(q, at + std::min(n, g.count - 1) * q.token_stride,
                       w.query_copies.data() + n * static_cast<Index>(c.copy_bytes));
  const auto factor_of = [&](const FastRow& row) {
    return static_cast<float>(c.row_factor(row.b, row.h, row.i) * kLog2E);
  };
  float factors[kMostStripRows];
  std::fill_n(factors, g.rows, factor_of(r));
  bool finite = std::isfinite(factors[0]);
  for (Index n = 1; n < g.rows && !c.args.query_factor.empty(); ++n) {
    factors[n] = factor_of(g.row[n]);
    finite = finite && std::isfinite(factors[n]);
  }
  if (c.kernels.take_rows[type](to, c.D, from, g.rows, c.D, factors) && finite) return;
  for (Index n = 0; n < g.rows; ++n, to += c.D)
    keep(w, g, n,
         std::isfinite(factors[n]) && c.kernels.take_row[type](to, from[n], c.D, factors[n]), to,
         c.D);
}

}  // namespace posenc::v0::detail
