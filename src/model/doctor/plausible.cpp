// SPDX-License-Identifier: Apache-2.0
// Values far outside what published models use: what is usual, and where that is from, stands in the
// table of models.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/doctor/input.h"
#include "model/hugging_face/config_view.h"

namespace posenc::inline v0 {
namespace {

bool named(const FieldValue& field, std::string_view name) {
  return name[0] == '.' ? std::string_view(field.name).ends_with(name) : field.name == name;
}

std::vector<double> numbers_of(const FieldValue* field) {
  std::vector<double> out;
  if (field && field->value.is_array())
    for (const Json& x : field->value.as_array())
      if (x.is_number()) out.push_back(x.as_number());
  return out;
}

double sum(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0);
}

// What two or more values of one layer say together.
struct Relation {
  std::string_view field;  // where the finding points
  bool (*strange)(const LayerSpec&);
  std::string_view message, usual, hint;
};
bool any_factor(const LayerSpec& layer, bool (*strange)(double)) {
  for (const char* list : {"longrope.short_factor", "longrope.long_factor"}) {
    const std::vector<double> x = numbers_of(layer.field(list));
    if (std::ranges::any_of(x, strange)) return true;
  }
  return false;
}
constexpr Relation kRelations[] = {
    {"longrope.long_factor",
     [](const LayerSpec& l) { return any_factor(l, [](double x) { return x > 0 && x < 0.99; }); },
     "divisors of LongRoPE are below 1", "divisors from 1 on",
     "write divisors, not factors: frequencies are divided by them"},
    {"longrope.long_factor",
     [](const LayerSpec& l) { return any_factor(l, [](double x) { return x > 512; }); },
     "divisors of LongRoPE are above 512", "divisors up to 100",
     "use the lists of the model's own file"},
    {"longrope.long_factor",
     [](const LayerSpec& l) {
       const std::vector<double> x = numbers_of(l.field("longrope.long_factor"));
       return x.size() > 1 && x.back() < x.front();
     },
     "the divisors of long_factor decrease: fast pairs are stretched more than slow ones",
     "increasing lists", "write the list from the fastest pair to the slowest"},
    {"longrope.short_factor",
     [](const LayerSpec& l) {
       return sum(numbers_of(l.field("longrope.short_factor"))) >
              sum(numbers_of(l.field("longrope.long_factor")));
     },
     "the divisors of short_factor are above those of long_factor",
     "short divisors at or below the long ones", "exchange short_factor and long_factor"},
    {"sections",
     [](const LayerSpec& l) {
       const std::vector<double> x = numbers_of(l.field("sections"));
       return contains(
           std::vector<double>(x.begin(), x.begin() + std::min<std::ptrdiff_t>(3, std::ssize(x))),
           0.0);
     },
     "an axis has no pair: positions along it change nothing", "some pairs for each axis",
     "state the sections of the model"}};

class Plausible {
 public:
  Plausible(const ModelSpec& spec, Diagnostics& report) : spec_(spec), report_(report) {
    for (const Finding& f : report.findings())
      // A switch of lists is no fault: it says nothing of the number.
      if (f.severity != Severity::note && f.code != "switch_length") said_.push_back(f.where);
  }

  void find() {
    layers(spec_.layers);
    for (const Tower& tower : spec_.towers) layers(tower.layers);
    exchanged_thetas();
    lengths();
  }

 private:
  void layers(const std::vector<LayerSpec>& all) {
    for (const LayerSpec& layer : all) {
      for (const Json& usual : hf::table_member("usual_values").as_array())
        for (const FieldValue& field : layer.fields)
          if (named(field, usual.at("field").as_string())) outside(layer, field, usual);
      for (const Relation& relation : kRelations)
        if (const FieldValue* field = layer.field(relation.field); field && relation.strange(layer))
          add(std::string(relation.message), relation.usual, *field, std::string(relation.hint));
    }
  }

  // In texts alone, or in layers that are not those of tests.
  static bool applies(const LayerSpec& layer, std::string_view where) {
    if (where == "text")
      return std::ranges::none_of(layer.encodings, [](const auto& e) {
        return std::holds_alternative<Axial>(e.value.scheme);
      });
    return where != "full_size" || (layer.rotary && layer.rotary->head_dim >= 64);
  }

  // usual: a row of the table.
  void outside(const LayerSpec& layer, const FieldValue& field, const Json& usual) {
    const Json* where = usual.find("where");
    if (!field.value.is_number() || !applies(layer, where ? where->as_string() : "")) return;
    const double value = field.value.as_number();
    if (value >= usual.at("low").as_number() && value <= usual.at("high").as_number()) return;
    std::string hint = usual.at("hint").as_string();
    if (field.name == "base" && value > 1 && value < 40)
      hint += message("; as a logarithm it would mean {} or {}", rounded(std::exp(value)),
                      rounded(std::pow(10, value)));
    add(message("{} is {}", field.name, field.value), usual.at("usual").as_string(), field, hint,
        value);
  }

  void add(const std::string& what, std::string_view usual, const FieldValue& at,
           const std::string& hint, std::optional<double> value = {}) {
    // A scaling's numbers that follow from others are not the file's.
    const bool own = at.origin != Origin::class_default &&
                     (at.origin != Origin::derived || at.name.find('.') == std::string::npos);
    if (!own || contains(said_, at.where)) return;
    report_.add(
        Severity::warning, "implausible_value",
        message("{}; usual: {} ({})", what, usual, hf::table_member("usual_source").as_string()),
        at.where, hint, value);
  }

  // Layers with a window have the smaller theta in every published model that has two.
  void exchanged_thetas() {
    const FieldValue *window = nullptr, *full = nullptr;
    for (const LayerSpec& layer : spec_.layers) {
      const bool slides = layer.attention.kind == AttentionKind::sliding;
      if (const FieldValue* base = layer.field("base"); base && base->value.is_number())
        (slides ? window : full) = base;
    }
    if (window && full && window->value.as_number() > full->value.as_number())
      add(message("layers with a window have the theta {}, the others {}", window->value,
                  full->value),
          "the smaller theta for windows", *window, "exchange the two", window->value.as_number());
  }

  // A length in thousands or hundreds, where the model is no tiny one.
  void lengths() {
    const double length = static_cast<double>(spec_.context.value);
    const bool rotary = std::ranges::any_of(
        spec_.layers, [](const auto& layer) { return applies(layer, "full_size"); });
    const bool wide = std::ranges::any_of(spec_.input, [](const auto& e) {
      const auto* rows = std::get_if<Learned>(&e.value.scheme);
      return rows && rows->width >= 256;
    });
    if (spec_.context.origin == Origin::stated &&
        ((rotary && length < 33) || (wide && length < 16)))
      add(message("the longest text has {} tokens", spec_.context.value), "33 to 10485760",
          {"context", spec_.context.value, Origin::stated, spec_.context.where},
          "state it in tokens, not in thousands", length);
  }

  const ModelSpec& spec_;
  Diagnostics& report_;
  std::vector<std::string> said_;  // places that have a finding
};

}  // namespace

void find_implausible(const ModelSpec& spec, Diagnostics& report) {
  Plausible(spec, report).find();
}

}  // namespace posenc::v0
