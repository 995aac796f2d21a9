// SPDX-License-Identifier: Apache-2.0
// A config.json of diffusers (_class_name instead of model_type): the transformers whose q and k
// rotate by several axes with interleaved pairs. Which they are, and what their classes contain, is
// in the table of models under "diffusers" (run, diffusers 0.42.1).
#include "model/hugging_face/diffusers.h"
#include "model/encoding_builder.h"

namespace posenc::inline v0::hf {
namespace {

// Keys under which classes of diffusers keep the channels of each axis.
constexpr std::string_view kAxesKeys[] = {"axes_dims_rope", "axes_dim_rope", "axes_dims",
                                          "rope_axes_dim"};

Refused not_covered(const Json& config, const std::string& name, Report& report) {
  const Json& known = table_member("diffusers");
  std::vector<std::string> names;
  for (const auto& [one, about] : known.as_object()) names.push_back(one);
  std::string why = "positions of this diffusers class are not described";
  std::string fix = "read the class; " + listed(names) + " are read";
  for (const std::string_view key : kAxesKeys)
    if (const Json* axes = config.find(key)) {
      why = message(
          "the file has rotary over axes ({} {}), but the order and pairing of channels in this "
          "diffusers class is not known",
          key, *axes);
      fix += message(
          "; where its pairs are neighbours, \"axial axes_dim={} pairing=interleaved\" "
          "with its head_dim and base has its numbers",
          *axes);
      break;
    }
  if (name.ends_with("Pipeline")) {
    why = "a pipeline has no positions of its own";
    fix = "name the config.json in the folder of its transformer";
  } else if (name.ends_with("Scheduler")) {
    why = "a scheduler has no positions";
    fix = "name the config.json in the folder of the transformer";
  }
  report.error("layout_not_covered", {"{}: {}", name, why}, report.file + "#/_class_name", fix);
  return {};
}

// Channels of each axis, which must fill a head.
std::optional<Value> axes_of(const ConfigView& view, const Sourced<Index>& head) {
  const auto axes = view.value("axes_dims_rope");
  Index sum = 0;
  bool fine = axes && axes->value.is_array() && !axes->value.as_array().empty();
  for (std::size_t i = 0; fine && i < axes->value.as_array().size(); ++i) {
    const auto n = whole_number(axes->value.as_array()[i]);
    fine = n && *n > 0 && *n <= 65536 && *n % 2 == 0;
    if (fine) sum += *n;
  }
  if (fine && sum == head.value) return axes;
  return view.wrong_type({"axes_dims_rope must be a list of even numbers that add up to "
                          "attention_head_dim, {}, got {}",
                          head.value, axes ? axes->value : Json()},
                         view.place(axes, "axes_dims_rope"), "state the channels of each axis");
}

std::optional<LayerSpec> layer_of(const ConfigView& view, const Json& about) {
  const auto head = view.integer("attention_head_dim", 2, 65536, true);
  const auto axes = head ? axes_of(view, *head) : std::nullopt;
  const Json* theta_key = about.find("theta_key");
  const auto theta = theta_key ? view.value(theta_key->as_string())
                               : Value{about.at("theta"), Origin::class_default,
                                       view.class_name() + ": fixed in the code"};
  if (theta && !(number_of(theta) > 0))
    return view.error("theta_not_positive", "rope_theta must be a positive number", *theta,
                      "state rope_theta");
  if (!axes || !theta) return std::nullopt;
  EncodingBuilder made("axial");
  made.set("head_dim", *head);
  made.set("axes_dim", *axes);
  made.set("pairing", view.of_class("interleaved"));
  made.set("base", *theta);
  LayerSpec layer;
  auto encoding = made.finish(view.report(), view.where(),
                              [&](const Encoding& e) { layer.rotary = resolve(e); });
  if (!encoding) return std::nullopt;
  layer.encodings.push_back({{std::move(*encoding), Origin::derived, view.class_name()}, {}});
  layer.scheme = "rope";
  layer.qk_norm.emplace().eps = 1e-6;
  layer.scale = ContentScale{};
  layer.fields = made.fields();
  for (const auto& [name, value] : Json::Object{{"direction", 1},
                                                {"output_order", "in_place"},
                                                {"attention", "full"},
                                                {"scheme", "rope"}})
    layer.fields.push_back(field_of(name, view.of_class(value)));
  return layer;
}

}  // namespace

bool is_diffusers(const Json& config) {
  const Json* name = config.find("_class_name");
  return name && name->is_string() && !config.find("model_type");
}

void read_diffusers(const Json& config, Report& report, ModelSpec& spec) {
  spec.model_type = config.at("_class_name").as_string();
  spec.reader = "diffusers";
  spec.context = {0, Origin::derived, "no length is stated"};
  const Json* about = table_member("diffusers").find(spec.model_type);
  if (!about) return (void)not_covered(config, spec.model_type, report);
  const ClassRules rules =
      with(ClassRules{},
           Json::object({{"class", spec.model_type}, {"defaults", about->at("defaults")}}));
  const ConfigView view(config, "", rules, report);
  const auto layer = layer_of(view, *about);
  Index layers = 0;
  for (const Json& key : about->at("layers").as_array())
    if (const auto n = view.integer(key.as_string(), 0, 100'000, true)) layers += n->value;
  if (!layer || report.errors() > 0) return;
  for (Index i = 0; i < layers; ++i) {
    spec.layers.push_back(*layer);
    spec.layers.back().index = i;
    complete_fields(spec.layers.back());
  }
  view.note("axes_of_tokens", about->at("positions").as_string(), view.where("_class_name"),
            "pass these positions: posenc uses the positions of the call");
}

}  // namespace posenc::v0::hf
