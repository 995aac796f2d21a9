// SPDX-License-Identifier: Apache-2.0
#include "registry/scheme_arrays.h"

#include <algorithm>
#include <array>

namespace posenc::inline v0::detail {
namespace {

struct Arrays {
  std::vector<Parameter> parameters;
  std::vector<Input> inputs;
};

Arrays arrays_of(const Scheme& scheme, const ScoreShape& shape) {
  Arrays a{parameters_of(scheme, shape), {}};
  std::visit(
      [&](const auto& s) {
        if constexpr (requires { s.inputs(shape); }) a.inputs = s.inputs(shape);
      },
      static_cast<const Schemes::Variant&>(scheme));
  return a;
}

// Each but the first differs from it in one thing.
struct Probe {
  Index heads, head_dim, reach;
  ScoreShape shape() const {
    ScoreShape s{.heads = heads, .head_dim = head_dim};
    s.distance.assign(3, {-reach, reach});
    return s;
  }
};
constexpr std::array<Probe, 4> kProbes{{{6, 32, 8}, {12, 32, 8}, {6, 64, 8}, {6, 32, 16}}};
using Sizes = std::array<Index, kProbes.size()>;

Json size_json(const Sizes& found) {
  const auto is = [&](auto rule) {
    return std::equal(found.begin(), found.end(), kProbes.begin(),
                      [&](Index n, const Probe& p) { return n == rule(p); });
  };
  if (found[0] == kBatch) return "batch";
  if (found[0] == kQueries) return "queries";
  if (found[0] == kKeys) return "keys";
  if (is([&](const Probe&) { return found[0]; })) return found[0];
  if (is([](const Probe& p) { return p.heads; })) return "heads";
  if (is([](const Probe& p) { return p.head_dim; })) return "head_dim";
  if (is([](const Probe& p) { return p.heads * p.head_dim; })) return "heads * head_dim";
  return {};
}

// Of array `i` of a list; null where even the number of axes changes.
template <class List>
Json shape_json(const std::array<Arrays, kProbes.size()>& all, List list, std::size_t i) {
  const std::size_t axes = (all[0].*list)[i].shape.size();
  for (const Arrays& a : all)
    if ((a.*list).size() <= i || (a.*list)[i].shape.size() != axes) return {};
  Json shape = Json::array();
  for (std::size_t axis = 0; axis < axes; ++axis) {
    Sizes found{};
    for (std::size_t n = 0; n < all.size(); ++n) found[n] = (all[n].*list)[i].shape[axis];
    shape.push(size_json(found));
  }
  return shape;
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
  Json parameters, inputs;
  if (s.family != "scaling" && s.family != "rotary" && s.family != "polar") try {
      const Scheme scheme = parse_encoding(at).scheme;
      std::array<Arrays, kProbes.size()> all;
      for (std::size_t n = 0; n < all.size(); ++n) all[n] = arrays_of(scheme, kProbes[n].shape());
      Json learned = Json::array(), called = Json::array();
      for (std::size_t i = 0; i < all[0].parameters.size(); ++i)
        learned.push(Json::object({{"name", all[0].parameters[i].name},
                                   {"shape", shape_json(all, &Arrays::parameters, i)}}));
      for (std::size_t i = 0; i < all[0].inputs.size(); ++i)
        called.push(Json::object({{"name", all[0].inputs[i].name},
                                  {"shape", shape_json(all, &Arrays::inputs, i)},
                                  {"integer", all[0].inputs[i].integer},
                                  {"optional", all[0].inputs[i].optional}}));
      parameters = std::move(learned), inputs = std::move(called);
    } catch (const std::invalid_argument&) {
      // Fields that must fit each other: nothing is said.
    }
  out.set("at", parameters.is_null() ? Json() : Json(at));
  out.set("parameters", std::move(parameters));
  out.set("inputs", std::move(inputs));
}

}  // namespace posenc::v0::detail
