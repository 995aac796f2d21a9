// SPDX-License-Identifier: Apache-2.0
// The scheme of a RotaryWriter: type, head, width, base, pairing.
#include <algorithm>
#include <cmath>

#include "model/hugging_face/rotary_definition/writer.h"

namespace posenc::hf {

// All that is wrong with a dictionary is said, so a part that fails does not keep the others from
// being read; what they need of it (pairs_, base_) is 0 then.
std::optional<RotaryDefinition> RotaryWriter::write(const Head* head) {
  const auto type = type_of_dict();
  const bool known = type && known_type(*type);
  if (type) out_.type = *type;
  if (!known) {
    (void)base();
    return std::nullopt;
  }
  bool fine = head && takes_head(*head);
  if (head && view_.entry().find("axial"))
    return axial(*head) && fine ? std::optional<RotaryDefinition>(out_) : std::nullopt;
  if (head)
    fine = scheme(*head) && xd_sections(*head) && fine;
  else {
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

bool RotaryWriter::known_type(const std::string& type) {
  const Json* rule = view_.entry().find("rope");
  type_ = scaling_type(type);
  if (!type_ || (type_->own_keys && !(rule && rule->at("rule") == Json("own_keys")))) {
    unknown_type(type);
    return false;
  }
  return allowed_by_class(type);
}

// Scaled types ask for head_dim, and fail on the null that a class leaves there.
bool RotaryWriter::takes_head(const Head& head) {
  if (!head.null_head_dim || !type_->takes_head_dim) return true;
  report().error("wrong_type",
                 "head_dim is null, " + view_.class_name() +
                     " does not fill it in, and transformers fails on it with rope_type " +
                     out_.type,
                 view_.where("head_dim"), "state head_dim");
  return false;
}

std::optional<Value> RotaryWriter::base() {
  auto v = number({"rope_theta", "base"});
  if (v) base_ = v->value.as_number();
  return v;
}

std::optional<std::string> RotaryWriter::type_of_dict() {
  Report& r = report();
  const Value* v = dict_.find("rope_type");
  if (v && v->value.is_string()) {
    const Value* old = dict_.find("type");
    if (old && old->value.is_string() && old->value != v->value && old->origin == Origin::stated &&
        v->origin == Origin::stated)
      r.warn("both_spellings",
             "type says " + shown(old->value) + " and rope_type " + shown(v->value) +
                 ": transformers 5 takes rope_type, transformers 4 took type",
             old->where, "remove type");
    return v->value.as_string();
  }
  std::string names;
  for (const ScalingType& t : scaling_types())
    if (!t.own_keys) names.append(names.empty() ? "" : ", ").append(t.type);
  if (v)
    r.error(v->value.is_null() ? "unknown_rope_type" : "wrong_type",
            "rope_type must be a name, got " + shown(v->value), v->where, "write one of " + names);
  else
    r.error("missing_key", "no rope_type", place("rope_type"), "state rope_type");
  return std::nullopt;
}

void RotaryWriter::unknown_type(const std::string& type) {
  const Value* v = dict_.find("rope_type");
  std::string message = "rope_type " + type + " is not known to transformers";
  if (type == "su")
    message += " 5.23 outside of Phi-3; it is the old name of longrope";
  else if (type == "ntk" || type == "mllama4" || type == "xdrope" || type == "deepseek_yarn")
    message += "; it is a name of vLLM";
  else if (type == "mrope")
    message += " for this class";
  const std::string at = v ? v->where : place("rope_type");
  const std::size_t path = at.find('#');
  report().error(
      "unknown_rope_type", message, at,
      "write the transformers name" + (path == std::string::npos
                                           ? std::string()
                                           : ", or --assume " + at.substr(path + 1) + "=NAME"));
}

bool RotaryWriter::width(const Head& head, Index& out) {
  const Value* fraction = dict_.find("partial_rotary_factor");
  const bool obeyed = out_.type != "default" || view_.entry().find("partial");
  out = head.rope_dim.value;
  Origin origin = Origin::derived;
  std::string where = "the whole " + head.rope_dim.where;
  if (const auto v = assumed("rotary_dim")) {
    const auto w = whole_number(v->value);
    out = w.value_or(0);
    origin = Origin::user;
    where = v->where;
  } else if (const Json* own = own_width_rule()) {
    const auto w = view_.integer(own->as_string(), 1, 65536, true);
    if (!w) return false;
    out = w->value;
    origin = w->origin;
    where = w->where;
  } else if (view_.entry().find("rope") && view_.entry().at("rope").find("partial_is_mla")) {
    return latent_width(head, fraction, out);
  } else if (fraction && (obeyed || !fraction->value.is_null()) &&
             (out_.type != "proportional" || fraction->value.is_null())) {
    if (!fraction->value.is_number()) {
      report().wrong_type("partial_rotary_factor", "a number", *fraction,
                          "write a fraction from 0 to 1");
      return false;
    }
    const double f = fraction->value.as_number();
    // int(head_dim * factor): truncated towards zero as Python does
    const double product = static_cast<double>(head.rope_dim.value) * f;
    if (!(f > 0 && f <= 1) || !(product >= 1)) {
      const bool fatal = obeyed;
      report().add(
          fatal ? Severity::error : Severity::warning, "partial_out_of_range",
          "partial_rotary_factor must be above 0 and at most 1, got " + shown(fraction->value),
          fraction->where, "write the fraction of the head that turns", f);
      if (fatal) return false;
    } else if (!obeyed && f != 1) {
      report().warn("partial_ignored",
                    view_.class_name() + " ignores partial_rotary_factor while rope_type is " +
                        "default: the whole head turns (a scaled type would obey it)",
                    fraction->where, "remove the key, or use a class that reads it", f);
    } else if (obeyed) {
      out = static_cast<Index>(product);
      if (f != 1) {
        where = "int(" + head.rope_dim.where + " * " + fraction->where + ")";
        if (!view_.entry().find("partial") && !latent())
          report().warn("partial_conflict",
                        "the table covers int(head_dim * partial_rotary_factor) channels, but the "
                        "attention of " +
                            view_.class_name() +
                            " multiplies the whole head by it "
                            "and fails; with rope_type default it ignores the fraction",
                        fraction->where, "remove partial_rotary_factor", f);
      }
    }
  }
  if (out > 1 && out % 2 != 0 && origin == Origin::derived && odd_width(head, out)) {
    where += ", rounded up: the table has a pair more than half of it";
  }
  if (out < 2 || out % 2 != 0 || out > head.q_dim.value - head.offset.value) {
    report().error("partial_out_of_range",
                   "the turned width must be even and fit in the head of " +
                       std::to_string(head.q_dim.value) + ", got " + std::to_string(out),
                   where,
                   "state head_dim and the fraction so that an even number of channels turns",
                   static_cast<double>(out));
    return false;
  }
  field("rotary_dim", {out, origin, where});
  return true;
}

// An odd int(head_dim * fraction): the table has ceil(d / 2) pairs with exponents over d, and a
// class that splits heads by its table turns one channel more. Of the scalings only those that take
// frequencies one by one fit such a table.
bool RotaryWriter::odd_width(const Head& head, Index& out) {
  if (!view_.entry().find("splits_by_table") || !type_->pair_by_pair ||
      view_.entry().find("mrope") || out + 1 > head.q_dim.value - head.offset.value)
    return false;
  odd_ = out;
  out += 1;
  return true;
}

// The frequencies of an odd width, theta^(-2i / d) for ceil(d / 2) pairs.
void RotaryWriter::odd_frequencies() {
  if (odd_ == 0) return;
  Json::Array values;
  for (Index i = 0; i < pairs_; ++i)
    values.emplace_back(std::pow(base_, -2 * static_cast<double>(i) / static_cast<double>(odd_)));
  out_.encoding.begin("frequencies");
  field("values", {Json(std::move(values)), Origin::derived,
                   "rope_theta^(-2i / " + std::to_string(odd_) + ")"});
}

// Mistral-4 cuts the whole head by the fraction, and it must come to the turned part.
bool RotaryWriter::latent_width(const Head& head, const Value* fraction, Index& out) {
  out = head.rope_dim.value;
  const double f = fraction && fraction->value.is_number() ? fraction->value.as_number() : 1;
  const auto turned = static_cast<Index>(static_cast<double>(head.q_dim.value) * f);
  if (f > 0 && f <= 1 && turned == out) {
    field("rotary_dim", {out, Origin::derived, "int(" + head.q_dim.where + " * fraction)"});
    return true;
  }
  report().error("partial_conflict",
                 "the table covers " + std::to_string(turned) + " channels of the head of " +
                     std::to_string(head.q_dim.value) + ", and qk_rope_head_dim is " +
                     std::to_string(out) + ": the attention fails",
                 fraction ? fraction->where : place("partial_rotary_factor"),
                 "state partial_rotary_factor as qk_rope_head_dim / (qk_nope_head_dim + "
                 "qk_rope_head_dim)",
                 f);
  return false;
}

// Some classes take few types only: Phi-3 longrope, Ernie-4.5-VL none.
bool RotaryWriter::allowed_by_class(const std::string& type) const {
  const Json* rule = view_.entry().find("rope");
  const Json* only = rule ? rule->find("only") : nullptr;
  if (!only) return true;
  for (const Json& name : only->as_array())
    if (name.as_string() == type) return true;
  const Value* v = dict_.find("rope_type");
  std::string names;
  for (const Json& name : only->as_array()) names += (names.empty() ? "" : ", ") + name.as_string();
  report().error("unknown_rope_type",
                 view_.class_name() + " knows no rope_type " + type + ", only " + names,
                 v ? v->where : view_.where(), "write one of these, or null");
  return false;
}

const Json* RotaryWriter::own_width_rule() const {
  const Json* rule = view_.entry().find("rope");
  return rule ? rule->find("width") : nullptr;
}

bool RotaryWriter::latent() const {
  const Json* head = view_.entry().find("head");
  return head && head->as_string().rfind("latent", 0) == 0;
}

// ChatGLM-6B: two streams of positions, each turning half of the head, paired within itself.
bool RotaryWriter::axial(const Head& head) {
  const Index half = head.q_dim.value / 2;
  if (half % 2 != 0 || 2 * half != head.q_dim.value) {
    report().error("partial_out_of_range",
                   "two axes share the head, which must be a multiple of 4, got " +
                       std::to_string(head.q_dim.value),
                   head.q_dim.where, "state the sizes of the model",
                   static_cast<double>(head.q_dim.value));
    return false;
  }
  out_.encoding.begin("axial");
  field("head_dim", {head.q_dim.value, head.q_dim.origin, head.q_dim.where});
  field("axes_dim", {Json::array({half, half}), Origin::derived, "half of the head each"});
  const auto theta = base();
  if (!theta) return false;
  field("base", *theta);
  field("pairing", pairing());
  field("order", {"blocks", Origin::class_default, view_.layout_source()});
  return true;
}

Value RotaryWriter::pairing() const {
  if (auto v = report().assumed("pairing")) return *v;
  const Json& entry = view_.entry();
  const Json* held = entry.find("pairing");
  if (!held) return {nullptr, Origin::derived, ""};
  if (const Json* key = entry.find("interleave_key"))
    if (!view_.flag(key->as_string(), true)) {
      const auto v = view_.value(key->as_string());
      return {"half_split", v->origin == Origin::class_default ? v->origin : Origin::derived,
              v->where};
    }
  return {*held, Origin::class_default, view_.layout_source()};
}

bool RotaryWriter::scheme(const Head& head) {
  const Json& entry = view_.entry();
  out_.encoding.begin(entry.find("mrope") ? "mrope" : "rope");
  field("head_dim", {head.q_dim.value, head.q_dim.origin, head.q_dim.where});
  Index turned = 0;
  const bool fits = width(head, turned);
  if (fits) pairs_ = turned / 2;
  const auto offset = report().assumed("offset");
  if (offset)
    field("offset", *offset);
  else if (entry.find("tail"))  // DeepSeek-V4: the last channels turn
    field("offset", {head.q_dim.value - turned, Origin::derived, "head_dim - rotary_dim"});
  else
    field("offset", {head.offset.value, head.offset.origin, head.offset.where});
  const auto theta = base();
  if (theta) field("base", *theta);
  const Value pair = pairing();
  if (!pair.value.is_string()) {
    report().error("layout_not_covered",
                   "it is not known which channels " + view_.class_name() + " turns together",
                   view_.where("model_type"), "--assume pairing=half_split or interleaved");
    return false;
  }
  field("pairing", pair);
  const Value by_class{nullptr, Origin::class_default, view_.layout_source()};
  const auto of_class = [&](const char* name, Json otherwise) {
    if (const auto v = report().assumed(name)) return *v;
    const Json* held = entry.find(name);
    const bool plain = pair.value == Json("half_split");
    return Value{held && !(plain && std::string_view(name) == "output_order") ? *held : otherwise,
                 by_class.origin, by_class.where};
  };
  field("direction", of_class("direction", 1));
  field("output_order", of_class("output_order", "in_place"));
  return fits && (!entry.find("mrope") || mrope(turned)) && theta;
}

bool RotaryWriter::mrope(Index turned) {
  const Json& about = view_.entry().at("mrope");
  Value sections{about.at("sections"), Origin::class_default, view_.class_name()};
  const bool halves = sections.value.is_null();  // two axes that share the pairs
  if (halves && turned % 4 == 0)
    sections = {Json::array({turned / 4, turned / 4}), Origin::derived, "half of the pairs each"};
  if (const auto v = report().assumed("sections"))
    sections = *v;
  else if (const Value* found = halves ? nullptr : dict_.find("mrope_section"))
    sections = *found;
  Index sum = 0;
  bool fine = sections.value.is_array() && sections.value.as_array().size() == (halves ? 2 : 3);
  if (fine)
    for (const Json& x : sections.value.as_array()) {
      fine = fine && x.is_integer() && x.as_integer() >= 0 && x.as_integer() < 65536;
      if (fine) sum += x.as_integer();
    }
  if (!fine) {
    report().error("wrong_type",
                   halves
                       ? "two axes share the turned channels, which must be a multiple of 4, got " +
                             std::to_string(turned)
                       : "mrope_section must be three whole numbers, got " + shown(sections.value),
                   halves ? place("partial_rotary_factor") : sections.where,
                   halves ? "state another fraction" : "write pairs for time, height, width");
    return false;
  }
  if (about.at("layout").as_string() == "interleaved" && sum > 0) {
    // Height takes every third pair from 1 on, width from 2 on, as many as it says and there are;
    // what they leave follows time.
    const auto& list = sections.value.as_array();
    const Index pairs = turned / 2;
    const Index height = std::min(list[1].as_integer(), (pairs + 1) / 3);
    const Index width = std::min(list[2].as_integer(), pairs / 3);
    const Index time = pairs - height - width;
    if (sum != pairs || time != list[0].as_integer()) {
      report().warn("sections_sum",
                    "mrope_section is " + shown(sections.value) + ", and " + std::to_string(pairs) +
                        " pairs turn: " + std::to_string(height) + " follow height, " +
                        std::to_string(width) + " width, the rest time",
                    sections.where, static_cast<double>(sum));
      sections = {Json::array({Json(time), Json(height), Json(width)}), Origin::derived,
                  sections.where + ", every third pair"};
      sum = pairs;
    }
  }
  if (sum != turned / 2) {
    report().error("sections_sum",
                   "mrope_section adds up to " + std::to_string(sum) + ", and " +
                       std::to_string(turned / 2) + " pairs turn",
                   sections.where, static_cast<double>(sum));
    return false;
  }
  const std::string layout = about.at("layout").as_string();
  field("sections", sections);
  field("layout", {layout, Origin::class_default, view_.class_name()});
  if (const Value* said = dict_.find("mrope_interleaved");
      said && said->value.is_bool() && said->value.as_bool() != (layout == "interleaved"))
    report().warn("key_ignored",
                  "mrope_interleaved is not read: " + view_.class_name() + " always uses the " +
                      layout + " layout",
                  said->where, "use the class whose layout is meant");
  return true;
}

}  // namespace posenc::hf
