// SPDX-License-Identifier: Apache-2.0
// What follows from the functions of the registry for whole encodings, and its lists as JSON.
#include "posenc/registry/fields.h"

#include <algorithm>
#include <memory>

#include "posenc/core/error.h"
#include "posenc/registry.h"
#include "registry/hash.h"
#include "registry/scheme_arrays.h"

namespace posenc::inline v0 {

Json to_json(const SchemeInfo& s) {
  Json fields = Json::array();
  for (const FieldInfo& f : s.fields) {
    Json choices = Json::array();
    for (const std::string_view c : f.choices) choices.push(c);
    fields.push(
        Json::object({{"name", f.name},
                      {"type", f.type},
                      {"doc", f.doc},
                      {"unit", f.unit},
                      {"min", f.min ? Json(*f.min) : Json()},
                      {"max", f.max ? Json(*f.max) : Json()},
                      {"required", f.required},
                      {"optional", f.optional},
                      {"default", f.required ? Json() : Json(f.default_text)},
                      {"default_value", f.default_value},
                      {"default_from", f.default_from.empty() ? Json() : Json(f.default_from)},
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
  Json j = Json::object({{"name", s.card.name},
                         {"family", s.family},
                         {"title", s.card.title},
                         {"paper", s.card.paper},
                         {"equations", s.card.equations},
                         {"fields", std::move(fields)},
                         {"presets", std::move(presets)}});
  detail::add_arrays(s, j);
  return j;
}

Json registry_json() {
  Json schemes = Json::array(), scalings = Json::array();
  for (const SchemeInfo& s : all_schemes()) schemes.push(to_json(s));
  for (const SchemeInfo& s : all_scalings()) scalings.push(to_json(s));
  return Json::object({{"schema", "posenc.list/1"},
                       {"schemes", std::move(schemes)},
                       {"scalings", std::move(scalings)}});
}

Json to_json(const Encoding& e) {
  Json j = to_json(e.scheme);
  Json scalings = Json::array();
  for (const Scaling& s : e.scalings) scalings.push(to_json(s));
  j.set("scalings", std::move(scalings));
  return j;
}

std::uint64_t hash(const Encoding& e) {
  Hasher h;
  h.word(hash(e.scheme)).word(e.scalings.size());
  for (const Scaling& s : e.scalings) h.word(hash(s));
  return h.value();
}

std::string to_text(const Encoding& e) {
  std::string s = to_text(e.scheme);
  for (const Scaling& scaling : e.scalings) s += " + " + to_text(scaling);
  return s;
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
  for (const std::shared_ptr<Spectrum>& kept : lowered.spectra) {
    Spectrum& s = *kept;
    for (const Scaling& scaling : e.scalings) s = scaling.rescale(std::move(s), context);
    if (s.gain != 1 || s.logit_factor != 1)
      refuse("encoding", "a scaling of rows at the input must have no gain and no factor on logits",
             first);
  }
}

}  // namespace posenc::v0
