// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "model/hugging_face/layer_rules.h"

namespace posenc::hf {
namespace {

bool attends(const std::string& type) {
  return type != "linear_attention" && type != "conv" && type != "moe" && type != "mlp" &&
         type != "fourier" && type != "recurrent";
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

Window window_of(const ConfigView& view) {
  Window w;
  const Json* about = view.entry().find("window");
  if (!about) return w;
  w.both = about->find("both") != nullptr;
  w.on_all = about->find("on") != nullptr;
  if (const Json* on = about->find("switch"))
    if (!view.flag(on->as_string(), false)) return w;
  if (const Json* first = about->find("first")) {  // MiMo-V2-Flash: sliding_window_size + 1
    const std::string key = first->at("key").as_string();
    if (const auto v = view.stated(key); v && !v->value.is_null()) {
      if (auto n = view.integer(key, 0, kUnbounded / 4)) {
        n->value += first->at("plus").as_integer();
        n->where += " + 1";
        n->origin = n->origin == Origin::user ? n->origin : Origin::derived;
        w.size = n;
      }
      return w;
    }
  }
  const std::string key = about->at("key").as_string();
  auto n = view.integer(key, 0, kUnbounded / 4);
  if (const Json* list = about->find("listed"))  // UltraBERT: the first window of the list counts
    if (const auto v = view.stated(list->as_string()); v && v->value.is_array())
      for (const Json& one : v->value.as_array())
        if (const auto whole = whole_number(one); whole && *whole > 0) {
          n = Sourced<Index>{*whole, v->origin, v->where};
          break;
        }
  if (const Json* sets =
          about->find("set_by"))  // ModernBERT: keys to each side, over the key above
    if (const auto said = view.stated(sets->as_string())) {
      const auto side = view.integer(sets->as_string(), 0, kUnbounded / 4, true);
      if (const auto both = view.stated(key); both && side && n && n->value / 2 != side->value)
        view.report().warn("both_spellings",
                           key + " is " + shown(both->value) + " and " + sets->as_string() + " " +
                               shown(said->value) + ": " + view.class_name() + " takes " +
                               sets->as_string(),
                           both->where, static_cast<double>(side->value));
      w.size = side;
      return w;
    }
  if (n)
    if (const Json* divide = about->find("divide"); divide && divide->as_integer() != 1) {
      n->value /= divide->as_integer();
      n->where += " // " + std::to_string(divide->as_integer());
      n->origin = n->origin == Origin::user ? n->origin : Origin::derived;
    }
  if (n && sees_all(view) && !w.both) {  // Gemma-3 as an encoder: half the window to both sides
    n->value /= 2;
    n->where += " // 2";
    n->origin = Origin::derived;
    w.both = true;
  }
  w.size = n;
  return w;
}

bool slides(const std::string& type) {
  return type == "sliding_attention" || type == "hybrid_sliding" ||
         type == "reference_sliding_attention" || type == "compressed_sparse_attention" ||
         type == "heavily_compressed_attention";
}

// Types that are nothing without a window; the compressed ones see their blocks.
bool slides_only(const std::string& type) {
  return type == "sliding_attention" || type == "hybrid_sliding" ||
         type == "reference_sliding_attention";
}

// Run: no class of transformers falls back to full attention, all of them fail on the first token.
void no_window(const ConfigView& view, const LayerPlan& p, std::size_t layer) {
  const Json* about = view.entry().find("window");
  const std::string key = about ? about->at("key").as_string() : "sliding_window";
  const auto v = view.stated(key);
  const Json* on = about ? about->find("switch") : nullptr;
  const bool off = on && v && !v->value.is_null();
  const std::string why = !about ? view.class_name() + " has no window"
                          : off  ? on->as_string() + " is not true"
                                 : key + (v ? " is null" : " is missing");
  view.report().error("missing_key",
                      "layer " + std::to_string(layer) + " is " + p.type + " and " + why +
                          ": transformers fails on the first token",
                      v ? v->where : view.where(key),
                      about ? "state " + key : "use layer types of the class");
}

void say(LayerPlan& p, std::string name, Json value, Origin origin, std::string where) {
  p.fields.push_back({std::move(name), std::move(value), origin, std::move(where)});
}

bool turns(const std::string& on, const LayerPlan& p, const Window& w) {
  if (!attends(p.type) || p.type == "cross_attention") return false;
  if (on == "sliding") return slides(p.type) && w.size;
  if (on == "sliding_or_no_window") return slides(p.type) || !w.size;
  return p.turns;
}

// per_layer_config of a file, or every second sliding layer of NeoMME, has a window of its own.
std::optional<Sourced<Index>> own_window(const ConfigView& view, std::size_t layer, Index slid) {
  if (const auto all = view.stated("per_layer_config"); all && all->value.is_object()) {
    const std::string index = std::to_string(layer);
    const Json* mine = all->value.find(index);
    const Json* size = mine && mine->is_object() ? mine->find("sliding_window") : nullptr;
    if (size && size->is_integer() && size->as_integer() > 0)
      return Sourced<Index>{size->as_integer(), all->origin,
                            all->where + "/" + index + "/sliding_window"};
    return std::nullopt;
  }
  const Json* about = view.entry().find("window");
  const Json* other = about ? about->find("every_second") : nullptr;
  if (!other || slid % 2 == 0) return std::nullopt;
  return Sourced<Index>{other->as_integer(), Origin::class_default, view.class_name()};
}

}  // namespace

void plan_attention(const ConfigView& view, std::vector<LayerPlan>& plans) {
  const Window w = window_of(view);
  bool said = false;
  const Json* on = view.entry().find("rotary_on");
  const std::string rotary_on = on ? on->as_string() : "";
  const bool bidirectional =
      (view.entry().find("bidirectional") != nullptr && !is_decoder(view)) || w.both;
  const bool chunked = std::any_of(
      plans.begin(), plans.end(), [](const LayerPlan& p) { return p.type == "chunked_attention"; });
  const auto chunk =
      chunked ? view.integer("attention_chunk_size", 1, kUnbounded / 4) : std::nullopt;
  Index slid = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    LayerPlan& p = plans[i];
    AttentionSpec& a = p.attention;
    say(p, "layer_type", p.type, p.origin, p.where);
    if (!attends(p.type)) {
      a.kind = p.type == "linear_attention" || p.type == "recurrent" ? AttentionKind::linear
                                                                     : AttentionKind::none;
      p.turns = false;
      say(p, "attention", std::string(enum_text(a.kind)), p.origin, p.where);
      continue;
    }
    p.turns = turns(rotary_on, p, w);
    const bool windowed =
        w.size && (w.on_all ? p.type == "full_attention" || slides(p.type) : slides(p.type));
    const Sourced<Index> window =
        windowed ? own_window(view, i, slid).value_or(*w.size) : Sourced<Index>{};
    slid += windowed ? 1 : 0;
    if (!w.size && slides_only(p.type) && !std::exchange(said, true)) no_window(view, p, i);
    if (windowed && window.value == 0 && !w.both)
      view.report().error("wrong_type",
                          "a window of 0 leaves no key to any query: transformers masks them all",
                          window.where, "write null for no window");
    if (p.type == "chunked_attention") {
      a.kind = AttentionKind::chunked;
      if (chunk) a.chunk = chunk->value;
      if (!bidirectional) a.right = 0;
    } else if (windowed) {
      a.kind = AttentionKind::sliding;
      a.left = w.both ? window.value : std::max<Index>(0, window.value - 1);
      a.right = w.both ? window.value : 0;
    } else if (!bidirectional) {
      a.right = 0;
    }
    say(p, "attention", std::string(enum_text(a.kind)), p.origin, p.where);
    if (windowed)
      say(p, "window", window.value, window.origin, window.where);
    else
      say(p, "window", nullptr, p.origin, p.where);
    if (a.chunk) say(p, "chunk", *a.chunk, chunk->origin, chunk->where);
    say(p, "causal", !bidirectional, Origin::class_default, view.class_name());
  }
}

}  // namespace posenc::hf
