// SPDX-License-Identifier: Apache-2.0
#include "posenc/model/layer_attention.h"

#include "model/diagnostics.h"
#include "posenc/attention/plan.h"
#include "posenc/core/error.h"
#include "posenc/positions/sequence.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kLayer = "layer";

Stage norm_after_rotation(const QkNorm& norm) {
  if (norm.kind == NormKind::layer_norm || norm.kind == NormKind::l2_clip ||
      norm.weights != NormWeights::none || !norm.eps || norm.over != NormSpan::head ||
      norm.keys_only)
    refuse(kLayer,
           "a norm after the rotation must be rms or l2 of each head of q and k, without weights "
           "and with a known epsilon");
  const bool rms = norm.kind == NormKind::rms;
  return {.kind = rms ? StageKind::rms : StageKind::l2, .epsilon = *norm.eps};
}

void add_factors(const QueryTemperature& t, const Positions& queries, Index query_offset,
                 LayerAttention& to) {
  if (queries.type != DType::i64 && queries.type != DType::i32 && queries.type != DType::f64)
    refuse_field(kLayer, "query_positions", "must be i64, i32 or f64", dtype_name(queries.type));
  const bool by_position = t.by == TemperatureIndex::position && queries.data != nullptr;
  to.query_factor_rows = by_position ? queries.batch : 1;
  for (Index b = 0; b < to.query_factor_rows; ++b)
    for (Index i = 0; i < queries.count; ++i)
      to.query_factors.push_back(query_factor(
          t, by_position ? position_at(queries, 0, b, i)
                         : static_cast<double>(query_offset) + static_cast<double>(i)));
}

// The layer's mask instead of window and chunk, if it depends on the types of tokens.
void mask_by_token_type(const LayerSpec& l, Index queries, Index query_offset,
                        const TokenTypes& types, LayerAttention& a) {
  if (!l.attention.by_token_type || types.mask_is_given) return;
  const TokenMask& mask = *l.attention.by_token_type;
  if (types.values.empty())
    refuse(kLayer,
           "tokens of " + mask.tokens +
               " see each other in this layer, later ones too: token types (--token-types) must "
               "say which they are, as the model's " +
               mask.input + " of all keys, or the call must have a mask of its own; layer",
           l.index);
  const auto count = static_cast<Index>(types.values.size());
  const Index keys = types.rows > 0 ? count / types.rows : 0;
  if (types.rows < 1 || keys * types.rows != count || query_offset < 0 ||
      query_offset + queries > keys)
    refuse(kLayer,
           message("token types must be one for each key of each batch entry: of at least {} "
                   "keys in a batch of {}, got",
                   query_offset + queries, types.rows),
           count);
  a.window_left = a.window_right = kUnbounded;
  a.chunk = 0;
  for (Index row = 0; row < types.rows; ++row) {
    const std::vector<Index> blocks = token_blocks(
        mask,
        types.values.subspan(static_cast<std::size_t>(row * keys), static_cast<std::size_t>(keys)));
    for (Index i = 0; i < queries; ++i)
      for (Index j = 0; j < keys; ++j)
        a.visible.push_back(sees(l.attention, blocks, query_offset + i, j) ? 1 : 0);
  }
}

}  // namespace

ConstTensorView LayerAttention::query_factor() const {
  if (query_factors.empty()) return {};
  const auto tokens = static_cast<Index>(query_factors.size()) / query_factor_rows;
  return tensor(query_factors.data(), {query_factor_rows, tokens});
}

LayerAttention layer_attention(const LayerSpec& l, const Positions& queries, Index query_offset,
                               UnreadScheme unread, const TokenTypes& types) {
  if (!l.attention.attends())
    refuse(kLayer, message("layer {} must have softmax attention; it has {}", l.index,
                           enum_text(l.attention.kind)));
  if (l.encodings.empty() && l.has_scheme() && unread == UnreadScheme::refuse)
    refuse(kLayer,
           message("the scheme {} of layer {} has fields that the model's file does not say: "
                   "give the scheme with them (posenc attend --with \"{} ...\"; posenc list {} "
                   "shows them)",
                   l.scheme, l.index, l.scheme, l.scheme));
  if (l.unrotates_output)
    refuse(kLayer, message("the output of layer {} is rotated back after the attention, which this "
                           "call cannot do",
                           l.index));
  if (!l.query_sinks.empty())
    refuse(
        kLayer,
        message("the call must not have sinks of each query, and each query of layer {} has one a "
                "head, a projection of its hidden state ({}): attend with the layer's scheme "
                "(posenc explain) and multiply out by 1 / (1 + exp(sink - log_sum_exp))",
                l.index, l.query_sinks));
  for (const LayerEncoding& e : l.encodings)
    if (std::holds_alternative<LongT5>(e.value.scheme))
      refuse(kLayer,
             "the keys of this layer are tokens and summaries of blocks, and its window is that of "
             "tokens alone: the mask must be the caller's, with the scheme",
             to_text(e.value));
  LayerAttention a;
  for (const Sourced<Encoding>& e :
       l.encodings)  // the rotation is resolved for the layer's context
    if (is_relative(e.value.scheme)) a.schemes.push_back(relative_scheme(e.value));
  if (l.rotary) {
    a.rotary = &*l.rotary;
    a.logit_factor = l.rotary->logit_factor();
    a.stages.push_back({.kind = StageKind::rotate, .value = l.rotates_value});
  }
  if (l.qk_norm && l.qk_norm->after_rotation) a.stages.push_back(norm_after_rotation(*l.qk_norm));
  a.scale = l.scale;
  a.softcap = l.softcap.value_or(0);
  a.softcap_after_terms = l.softcap && l.softcap_after_terms;
  a.sinks = l.sinks;
  a.window_left = l.attention.left.value_or(kUnbounded);
  a.window_right = l.attention.right.value_or(kUnbounded);
  a.chunk = l.attention.chunk.value_or(0);
  mask_by_token_type(l, queries.count, query_offset, types, a);
  if (l.query_temperature) add_factors(*l.query_temperature, queries, query_offset, a);
  return a;
}

}  // namespace posenc::v0
