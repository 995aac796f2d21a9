// SPDX-License-Identifier: Apache-2.0
#include "registry/scheme_arrays.h"

#include <algorithm>
#include <optional>

namespace posenc::inline v0::detail {
namespace {

// Sizes of a model that is not known: only their names are printed.
const ScoreShape kShape{.heads = 8, .head_dim = 64, .distance = {3, DistanceRange{-8, 8}}};

std::vector<Input> inputs_of(const Scheme& scheme, const ScoreShape& shape) {
  return std::visit(
      [&](const auto& s) -> std::vector<Input> {
        if constexpr (requires { s.inputs(shape); })
          return s.inputs(shape);
        else
          return {};
      },
      static_cast<const Schemes::Variant&>(scheme));
}

// Numbers, and names where a model or a call decides: [32, "heads"], ["batch", "queries"].
Json shape_json(const ArrayShape& shape) {
  Json out = Json::array();
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const Index n = shape[axis];
    if (n == kBatch || n == kQueries || n == kKeys)
      out.push(n == kBatch ? "batch" : n == kQueries ? "queries" : "keys");
    else if (shape.name(axis).empty())
      out.push(n);
    else
      out.push(shape.name(axis));
  }
  return out;
}

std::string usual_text(const SchemeInfo& s) {
  std::string text(s.card.name);
  const bool whole =
      std::none_of(s.fields.begin(), s.fields.end(), [](const FieldInfo& f) { return f.required; });
  if (whole) return text;
  if (!s.presets.empty()) return s.presets.front().short_text;
  for (const FieldInfo& f : s.fields)
    if (f.required)
      text += " " + std::string(f.name) + "=" +
              (!f.choices.empty()             ? std::string(f.choices.front())
               : f.type == "list of integers" ? "[8,8]"
                                              : "64");
  return text;
}

// Absent where the required fields do not make a scheme: paragraph_offset needs `paragraphs` with the
// default mode and rejects it with the other.
std::optional<Scheme> usual_scheme(const std::string& text) {
  try {
    Scheme scheme = parse_encoding(text).scheme;
    parameters_of(scheme, kShape);
    return scheme;
  } catch (const ArgumentError&) {
    return std::nullopt;
  }
}

Json parameters_json(const Scheme& scheme) {
  Json out = Json::array();
  for (const Parameter& p : parameters_of(scheme, kShape))
    out.push(Json::object({{"name", p.name}, {"shape", shape_json(p.shape)}}));
  return out;
}

Json inputs_json(const Scheme& scheme) {
  Json out = Json::array();
  for (const Input& input : inputs_of(scheme, kShape))
    out.push(Json::object({{"name", input.name},
                           {"shape", shape_json(input.shape)},
                           {"integer", input.integer},
                           {"optional", input.optional}}));
  return out;
}

}  // namespace

std::vector<Parameter> parameters_of(const Scheme& scheme, const ScoreShape& shape) {
  return std::visit(
      [&](const auto& s) -> std::vector<Parameter> {
        if constexpr (requires { s.parameters(shape); })
          return s.parameters(shape);
        else if constexpr (requires { s.parameters(); })
          return s.parameters();
        else
          return {};
      },
      static_cast<const Schemes::Variant&>(scheme));
}

void add_arrays(const SchemeInfo& s, Json& out) {
  const std::string at = usual_text(s);
  const bool listed = s.family != "scaling" && s.family != "rotary" && s.family != "polar";
  const std::optional<Scheme> scheme = listed ? usual_scheme(at) : std::nullopt;
  out.set("at", scheme ? Json(at) : Json());
  out.set("parameters", scheme ? parameters_json(*scheme) : Json());
  out.set("inputs", scheme ? inputs_json(*scheme) : Json());
}

}  // namespace posenc::v0::detail
