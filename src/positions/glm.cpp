// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/glm.h"
#include "core/shape.h"

#include <algorithm>
#include <array>

#include "positions/exact.h"

namespace posenc::inline v0 {
namespace {

struct Found {
  std::size_t context = 0;  // tokens before the start token
  std::size_t mask = 0;
  bool gmask = false;
};

Found find(const ChatGlmTokens& tokens, const std::vector<Index>& row) {
  Found f;
  const auto start = std::find(row.begin(), row.end(), tokens.start);
  if (start == row.end())
    refuse("chatglm", "a batch entry must hold the start token", tokens.start);
  f.context = static_cast<std::size_t>(start - row.begin());
  Index kind = -1;
  for (std::size_t i = 0; i < f.context; ++i) {
    const Index id = row[i];
    if (id != tokens.mask && id != tokens.gmask && id != tokens.smask) continue;
    if (kind != -1 && kind != id)
      refuse("chatglm",
             "a batch entry must have masks of one kind: programs disagree which counts, got too",
             id);
    if (kind == -1) f.mask = i;
    kind = id;
  }
  if (kind == -1)
    refuse("chatglm",
           "a batch entry must hold [MASK], [sMASK] or [gMASK] before its start token, at",
           static_cast<Index>(f.context));
  f.gmask = kind == tokens.gmask;
  return f;
}

}  // namespace

OwnedPositions glm_positions(Index context, std::span<const GlmSpan> spans) {
  if (context < 0 || context > kMaxTokens)
    refuse_field("glm", "context", "must be from 0 to 2^40", context);
  Index total = context;
  for (const GlmSpan& s : spans) {
    if (s.mask < 0 || s.mask >= context)
      refuse("glm", "a mask must be inside the context of " + std::to_string(context), s.mask);
    if (s.tokens < 0 || s.tokens > kMaxTokens - total)
      refuse("glm", "tokens of a span must not be negative, 2^40 in all", s.tokens);
    total += s.tokens;
  }
  std::vector<Index> v;
  v.reserve(static_cast<std::size_t>(2 * total));
  for (Index i = 0; i < context; ++i) v.push_back(i);
  for (const GlmSpan& s : spans) v.insert(v.end(), static_cast<std::size_t>(s.tokens), s.mask);
  v.insert(v.end(), static_cast<std::size_t>(context), 0);
  for (const GlmSpan& s : spans)
    for (Index i = 1; i <= s.tokens; ++i) v.push_back(i);
  return own(std::move(v), 1, 2);
}

OwnedPositions chatglm_positions(const ChatGlmRule& rule, const ConstTensorView& ids,
                                 const ConstTensorView& mask) {
  const IntegerRows rows = integer_rows(ids, "chatglm");
  IntegerRows real = rows;
  std::fill(real.value.begin(), real.value.end(), 1);
  if (!mask.empty()) {
    real = mask_rows(mask, "chatglm");
    if (real.batch != rows.batch || real.tokens != rows.tokens)
      detail::refuse_shape(
          "chatglm", "mask",
          "must have the shape of the ids, " + detail::sizes_text({rows.batch, rows.tokens}),
          detail::sizes_text({real.batch, real.tokens}));
  }
  const auto plane = static_cast<std::size_t>(rows.batch * rows.tokens);
  std::vector<Index> v((rule.two_streams ? 2 : 1) * plane, rule.padded);
  for (Index b = 0; b < rows.batch; ++b) {
    std::vector<Index> row;
    std::vector<std::size_t> places;
    for (Index t = 0; t < rows.tokens; ++t) {
      if (real(b, t) == 0) continue;
      row.push_back(rows(b, t));
      places.push_back(static_cast<std::size_t>(b * rows.tokens + t));
    }
    if (row.empty()) continue;
    const Found f = find(rule.tokens, row);
    const bool stays = !(f.gmask && rule.gmask_counts_on);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool behind = i >= f.context;
      v[places[i]] = static_cast<Index>(behind && stays ? f.mask : i);
      if (rule.two_streams)
        v[plane + places[i]] = behind ? static_cast<Index>(i - f.context) + 1 : 0;
    }
  }
  return own(std::move(v), rows.batch, rule.two_streams ? 2 : 1);
}

}  // namespace posenc::v0
