// SPDX-License-Identifier: Apache-2.0
// What a layer of a model says of a call of attention (model/layer_attention.h).
#include "conformance/runner/attend_call.h"
#include "conformance/runner/encoding.h"
#include "posenc/core/error.h"

namespace posenc::conformance {

// Before `call`, which has the last word. Queries are the last of the keys, as models have them.
void AttendCall::read_layer(const Check& check) {
  if (check.find("model") == nullptr) return;
  const ModelSpec model = read_case_model(check);
  require_readable(model);
  layer_ = layer_of(check, model);
  Mask& m = args.mask;
  m.query_offset = keys_ - args.q.tokens;
  of_layer_ = layer_attention(
      *layer_, args.q.tokens, m.query_offset,
      check.part("scheme") == nullptr ? UnreadScheme::refuse : UnreadScheme::caller_adds);
  m.window_left = of_layer_.window_left;
  m.window_right = of_layer_.window_right;
  m.chunk = of_layer_.chunk;
  if (of_layer_.query_factors.empty() || !args.query_factor.empty()) return;
  args.query_factor = tensor(std::as_const(of_layer_.query_factors).data(), {1, args.q.tokens});
}

// q and k of a case are those after projections and norms before the rotation.
void AttendCall::layer_stages() {
  stages_.insert(stages_.end(), of_layer_.stages.begin(), of_layer_.stages.end());
  args.prepare = stages_;
}

void AttendCall::plan_of_layer(const std::vector<std::string>& more, const AttentionSizes& sizes) {
  std::vector<AnyRelativeScheme> schemes = of_layer_.schemes;
  for (const std::string& text : more) schemes.push_back(relative_scheme(parse_encoding(text)));
  plan.emplace(std::move(schemes), sizes, of_layer_.rotary);
}

}  // namespace posenc::conformance
