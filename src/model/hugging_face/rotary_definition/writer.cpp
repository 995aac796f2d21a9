// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/rotary_definition/writer.h"

#include <algorithm>
#include <cmath>

namespace posenc::inline v0::hf {
const RopeRules& RotaryWriter::rules() const {
  return rope_rules(view_);
}

std::string RotaryWriter::place(std::string_view key) const {
  for (const auto& [name, value] : dict_.items()) {
    const auto cut = value.where.rfind('/');
    if (value.origin == Origin::stated && cut != std::string::npos &&
        value.where.find("rope_") != std::string::npos &&
        value.where.compare(0, cut, view_.where()) != 0)
      return value.where.substr(0, cut + 1) + std::string(key);
  }
  return view_.where(key);
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

std::optional<Value> RotaryWriter::number(const ScalingKey& k) {
  auto v = stated(k);
  if (!v && k.required)
    view_.error("missing_key", {"rope_type {} needs {}", out_.type, k.key}, place(k.key),
                {"state {}, or --assume {}=VALUE", k.key, out_.encoding.full_name(k.field)});
  if (!v || (v->value.is_null() && !k.required)) return std::nullopt;
  const std::string name = ConfigView::name_in_file(*v, k.key);
  if (!v->value.is_number()) return view_.must_be(name, "a number", *v);
  const double x = v->value.as_number();
  if (!std::isfinite(x)) return view_.error("not_finite", {"{} must be finite", name}, *v);
  if (x > k.above) return v;
  return view_.error(k.field == "base" ? "theta_not_positive" : "wrong_type",
                     {"{} must be above {}, got {}", name, k.above, v->value}, *v,
                     "write the value the model was trained with", x);
}

std::optional<Value> RotaryWriter::whole(const ScalingKey& k) {
  auto v = number(k);
  if (!v) return std::nullopt;
  const auto n = whole_number(v->value);
  if (!n)
    return view_.must_be(ConfigView::name_in_file(*v, k.key), "a whole number", *v,
                         "write a whole number of tokens");
  if (v->origin == Origin::derived)
    view_.warn("missing_key",
               {"{} is missing: transformers uses max_position_embeddings, {}, instead", k.key, *n},
               place(k.key), "state the length of the pre-training", *n);
  v->value = *n;
  return v;
}

std::optional<Value> RotaryWriter::list(const ScalingKey& k) {
  const auto v = stated(k);
  const auto one_a_pair = [this](const std::string& what) {
    return pairs_ > 0 ? message("{} {}", pairs_, what) : what + ", one a pair";
  };
  if (!v)
    return view_.error("missing_key", {"rope_type {} needs {}", out_.type, k.key}, place(k.key),
                       {"state {}: a list of {}", k.key, one_a_pair("divisors")});
  const Json::Array none, &all = v->value.is_array() ? v->value.as_array() : none;
  const auto is_number = [](const Json& x) { return x.is_number(); };
  if (!v->value.is_array() || !std::ranges::all_of(all, is_number))
    return view_.must_be(ConfigView::name_in_file(*v, k.key), "a list of numbers", *v,
                         "write " + one_a_pair("numbers"));
  const auto size = static_cast<Index>(all.size());
  if (pairs_ > 0 && size != pairs_)
    return view_.error("list_length",
                       {"{} must have one number a pair, {}, and has {}", k.key, pairs_, size}, *v,
                       "", size);
  for (const Json& x : all)
    if (!(x.as_number() > 0) || !std::isfinite(x.as_number()))
      return view_.error("table_zero", {"{} holds {}, and frequencies are divided by it", k.key, x},
                         *v, "use the list of the model's own file", x.as_number());
  return v;
}

std::optional<Value> RotaryWriter::read(const ScalingKey& k) {
  return k.kind == KeyKind::whole ? whole(k) : k.kind == KeyKind::list ? list(k) : number(k);
}

std::optional<Value> RotaryWriter::take(std::string_view key) {
  return read(*type_->find(key));
}

bool RotaryWriter::absent(std::string_view key) const {
  const Value* v = dict_.find(key);
  return !v || v->value.is_null();
}

bool RotaryWriter::take_optional(std::string_view key) {
  const auto v = take(key);
  if (v) field(type_->find(key)->field, *v);
  return v || absent(key);
}

}  // namespace posenc::v0::hf
