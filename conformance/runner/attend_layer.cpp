// SPDX-License-Identifier: Apache-2.0
// What a layer of a model says of a call of attention: its rotation, terms, mask and factor on q.
#include "conformance/runner/attend_call.h"
#include "conformance/runner/encoding.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

void add_scheme(const Encoding& e, std::vector<AnyRelativeScheme>& to) {
  std::visit(
      [&](const auto& scheme) {
        using S = std::decay_t<decltype(scheme)>;
        if constexpr (RelativeScheme<S>)
          to.emplace_back(scheme);
        else if constexpr (!RotaryScheme<S>)  // the rotation is the layer's, resolved
          refuse("case", "an encoding of a layer must act in attention", S::card.name);
      },
      e.scheme);
}

}  // namespace

// Before `call`, which has the last word. Queries are the last of the keys, as models have them.
void AttendCall::read_layer(const Check& check) {
  if (check.find("model") == nullptr) return;
  const ModelSpec model = read_case_model(check);
  require_readable(model);
  layer_ = layer_of(check, model);
  Mask& m = args.mask;
  m.query_offset = keys_ - args.q.tokens;
  m.window_left = layer_->attention.left.value_or(kUnbounded);
  m.window_right = layer_->attention.right.value_or(kUnbounded);
  m.chunk = layer_->attention.chunk.value_or(0);
  if (!layer_->query_temperature || !args.query_factor.empty()) return;
  // By the place in the row, padding included.
  Array factors = make_array(DType::f64, {1, args.q.tokens});
  const auto to = reinterpret_cast<double*>(factors.bytes.data());
  for (Index i = 0; i < args.q.tokens; ++i)
    to[i] = query_factor(*layer_->query_temperature, static_cast<double>(m.query_offset + i));
  args.query_factor = keep(std::move(factors));
}

// What follows the rotation: q and k of a case are those after projections and norms before it.
void AttendCall::layer_stages() {
  if (!layer_ || !layer_->rotary) return;
  stages_.push_back({.kind = StageKind::rotate, .value = layer_->rotates_value});
  if (layer_->qk_norm && layer_->qk_norm->after_rotation) {
    const QkNorm& norm = *layer_->qk_norm;
    if (norm.kind == NormKind::layer_norm || norm.weights != NormWeights::none || !norm.eps ||
        norm.over != NormSpan::head)
      throw NotExpressible("a norm after the rotation with weights, a mean or an unknown epsilon");
    const bool rms = norm.kind == NormKind::rms;
    stages_.push_back({.kind = rms ? StageKind::rms : StageKind::l2, .epsilon = *norm.eps});
  }
  args.prepare = stages_;
}

void AttendCall::plan_of_layer(const std::vector<std::string>& more, const AttentionSizes& sizes) {
  std::vector<AnyRelativeScheme> schemes;
  for (const Sourced<Encoding>& e : layer_->encodings) add_scheme(e.value, schemes);
  for (const std::string& text : more) add_scheme(parse_encoding(text), schemes);
  plan.emplace(std::move(schemes), sizes, layer_->rotary ? &*layer_->rotary : nullptr);
}

}  // namespace posenc::conformance
