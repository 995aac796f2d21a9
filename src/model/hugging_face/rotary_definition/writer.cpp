// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/rotary_definition/writer.h"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace posenc::hf {
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

void RotaryWriter::field(std::string_view name, const Value& v) {
  out_.encoding.set(name, v);
}

std::optional<Value> RotaryWriter::assumed(std::string_view field) {
  return report().assumed(out_.encoding.full_name(field));
}

std::optional<Value> RotaryWriter::stated(const ScalingKey& k) {
  auto v = assumed(k.field);
  if (!v)
    if (const Value* found = dict_.find(k.key)) v = *found;
  return v;
}

namespace {
// rope_local_base_freq, where a file has the key under that name: the last word of its place.
std::string name_in_file(const Value& v, std::string_view key) {
  std::string_view path = v.where;
  while (!path.empty() && std::isdigit(static_cast<unsigned char>(path.back())))
    path.remove_suffix(1);  // one of a list
  if (path.ends_with('/')) path.remove_suffix(1);
  const std::size_t at = path.rfind('/');
  return std::string(v.origin == Origin::stated && at != path.npos ? path.substr(at + 1) : key);
}
}  // namespace

std::optional<Value> RotaryWriter::number(const ScalingKey& k) {
  auto v = stated(k);
  if (!v) {
    const std::string name(k.key);
    if (k.required)
      report().error(
          "missing_key", "rope_type " + out_.type + " needs " + name, place(k.key),
          "state " + name + ", or --assume " + out_.encoding.full_name(k.field) + "=VALUE");
    return std::nullopt;
  }
  if (v->value.is_null() && !k.required) return std::nullopt;
  const std::string name = name_in_file(*v, k.key);
  if (!v->value.is_number()) {
    report().wrong_type(name, "a number", *v);
    return std::nullopt;
  }
  if (!std::isfinite(v->value.as_number())) {
    report().error("not_finite", name + " must be finite", v->where);
    return std::nullopt;
  }
  if (!(v->value.as_number() > k.above)) {
    report().error(k.field == "base" ? "theta_not_positive" : "wrong_type",
                   name + " must be above " + number_text(k.above) + ", got " + shown(v->value),
                   v->where, "write the value the model was trained with", v->value.as_number());
    return std::nullopt;
  }
  return v;
}

std::optional<Value> RotaryWriter::whole(const ScalingKey& k) {
  auto v = number(k);
  if (!v) return std::nullopt;
  const std::string name(k.key);
  const auto n = whole_number(v->value);
  if (!n) {
    report().wrong_type(name, "a whole number", *v, "write a whole number of tokens");
    return std::nullopt;
  }
  if (v->origin == Origin::derived)
    report().warn("missing_key",
                  name + " is missing: transformers lets max_position_embeddings, " +
                      std::to_string(*n) + ", stand in",
                  place(k.key), "state the length of the pre-training", static_cast<double>(*n));
  v->value = *n;
  return v;
}

std::optional<Value> RotaryWriter::list(const ScalingKey& k) {
  const auto v = stated(k);
  const Index length = pairs_;
  const std::string name(k.key);
  const auto one_a_pair = [length](const std::string& what) {
    return length > 0 ? std::to_string(length) + " " + what : what + ", one a pair";
  };
  if (!v) {
    report().error("missing_key", "rope_type " + out_.type + " needs " + name, place(k.key),
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

std::optional<Value> RotaryWriter::read(const ScalingKey& k) {
  return k.kind == KeyKind::whole ? whole(k) : k.kind == KeyKind::list ? list(k) : number(k);
}

std::optional<Value> RotaryWriter::take(std::string_view key) {
  return read(*type_->find(key));
}

}  // namespace posenc::hf
