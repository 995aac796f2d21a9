// SPDX-License-Identifier: Apache-2.0
// posenc.explain/1 and posenc.doctor/1.
#include <algorithm>
#include <cmath>

#include "model/contains.h"
#include "posenc/core/error.h"
#include "posenc/model/read.h"

namespace posenc::inline v0 {
namespace {

template <class T>
Json or_null(const std::optional<T>& v) {
  return v ? Json(*v) : Json(nullptr);
}
template <class T, class F>
Json each(const std::vector<T>& all, const F& json) {
  Json::Array out;
  for (const T& x : all) out.push_back(json(x));
  return Json(std::move(out));
}

Json encoding_json(const Sourced<Encoding>& e) {
  return Json::object(
      {{"scheme", card(e.value.scheme).name}, {"text", to_text(e.value)}, {"where", e.where}});
}

// In a layer also: where its parameters stand among the weights.
Json layer_encoding_json(const LayerEncoding& e) {
  Json out = encoding_json(e), tensors = Json::object();
  for (const auto& [parameter, tensor] : e.tensors) tensors.set(parameter, tensor);
  out.set("tensors", std::move(tensors));
  return out;
}

// Sizes of null: the grid is that of each image.
Json grid_json(const ImageGrid& grid) {
  const auto size = [&](Index n) { return grid.of_model() ? Json(n) : Json(nullptr); };
  return Json::object({{"rows", size(grid.rows)},
                       {"columns", size(grid.columns)},
                       {"coordinates", enum_text(grid.coordinates)}});
}

// At the input also: which positions have a row, how tokens are counted, where the rows lie.
Json input_json(const InputEncoding& e) {
  Json out = encoding_json(e);
  out.set("positions", or_null(e.positions));
  out.set("counts", enum_text(e.counts));
  out.set("padding_row", or_null(e.padding_row));
  out.set("tensors", Json::Array(e.tensors.begin(), e.tensors.end()));
  out.set("grid", e.grid ? grid_json(*e.grid) : Json(nullptr));
  return out;
}

// The frequency of each pair and the stream it follows; a pair of several streams (mixed axes) has
// the axis null and the norm of its frequencies.
struct Pairs {
  Json::Array frequency, axis;
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
      value = used++ == 0 ? f : std::hypot(value, f);
      axis = a;
    }
    out.frequency.emplace_back(value);
    out.axis.emplace_back(used > 1 ? Json(nullptr) : Json(axis));
  }
  return out;
}

Json block_json(const RotaryBlock& b) {
  Pairs p = pairs_of(b.spectrum);
  return Json::object({{"offset", b.offset},
                       {"width", b.width()},
                       {"pairing", enum_text(b.pairing)},
                       {"direction", Index{b.direction}},
                       {"output_order", enum_text(b.output_order)},
                       {"inv_freq", std::move(p.frequency)},
                       {"axes", b.spectrum.axes > 1 ? Json(std::move(p.axis)) : Json(nullptr)}});
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
  Json blocks = each(spec.blocks, block_json);
  const Json& head = blocks.as_array().front();
  Json out = Json::object({{"head_dim", spec.head_dim},
                           {"rotary_dim", first.width()},
                           {"rotary_offset", first.offset},
                           {"pairing", head.at("pairing")},
                           {"direction", head.at("direction")},
                           {"output_order", head.at("output_order")},
                           {"base", base_of(layer)},
                           {"inv_freq", head.at("inv_freq")},
                           {"attention_factor", first.spectrum.gain},
                           {"logit_factor", spec.logit_factor()},
                           {"axes", head.at("axes")}});
  out.set("blocks", std::move(blocks));
  if (layer.rotates_value) out.set("rotates_value", true);
  if (layer.unrotates_output) out.set("unrotates_output", true);
  return out;
}

Json requirement_json(const Requirement& r) {
  return Json::object({{"what", r.what}, {"value", r.value}, {"text", r.text}});
}

// Null: not known.
Json scale_json(const std::optional<ContentScale>& s) {
  if (!s) return nullptr;
  return Json::object({{"factor", s->factor}, {"head_dim_power", s->power}});
}

Json layer_json(const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  Json fields = Json::object();
  for (const auto& f : layer.fields)
    fields.set(
        f.name,
        Json::object({{"value", f.value}, {"source", enum_text(f.origin)}, {"where", f.where}}));
  Json temperature = nullptr;
  if (const auto& t = layer.query_temperature)
    temperature = Json::object({{"form", enum_text(t->form)},
                                {"beta", t->beta},
                                {"period", t->period},
                                {"by", enum_text(t->by)}});
  Json out = Json::object({{"index", layer.index},
                           {"attention", Json::object({{"kind", enum_text(a.kind)},
                                                       {"left", or_null(a.left)},
                                                       {"right", or_null(a.right)},
                                                       {"chunk", or_null(a.chunk)}})},
                           {"scheme", layer.scheme},
                           {"encodings", each(layer.encodings, layer_encoding_json)},
                           {"rotary", rotary_json(layer)},
                           {"query_temperature", std::move(temperature)},
                           {"scale", scale_json(layer.scale)},
                           {"softcap", or_null(layer.softcap)},
                           {"sinks", layer.sinks.empty() ? Json(nullptr) : Json(layer.sinks)},
                           {"must_honour", each(must_honour(layer), requirement_json)},
                           {"fields", std::move(fields)}});
  if (layer.softcap_after_terms) out.set("softcap_after_terms", true);
  if (layer.query_scale)
    out.set("query_scale", Json::object({{"tensor", layer.query_scale->tensor},
                                         {"factor", layer.query_scale->factor}}));
  if (!layer.query_sinks.empty()) out.set("query_sinks", layer.query_sinks);
  if (layer.query_step > 1) out.set("query_step", layer.query_step);
  return out;
}

