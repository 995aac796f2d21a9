// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <utility>

#include "model/hugging_face/layer_rules.h"

namespace posenc::inline v0::hf {
namespace {

bool attends(const std::string& type) {
  return !contains({"linear_attention", "conv", "moe", "mlp", "fourier", "recurrent"}, type);
}
// Types that are nothing without a window.
bool slides_only(const std::string& type) {
  return contains({"sliding_attention", "hybrid_sliding", "reference_sliding_attention"}, type);
}
// The compressed ones see their blocks.
bool slides(const std::string& type) {
  return slides_only(type) ||
         contains({"compressed_sparse_attention", "heavily_compressed_attention"}, type);
}

struct Window {
  std::optional<Sourced<Index>> size;  // as the mask counts: the query's own included
  bool both = false, on_all = false;
};

// use_bidirectional_attention: true or false, or (Gemma-4) "all", "vision".
bool sees_all(const ConfigView& view) {
  const auto how = view.value("use_bidirectional_attention");
  if (how && how->value.is_string() && (how->value == Json("all") || how->value == Json("vision")))
    return how->value == Json("all");
  return view.flag("use_bidirectional_attention", false);
}

void halve(Sourced<Index>& n, Index by) {
  n.value /= by;
  n.where += " // " + std::to_string(by);
  if (n.origin != Origin::user) n.origin = Origin::derived;
}

// ModernBERT: keys to each side, over the common key.
std::optional<Sourced<Index>> set_by(const ConfigView& view, const WindowRules& about,
                                     const std::optional<Sourced<Index>>& n) {
  const auto side = view.integer(about.set_by, 0, kUnbounded / 4, true);
  if (const auto both = view.stated(about.key); both && side && n && n->value / 2 != side->value)
    view.warn("both_spellings",
              {"{} is {} and {} {}: {class} takes {}", about.key, both->value, about.set_by,
               view.stated(about.set_by)->value, about.set_by},
              *both, "", side->value);
  return side;
}

Window window_of(const ConfigView& view) {
  Window w;
  const std::optional<WindowRules>& about = view.rules().window;
  if (!about) return w;
  w.both = about->both;
  w.on_all = !about->on.empty();
  if (!about->switch_key.empty() && !view.flag(about->switch_key, false)) return w;
  if (const std::string& first = about->first; !first.empty() && view.stated_value(first)) {
    w.size = view.integer(first, 0, kUnbounded / 4);  // MiMo-V2-Flash: sliding_window_size + 1
    if (!w.size) return w;
    w.size->value += 1;
    w.size->where += " + 1";
    if (w.size->origin != Origin::user) w.size->origin = Origin::derived;
    return w;
  }
  w.size = view.integer(about->key, 0, kUnbounded / 4);
  if (!about->listed.empty())  // UltraBERT: the first window of the list counts
    if (const auto v = view.stated(about->listed); v && v->value.is_array()) {
      const Json::Array& list = v->value.as_array();
      const auto one =
          std::ranges::find_if(list, [](const Json& n) { return whole_number(n).value_or(0) > 0; });
      if (one != list.end()) w.size = {*whole_number(*one), v->origin, v->where};
    }
  if (!about->set_by.empty() && view.stated(about->set_by)) {
    w.size = set_by(view, *about, w.size);
    return w;
  }
  if (w.size && about->divide.value_or(1) != 1) halve(*w.size, *about->divide);
  if (w.size && sees_all(view) && !w.both) {  // Gemma-3 as an encoder: half of it to both sides
    halve(*w.size, 2);
    w.size->origin = Origin::derived;
    w.both = true;
  }
  return w;
}

// Run: no class of transformers falls back to full attention, all of them fail on the first token.
void no_window(const ConfigView& view, const LayerPlan& p, std::size_t layer) {
  const std::optional<WindowRules>& about = view.rules().window;
  const std::string key = about ? about->key : "sliding_window";
  const auto v = view.stated(key);
  const bool off = about && !about->switch_key.empty() && v && !v->value.is_null();
  view.error("missing_key",
             {"layer {} is {} and {}: transformers fails on the first token", layer, p.type,
              !about ? view.class_name() + " has no window"
              : off  ? about->switch_key + " is not true"
                     : key + (v ? " is null" : " is missing")},
             view.place(v, key), about ? "state " + key : "use layer types of the class");
}

bool turns(const std::string& on, const LayerPlan& p, const Window& w) {
  if (!attends(p.type) || p.type == "cross_attention") return false;
  if (on == "sliding") return slides(p.type) && w.size;
  if (on == "sliding_or_no_window") return slides(p.type) || !w.size;
  return p.turns;
}

// per_layer_config of a file, or every second sliding layer of NeoMME, has a window of its own.
std::optional<Sourced<Index>> own_window(const ConfigView& view, const std::optional<Value>& own,
                                         std::size_t layer, Index slid) {
  if (own && own->value.is_object()) {
    const std::string path = message("/{}/sliding_window", layer);
    const Json* size = own->value.at_pointer(path);
    if (size && size->is_integer() && size->as_integer() > 0)
      return Sourced<Index>{size->as_integer(), own->origin, own->where + path};
    return std::nullopt;
  }
  const std::optional<WindowRules>& about = view.rules().window;
  if (!about || !about->every_second || slid % 2 == 0) return std::nullopt;
  return view.of_class(*about->every_second);
}

}  // namespace

void plan_attention(const ConfigView& view, std::vector<LayerPlan>& plans) {
  const Window w = window_of(view);
  const std::string& rotary_on = view.rules().rotary_on;
  const bool bidirectional = (view.rules().bidirectional && !is_decoder(view)) || w.both;
  const bool chunked =
      std::ranges::any_of(plans, [](const LayerPlan& p) { return p.type == "chunked_attention"; });
  const auto chunk =
      chunked ? view.integer("attention_chunk_size", 1, kUnbounded / 4) : std::nullopt;
  const auto own = w.size ? view.stated("per_layer_config") : std::nullopt;
  bool said = false;
  Index slid = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    LayerPlan& p = plans[i];
    AttentionSpec& a = p.attention;
    const bool acts = attends(p.type);
    p.turns = turns(rotary_on, p, w);
    const bool windowed =
        acts && w.size && (slides(p.type) || (w.on_all && p.type == "full_attention"));
    const Sourced<Index> window =
        windowed ? own_window(view, own, i, slid).value_or(*w.size) : Sourced<Index>{};
    slid += windowed ? 1 : 0;
    if (!w.size && slides_only(p.type) && !std::exchange(said, true)) no_window(view, p, i);
    if (windowed && window.value == 0 && !w.both)
      view.wrong_type("a window of 0 leaves no key to any query: transformers masks them all",
                      window, "write null for no window");
    if (!acts) {
      a.kind = contains({"linear_attention", "recurrent"}, p.type) ? AttentionKind::linear
                                                                   : AttentionKind::none;
    } else if (p.type == "chunked_attention") {
      a.kind = AttentionKind::chunked;
      if (chunk) a.chunk = chunk->value;
    } else if (windowed) {
      a.kind = AttentionKind::sliding;
      a.left = w.both ? window.value : std::max<Index>(0, window.value - 1);
      a.right = w.both ? window.value : 0;
    }
    if (acts && !bidirectional) a.right = 0;
    p.fields = {{"layer_type", p.type, p.origin, p.where},
                {"attention", std::string(enum_text(a.kind)), p.origin, p.where}};
    if (!acts) continue;
    p.fields.push_back(windowed ? field_of("window", window)
                                : FieldValue{"window", nullptr, p.origin, p.where});
    if (a.chunk) p.fields.push_back(field_of("chunk", *chunk));
    p.fields.push_back(field_of("causal", view.of_class<Json>(!bidirectional)));
  }
}

}  // namespace posenc::v0::hf
