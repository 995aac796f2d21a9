// SPDX-License-Identifier: Apache-2.0
// The registry put to work: every function here is one walk over the TypeLists.
#include "posenc/registry.h"

#include <algorithm>

#include "core/encoding_fields.h"
#include "core/grammar.h"
#include "core/hash.h"
#include "posenc/core/array_lookup.h"
#include "posenc/core/error.h"
#include "posenc/core/fields.h"

namespace posenc::inline v0 {
namespace {

using Visitable = Scalings::Variant;  // the base of Scaling, which std::visit takes

template <class List>
std::vector<std::string_view> names() {
  std::vector<std::string_view> list;
  for_each(List{}, [&]<class T>() { list.push_back(T::card.name); });
  return list;
}

template <class List>
bool has_name(std::string_view name) {
  bool found = false;
  for_each(List{}, [&]<class T>() { found = found || T::card.name == name; });
  return found;
}

template <class T>
std::string print(const T& value) {
  T copy = value, fallback{};
  return grammar::print(T::card.name, field_refs(copy), field_refs(fallback));
}

template <class T>
Json fields_json(const T& value) {
  T copy = value;
  Json fields = Json::object();
  for (const FieldRef& f : field_refs(copy)) fields.set(f.name, grammar::value_json(f.value));
  return fields;
}

template <class T>
concept HasPresets = requires {
  T::presets();
};

// The defaults, or the settings that the part names.
template <class T>
T from_preset(grammar::Part& part) {
  T value{};
  const std::vector<Preset<T>> presets = T::presets();
  std::vector<grammar::PresetName> known;
  for (const Preset<T>& p : presets) {
    known.push_back({p.name, {}});
    for (const auto& size : p.sizes) known.back().sizes.push_back(size.key);
  }
  const auto chosen = grammar::take_preset(part, known, field_refs(value));
  return chosen ? presets[chosen->index].make(chosen->sizes) : value;
}

template <class T>
PresetInfo preset_info(const Preset<T>& p) {
  PresetInfo info{p.name, std::string(T::card.name) + " preset=" + std::string(p.name), {}, {}, {}};
  std::vector<Index> sizes;
  for (const auto& [key, usual] : p.sizes) {
    info.sizes.push_back(key);
    info.short_text += " " + std::string(key) + "=" + std::to_string(usual);
    sizes.push_back(usual);
  }
  const T made = p.make(sizes);
  info.text = print(made);
  info.fields = fields_json(made);
  return info;
}

// The part as the type of `List` that has its name.
template <class List, class Result>
Result read(grammar::Part part, const ArrayLookup& arrays) {
  Result result;
  for_each(List{}, [&]<class T>() {
    if (part.name != T::card.name) return;
    T value{}, fallback{};
    if constexpr (HasPresets<T>) value = from_preset<T>(part);
    grammar::assign(part, field_refs(value), field_refs(fallback), arrays);
    result = Result(std::move(value));
  });
  return result;
}

template <class T>
Json json(const T& value) {
  return Json::object({{"name", T::card.name}, {"fields", fields_json(value)}});
}

template <class List>
void describe_all(std::string_view family, std::vector<SchemeInfo>& out) {
  for_each(List{}, [&]<class T>() {
    T fallback{};
    SchemeInfo info{T::card, family, {}, {}};
    for (const FieldRef& f : field_refs(fallback)) info.fields.push_back(grammar::field_info(f));
    if constexpr (HasPresets<T>)
      for (const Preset<T>& p : T::presets()) info.presets.push_back(preset_info(p));
    out.push_back(std::move(info));
  });
}

}  // namespace

std::optional<Scheme> default_scheme(std::string_view name) {
  std::optional<Scheme> scheme;
  for_each(Schemes{}, [&]<class T>() {
    if (T::card.name == name) scheme.emplace(T{});
  });
  return scheme;
}

std::optional<Scaling> default_scaling(std::string_view name) {
  std::optional<Scaling> scaling;
  for_each(Scalings{}, [&]<class T>() {
    if (T::card.name == name) scaling.emplace(T{});
  });
  return scaling;
}

std::vector<FieldRef> field_refs(Scheme& s) {
  return std::visit([](auto& x) { return field_refs(x); }, s);
}

std::vector<FieldRef> field_refs(Scaling& s) {
  return std::visit([](auto& x) { return field_refs(x); }, static_cast<Visitable&>(s));
}

Spectrum Scaling::rescale(Spectrum s, Context c) const {
  return std::visit([&](const auto& policy) { return policy.rescale(std::move(s), c); },
                    static_cast<const Visitable&>(*this));
}

const Card& Scaling::card() const {
  return std::visit([](const auto& x) -> const Card& { return std::decay_t<decltype(x)>::card; },
                    static_cast<const Visitable&>(*this));
}

const Card& card(const Scheme& s) {
  return std::visit([](const auto& x) -> const Card& { return std::decay_t<decltype(x)>::card; },
                    s);
}

Encoding parse_encoding(std::string_view text) {
  return parse_encoding(text, {});
}

namespace {

Scaling read_scaling(const grammar::Part& part, const ArrayLookup& arrays) {
  if (has_name<Schemes>(part.name))
    refuse("scheme", "must have scalings after +; this is a scheme", part.name);
  if (!has_name<Scalings>(part.name))
    grammar::refuse_unknown("a scaling", part.name, names<Scalings>());
  return read<Scalings, Scaling>(part, arrays);
}

}  // namespace

Scaling parse_scaling(std::string_view text) {
  const std::vector<grammar::Part> parts = grammar::split(text);
  if (parts.size() > 1)
    refuse("scheme", "one scaling must be given", static_cast<Index>(parts.size()));
  return read_scaling(parts.front(), {});
}

Encoding parse_encoding(std::string_view text, const ArrayLookup& arrays) {
  const std::vector<grammar::Part> parts = grammar::split(text);
  Encoding e;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string& name = parts[i].name;
    if (i == 0) {
      if (has_name<Scalings>(name))
        refuse("scheme", "must begin with a scheme; this is a scaling, which follows a +", name);
      if (!has_name<Schemes>(name)) grammar::refuse_unknown("a scheme", name, names<Schemes>());
      e.scheme = read<Schemes, Scheme>(parts[i], arrays);
    } else {
      e.scalings.push_back(read_scaling(parts[i], arrays));
    }
  }
  return e;
}

