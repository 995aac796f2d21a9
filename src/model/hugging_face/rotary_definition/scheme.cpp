// SPDX-License-Identifier: Apache-2.0
// The scheme of a RotaryWriter: type, head, base, pairing. Its width and axes: width.cpp.
#include "model/hugging_face/rotary_definition/writer.h"
#include "posenc/registry/fields.h"

namespace posenc::inline v0::hf {

namespace {

// The types of transformers.
std::vector<std::string_view> type_names() {
  std::vector<std::string_view> names;
  for (const ScalingType& t : scaling_types())
    if (!t.own_keys) names.push_back(t.type);
  return names;
}

}  // namespace

// All that is wrong with a dictionary is said, so a part that fails does not keep the others from
// being read; what they need of it (pairs_, base_) is 0 then.
std::optional<RotaryDefinition> RotaryWriter::write(const Head* head) {
  if (!known_type()) {
    (void)base();
    return std::nullopt;
  }
  bool fine = head && takes_head(*head);
  if (head && !view_.rules().axial.empty())
    return axial(*head) && fine ? std::optional<RotaryDefinition>(out_) : std::nullopt;
  if (head) {
    fine = scheme(*head) && xd_sections(*head) && fine;
  } else {
    out_.encoding.begin("rope");
    (void)base();
  }
  if (fine) odd_frequencies();
  fine = scaling() && fine;
  unread_keys();
  if (!fine) return std::nullopt;
  logit_factor();
  theta_place();
  return out_;
}

// Some classes take few types only: Phi-3 longrope, Ernie-4.5-VL none.
bool RotaryWriter::known_type() {
  const auto type = type_of_dict();
  if (!type) return false;
  out_.type = *type;
  type_ = scaling_type(*type);
  const Value* v = dict_.find("rope_type");
  if (!type_ || (type_->own_keys && rules().rule != "own_keys")) {
    std::string what = "rope_type " + *type + " is not known to transformers";
    if (*type == "su")
      what += " 5.23 outside of Phi-3; it is the old name of longrope";
    else if (contains({"ntk", "mllama4", "xdrope", "deepseek_yarn"}, *type))
      what += "; it is a name of vLLM";
    else if (*type == "mrope")
      what += " for this class";
    else if (const std::string_view meant = nearest_word(*type, type_names()); !meant.empty())
      what += "; did you mean " + std::string(meant) + "?";
    const std::string at = v ? v->where : place("rope_type");
    const std::size_t path = at.find('#');
    return view_.error(
        "unknown_rope_type", what, at,
        {"write the transformers name{}",
         path == std::string::npos ? "" : ", or --assume " + at.substr(path + 1) + "=NAME"});
  }
  if (rules().only.empty() || contains(rules().only, *type)) return true;
  return view_.error("unknown_rope_type",
                     {"{class} knows no rope_type {}, only {}", *type, listed(rules().only)},
                     v ? v->where : view_.where(), "write one of these, or null");
}

std::optional<std::string> RotaryWriter::type_of_dict() {
  const Value *v = dict_.find("rope_type"), *old = dict_.find("type");
  if (v && v->value.is_string()) {
    if (old && old->value.is_string() && old->value != v->value && old->origin == Origin::stated &&
        v->origin == Origin::stated)
      view_.warn(
          "both_spellings",
          {"type is {} and rope_type {}: transformers 5 uses rope_type, transformers 4 used type",
           old->value, v->value},
          *old, "remove type");
    return v->value.as_string();
  }
  if (v)
    return view_.error(v->value.is_null() ? "unknown_rope_type" : "wrong_type",
                       {"rope_type must be a name, got {}", v->value}, *v,
                       {"write one of {}", listed(type_names())});
  return view_.error("missing_key", "no rope_type", place("rope_type"), "state rope_type");
}

// Scaled types ask for head_dim, and fail on the null that a class leaves there.
bool RotaryWriter::takes_head(const Head& head) {
  if (!head.null_head_dim || !type_->takes_head_dim) return true;
  return view_.wrong_type(
      {"head_dim is null, {class} does not fill it in, and transformers fails on it "
       "with rope_type {}",
       out_.type},
      view_.where("head_dim"), "state head_dim");
}

std::optional<Value> RotaryWriter::base() {
  auto v = number({"rope_theta", "base"});
  if (v) base_ = v->value.as_number();
  return v;
}

// ChatGLM-6B: two streams of positions, each turning half of the head, paired within itself.
bool RotaryWriter::axial(const Head& head) {
  const Index half = head.q_dim.value / 2;
  if (half % 2 != 0 || 2 * half != head.q_dim.value)
    return view_.error(
        "partial_out_of_range",
        {"two axes share the head, which must be a multiple of 4, got {}", head.q_dim.value},
        head.q_dim, "state the sizes of the model", head.q_dim.value);
  out_.encoding.begin("axial");
  out_.encoding.set("head_dim", head.q_dim);
  field("axes_dim", derived(Json::array({half, half}), "half of the head each"));
  const auto theta = base();
  if (!theta) return false;
  field("base", *theta);
  field("pairing", pairing());
  field("order", {"blocks", Origin::class_default, view_.layout_source()});
  return true;
}

Value RotaryWriter::pairing() const {
  const ClassRules& rules = view_.rules();
  if (auto v = report().assumed("pairing")) return *v;
  if (rules.pairing.empty()) return derived(nullptr, "");
  if (!rules.interleave_key.empty() && !view_.flag(rules.interleave_key, true)) {
    const auto v = view_.value(rules.interleave_key);
    return {"half_split", v->origin == Origin::class_default ? v->origin : Origin::derived,
            v->where};
  }
  return {rules.pairing, Origin::class_default, view_.layout_source()};
}

bool RotaryWriter::scheme(const Head& head) {
  const ClassRules& rules = view_.rules();
  out_.encoding.begin(rules.mrope ? "mrope" : "rope");
  out_.encoding.set("head_dim", head.q_dim);
  const bool fits = width(head);
  const auto of_layout = [&](const char* name, Json value) {
    const auto v = report().assumed(name);
    field(name, v ? *v : Value{std::move(value), Origin::class_default, view_.layout_source()});
  };
  if (const auto offset = report().assumed("offset"))
    field("offset", *offset);
  else if (rules.tail)  // DeepSeek-V4: the last channels turn
    field("offset", derived(head.q_dim.value - 2 * pairs_, "head_dim - rotary_dim"));
  else
    out_.encoding.set("offset", head.offset);
  const auto theta = base();
  if (theta) field("base", *theta);
  const Value pair = pairing();
  if (!pair.value.is_string())
    return view_.error("layout_not_covered",
                       "it is not known which channels {class} rotates together",
                       view_.where("model_type"), "--assume pairing=half_split or interleaved");
  field("pairing", pair);
  of_layout("direction", rules.direction.value_or(1));
  of_layout("output_order", rules.output_order.empty() || pair.value == Json("half_split")
                                ? "in_place"
                                : rules.output_order);
  return fits && (!rules.mrope || mrope()) && theta;
}

}  // namespace posenc::v0::hf
