// SPDX-License-Identifier: Apache-2.0
// A layer of a model as a call of attention: its schemes, rotation, stages, mask and factor on q.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "posenc/attention/attention.h"
#include "posenc/model/spec.h"
#include "posenc/relative/any_scheme.h"

namespace posenc::inline v0 {

// q and k of the call are those after projections, after the scale of q's channels and after norms
// that come before the rotation.
struct LayerAttention {
  std::vector<AnyRelativeScheme> schemes;
  const RotarySpec* rotary = nullptr;  // the layer's own; null: none
  std::vector<Stage> stages;           // a rotate stage without `rotary` is the plan's
  Index window_left = kUnbounded, window_right = kUnbounded;  // 0 on the right: causal
  Index chunk = 0;
  // [batch, queries, keys]: 0 hides the key. The whole mask of a layer that masks by token type; its
  // windows are then unbounded and it has no chunk. Empty for other layers.
  std::vector<std::uint8_t> visible;
  // AttentionArgs::query_factor, [batch of the positions, queries], where the layer has a query
  // temperature; empty: 1.
  std::vector<double> query_factors;
  Index query_factor_rows = 1;
  std::optional<ContentScale> scale;  // of q.k; none: not known
  double logit_factor = 1;            // the rotation's, on the scale too
  double softcap = 0;                 // 0: none
  bool softcap_after_terms = false;   // AttentionArgs::softcap_after_terms
  std::string sinks;  // tensor of [heads] scores besides those of the keys; empty: none

  // A view of query_factors; empty where there are none.
  POSENC_API ConstTensorView query_factor() const;
  // AttentionSizes::scale; absent where it is not known.
  std::optional<double> content_scale(Index head_dim) const {
    if (!scale) return std::nullopt;
    return scale->at(head_dim) * logit_factor;
  }
};

// What to do about a layer whose scheme is known only by name: the caller adds it, or it is rejected.
enum class UnreadScheme : std::uint8_t { refuse, caller_adds };
// The types of all keys, for layers that mask by them (AttentionSpec::by_token_type): [batch, keys]
// of the input that the layer names, as the model's processor makes it.
struct TokenTypes {
  std::span<const Index> values{};
  Index rows = 1;              // the batch, or 1 for all of it
  bool mask_is_given = false;  // the caller passes a mask: none is made of types
};

// Queries are at `query_positions`, of whose first axis a temperature by position counts, and query i
// of a batch entry has the order query_offset + i. Positions without data are their orders. The layer must
// outlive the result. Throws [layer]: positions of another type, no softmax attention, LongT5's
// summaries as keys, a scheme that is not read (see above), an output that is rotated back, sinks of
// each query, a norm after the rotation with weights, a mean or an unknown epsilon, a mask by token
// type without types or with types of another count.
POSENC_API LayerAttention layer_attention(const LayerSpec&, const Positions& query_positions,
                                          Index query_offset, UnreadScheme = UnreadScheme::refuse,
                                          const TokenTypes& = {});

}  // namespace posenc::v0
