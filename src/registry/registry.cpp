// SPDX-License-Identifier: Apache-2.0
// The registry put to work: every function here is one walk over the TypeLists.
#include "posenc/registry.h"

#include <algorithm>

#include "posenc/core/array_lookup.h"
#include "posenc/core/error.h"
#include "posenc/registry/fields.h"
#include "registry/encoding_fields.h"
#include "registry/grammar.h"
#include "registry/hash.h"

namespace posenc::inline v0 {
namespace {

using Visitable = Scalings::Variant;  // the base of Scaling, which std::visit takes

struct PresetNames {
  std::string_view name;
  std::vector<PresetSize> sizes;
};

// What a type of the registry brings; the rest is done by its fields, once for all types.
template <class Any>
struct Row {
  const Card* card;
  std::string_view family;
  bool rotary, relative;
  Any (*make)();
  std::vector<PresetNames> (*presets)();
  Any (*make_preset)(std::size_t preset, std::span<const Index> sizes);
};

template <class T>
concept HasPresets = requires {
  T::presets();
};

// Types keep the concepts of their families. Once here: a static_assert in each header would cost
// all who include the registry. A compiler that stops here names the type in `T`.
template <class T>
concept SaysWhatCallsBring = requires(const T& s, const ScoreShape& shape) {
  s.inputs(shape);
};
[[maybe_unused]] void check_families() {
  for_each(Schemes{}, []<class T>() { static_assert(Described<T>); });
  for_each(Scalings{}, []<class T>() { static_assert(ScalingPolicy<T>); });
  for_each(RotarySchemes{}, []<class T>() { static_assert(RotaryScheme<T>); });
  for_each(AbsoluteSchemes{}, []<class T>() { static_assert(AbsoluteScheme<T>); });
  for_each(RelativeSchemes{}, []<class T>() {
    static_assert(RelativeScheme<T>);
    static_assert(BindsInputs<T> == SaysWhatCallsBring<T>, "inputs() goes with bind()");
  });
}

template <class T, class Any>
Row<Any> row_of(std::string_view family) {
  return {&T::card,
          family,
          RotaryScheme<T>,
          RelativeScheme<T>,
          [] { return Any(T{}); },
          [] {
            std::vector<PresetNames> list;
            if constexpr (HasPresets<T>)
              for (Preset<T>& p : T::presets()) list.push_back({p.name, std::move(p.sizes)});
            return list;
          },
          []([[maybe_unused]] std::size_t preset, [[maybe_unused]] std::span<const Index> sizes) {
            if constexpr (HasPresets<T>)
              return Any(T::presets()[preset].make(sizes));
            else
              return Any(T{});
          }};
}

template <class List, class Any>
void add_rows(std::string_view family, std::vector<Row<Any>>& rows) {
  for_each(List{}, [&]<class T>() { rows.push_back(row_of<T, Any>(family)); });
}

// In the order of the alternatives: rows[value.index()].
const std::vector<Row<Scheme>>& rows_of(const Scheme*) {
  static_assert(Schemes::size == RotarySchemes::size + PolarSchemes::size + AbsoluteSchemes::size +
                                     InputModules::size + RelativeSchemes::size,
                "every family is listed here");
  static const auto rows = [] {
    std::vector<Row<Scheme>> list;
    add_rows<RotarySchemes>("rotary", list);
    add_rows<PolarSchemes>("polar", list);
    add_rows<AbsoluteSchemes>("absolute", list);
    add_rows<InputModules>("input module", list);
    add_rows<RelativeSchemes>("relative", list);
    return list;
  }();
  return rows;
}

const std::vector<Row<Scaling>>& rows_of(const Scaling*) {
  static const auto rows = [] {
    std::vector<Row<Scaling>> list;
    add_rows<Scalings>("scaling", list);
    return list;
  }();
  return rows;
}

template <class Any>
const std::vector<Row<Any>>& rows() {
  return rows_of(static_cast<const Any*>(nullptr));
}

template <class Any>
const Row<Any>& row(const Any& value) {
  return rows<Any>().at(value.index());
}

// nullptr where the registry has no such name.
template <class Any>
const Row<Any>* find(std::string_view name) {
  for (const Row<Any>& r : rows<Any>())
    if (r.card->name == name) return &r;
  return nullptr;
}

template <class Any>
std::vector<std::string_view> names() {
  std::vector<std::string_view> list;
  for (const Row<Any>& r : rows<Any>()) list.push_back(r.card->name);
  return list;
}

template <class Any>
std::optional<Any> with_defaults(std::string_view name) {
  const Row<Any>* r = find<Any>(name);
  return r ? std::optional<Any>(r->make()) : std::nullopt;
}

template <class Any>
std::string print(Any value) {
  Any fallback = row(value).make();
  return grammar::print(row(value).card->name, field_refs(value), field_refs(fallback));
}

template <class Any>
Json fields_json(Any value) {
  Json fields = Json::object();
  for (const FieldRef& f : field_refs(value)) fields.set(f.name, grammar::value_json(f.value));
  return fields;
}

// The defaults, or the settings that the part names.
template <class Any>
Any from_preset(grammar::Part& part, const Row<Any>& r) {
  Any value = r.make();
  std::vector<grammar::PresetName> known;
  for (const PresetNames& p : r.presets()) {
    known.push_back({p.name, {}});
    for (const PresetSize& size : p.sizes) known.back().sizes.push_back(size.key);
  }
  if (known.empty()) return value;
  const auto chosen = grammar::take_preset(part, known, field_refs(value));
  return chosen ? r.make_preset(chosen->index, chosen->sizes) : value;
}

template <class Any>
PresetInfo preset_info(const Row<Any>& r, std::size_t index, const PresetNames& p) {
  PresetInfo info{p.name, std::string(r.card->name) + " preset=" + std::string(p.name), {}, {}, {}};
  std::vector<Index> sizes;
  for (const auto& [key, usual] : p.sizes) {
    info.sizes.push_back(key);
    info.short_text += " " + std::string(key) + "=" + std::to_string(usual);
    sizes.push_back(usual);
  }
  const Any made = r.make_preset(index, sizes);
  info.text = print(made);
  info.fields = fields_json(made);
  return info;
}

template <class Any>
Any read(grammar::Part part, const Row<Any>& r, const ArrayLookup& arrays) {
  Any value = from_preset(part, r), fallback = r.make();
  grammar::assign(part, field_refs(value), field_refs(fallback), arrays);
  return value;
}

template <class Any>
Json json(const Any& value) {
  return Json::object({{"name", row(value).card->name}, {"fields", fields_json(value)}});
}

// As Hasher::add would take the value itself.
struct AddTo {
  Hasher& h;
  template <class T>
  void operator()(const T* x) const {
    h.add(*x);
  }
  void operator()(const EnumRef& e) const { h.word(e.get(e.value)); }
  void operator()(const EnumListRef& e) const { h.add(e.get(e.value)); }
  void operator()(const OptionalRef& o) const {
    h.word(o.has(o.value));
    if (o.has(o.value)) std::visit(*this, o.engage(o.value).target);
  }
};

template <class Any>
std::uint64_t hash_fields(Any value) {
  Hasher h;
  h.add(row(value).card->name);
  for (const FieldRef& f : field_refs(value)) std::visit(AddTo{h}, f.value.target);
  return h.value();
}

template <class Any>
std::vector<SchemeInfo> describe_all() {
  std::vector<SchemeInfo> list;
  for (const Row<Any>& r : rows<Any>()) {
    Any fallback = r.make();
    SchemeInfo info{*r.card, r.family, {}, {}};
    for (const FieldRef& f : field_refs(fallback)) info.fields.push_back(grammar::field_info(f));
    const std::vector<PresetNames> presets = r.presets();
    for (std::size_t i = 0; i < presets.size(); ++i)
      info.presets.push_back(preset_info(r, i, presets[i]));
    list.push_back(std::move(info));
  }
  return list;
}

}  // namespace

Scaling::Scaling() noexcept = default;
Scaling::Scaling(const Scaling&) = default;
Scaling::Scaling(Scaling&&) noexcept = default;
Scaling& Scaling::operator=(const Scaling&) = default;
Scaling& Scaling::operator=(Scaling&&) noexcept = default;
Scaling::~Scaling() = default;
bool Scaling::operator==(const Scaling& other) const {
  return static_cast<const Scalings::Variant&>(*this) == other;
}

Scheme::Scheme() noexcept = default;
Scheme::Scheme(const Scheme&) = default;
Scheme::Scheme(Scheme&&) noexcept = default;
Scheme& Scheme::operator=(const Scheme&) = default;
Scheme& Scheme::operator=(Scheme&&) noexcept = default;
Scheme::~Scheme() = default;
bool Scheme::operator==(const Scheme& other) const {
  return static_cast<const Schemes::Variant&>(*this) == static_cast<const Schemes::Variant&>(other);
}

std::optional<Scheme> default_scheme(std::string_view name) {
  return with_defaults<Scheme>(name);
}

std::optional<Scaling> default_scaling(std::string_view name) {
  return with_defaults<Scaling>(name);
}

std::vector<FieldRef> field_refs(Scheme& s) {
  return std::visit([](auto& x) { return field_refs(x); }, static_cast<Schemes::Variant&>(s));
}

std::vector<FieldRef> field_refs(Scaling& s) {
  return std::visit([](auto& x) { return field_refs(x); }, static_cast<Visitable&>(s));
}

Spectrum Scaling::rescale(Spectrum s, Context c) const {
  return std::visit([&](const auto& policy) { return policy.rescale(std::move(s), c); },
                    static_cast<const Visitable&>(*this));
}

const Card& Scaling::card() const {
  return *row(*this).card;
}

const Card& card(const Scheme& s) {
  return *row(s).card;
}

Encoding parse_encoding(std::string_view text) {
  return parse_encoding(text, {});
}

namespace {

Scaling read_scaling(const grammar::Part& part, const ArrayLookup& arrays) {
  if (find<Scheme>(part.name) != nullptr)
    refuse("scheme", "must have scalings after +; this is a scheme", part.name);
  const Row<Scaling>* r = find<Scaling>(part.name);
  if (r == nullptr) grammar::refuse_unknown("a scaling", part.name, names<Scaling>());
  return read(part, *r, arrays);
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
      if (find<Scaling>(name) != nullptr)
        refuse("scheme", "must begin with a scheme; this is a scaling, which follows a +", name);
      const Row<Scheme>* r = find<Scheme>(name);
      if (r == nullptr) grammar::refuse_unknown("a scheme", name, names<Scheme>());
      e.scheme = read(parts[i], *r, arrays);
    } else {
      e.scalings.push_back(read_scaling(parts[i], arrays));
    }
  }
  return e;
}

std::string to_text(const Scheme& s) {
  return print(s);
}

std::string to_text(const Scaling& s) {
  return print(s);
}

bool is_rotary(const Scheme& s) {
  return row(s).rotary;
}

bool is_relative(const Scheme& s) {
  return row(s).relative;
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

std::vector<SchemeInfo> all_schemes() {
  return describe_all<Scheme>();
}

std::vector<SchemeInfo> all_scalings() {
  return describe_all<Scaling>();
}

Json to_json(const Scheme& s) {
  return json(s);
}

Json to_json(const Scaling& s) {
  return json(s);
}

std::uint64_t hash(const Scheme& s) {
  return hash_fields(s);
}

std::uint64_t hash(const Scaling& s) {
  return hash_fields(s);
}

}  // namespace posenc::v0
