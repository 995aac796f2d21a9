// SPDX-License-Identifier: Apache-2.0
#include "posenc/model/spec.h"

#include <algorithm>
#include <cmath>

#include "posenc/core/error.h"
#include "posenc/model/read.h"

namespace posenc::inline v0 {
namespace {

// What acts where a layer does not turn.
std::string acts_in(const LayerSpec& layer, const std::vector<InputEncoding>& input) {
  if (!layer.attention.attends())
    return "its attention is " + std::string(enum_text(layer.attention.kind));
  if (layer.has_scheme()) return layer.scheme + " acts there";
  std::string text;
  for (const InputEncoding& e : input)
    text += (text.empty() ? "" : " and ") + std::string(card(e.value.scheme).name);
  return text.empty() ? "nothing acts there" : text + " acts at the input";
}

// Added unless the reader has said it already, as itself or as a scheme's own field.
void add(LayerSpec& layer, const char* name, Json value, const std::string& where) {
  if (!layer.field(name)) layer.fields.push_back({name, std::move(value), Origin::derived, where});
}

}  // namespace

SharedRotary::SharedRotary(RotarySpec r)
    : spec_(std::make_shared<const RotarySpec>(std::move(r))) {}
bool SharedRotary::operator==(const SharedRotary& other) const {
  return spec_ == other.spec_ || (spec_ && other.spec_ && *spec_ == *other.spec_);
}

double ContentScale::at(Index head_dim) const {
  const auto d = static_cast<double>(head_dim);
  if (power == 0) return factor;
  return factor * (power == -0.5 ? 1 / std::sqrt(d) : std::pow(d, power));
}

void complete_fields(LayerSpec& layer) {
  const std::string kind(enum_text(layer.attention.kind));
  add(layer, "attention", kind, "the layer's place");
  if (layer.attention.left || layer.attention.right)
    add(layer, "window", nullptr, "attention " + kind + ": nothing else limits what is seen");
  add(layer, "scheme", layer.scheme, "the layer's place");
  if (!layer.rotary || layer.rotary->blocks.empty()) return;
  const RotarySpec& spec = *layer.rotary;
  const RotaryBlock& first = spec.blocks.front();
  const std::string where = layer.encodings.empty() ? std::string("the definition")
                                                    : to_text(layer.encodings.front().value);
  add(layer, "head_dim", spec.head_dim, where);
  add(layer, "rotary_dim", first.width(), where);
  add(layer, "offset", first.offset, where);
  add(layer, "pairing", enum_text(first.pairing), where);
  add(layer, "direction", Index{first.direction}, where);
  add(layer, "output_order", enum_text(first.output_order), where);
  add(layer, "attention_factor", first.spectrum.gain, where);
  add(layer, "logit_factor", spec.logit_factor(), where);
  add(layer, "inv_freq", where, "the text, resolved for the context");
  if (first.spectrum.axes > 1)
    add(layer, "axes", static_cast<std::int64_t>(first.spectrum.axes), where);
}

// transformers 5.23: modeling_llama4 (token counts from 1), modeling_ministral3 (from 0),
// modeling_inkling (log_floor); log-n of Qwen-1: max(1, ln(p + 1) / ln(period)).
double query_factor(const QueryTemperature& t, double position) {
  if (!(t.period >= 1)) refuse_field("query_temperature", "period", "must be positive", t.period);
  const double period = static_cast<double>(t.period);
  switch (t.form) {
    case TemperatureForm::llama4:
      return 1 + t.beta * std::log1p(std::floor((position + 1) / period));
    case TemperatureForm::ministral:
      return 1 + t.beta * std::log1p(std::floor(position / period));
    case TemperatureForm::log_n:
      if (t.period < 2) refuse("query_temperature", "period of log_n must be above 1", t.period);
      return std::max(1.0, std::log(position + 1) / std::log(period));
    case TemperatureForm::log_floor:
      return 1 + t.beta * std::log(std::max(1.0, (position + 1) / period));
  }
  refuse_field("query_temperature", "form", "must be llama4, ministral, log_n or log_floor",
               static_cast<Index>(t.form));
}

const FieldValue* LayerSpec::field(std::string_view name) const {
  for (const FieldValue& f : fields)
    if (f.name == name) return &f;
  return nullptr;
}

bool ModelSpec::has_error() const {
  return std::ranges::any_of(findings,
                             [](const Finding& f) { return f.severity == Severity::error; });
}

ModelError::ModelError(const std::string& what, std::vector<Finding> findings)
    : std::runtime_error(what), findings_(std::move(findings)) {}

void require_readable(const ModelSpec& spec) {
  std::string text;
  for (const Finding& f : spec.findings)
    if (f.severity == Severity::error)
      text += "\n  " + f.code + " at " + f.where + ": " + f.message +
              (f.fix.empty() ? "" : " (" + f.fix + ")");
  if (!text.empty())
    throw ModelError(spec.file + ": positions cannot be determined:" + text, spec.findings);
}

const RotarySpec& ModelSpec::rotary(Index layer) const {
  require_readable(*this);
  const std::string who = file + ": layer " + std::to_string(layer);
  if (layer < 0 || layer >= static_cast<Index>(layers.size()))
    throw ModelError(who + " is none of the model's " + std::to_string(layers.size()), findings);
  const LayerSpec& at = layers[static_cast<std::size_t>(layer)];
  if (!at.rotary)
    throw ModelError(who + " has no rotary encoding: " + acts_in(at, input), findings);
  return *at.rotary;
}

}  // namespace posenc::v0
