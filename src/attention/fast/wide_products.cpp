// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/wide_products.h"

#include <algorithm>
#include <cmath>

#include "attention/fast/starts.h"
#include "core/element.h"
#include "core/parallel.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {
namespace {

// Classes of pairs that are worth a look at each call.
constexpr Index kMostPairs = 4096;

bool query_class_has_keys(const IndexPair& p, Index query) noexcept {
  const std::int32_t* row = p.row + query * p.key_classes;
  return std::any_of(row, row + p.key_classes, [](std::int32_t r) { return r >= 0; });
}
bool key_class_has_queries(const IndexPair& p, Index key) noexcept {
  for (Index query = 0; query < p.query_classes; ++query)
    if (p.row[query * p.key_classes + key] >= 0) return true;
  return false;
}
// Whether a pair is disabled exactly where its query or its key is.
bool disables_by_side(const IndexPair& p) noexcept {
  if (p.query_classes * p.key_classes > kMostPairs) return false;
  for (Index query = 0; query < p.query_classes; ++query)
    for (Index key = 0; key < p.key_classes; ++key)
      if ((p.row[query * p.key_classes + key] >= 0) !=
          (query_class_has_keys(p, query) && key_class_has_queries(p, key)))
        return false;
  return true;
}

// Without a number of a table, and with all pairs but those of some classes.
bool is_plain(const ProductTerm& t) noexcept {
  if (!t.table.empty()) return false;
  for (const IndexLine& line : t.lines)
    if (line.row != nullptr) return false;
  return t.pair.row == nullptr || (!t.key.content && disables_by_side(t.pair));
}

// Loops that the compiler makes vectors of.
bool take_doubles(const double* x, Index channels, float factor, float* to) noexcept {
  for (Index c = 0; c < channels; ++c) to[c] = factor * static_cast<float>(x[c]);
  int beyond = 0;
  for (Index c = 0; c < channels; ++c) beyond |= !(std::fabs(to[c]) <= kLargestValue);
  return beyond == 0;
}

Index offset_of(const ConstHeads& x, Index heads, Index b, Index t, Index h) noexcept {
  return (x.batch == 1 ? 0 : b) * x.batch_stride + (x.tokens == 1 ? 0 : t) * x.token_stride +
         Grouping{heads, x.heads}.of(h) * x.head_stride;
}

}  // namespace

bool take_vector(const FastKernels& k, const ConstHeads& x, Index b, Index t, Index h, float factor,
                 float* to, Index width) noexcept {
  std::fill(to + x.dim, to + width, 0.0f);
  if (is_readable(x))
    return k.take_row[fast_type(x.dtype)](to, token_at(x, b, t, h), x.dim, factor);
  const Index at = b * x.batch_stride + t * x.token_stride + h * x.head_stride;
  if (x.dim_stride == 1 && x.dtype == DType::f64)
    return take_doubles(static_cast<const double*>(x.data) + at, x.dim, factor, to);
  bool bounded = true;
  for (Index c = 0; c < x.dim; ++c) {
    to[c] = factor * static_cast<float>(float_element(x.data, x.dtype, at + c * x.dim_stride));
    bounded = bounded && std::fabs(to[c]) <= kLargestValue;
  }
  return bounded;
}

bool take_given(const FastKernels& k, const ConstHeads& x, Index heads, Index b, Index t, Index h,
                float factor, float* to) noexcept {
  return take_vector(k, x, x.batch == 1 ? 0 : b, x.tokens == 1 ? 0 : t,
                     Grouping{heads, x.heads}.of(h), factor, to, x.dim);
}

const void* given_vector(const ConstHeads& x, Index heads, Index b, Index t, Index h) noexcept {
  return static_cast<const std::byte*>(x.data) + offset_of(x, heads, b, t, h) * size_of(x.dtype);
}

std::span<const float> copy_vectors(const FastKernels& k, const ConstHeads& x, CallArena& arena,
                                    const Executor& executor) {
  const Index size = x.batch * x.tokens * x.heads * x.dim;
  const std::span<float> to = arena.array<float>(size);
  if (arena.counts()) return to;
  parallel_for(executor, x.batch * x.tokens, size / kValuesPerTask,
               [&](Index begin, Index end) noexcept {
                 for (Index n = begin; n < end; ++n)
                   for (Index h = 0; h < x.heads; ++h)
                     take_vector(k, x, n / x.tokens, n % x.tokens, h, 1,
                                 to.data() + (n * x.heads + h) * x.dim, x.dim);
               });
  return to;
}

ConstHeads readable_vectors(const FastKernels& k, const ConstHeads& x, CallArena& arena,
                            const Executor& executor) {
  if (is_readable(x)) return x;
  return {copy_vectors(k, x, arena, executor).data(),
          x.batch,
          x.tokens,
          x.heads,
          x.dim,
          x.tokens * x.heads * x.dim,
          x.heads * x.dim,
          x.dim,
          1,
          DType::f32};
}

