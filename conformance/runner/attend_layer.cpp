// SPDX-License-Identifier: Apache-2.0
// What a layer of a model says of a call of attention (model/layer_attention.h).
#include <utility>

#include "conformance/runner/attend_call.h"
#include "conformance/runner/encoding.h"
#include "conformance/runner/position_list.h"
#include "posenc/core/error.h"
#include "posenc/model/weights.h"

namespace posenc::conformance {

// Before `call`, which has the last word. Queries are the last of the keys, as models have them.
void AttendCall::read_layer(const Check& check) {
  if (check.find("model") == nullptr) return;
  const ModelSpec model = read_case_model(check);
  require_readable(model);
  layer_ = layer_of(check, model);
  weights_ = model.weights;
  Mask& m = args.mask;
  m.query_offset = keys_ - args.q.tokens;
  if (has_positions(check) || has_positions(check, "q_positions")) read_positions(check);
  Positions queries = query_positions_;
  if (queries.data == nullptr) queries.count = args.q.tokens;
  of_layer_ = layer_attention(
      *layer_, queries, m.query_offset,
      check.part("scheme") == nullptr ? UnreadScheme::refuse : UnreadScheme::caller_adds);
  m.window_left = of_layer_.window_left;
  m.window_right = of_layer_.window_right;
  m.chunk = of_layer_.chunk;
  args.softcap = of_layer_.softcap;
  args.softcap_after_terms = of_layer_.softcap_after_terms;
  if (!of_layer_.sinks.empty()) {
    ModelWeights weights(weights_);
    ParameterValues sinks = read_sinks(weights, *layer_, args.q.heads);
    args.sink = keep(converted<double>(sinks.values, DType::f64, sinks.shape));
  }
  if (of_layer_.query_factors.empty() || !args.query_factor.empty()) return;
  args.query_factor = of_layer_.query_factor();
}

// What the case does not give comes from the weights, by the names that the reader has.
void AttendCall::read_layer_parameters(const Check& check, std::vector<Parameter>& needed) {
  std::vector<Parameter> given, others;
  for (Parameter& p : needed)
    (check.array_name("in", p.name) != nullptr ? given : others).push_back(std::move(p));
  ModelWeights weights(weights_);
  for (const ParameterValues& p : read_parameters(weights, *layer_, others)) {
    names_.push_back(p.name);
    parameters.push_back({names_.back(), keep(converted<double>(p.values, DType::f64, p.shape))});
    std::erase_if(others, [&](const Parameter& other) { return other.name == p.name; });
  }
  needed = std::move(given);
  needed.insert(needed.end(), others.begin(), others.end());  // refused by name
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
