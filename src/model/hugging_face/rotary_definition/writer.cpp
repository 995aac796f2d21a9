// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/rotary_definition/writer.h"

#include <algorithm>
#include <cmath>

namespace posenc::hf {
namespace {

std::string text_of(const Json& j) {
  if (j.is_bool()) return j.as_bool() ? "true" : "false";
  if (j.is_integer()) return std::to_string(j.as_integer());
  if (j.is_number()) return number_text(j.as_number());
  if (j.is_string()) return j.as_string();
  std::string text = "[";
  for (const Json& x : j.as_array()) text += (text.size() > 1 ? "," : "") + text_of(x);
  return text + "]";
}

}  // namespace

std::string RotaryWriter::place(std::string_view key) const {
  if (!dict_.items().empty())
    for (const auto& [name, value] : dict_.items())
      if (value.origin == Origin::stated) {
        const auto cut = value.where.rfind('/');
        if (value.where.find("rope_") != std::string::npos && cut != std::string::npos &&
            value.where.compare(0, cut, view_.where()) != 0)
          return value.where.substr(0, cut + 1) + std::string(key);
      }
  return view_.where(key);
}

void RotaryWriter::begin(std::string_view name, bool is_scaling) {
  if (is_scaling) out_.text += " + ";
  out_.text += name;
  prefix_ = is_scaling ? std::string(name) + "." : std::string();
}

void RotaryWriter::field(std::string_view name, const Value& v) {
  out_.text += " " + std::string(name) + "=" + text_of(v.value);
  out_.fields.push_back({prefix_ + std::string(name), v.value, v.origin, v.where});
}

std::optional<Value> RotaryWriter::assumed(std::string_view field) {
  return report().assumed(prefix_ + std::string(field));
}

std::optional<Value> RotaryWriter::number(std::string_view key, std::string_view field, Rule rule) {
  auto v = assumed(field);
  if (!v)
    if (const Value* found = dict_.find(key)) v = *found;
  const std::string name(key);
  if (!v) {
    if (rule.required)
      report().error("missing_key", "rope_type " + out_.type + " needs " + name, place(key),
                     "state " + name + ", or --assume " + prefix_ + std::string(field) + "=VALUE");
    return std::nullopt;
  }
  if (v->value.is_null() && !rule.required) return std::nullopt;
  if (!v->value.is_number()) {
    report().wrong_type(name, "a number", *v);
    return std::nullopt;
  }
  if (!std::isfinite(v->value.as_number())) {
    report().error("not_finite", name + " must be finite", v->where);
    return std::nullopt;
  }
  if (!(v->value.as_number() > rule.above)) {
    report().error(key == "rope_theta" ? "theta_not_positive" : "wrong_type",
                   name + " must be above " + number_text(rule.above) + ", got " + shown(v->value),
                   v->where, "write the value the model was trained with", v->value.as_number());
    return std::nullopt;
  }
  return v;
}

std::optional<Value> RotaryWriter::whole(std::string_view key, std::string_view field,
                                         bool required) {
  auto v = number(key, field, {required, 0});
  if (!v) return std::nullopt;
  const auto n = whole_number(v->value);
  if (!n) {
    report().wrong_type(std::string(key), "a whole number", *v, "write a whole number of tokens");
    return std::nullopt;
  }
  if (v->origin == Origin::derived)
    report().warn("missing_key",
                  std::string(key) + " is missing: transformers lets max_position_embeddings, " +
                      std::to_string(*n) + ", stand in",
                  place(key), "state the length of the pre-training", static_cast<double>(*n));
  v->value = *n;
  return v;
}

std::optional<Value> RotaryWriter::list(std::string_view key, std::string_view field,
                                        Index length) {
  auto v = assumed(field);
  if (!v)
    if (const Value* found = dict_.find(key)) v = *found;
  const std::string name(key);
  const auto one_a_pair = [length](const std::string& what) {
    return length > 0 ? std::to_string(length) + " " + what : what + ", one a pair";
  };
  if (!v) {
    report().error("missing_key", "rope_type " + out_.type + " needs " + name, place(key),
                   "state " + name + ": a list of " + one_a_pair("divisors"));
    return std::nullopt;
  }
  const bool is_list =
      v->value.is_array() && std::all_of(v->value.as_array().begin(), v->value.as_array().end(),
                                         [](const Json& x) { return x.is_number(); });
  if (!is_list) {
    report().wrong_type(name, "a list of numbers", *v, "write " + one_a_pair("numbers"));
    return std::nullopt;
  }
  const auto size = static_cast<Index>(v->value.as_array().size());
  if (length > 0 && size != length) {
    report().error("list_length",
                   name + " must have one number a pair, " + std::to_string(length) + ", and has " +
                       std::to_string(size),
                   v->where, static_cast<double>(size));
    return std::nullopt;
  }
  for (const Json& x : v->value.as_array())
    if (!(x.as_number() > 0) || !std::isfinite(x.as_number())) {
      report().error("table_zero",
                     name + " holds " + shown(x) + ", and frequencies are divided " + "by it",
                     v->where, "take the list of the model's own file", x.as_number());
      return std::nullopt;
    }
  return v;
}

}  // namespace posenc::hf