std::string to_text(const Scheme& s) {
  return std::visit([](const auto& x) { return print(x); }, s);
}

std::string to_text(const Scaling& s) {
  return std::visit([](const auto& x) { return print(x); }, static_cast<const Visitable&>(s));
}

std::string to_text(const Encoding& e) {
  std::string s = to_text(e.scheme);
  for (const Scaling& scaling : e.scalings) s += " + " + to_text(scaling);
  return s;
}

bool is_rotary(const Scheme& s) {
  return std::visit([](const auto& x) { return RotaryScheme<std::decay_t<decltype(x)>>; }, s);
}

bool is_relative(const Scheme& s) {
  return std::visit([](const auto& x) { return RelativeScheme<std::decay_t<decltype(x)>>; }, s);
}

RotarySpec resolve(const Encoding& e, Context context) {
  return std::visit(
      [&](const auto& scheme) -> RotarySpec {
        using T = std::decay_t<decltype(scheme)>;
        if constexpr (RotaryScheme<T>)
          return resolve(scheme, e.scalings, context);
        else
          refuse(T::card.name, "is not rotary: it has no rotation to resolve");
      },
      e.scheme);
}

Spectrum resolve_spectrum(const Encoding& e, Context context) {
  return std::visit(
      [&](const auto& scheme) -> Spectrum {
        using T = std::decay_t<decltype(scheme)>;
        if constexpr (requires {
                        { scheme.spectrum() } -> std::same_as<Spectrum>;
                      }) {
          Spectrum s = scheme.spectrum();
          for (const Scaling& scaling : e.scalings) s = scaling.rescale(std::move(s), context);
          return s;
        } else {
          refuse(T::card.name, "has no frequencies");
        }
      },
      e.scheme);
}