void add_floats(const FastKernels& k, const Heads& y, Index b, Run tokens, Index h, double factor,
                const float* x, Index width) noexcept {
  if (y.data == nullptr) return;
  Index at = b * y.batch_stride + tokens.begin * y.token_stride + h * y.head_stride;
  const Index count = tokens.end - tokens.begin;
  if (y.dtype == DType::f32 && y.dim_stride == 1)
    return k.add_rows(static_cast<float*>(y.data) + at, y.token_stride, x, width, count, y.dim,
                      static_cast<float>(factor));
  for (Index n = 0; n < count; ++n, at += y.token_stride, x += width)
    for (Index d = 0; d < y.dim; ++d)
      add_element(y.data, y.dtype, at + d * y.dim_stride, factor * static_cast<double>(x[d]));
}

bool disables_query(const ProductTerm& t, Index b, Index i) noexcept {
  return t.pair.row != nullptr &&
         !query_class_has_keys(t.pair, read_index(t.pair.query_class, b, i));
}
bool disables_key(const ProductTerm& t, Index row, Index j) noexcept {
  return t.pair.row != nullptr &&
         !key_class_has_queries(t.pair, read_index(t.pair.key_class, row, j));
}

bool WideProducts::takes(const Term& term) noexcept {
  switch (term_class(term)) {
    case TermClass::product:
    case TermClass::token_number:
    case TermClass::weighted_product:
      break;
    default:
      return false;
  }
  const auto* t = std::get_if<ProductTerm>(&term);
  return t != nullptr && is_plain(*t);
}

Index WideProducts::channels_of(const AttentionArgs& a) noexcept {
  Index channels = a.q.dim;
  for (const Term& term : a.terms)
    if (takes(term)) channels += std::get<ProductTerm>(term).key.given.dim;
  return channels;
}

WideProducts::WideProducts(const ReadyCall& c, const FastKernels& kernels, CallArena& arena,
                           const Executor& executor)
    : call_(c), channels_(channels_of(c.args)) {
  terms_ = arena.objects<WideProduct>(
      std::count_if(c.args.terms.begin(), c.args.terms.end(), WideProducts::takes));
  std::size_t n = 0, number = 0;
  Index at = c.D;
  for (const Term& term : c.args.terms) {
    const std::size_t place = number++;
    if (!takes(term)) continue;
    const ProductTerm& t = std::get<ProductTerm>(term);
    WideProduct& w = terms_[n++];
    w.term = &t, w.number = place, w.at = at, w.channels = t.key.given.dim, w.y = t.key.given;
    at += w.channels;
    if (t.key.content && t.query.content) content_scale_ += t.scale;
    if (t.key.content) continue;
    splits_groups_ = splits_groups_ || c.G % w.y.heads != 0;
    w.y = readable_vectors(kernels, w.y, arena, executor);
  }
}

bool WideProducts::add_query(const FastKernels& k, const ConstHeads& q, Index b, Index h, Index i,
                             float* to) const noexcept {
  bool bounded = true;
  for (const WideProduct& w : terms_) {
    const ProductTerm& t = *w.term;
    const ConstHeads& x = t.query.given;
    float* channels = to + w.at;
    if (disables_query(t, b, i)) {
      std::fill_n(channels, w.channels, 0.0f);
    } else if (t.query.content && !t.key.content) {
      const auto factor = static_cast<float>(t.scale * call_.factor(b, i) * kLog2E);
      bounded = std::isfinite(factor) && take_vector(k, q, b, i, h, factor, channels, w.channels) &&
                bounded;
    } else if (!t.query.content && !t.key.content) {
      bounded =
          take_given(k, x, call_.H, b, i, h, static_cast<float>(t.scale * kLog2E), channels) &&
          bounded;
    } else if (!t.query.content) {
      const Index at = offset_of(x, call_.H, b, i, h);
      for (Index c = 0; c < x.dim; ++c) {
        to[c] += static_cast<float>(t.scale * kLog2E *
                                    float_element(x.data, x.dtype, at + c * x.dim_stride));
        bounded = bounded && std::fabs(to[c]) <= kLargestValue;
      }
    }
  }
  return bounded;
}

const void* WideProducts::key(const WideProduct& w, Index row, Index h, Index j) const noexcept {
  if (disables_key(*w.term, row, j)) return nullptr;
  return given_vector(w.y, call_.H, row, j, h);
}

bool WideProducts::is_bounded(const FastKernels& k, Index row, Index j,
                              float* scratch) const noexcept {
  for (const WideProduct& w : terms_)
    for (Index head = 0; w.channels > 0 && head < w.y.heads; ++head)
      if (!disables_key(*w.term, row, j) &&
          !take_vector(k, w.y, w.y.batch == 1 ? 0 : row, w.y.tokens == 1 ? 0 : j, head, 1, scratch,
                       w.channels))
        return false;
  return true;
}

}  // namespace posenc::v0::detail
