// SPDX-License-Identifier: Apache-2.0
// posenc.explain/1 and posenc.doctor/1.
#include <algorithm>
#include <cmath>

#include "posenc/core/error.h"
#include "posenc/model/read.h"

namespace posenc {
namespace {

template <class T>
Json or_null(const std::optional<T>& v) {
  return v ? Json(*v) : Json(nullptr);
}

Json encoding_json(const Sourced<Encoding>& e) {
  return Json::object({{"scheme", std::string(card(e.value.scheme).name)},
                       {"text", to_text(e.value)},
                       {"where", e.where}});
}

// Sizes of null: the grid is that of each image.
Json grid_json(const std::optional<ImageGrid>& grid) {
  if (!grid) return nullptr;
  const auto size = [&](Index n) { return grid->of_model() ? Json(n) : Json(nullptr); };
  return Json::object({{"rows", size(grid->rows)},
                       {"columns", size(grid->columns)},
                       {"coordinates", std::string(enum_text(grid->coordinates))}});
}

// At the input also: which positions have a row, how tokens are counted, where the rows lie.
Json encoding_json(const InputEncoding& e) {
  Json out = encoding_json(static_cast<const Sourced<Encoding>&>(e));
  Json tensors = Json::array();
  for (const std::string& t : e.tensors) tensors.push(t);
  out.set("positions", or_null(e.positions));
  out.set("counts", std::string(enum_text(e.counts)));
  out.set("padding_row", or_null(e.padding_row));
  out.set("tensors", std::move(tensors));
  out.set("grid", grid_json(e.grid));
  return out;
}

// The frequency of each pair and the stream it follows; a pair of several streams (mixed axes) has
// the axis null and the norm of its frequencies.
struct Pairs {
  Json::Array frequency, axis;
  bool several = false;
};
Pairs pairs_of(const Spectrum& s) {
  Pairs out;
  const Index pairs = s.pairs();
  for (Index i = 0; i < pairs; ++i) {
    double value = 0;
    Index axis = 0, used = 0;
    for (Index a = 0; a < s.axes; ++a) {
      const double f = s.frequency[static_cast<std::size_t>(a * pairs + i)];
      if (f == 0) continue;
      value = used == 0 ? f : std::hypot(value, f);
      axis = a;
      ++used;
    }
    out.frequency.emplace_back(value);
    out.axis.emplace_back(used > 1 ? Json(nullptr) : Json(axis));
  }
  out.several = s.axes > 1;
  return out;
}

Json block_json(const RotaryBlock& b) {
  Pairs p = pairs_of(b.spectrum);
  return Json::object({{"offset", b.offset},
                       {"width", b.width()},
                       {"pairing", std::string(enum_text(b.pairing))},
                       {"direction", static_cast<std::int64_t>(b.direction)},
                       {"output_order", std::string(enum_text(b.output_order))},
                       {"inv_freq", std::move(p.frequency)},
                       {"axes", p.several ? Json(std::move(p.axis)) : Json(nullptr)}});
}

Json base_of(const LayerSpec& layer) {
  for (const char* name : {"base", "rope.base"})
    if (const FieldValue* f = layer.field(name)) return f->value;
  return nullptr;
}

Json rotary_json(const LayerSpec& layer) {
  if (!layer.rotary || layer.rotary->blocks.empty()) return nullptr;
  const RotarySpec& spec = *layer.rotary;
  const RotaryBlock& first = spec.blocks.front();
  Json::Array blocks;
  for (const auto& b : spec.blocks) blocks.push_back(block_json(b));
  Json out = Json::object({{"head_dim", spec.head_dim},
                           {"rotary_dim", first.width()},
                           {"rotary_offset", first.offset}});
  const Json head = blocks.front();
  for (const char* key : {"pairing", "direction", "output_order"}) out.set(key, head.at(key));
  out.set("base", base_of(layer));
  out.set("inv_freq", head.at("inv_freq"));
  out.set("attention_factor", first.spectrum.gain);
  out.set("logit_factor", spec.logit_factor());
  out.set("axes", head.at("axes"));
  out.set("blocks", std::move(blocks));
  if (layer.rotates_value) out.set("rotates_value", true);
  if (layer.unrotates_output) out.set("unrotates_output", true);
  return out;
}

Json layer_json(const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  Json::Array encodings;
  for (const auto& e : layer.encodings) encodings.push_back(encoding_json(e));
  Json fields = Json::object();
  for (const auto& f : layer.fields)
    fields.set(f.name, Json::object({{"value", f.value},
                                     {"source", std::string(enum_text(f.origin))},
                                     {"where", f.where}}));
  Json temperature = nullptr;
  if (layer.query_temperature)
    temperature = Json::object({{"form", std::string(enum_text(layer.query_temperature->form))},
                                {"beta", layer.query_temperature->beta},
                                {"period", layer.query_temperature->period}});
  return Json::object({{"index", layer.index},
                       {"attention", Json::object({{"kind", std::string(enum_text(a.kind))},
                                                   {"left", or_null(a.left)},
                                                   {"right", or_null(a.right)},
                                                   {"chunk", or_null(a.chunk)}})},
                       {"scheme", layer.scheme},
                       {"encodings", std::move(encodings)},
                       {"rotary", rotary_json(layer)},
                       {"query_temperature", std::move(temperature)},
                       {"fields", std::move(fields)}});
}

Json findings_json(const std::vector<Finding>& findings) {
  Json::Array out;
  for (const auto& f : findings)
    out.push_back(Json::object(
        {{"severity", std::string(enum_text(f.severity))},
         {"code", f.code},
         {"message", f.message},
         {"where", f.where},
         {"fix", f.fix},
         {"value", f.value && std::isfinite(*f.value) ? Json(*f.value) : Json(nullptr)}}));
  return out;
}

// Bytes of keys in the caches of all layers: of one token while no window is full, and of the whole
// context with windows full; null where a layer's keys are not known (encoders keep none).
struct KeyCache {
  Json per_token = nullptr, at_context = nullptr;
};
KeyCache key_cache(const ModelSpec& spec) {
  double token = 0, all = 0;
  for (const auto& layer : spec.layers) {
    if (!layer.cached_key_channels) return {};
    const auto channels = static_cast<double>(layer.cached_key_channels->value);
    Index kept = spec.context.value;
    const auto& a = layer.attention;
    if (a.left) kept = std::min(kept, *a.left + 1);
    if (a.chunk) kept = std::min(kept, *a.chunk);
    token += channels;
    all += channels * static_cast<double>(kept);
  }
  const auto bytes = static_cast<double>(spec.cache_element_bytes.value);
  if (spec.layers.empty() || all * bytes > 9e15) return {};
  KeyCache out;
  out.per_token = static_cast<std::int64_t>(token * bytes);  // at most 2^53
  if (spec.context.value > 0) out.at_context = static_cast<std::int64_t>(all * bytes);
  return out;
}

// Bytes of a float32 table of cosine and sine for the whole context, one for each different
// rotary; of what the table-free path keeps (64-bit turns); of cached keys.
Json memory_json(const ModelSpec& spec) {
  std::vector<const RotarySpec*> different;
  for (const auto& layer : spec.layers) {
    if (!layer.rotary) continue;
    bool seen = false;
    for (const auto* d : different) seen = seen || *d == *layer.rotary;
    if (!seen) different.push_back(&*layer.rotary);
  }
  double pairs = 0;
  for (const auto* d : different)
    for (const auto& b : d->blocks) pairs += static_cast<double>(b.pairs());
  const double table = pairs * 8 * static_cast<double>(spec.context.value);
  const KeyCache keys = key_cache(spec);
  const Sourced<Index>& element = spec.cache_element_bytes;
  return Json::object(
      {{"different_rotaries", static_cast<std::int64_t>(different.size())},
       {"table_bytes_at_context",
        table < 9e15 ? Json(static_cast<std::int64_t>(table)) : Json(table)},
       {"table_free_bytes", static_cast<std::int64_t>(pairs * 8)},
       {"key_cache_bytes_per_token", keys.per_token},
       {"key_cache_bytes_at_context", keys.at_context},
       {"key_cache_element", Json::object({{"bytes", element.value},
                                           {"source", std::string(enum_text(element.origin))},
                                           {"where", element.where}})}});
}

// No length is stated anywhere: null, null.
Json context_json(const Sourced<Index>& context) {
  Json value = nullptr, source = nullptr;
  if (context.value > 0) {
    value = context.value;
    source = context.origin == Origin::user ? "given" : std::string(enum_text(context.origin));
  }
  return Json::object({{"value", std::move(value)}, {"source", std::move(source)}});
}

}  // namespace

Json explain_json(const ModelSpec& spec, std::optional<Index> only) {
  Json::Array input, layers;
  for (const auto& e : spec.input) input.push_back(encoding_json(e));
  for (const auto& layer : spec.layers)
    if (!only || layer.index == *only) layers.push_back(layer_json(layer));
  if (only && layers.empty())
    refuse("explain", "layer must be one of the model's " + std::to_string(spec.layers.size()),
           *only);
  Json towers = Json::object();
  for (const auto& tower : spec.towers) {
    Json::Array own, at_input;
    for (const auto& layer : tower.layers) own.push_back(layer_json(layer));
    for (const auto& e : tower.input) at_input.push_back(encoding_json(e));
    towers.set(tower.name,
               Json::object({{"input", std::move(at_input)}, {"layers", std::move(own)}}));
  }
  return Json::object({{"schema", "posenc.explain/1"},
                       {"model_type", spec.model_type},
                       {"reader", spec.reader},
                       {"context", context_json(spec.context)},
                       {"input", std::move(input)},
                       {"layers", std::move(layers)},
                       {"towers", std::move(towers)},
                       {"memory", memory_json(spec)},
                       {"findings", findings_json(spec.findings)}});
}

Json doctor_json(const std::vector<Finding>& findings) {
  return Json::object({{"schema", "posenc.doctor/1"}, {"findings", findings_json(findings)}});
}

}  // namespace posenc
