// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "absolute/names.h"
#include "absolute/rows.h"
#include "absolute/window.h"
#include "core/shape.h"
#include "posenc/core/error.h"
#include "positions/memory.h"

namespace posenc::inline v0 {
namespace {

struct Call {
  ConstTokenView x, y;
  bool with_x = false;
  Index width = 0;  // of x, or of what the rows alone make
};

// Channels of x and y, windows inside, appended ones counted.
Call check_call(const ConstTensorView& x, const LoweredInput& lowered, const ConstTensorView& y) {
  Call c;
  c.y = tokens_of(y, "y");
  if (!std::isfinite(lowered.input_gain))
    refuse_field(kApplyInput, "input_gain", "must be finite", lowered.input_gain);
  Index appended = 0;
  for (const InputTerm& t : lowered.terms) appended += t.compose == Compose::concat ? t.width : 0;
  c.with_x = !x.empty();
  c.width = c.y.width - appended;
  if (c.with_x) {
    c.x = tokens_of(x, "x");
    if (c.x.dtype != c.y.dtype)
      refuse_field(kApplyInput, "y", "must have the dtype of x", dtype_name(y.dtype));
    if (c.x.batch != c.y.batch || c.x.tokens != c.y.tokens)
      refuse_field(kApplyInput, "y", "must have the tokens of x", c.y.tokens);
    if (c.x.width != c.width)
      refuse_field(kApplyInput, "y", "must have the channels of x and of what is appended",
                   c.y.width);
  }
  Index have = c.width;
  if (have < 0)
    refuse_field(kApplyInput, "y", "must have the channels that are appended", c.y.width);
  for (const InputTerm& t : lowered.terms) {
    if (!std::isfinite(t.gain)) refuse_field(kApplyInput, "gain", "must be finite", t.gain);
    if (t.compose == Compose::concat)
      have += t.width;
    else
      detail::check_window(kApplyInput, t.first, t.width, have);
  }
  return c;
}

// Channel of y where the window of term n starts.
Index start_of(const LoweredInput& lowered, std::size_t n, Index width) {
  if (lowered.terms[n].compose != Compose::concat) return lowered.terms[n].first;
  for (std::size_t i = 0; i < n; ++i)
    if (lowered.terms[i].compose == Compose::concat) width += lowered.terms[i].width;
  return width;
}

void compose(const InputTerm& t, Index start, const std::vector<double>& row,
             std::vector<double>& y) {
  for (std::size_t c = 0; c < row.size(); ++c) {
    double& to = y[static_cast<std::size_t>(start) + c];
    const double p = t.gain * row[c];
    switch (t.compose) {
      case Compose::add:
        to += p;
        break;
      case Compose::multiply:
        to *= p;
        break;
      case Compose::one_plus:
        to *= 1 + p;
        break;
      case Compose::concat:
        to = p;
        break;
    }
  }
}

// d holds d y, becomes d of what stood there before the term; returns d row (without the gain).
std::vector<double> pull_compose(const InputTerm& t, Index start, const std::vector<double>& row,
                                 const std::vector<double>& before, std::vector<double>& d) {
  std::vector<double> d_row(row.size());
  for (std::size_t c = 0; c < row.size(); ++c) {
    const std::size_t at = static_cast<std::size_t>(start) + c;
    const bool product = t.compose == Compose::multiply || t.compose == Compose::one_plus;
    d_row[c] = product ? d[at] * before[at] : d[at];
    if (t.compose == Compose::multiply) d[at] *= t.gain * row[c];
    if (t.compose == Compose::one_plus) d[at] *= 1 + t.gain * row[c];
    if (t.compose == Compose::concat) d[at] = 0;
  }
  return d_row;
}

void read(const Call& c, const LoweredInput& lowered, Index b, Index t, std::vector<double>& y) {
  y.assign(static_cast<std::size_t>(c.y.width), 0.0);
  for (Index i = 0; c.with_x && i < c.width; ++i)
    y[static_cast<std::size_t>(i)] = lowered.input_gain * c.x.get(b, t, i);
}

void check_shape(const ConstTensorView& g, const ConstTensorView& of) {
  if (!g.empty() &&
      (of.empty() || g.rank != 2 || g.shape[0] != of.shape[0] || g.shape[1] != of.shape[1]))
    detail::refuse_shape(kApplyInput, "gradient of a table must have its shape", g);
}

void check_gradients(const LoweredInput& lowered, const Positions& p,
                     std::span<const InputGradient> g) {
  if (!g.empty() && g.size() != lowered.terms.size())
    refuse(kApplyInput, "there must be a gradient for each term, or none",
           static_cast<Index>(g.size()));
  for (std::size_t n = 0; n < g.size(); ++n) {
    const InputTerm& t = lowered.terms[n];
    for (const TensorView* v :
         {&g[n].table, &g[n].affine, &g[n].frequency, &g[n].gain, &g[n].position})
      if (!v->empty() && v->dtype != DType::f64)
        refuse(kApplyInput, "gradients of terms must be f64", dtype_name(v->dtype));
    check_shape(g[n].table, t.table);
    check_shape(g[n].affine, t.affine);
    const ConstTensorView& f = g[n].frequency;
    if (!f.empty() && (t.phase == nullptr || f.rank != 2 || f.shape[0] != t.phase->axes ||
                       f.shape[1] != t.phase->pairs()))
      detail::refuse_shape(kApplyInput, "gradient of frequencies must be [axes, pairs]", f);
    check_layer_gradients(t.layers, g[n].layers);
    if (!g[n].gain.empty() && g[n].gain.count() != 1)
      refuse(kApplyInput, "gradient of a gain must be one number", g[n].gain.count());
    const ConstTensorView& q = g[n].position;
    if (!q.empty() &&
        (q.rank != 3 || q.shape[0] != p.axes || q.shape[1] != p.batch || q.shape[2] != p.count))
      detail::refuse_shape(kApplyInput, "gradient of positions must be [axes, b, t]", q);
    if (g[n].rows.empty()) continue;
    const TokenView rows = tokens_of(g[n].rows, "gradient of rows");
    if (t.rows.empty() || rows.tokens != tokens_of(t.rows, "rows").tokens ||
        rows.width != source_width(t) || rows.batch != tokens_of(t.rows, "rows").batch)
      detail::refuse_shape(kApplyInput, "gradient of rows must have their shape", g[n].rows);
  }
}

// Every row is looked up before anything is written: a refused position leaves all as it was.
void look_up(const LoweredInput& lowered, const InputRows& rows, const ConstTokenView& y) {
  std::vector<double> row;
  for (std::size_t n = 0; n < lowered.terms.size(); ++n)
    if (!lowered.terms[n].table.empty())
      for (Index b = 0; b < y.batch; ++b)
        for (Index t = 0; t < y.tokens; ++t) rows.row(n, b, t, row);
}

}  // namespace

void apply_input(const ConstTensorView& x, const Positions& p, const LoweredInput& lowered,
                 const TensorView& y) {
  const Call c = check_call(x, lowered, y);
  detail::check_composed(kApplyInput, {"x", detail::memory_of(x)}, {"y", detail::memory_of(y)},
                         c.y.width - c.width);
  check_rows_memory(kApplyInput, lowered, y, "y", c.width);
  const InputRows rows(lowered, p, c.y.batch, c.y.tokens);
  const TokenView to = tokens_of(y, "y");
  std::vector<double> value, row;
  look_up(lowered, rows, c.y);
  detail::check_positions_apart(kApplyInput, p, {{"y", detail::memory_of(y)}});
  for (Index b = 0; b < c.y.batch; ++b)
    for (Index t = 0; t < c.y.tokens; ++t) {
      read(c, lowered, b, t, value);
      for (std::size_t n = 0; n < lowered.terms.size(); ++n) {
        rows.row(n, b, t, row);
        compose(lowered.terms[n], start_of(lowered, n, c.width), row, value);
      }
      for (Index i = 0; i < c.y.width; ++i) to.put(b, t, i, value[static_cast<std::size_t>(i)]);
    }
}

void input_gradient(const ConstTensorView& x, const Positions& p, const LoweredInput& lowered,
                    const ConstTensorView& d_y, const TensorView& d_x,
                    std::span<const InputGradient> g) {
  const Call c = check_call(x, lowered, d_y);
  check_gradients(lowered, p, g);
  check_gradient_memory(kApplyInput, g, p,
                        {{"x", detail::memory_of(x)},
                         {"d_y", detail::memory_of(d_y)},
                         {"d_x", detail::memory_of(d_x)}});
  if (c.y.batch * c.y.tokens > 0) check_product_has_x(kApplyInput, lowered, x, g);
  detail::check_positions_apart(kApplyInput, p, {{"d_x", detail::memory_of(d_x)}});
  TokenView to;
  if (!d_x.empty()) {
    to = tokens_of(d_x, "d_x");
    const detail::Operand out{"d_x", detail::memory_of(d_x)};
    detail::check_composed(kApplyInput, {"d_y", detail::memory_of(d_y)}, out, c.y.width - c.width);
    detail::check_in_place(kApplyInput, {"x", detail::memory_of(x)}, out);
    check_rows_memory(kApplyInput, lowered, d_x, "d_x", c.width);
    if (to.batch != c.y.batch || to.tokens != c.y.tokens || to.width != c.width ||
        to.dtype != c.y.dtype)
      detail::refuse_shape(kApplyInput, "d_x",
                           "must have the shape and dtype of x, " +
                               detail::sizes_text({c.y.batch, c.y.tokens, c.width}) + " of " +
                               std::string(dtype_name(c.y.dtype)),
                           d_x);
  }
  const InputRows rows(lowered, p, c.y.batch, c.y.tokens);
  look_up(lowered, rows, c.y);
  std::vector<double> value, d(static_cast<std::size_t>(c.y.width)), row;
  for (Index b = 0; b < c.y.batch; ++b)
    for (Index t = 0; t < c.y.tokens; ++t) {
      read(c, lowered, b, t, value);
      std::vector<std::vector<double>> before, row_of;
      for (std::size_t n = 0; n < lowered.terms.size(); ++n) {
        rows.row(n, b, t, row);
        before.push_back(value);
        row_of.push_back(row);
        compose(lowered.terms[n], start_of(lowered, n, c.width), row, value);
      }
      for (Index i = 0; i < c.y.width; ++i) d[static_cast<std::size_t>(i)] = c.y.get(b, t, i);
      for (std::size_t n = lowered.terms.size(); n-- > 0;) {
        const InputTerm& term = lowered.terms[n];
        std::vector<double> d_row =
            pull_compose(term, start_of(lowered, n, c.width), row_of[n], before[n], d);
        if (g.empty()) continue;
        double by_gain = 0;
        for (std::size_t i = 0; i < d_row.size(); ++i) {
          by_gain += d_row[i] * row_of[n][i];
          d_row[i] *= term.gain;
        }
        if (!g[n].gain.empty()) *static_cast<double*>(g[n].gain.data) += by_gain;
        rows.pull(n, b, t, d_row, g[n]);
      }
      for (Index i = 0; !d_x.empty() && i < c.width; ++i)
        to.put(b, t, i, lowered.input_gain * d[static_cast<std::size_t>(i)]);
    }
}

}  // namespace posenc::v0