void rescale(LoweredInput& lowered, const Encoding& e, Context context) {
  if (e.scalings.empty()) return;
  const std::string_view first = e.scalings.front().card().name;
  if (lowered.spectra.empty() || std::any_of(lowered.terms.begin(), lowered.terms.end(),
                                             [](const InputTerm& t) { return t.phase == nullptr; }))
    refuse("encoding",
           "scalings act on frequencies, which " + std::string(card(e.scheme).name) +
               " must have and nothing else",
           first);
  for (Spectrum& s : lowered.spectra) {
    for (const Scaling& scaling : e.scalings) s = scaling.rescale(std::move(s), context);
    if (s.gain != 1 || s.logit_factor != 1)
      refuse("encoding", "a scaling of rows at the input must have no gain and no factor on logits",
             first);
  }
}

std::vector<SchemeInfo> all_schemes() {
  static_assert(Schemes::size == RotarySchemes::size + PolarSchemes::size + AbsoluteSchemes::size +
                                     InputModules::size + RelativeSchemes::size,
                "every family is listed here");
  std::vector<SchemeInfo> list;
  describe_all<RotarySchemes>("rotary", list);
  describe_all<PolarSchemes>("polar", list);
  describe_all<AbsoluteSchemes>("absolute", list);
  describe_all<InputModules>("input module", list);
  describe_all<RelativeSchemes>("relative", list);
  return list;
}

std::vector<SchemeInfo> all_scalings() {
  std::vector<SchemeInfo> list;
  describe_all<Scalings>("scaling", list);
  return list;
}

Json to_json(const SchemeInfo& s) {
  Json fields = Json::array();
  for (const FieldInfo& f : s.fields) {
    Json choices = Json::array();
    for (const std::string_view c : f.choices) choices.push(c);
    fields.push(Json::object({{"name", f.name},
                              {"type", f.type},
                              {"doc", f.doc},
                              {"unit", f.unit},
                              {"min", f.min ? Json(*f.min) : Json()},
                              {"max", f.max ? Json(*f.max) : Json()},
                              {"required", f.required},
                              {"optional", f.optional},
                              {"default", f.required ? Json() : Json(f.default_text)},
                              {"default_value", f.default_value},
                              {"choices", std::move(choices)}}));
  }
  Json presets = Json::array();
  for (const PresetInfo& p : s.presets) {
    Json sizes = Json::array();
    for (const std::string_view key : p.sizes) sizes.push(key);
    presets.push(Json::object({{"name", p.name},
                               {"preset", p.short_text},
                               {"text", p.text},
                               {"sizes", std::move(sizes)},
                               {"fields", p.fields}}));
  }
  return Json::object({{"name", s.card.name},
                       {"family", s.family},
                       {"title", s.card.title},
                       {"paper", s.card.paper},
                       {"equations", s.card.equations},
                       {"fields", std::move(fields)},
                       {"presets", std::move(presets)}});
}

Json registry_json() {
  Json schemes = Json::array(), scalings = Json::array();
  for (const SchemeInfo& s : all_schemes()) schemes.push(to_json(s));
  for (const SchemeInfo& s : all_scalings()) scalings.push(to_json(s));
  return Json::object({{"schema", "posenc.list/1"},
                       {"schemes", std::move(schemes)},
                       {"scalings", std::move(scalings)}});
}

Json to_json(const Scheme& s) {
  return std::visit([](const auto& x) { return json(x); }, s);
}

Json to_json(const Scaling& s) {
  return std::visit([](const auto& x) { return json(x); }, static_cast<const Visitable&>(s));
}

Json to_json(const Encoding& e) {
  Json j = to_json(e.scheme);
  Json scalings = Json::array();
  for (const Scaling& s : e.scalings) scalings.push(to_json(s));
  j.set("scalings", std::move(scalings));
  return j;
}

std::uint64_t hash(const Scheme& s) {
  return std::visit([](const auto& x) { return hash_of(x); }, s);
}

std::uint64_t hash(const Scaling& s) {
  return std::visit([](const auto& x) { return hash_of(x); }, static_cast<const Visitable&>(s));
}

std::uint64_t hash(const Encoding& e) {
  Hasher h;
  h.word(hash(e.scheme)).word(e.scalings.size());
  for (const Scaling& s : e.scalings) h.word(hash(s));
  return h.value();
}

}  // namespace posenc::v0
