// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/backward_rows.h"

#include <algorithm>
#include <cmath>

namespace posenc::inline v0::detail {
namespace {

// Rows of x times factors, `width` apart; of rows that see no key 0.
void take_rows(const BackwardCall& c, const ConstHeads& x, Index b, Index h, const float* factors,
               float* to, Index width, BackwardWork& w) noexcept {
  const double* sums = c.facts.log2_sums(b, h);
  if (!is_readable(x)) {
    for (Index i = 0; i < c.Tq; ++i, to += width)
      if (sums[i] == HUGE_VAL)
        std::fill_n(to, width, 0.0f);
      else
        take_vector(c.kernels, x, b, i, h, factors[i], to, width);
    return;
  }
  const Index step = x.token_stride * size_of(x.dtype), most = static_cast<Index>(w.tokens.size());
  const std::byte* from = token_at(x, b, 0, h);
  for (Index first = 0; first < c.Tq; first += most) {
    const Index count = std::min(most, c.Tq - first);
    for (Index n = 0; n < count; ++n)
      w.tokens[static_cast<std::size_t>(n)] =
          sums[first + n] == HUGE_VAL ? nullptr : from + (first + n) * step;
    c.kernels.take_rows[fast_type(x.dtype)](to + first * width, width, w.tokens.data(), count,
                                            x.dim, factors + first);
  }
}

void take_queries(const BackwardCall& c, Index b, Index h, BackwardWork& w) noexcept {
  if (c.wide.none()) {
    const bool same = c.args.query_factor.empty();
    for (Index i = 0; i < c.Tq; ++i)
      w.factors[static_cast<std::size_t>(i)] =
          same && i > 0 ? w.factors[0] : static_cast<float>(c.row_factor(b, h, i) * kLog2E);
    take_rows(c, c.q, b, h, w.factors.data(), w.q.data(), c.q_width, w);
    for (std::size_t n = 0; n < c.regions.size(); ++n)
      take_rows(c, c.regions.qk(static_cast<int>(n)).q, b, h, w.factors.data(),
                w.regions.q.data() + n * (w.regions.q.size() / c.regions.size()), c.q_width, w);
    return;
  }
  for (Index i = 0; i < c.Tq; ++i)
    if (float* q = w.q.data() + i * c.q_width; c.facts.log2_sum(b, h, i) == HUGE_VAL)
      std::fill_n(q, c.q_width, 0.0f);
    else
      c.take_query(b, h, i, q, c.q_width);
}

}  // namespace

void take_head(const BackwardCall& c, const ConstAttentionResult& d, Index b, Index h,
               BackwardWork& w) noexcept {
  find_rows(c, {b, h, h + 1, 0, c.Tq, b}, w);
  take_row_terms(c, w);
  c.row_gradients.begin_head(b, h, w.row_gradients);
  c.gate_gradients.begin_head(b, h, w, w.gate_gradients);
  c.stick_gradients.begin_head(b, h, c.facts, w.stick_gradients);
  if (c.slopes == nullptr || !c.key_lengths.empty()) take_queries(c, b, h, w);
  // Of rows behind the last all is 0.
  float* rest = w.factors.data();
  c.kernels.split_sums(c.facts.log2_sums(b, h), c.facts.less_of(b, h), c.Tq, w.reference.data(),
                       rest, w.less.data());
  if (!c.stick_gradients.none()) std::fill_n(w.less.data(), c.Tq, 0.0f);
  for (RowGroup& g : w.groups)
    find_weighing_keys(c, g, w.q.data() + g.first * c.q_width, c.q_width,
                       w.reference.data() + g.first);
  if (c.slopes != nullptr)
    take_word_rows(c, d.out, b, h, w);
  else
    take_rows(c, d.out, b, h, rest, w.g.data(), c.g_width, w);
}

namespace {

// To w.tokens: where some keys lie, null: those that no query sees.
template <class F>
void find_tokens(const BackwardCall& c, Index b, Run keys, const F& token,
                 BackwardWork& w) noexcept {
  std::fill_n(w.tokens.data(), keys.end - keys.begin, nullptr);
  for (Run seen = c.facts.seen_run(b, keys); seen.begin < seen.end;
       seen = c.facts.seen_run(b, {seen.end, keys.end}))
    for (Index j = seen.begin; j < seen.end; ++j)
      w.tokens[static_cast<std::size_t>(j - keys.begin)] = token(j);
}
void find_tokens_of(const BackwardCall& c, const ConstHeads& x, Index b, Index h, Run keys,
                    BackwardWork& w) noexcept {
  const Index bytes = static_cast<Index>(c.copy_bytes), group = Grouping{c.H, x.heads}.of(h);
  if (is_readable(x))
    return find_tokens(
        c, b, keys, [&](Index j) { return token_at(x, b, j, group); }, w);
  find_tokens(
      c, b, keys,
      [&](Index j) { return c.token(x, b, group, j, w.copies.data() + (j - keys.begin) * bytes); },
      w);
}
// Those keys, both packed and as rows, `channels` wide.
void take_tokens(const BackwardCall& c, DType type, Index count, Index channels, float* packed,
                 float* rows, BackwardWork& w) noexcept {
  const std::size_t kind = fast_type(type);
  c.kernels.pack_keys[kind](packed, w.tokens.data(), count, channels, c.channels);
  c.kernels.take_rows[kind](rows, c.q_width, w.tokens.data(), count, channels, nullptr);
}

}  // namespace

void take_key_rows(const BackwardCall& c, const ConstHeads& k, Index b, Index h, Run keys,
                   float* packed, float* rows, BackwardWork& w) noexcept {
  find_tokens_of(c, k, b, h, keys, w);
  if (c.slopes != nullptr) return take_word_keys(c, keys.end - keys.begin, w);
  take_tokens(c, k.dtype, keys.end - keys.begin, c.D, packed, rows, w);
}

void take_keys(const BackwardCall& c, Index b, Index h, Run keys, BackwardWork& w) noexcept {
  const Index count = keys.end - keys.begin;
  w.regions.taken = 0;
  take_key_rows(c, c.k, b, h, keys, w.keys.data(), w.key_rows.data(), w);
  take_row_keys(c, w, {w.keys.data(), w.tokens, b, keys});
  for (const WideProduct& t : c.wide.terms()) {
    if (t.channels == 0) continue;
    find_tokens(
        c, b, keys, [&](Index j) { return c.wide.key(t, b, h, j); }, w);
    take_tokens(c, t.y.dtype, count, t.channels, w.keys.data() + t.at * c.panel,
                w.key_rows.data() + t.at, w);
  }
  if (c.gate_gradients.has_keys()) {
    find_tokens(
        c, b, keys, [&](Index j) { return c.gate_gradients.key(b, h, j); }, w);
    c.gate_gradients.take_keys(w.tokens, count, w.gate_gradients);
  }
  find_tokens_of(c, c.given_v, b, h, keys, w);
  if (c.slopes != nullptr) return take_word_values(c, count, w);
  c.kernels.pack_keys[fast_type(c.given_v.dtype)](w.values.data(), w.tokens.data(), count, c.V,
                                                  c.V);
}

double along_query(const BackwardCall& c, const ConstHeads& q, Index b, Index h, Index i,
                   const float* dq, BackwardWork& w) noexcept {
  float* vector = w.vector.data();
  take_vector(c.kernels, q, b, i, h, 1, vector, c.q_width);
  double sum = 0;
  for (Index d = 0; d < c.D; ++d)
    sum += static_cast<double>(vector[d]) * static_cast<double>(dq[d]);
  return sum;
}

namespace {

// Of the row's product with k: the gradient of q, and of the factors of its head and query.
void put_query(const BackwardCall& c, Index b, Index h, Index i, const float* dq,
               BackwardWork& w) noexcept {
  float* vector = w.vector.data();
  std::fill(w.content.begin(), w.content.end(), 0.0);
  if (c.products.adds_to_q()) c.products.add_content(b, i, dq, w.content.data());
  c.row_gradients.add_content(w.row_gradients, i, w.content.data());
  c.gate_gradients.add_content(w.gate_gradients, i, w.content.data());
  if (!c.along.empty()) {
    const auto row = static_cast<std::size_t>(c.row_at(b, h, i));
    const double along = along_query(c, c.q, b, h, i, dq, w);
    c.along[row] = *c.args.scale * along;
    if (!c.along_terms.empty()) {
      c.along_terms[row] = c.wide.content_scale() * along;
      for (std::size_t d = 0; d < w.content.size(); ++d)
        c.along_terms[row] += static_cast<double>(vector[d]) * w.content[d];
    }
  }
  double factor = c.row_factor(b, h, i);
  if (!w.content.empty()) {
    for (Index d = 0; d < c.D; ++d)
      vector[d] = static_cast<float>(factor * static_cast<double>(dq[d]) +
                                     c.factor(b, i) * w.content[static_cast<std::size_t>(d)]);
    dq = vector, factor = 1;
  }
  if (c.prepared_q.empty())
    return put_floats(c, c.gradients.q, b, {i, i + 1}, h, factor, dq, c.q_width);
  float* to = c.prepared_q.data() + ((b * c.Tq + i) * c.H + h) * c.D;
  for (Index d = 0; d < c.D; ++d) to[d] = static_cast<float>(factor) * dq[d];
}

}  // namespace

void put_queries(const BackwardCall& c, Index b, Index h, Run rows, const float* dq,
                 BackwardWork& w) noexcept {
  if (c.args.query_factor.empty() && c.along.empty() && w.content.empty() && c.prepared_q.empty())
    return put_floats(c, c.gradients.q, b, rows, h, c.row_factor(b, h, rows.begin), dq, c.q_width);
  for (Index i = rows.begin; i < rows.end; ++i, dq += c.q_width) put_query(c, b, h, i, dq, w);
}

void put_keys(const BackwardCall& c, Index b, Index group, Run keys, const float* dk,
              const float* dv) noexcept {
  put_floats(c, c.gradients.v, b, keys, group, 1, dv, c.g_width);
  if (c.prepared_k.empty())
    return put_floats(c, c.gradients.k, b, keys, group, kLn2, dk, c.q_width);
  for (Index j = keys.begin; j < keys.end; ++j, dk += c.q_width) {
    float* to = c.prepared_k.data() + ((b * c.Tk + j) * c.G + group) * c.D;
    for (Index d = 0; d < c.D; ++d) to[d] = static_cast<float>(kLn2) * dk[d];
  }
}

}  // namespace posenc::v0::detail
