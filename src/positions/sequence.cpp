// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/sequence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "core/memory_limit.h"
#include "core/shape.h"
#include "positions/exact.h"

namespace posenc::inline v0 {
namespace {

template <class T>
OwnedPositions checked(std::vector<T> v, Index batch, std::int32_t axes) {
  if (batch < 1) refuse_field("explicit", "batch", "must be positive", batch);
  if (axes < 1) refuse_field("explicit", "axes", "must be positive", Index{axes});
  const Index n = static_cast<Index>(v.size());
  if (batch > kUnbounded / axes || n % (batch * axes) != 0)
    refuse("explicit", "the list must fill [axes][batch][tokens], size", n);
  if constexpr (std::is_same_v<T, double>)
    for (const double x : v)
      if (!std::isfinite(x)) refuse_field("explicit", "positions", "must be finite", x);
  return own(std::move(v), batch, axes);
}

OwnedPositions running_count(const IntegerRows& mask, Index padded, Index first,
                             std::string_view who) {
  std::vector<Index> v;
  v.reserve(mask.value.size());
  for (Index b = 0; b < mask.batch; ++b) {
    Index count = 0;
    for (Index t = 0; t < mask.tokens; ++t)
      v.push_back(mask(b, t) != 0 ? add_exact(first, count++, who) : padded);
  }
  return own(std::move(v), mask.batch);
}

}  // namespace

OwnedPositions arange(Index first, Index count, Index step) {
  if (count < 0 || count > kMaxTokens)
    refuse_field("arange", "count", "must lie between 0 and 2^40", count);
  if (count > 0) add_exact(first, multiply_exact(count - 1, step, "arange"), "arange");
  detail::check_memory("arange", "a list of " + std::to_string(count) + " positions",
                       static_cast<std::size_t>(count) * sizeof(Index));
  std::vector<Index> v(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) v[static_cast<std::size_t>(i)] = first + i * step;
  return own(std::move(v));
}

OwnedPositions explicit_positions(std::vector<Index> v, Index batch, std::int32_t axes) {
  return checked(std::move(v), batch, axes);
}
OwnedPositions explicit_positions(std::vector<double> v, Index batch, std::int32_t axes) {
  return checked(std::move(v), batch, axes);
}

OwnedPositions from_mask(const ConstTensorView& mask, Index padded, Index first) {
  return running_count(mask_rows(mask, "from_mask"), padded, first, "from_mask");
}

OwnedPositions from_lengths(std::span<const Index> lengths, Index tokens, Index padded, Index first,
                            const ConstTensorView& mask) {
  constexpr const char* who = "from_lengths";
  const auto batch = static_cast<Index>(lengths.size());
  if (batch < 1) refuse(who, "there must be a length for every batch entry");
  if (tokens < 0 || tokens > kMaxTokens / batch)
    refuse_field(who, "tokens", "must not be negative and at most 2^40 in all", tokens);
  IntegerRows seen;
  if (!mask.empty()) {
    seen = mask_rows(mask, who);
    if (seen.batch != batch || seen.tokens != tokens)
      detail::refuse_shape(
          who, "mask",
          "must have the batch and tokens of the lengths, " + detail::sizes_text({batch, tokens}),
          detail::sizes_text({seen.batch, seen.tokens}));
  }
  std::vector<Index> v;
  v.reserve(static_cast<std::size_t>(batch * tokens));
  for (Index b = 0; b < batch; ++b) {
    const Index length = lengths[static_cast<std::size_t>(b)];
    if (length < 0 || length > tokens)
      refuse_field(who, "lengths", "must lie between 0 and the number of tokens", length);
    for (Index t = 0; t < tokens; ++t) {
      if (!mask.empty() && (seen(b, t) != 0) != (t < length))
        refuse(who, "mask contradicts the length of its batch entry, token", t);
      v.push_back(t < length ? add_exact(first, t, who) : padded);
    }
  }
  return own(std::move(v), batch);
}

OwnedPositions left_padded(const ConstTensorView& mask, Index padded) {
  const IntegerRows m = mask_rows(mask, "left_padded");
  for (Index b = 0; b < m.batch; ++b)
    for (Index t = 1; t < m.tokens; ++t)
      if (m(b, t) < m(b, t - 1))
        refuse_field("left_padded", "padding", "must be left of all real tokens, padded at token",
                     t);
  return running_count(m, padded, 0, "left_padded");
}

OwnedPositions right_padded(const ConstTensorView& mask, Index padded) {
  const IntegerRows m = mask_rows(mask, "right_padded");
  for (Index b = 0; b < m.batch; ++b)
    for (Index t = 1; t < m.tokens; ++t)
      if (m(b, t) > m(b, t - 1))
        refuse_field("right_padded", "padding", "must be right of all real tokens, real at token",
                     t);
  return running_count(m, padded, 0, "right_padded");
}

OwnedPositions from_tokens(const ConstTensorView& ids, Index padding_idx, Index past) {
  if (past < 0) refuse_field("from_tokens", "past", "must not be negative", past);
  IntegerRows rows = integer_rows(ids, "from_tokens");
  for (Index& id : rows.value) id = id != padding_idx ? 1 : 0;
  const Index first = add_exact(add_exact(padding_idx, 1, "from_tokens"), past, "from_tokens");
  return running_count(rows, padding_idx, first, "from_tokens");
}

OwnedPositions from_starts(std::span<const Index> starts, Index count, Index first) {
  if (count < 0 || count > kMaxTokens)
    refuse_field("from_starts", "count", "must lie between 0 and 2^40", count);
  std::vector<Index> v;
  for (const Index start : starts) {
    if (start == std::numeric_limits<Index>::min())
      refuse("from_starts", "a start must be above -2^63", start);
    for (Index t = 0; t < count; ++t)
      v.push_back(
          std::max<Index>(0, add_exact(add_exact(first, t, "from_starts"), -start, "from_starts")));
  }
  return own(std::move(v), static_cast<Index>(starts.size()));
}

OwnedPositions cell_positions(const ConstTensorView& column, const ConstTensorView& row,
                              Index limit) {
  const IntegerRows c = integer_rows(column, "cell_positions");
  const IntegerRows r = integer_rows(row, "cell_positions");
  if (c.batch != r.batch || c.tokens != r.tokens)
    detail::refuse_shape(
        "cell_positions", "rows",
        "must have the shape of columns, " + detail::sizes_text({c.batch, c.tokens}),
        detail::sizes_text({r.batch, r.tokens}));
  if (limit < 0) refuse_field("cell_positions", "limit", "must not be negative", limit);
  std::vector<Index> v;
  for (Index b = 0; b < c.batch; ++b) {
    std::map<std::pair<Index, Index>, Index> first;
    for (Index t = 0; t < c.tokens; ++t)
      v.push_back(std::min(limit, t - first.try_emplace({c(b, t), r(b, t)}, t).first->second));
  }
  return own(std::move(v), c.batch);
}

OwnedPositions distance_to_largest(const Positions& p) {
  OwnedPositions out = owned(p);
  std::visit(
      [&](auto& v) {
        const auto n = static_cast<std::ptrdiff_t>(out.count());
        if (n == 0) return;
        for (auto at = v.begin(); at != v.end(); at += n) {
          const auto largest = *std::max_element(at, at + n);
          for (auto i = at; i != at + n; ++i) {
            if constexpr (std::is_same_v<std::decay_t<decltype(*i)>, Index>) {
              if (__builtin_sub_overflow(largest, *i, &*i))
                refuse_field("distance_to_largest", "distances", "must fit 64 bits", *i);
            } else {
              *i = largest - *i;
            }
          }
        }
      },
      out.value);
  return out;
}

OwnedPositions packed(std::span<const Index> cu, Index first) {
  check_cu_seqlens(cu, "packed");
  std::vector<Index> v;
  v.reserve(static_cast<std::size_t>(cu.back()));
  for (std::size_t d = 1; d < cu.size(); ++d)
    for (Index t = cu[d - 1]; t < cu[d]; ++t)
      v.push_back(add_exact(first, t - cu[d - 1], "packed"));
  return own(std::move(v));
}

std::vector<Index> document_index(std::span<const Index> cu) {
  check_cu_seqlens(cu, "document_index");
  std::vector<Index> v;
  v.reserve(static_cast<std::size_t>(cu.back()));
  for (std::size_t d = 1; d < cu.size(); ++d)
    v.insert(v.end(), static_cast<std::size_t>(cu[d] - cu[d - 1]), static_cast<Index>(d) - 1);
  return v;
}

std::vector<Index> document_index_of_positions(std::span<const Index> p) {
  std::vector<Index> v(p.size());
  for (std::size_t i = 1; i < p.size(); ++i)
    v[i] = v[i - 1] + (p[i - 1] < kUnbounded && p[i] == p[i - 1] + 1 ? 0 : 1);
  return v;
}

std::vector<Index> cu_seqlens_of_positions(std::span<const Index> p) {
  const std::vector<Index> document = document_index_of_positions(p);
  std::vector<Index> cu{0};
  for (std::size_t i = 1; i < p.size(); ++i)
    if (document[i] != document[i - 1]) cu.push_back(static_cast<Index>(i));
  if (!p.empty()) cu.push_back(static_cast<Index>(p.size()));
  return cu;
}

OwnedPositions decode_positions(std::span<const Index> lengths, Index count) {
  if (count < 0 || count > kMaxTokens)
    refuse_field("decode_positions", "count", "must lie between 0 and 2^40", count);
  std::vector<Index> v;
  for (const Index n : lengths) {
    if (n < 0) refuse_field("decode_positions", "lengths", "must not be negative", n);
    for (Index i = 0; i < count; ++i) v.push_back(add_exact(n, i, "decode_positions"));
  }
  return own(std::move(v), static_cast<Index>(lengths.size()));
}

}  // namespace posenc::v0
