// SPDX-License-Identifier: Apache-2.0
// Models without rotary: what stands at the input, and what acts in the score.
#include "model/hugging_face/input_side.h"
#include "model/hugging_face/key_cache.h"
#include "model/hugging_face/layers.h"

#include "model/hugging_face/layer_rules.h"
#include "model/hugging_face/score/side.h"

namespace posenc::inline v0::hf {
namespace {

// Keys of a rotary encoding that a class without one does not read.
void warn_of_rotary_keys(const ConfigView& view) {
  for (const std::string_view key : kRotaryKeys)
    if (const auto v = view.stated(key); v && truthy(v->value))
      view.warn("key_ignored", {"{} is in the file, but {class} has no rotary", key}, *v,
                "the key does nothing");
}

// What stands at the input of the class: empty for nothing.
std::string input_kind(const ConfigView& view, const std::string& given) {
  const ClassRules& rules = view.rules();
  std::string input = acts_at_input(given) ? given : "";  // instead of a rotary: ESM
  if (!rules.input.empty()) input = rules.input;
  if (!rules.input_if.empty() && !view.flag(rules.input_if, false)) input.clear();
  return input;
}

void note_no_rotary(const ConfigView& view, const std::string& input, const std::string& scheme) {
  const ClassRules& rules = view.rules();
  const auto note = [&](const std::string& text) {
    view.note("no_rotary", text, view.where("model_type"));
  };
  if (!rules.input_note.empty())
    view.note("encoding_not_covered", rules.input_note, view.where("model_type"));
  if (!input.empty())
    note("positions are added " +
         (rules.input_at.empty()
              ? std::string("at the input (")
              : "to " + rules.input_at + " of the layers, before their projections (") +
         input + "); q and k are not rotated");
  if (scheme != kNoScheme)
    note("positions act in the score (" + scheme + ")");
  else if (input.empty())
    note(rules.no_transformer.empty()
             ? "no position encoding: order comes from the layers themselves"
             : "no Transformer and no position encoding: order comes from " + rules.no_transformer);
}

// Inkling: q of layers that see every token grows with the logarithm, as their bias does; the score
// side has checked the two keys.
void log_floor(const ConfigView& view, LayerSpec& layer) {
  const std::string& rule = view.rules().temperature;
  if (!rule.starts_with("log_floor") || layer.attention.kind != AttentionKind::full) return;
  const auto floor = view.value_or_none("log_scaling_n_floor"),
             alpha = view.value_or_none("log_scaling_alpha");
  const auto length = floor ? whole_number(floor->value) : std::nullopt;
  if (!length || !alpha || !alpha->value.is_number() || layer.encodings.empty()) return;
  const bool by_order = rule == "log_floor_by_order";
  give_temperature(view,
                   {.form = TemperatureForm::log_floor,
                    .beta = alpha->value.as_number(),
                    .period = *length,
                    .by = by_order ? TemperatureIndex::order : TemperatureIndex::position},
                   *alpha, *floor, layer);
}

}  // namespace

void read_not_rotary(const ConfigView& view, const std::string& given, PartLayers& out) {
  ScoreSide side(view, given);
  warn_of_rotary_keys(view);
  const std::string input = input_kind(view, given);
  read_input(view, input, out);
  note_no_rotary(view, input, side.scheme());
  if (!view.rules().no_transformer.empty()) return;
  auto plans = plan_layers(view);
  if (!plans) return;
  std::vector<std::string> types;
  for (LayerPlan& plan : *plans) {
    LayerSpec layer;
    layer.index = static_cast<Index>(out.layers.size());
    layer.attention = plan.attention;
    layer.fields = std::move(plan.fields);
    if (layer.attention.attends()) side.give(layer);
    log_floor(view, layer);
    layer.fields.push_back(field_of("scheme", view.of_class(Json(layer.scheme))));
    complete_fields(layer);
    types.push_back(plan.type);
    out.layers.push_back(std::move(layer));
  }
  count_cached_keys(view, types, out.layers);
}

}  // namespace posenc::v0::hf
