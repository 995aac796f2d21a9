// SPDX-License-Identifier: Apache-2.0
// Values far outside what published models use: tables of what is usual, and where that is from.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/doctor/input.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kPublished =
    "published configs: the class defaults of transformers 5.23 and the conformance suites";

enum class Where : std::uint8_t {
  anywhere,
  text,      // not of an image's rows and columns
  full_size  // not of the tiny models that tests are made of
};

// A field of a layer ("base"), or of any scaling (".factor"), and the values that are not strange.
struct Range {
  std::string_view field;
  double low, high;
  Where where;
  std::string_view usual, hint;
};
constexpr Range kRanges[] = {
    {"base", 100, 1e12, Where::text, "10000 to 1e9",
     "state theta itself: neither its logarithm nor its inverse"},
    {"base", 10, 1e12, Where::anywhere, "50 to 10000 in images",
     "state theta itself: neither its logarithm nor its inverse"},
    {"attention_factor", 0.25, 4, Where::anywhere, "0.8 to 2",
     "leave it out: the scaling computes it"},
    {"logit_factor", 0.25, 4, Where::anywhere, "1 to 2.3", "state mscale_all_dim of the model"},
    {"head_dim", 1, 1024, Where::anywhere, "32 to 576", "state the channels of one head"},
    {"window", 2, 1e9, Where::anywhere, "128 to 262144", "state how many tokens a token sees"},
    {"window", 8, 1e9, Where::full_size, "128 to 262144", "state it in tokens, not in thousands"},
    {"chunk", 16, 1e9, Where::full_size, "8192", "state it in tokens, not in thousands"},
    {".factor", 1, 4096, Where::anywhere, "1 to 128, with few up to 2048",
     "state new length / trained length"},
    {".original_context", 64, 1e8, Where::full_size, "2048 to 262144",
     "state the trained length in tokens"},
    {".trained_length", 64, 1e8, Where::full_size, "2048 to 262144",
     "state the trained length in tokens"},
    {".low_freq_factor", 0.1, 16, Where::anywhere, "1", "state 1"},
    {".high_freq_factor", 0.25, 64, Where::anywhere, "4", "state 4"},
    {".beta_fast", 1, 256, Where::anywhere, "32", "state 32"},
    {".beta_slow", 0.1, 64, Where::anywhere, "1", "state 1"},
    {".attention_factor", 0.25, 4, Where::anywhere, "0.8 to 2",
     "leave it out: the scaling computes it"},
    {".mscale_all_dim", 0.1, 4, Where::anywhere, "0.7 to 1", "state the value of the model"},
    {".mscale", 0.1, 10, Where::anywhere, "0.7 to 1", "state the value of the model"},
    {"max_bias", 0.5, 64, Where::anywhere, "8", "state 8"},
    {"query_temperature.beta", 0, 2, Where::anywhere, "0.1 to 0.4",
     "state the value of the model"}};

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
    if (std::any_of(x.begin(), x.end(), strange)) return true;
  }
  return false;
}
constexpr Relation kRelations[] = {
    {"longrope.long_factor",
     [](const LayerSpec& l) { return any_factor(l, [](double x) { return x > 0 && x < 0.99; }); },
     "divisors of LongRoPE are below 1", "divisors from 1 on",
     "divisors, not factors: frequencies are divided by them"},
    {"longrope.long_factor",
     [](const LayerSpec& l) { return any_factor(l, [](double x) { return x > 512; }); },
     "divisors of LongRoPE are above 512", "divisors up to 100",
     "take the lists of the model's own file"},
    {"longrope.long_factor",
     [](const LayerSpec& l) {
       const std::vector<double> x = numbers_of(l.field("longrope.long_factor"));
       return x.size() > 1 && x.back() < x.front();
     },
     "the divisors of long_factor fall: fast pairs are stretched more than slow ones",
     "lists that rise", "write the list from the fastest pair to the slowest"},
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
       return std::find(x.begin(), x.begin() + std::min<std::ptrdiff_t>(3, std::ssize(x)), 0.0) !=
              x.begin() + std::min<std::ptrdiff_t>(3, std::ssize(x));
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
      for (const Range& range : kRanges)
        for (const FieldValue& field : layer.fields)
          if (named(field, range.field)) outside(layer, field, range);
      for (const Relation& relation : kRelations)
        if (const FieldValue* field = layer.field(relation.field); field && relation.strange(layer))
          add(std::string(relation.message), relation.usual, *field, std::string(relation.hint));
    }
  }

  static bool applies(const LayerSpec& layer, Where where) {
    if (where == Where::text)
      return std::none_of(layer.encodings.begin(), layer.encodings.end(), [](const auto& e) {
        return std::holds_alternative<Axial>(e.value.scheme);
      });
    return where == Where::anywhere || (layer.rotary && layer.rotary->head_dim >= 64);
  }

  void outside(const LayerSpec& layer, const FieldValue& field, const Range& range) {
    if (!field.value.is_number() || !applies(layer, range.where)) return;
    const double value = field.value.as_number();
    if (value >= range.low && value <= range.high) return;
    std::string hint(range.hint);
    if (field.name == "base" && value > 1 && value < 40)
      hint += message("; as a logarithm it would mean {} or {}", rounded(std::exp(value)),
                      rounded(std::pow(10, value)));
    add(message("{} is {}", field.name, field.value), range.usual, field, hint, value);
  }

  void add(const std::string& what, std::string_view usual, const FieldValue& at,
           const std::string& hint, std::optional<double> value = {}) {
    // A scaling's numbers that follow from others are not the file's.
    const bool own = at.origin != Origin::class_default &&
                     (at.origin != Origin::derived || at.name.find('.') == std::string::npos);
    if (!own || std::find(said_.begin(), said_.end(), at.where) != said_.end()) return;
    report_.add(Severity::warning, "implausible_value",
                message("{}; usual: {} ({})", what, usual, kPublished), at.where, hint, value);
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
    const bool rotary =
        std::any_of(spec_.layers.begin(), spec_.layers.end(),
                    [](const auto& layer) { return applies(layer, Where::full_size); });
    const bool wide = std::any_of(spec_.input.begin(), spec_.input.end(), [](const auto& e) {
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