Json finding_json(const Finding& f) {
  const bool finite = f.value && std::isfinite(*f.value);
  return Json::object({{"severity", enum_text(f.severity)},
                       {"code", f.code},
                       {"message", f.message},
                       {"where", f.where},
                       {"fix", f.fix},
                       {"value", finite ? Json(*f.value) : Json(nullptr)}});
}

// Bytes of keys in the caches of all layers: of one token while no window is full, and of the whole
// context with windows full; null where a layer's keys are not known (encoders keep none).
void add_key_cache(const ModelSpec& spec, Json& out) {
  double token = 0, all = 0;
  bool known = !spec.layers.empty();
  for (const auto& layer : spec.layers) {
    known = known && layer.cached_key_channels;
    if (!known) break;
    const auto channels = static_cast<double>(layer.cached_key_channels->value);
    Index kept = spec.context.value;
    if (const auto& left = layer.attention.left) kept = std::min(kept, *left + 1);
    if (const auto& chunk = layer.attention.chunk) kept = std::min(kept, *chunk);
    token += channels;
    all += channels * static_cast<double>(kept);
  }
  const auto bytes = static_cast<double>(spec.cache_element_bytes.value);
  known = known && all * bytes <= 9e15;  // at most 2^53
  const auto whole = [&](double count, bool is) {
    return is ? Json(static_cast<std::int64_t>(count * bytes)) : Json(nullptr);
  };
  out.set("key_cache_bytes_per_token", whole(token, known));
  out.set("key_cache_bytes_at_context", whole(all, known && spec.context.value > 0));
}

// Bytes of a float32 table of cosine and sine for the whole context, one for each different
// rotary; of what the table-free path keeps (64-bit turns); of cached keys.
Json memory_json(const ModelSpec& spec) {
  std::vector<SharedRotary> different;
  double pairs = 0;
  for (const auto& layer : spec.layers) {
    if (!layer.rotary || contains(different, layer.rotary)) continue;
    different.push_back(layer.rotary);
    for (const auto& b : layer.rotary->blocks) pairs += static_cast<double>(b.pairs());
  }
  const double table = pairs * 8 * static_cast<double>(spec.context.value);
  const Sourced<Index>& element = spec.cache_element_bytes;
  Json out = Json::object(
      {{"different_rotaries", static_cast<Index>(different.size())},
       {"table_bytes_at_context", table < 9e15 ? Json(static_cast<Index>(table)) : Json(table)},
       {"table_free_bytes", static_cast<Index>(pairs * 8)}});
  add_key_cache(spec, out);
  out.set("key_cache_element", Json::object({{"bytes", element.value},
                                             {"source", enum_text(element.origin)},
                                             {"where", element.where}}));
  return out;
}

// No length is stated anywhere: null, null.
Json context_json(const Sourced<Index>& context) {
  if (context.value <= 0) return Json::object({{"value", nullptr}, {"source", nullptr}});
  const bool given = context.origin == Origin::user;
  return Json::object(
      {{"value", context.value}, {"source", given ? "given" : enum_text(context.origin)}});
}

// Frequencies of all layers: as many as parse_json reads, far more than any model has.
void check_size(const ModelSpec& spec, std::optional<Index> only) {
  constexpr Index kMost = 4'000'000;
  Index numbers = 0;
  for (const auto& layer : spec.layers)
    if (layer.rotary && (!only || layer.index == *only))
      for (const auto& b : layer.rotary->blocks) numbers += b.pairs();
  if (numbers > kMost)
    refuse_field("explain", "layers",
                 "must have at most " + std::to_string(kMost) +
                     " frequencies in all: ask for one layer (--layer)",
                 numbers);
}

}  // namespace

Json explain_json(const ModelSpec& spec, std::optional<Index> only) {
  check_size(spec, only);
  Json layers = Json::array();
  for (const auto& layer : spec.layers)
    if (!only || layer.index == *only) layers.push(layer_json(layer));
  if (only && layers.as_array().empty())
    refuse_field("explain", "layer",
                 "must be one of the model's " + std::to_string(spec.layers.size()), *only);
  Json towers = Json::object();
  for (const auto& tower : spec.towers)
    towers.set(tower.name, Json::object({{"input", each(tower.input, input_json)},
                                         {"layers", each(tower.layers, layer_json)}}));
  return Json::object({{"schema", "posenc.explain/1"},
                       {"model_type", spec.model_type},
                       {"reader", spec.reader},
                       {"context", context_json(spec.context)},
                       {"input", each(spec.input, input_json)},
                       {"layers", std::move(layers)},
                       {"towers", std::move(towers)},
                       {"memory", memory_json(spec)},
                       {"findings", each(spec.findings, finding_json)}});
}

Json doctor_json(const std::vector<Finding>& findings) {
  return Json::object({{"schema", "posenc.doctor/1"}, {"findings", each(findings, finding_json)}});
}

}  // namespace posenc::v0
