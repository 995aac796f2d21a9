// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "model/hugging_face/layer_rules.h"

namespace posenc::inline v0::hf {
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
  const std::optional<WindowRules>& about = view.rules().window;
  if (!about) return w;
  w.both = about->both;
  w.on_all = !about->on.empty();
  if (!about->switch_key.empty() && !view.flag(about->switch_key, false)) return w;
  if (const auto& first = about->first) {  // MiMo-V2-Flash: sliding_window_size + 1
    const std::string& key = first->key;
    if (const auto v = view.stated(key); v && !v->value.is_null()) {
      if (auto n = view.integer(key, 0, kUnbounded / 4)) {
        n->value += first->plus;
        n->where += " + 1";
        n->origin = n->origin == Origin::user ? n->origin : Origin::derived;
        w.size = n;
      }
      return w;
    }
  }
  const std::string& key = about->key;
  auto n = view.integer(key, 0, kUnbounded / 4);
  if (!about->listed.empty())  // UltraBERT: the first window of the list counts
    if (const auto v = view.stated(about->listed); v && v->value.is_array())
      for (const Json& one : v->value.as_array())
        if (const auto whole = whole_number(one); whole && *whole > 0) {
          n = Sourced<Index>{*whole, v->origin, v->where};
          break;
        }
  // ModernBERT: keys to each side, over the key above
  if (const std::string& sets = about->set_by; !sets.empty())
    if (const auto said = view.stated(sets)) {
      const auto side = view.integer(sets, 0, kUnbounded / 4, true);
      if (const auto both = view.stated(key); both && side && n && n->value / 2 != side->value)
        view.report().warn("both_spellings",
                           key + " is " + shown(both->value) + " and " + sets + " " +
                               shown(said->value) + ": " + view.class_name() + " takes " + sets,
                           both->where, static_cast<double>(side->value));
      w.size = side;
      return w;
    }
  if (n)
    if (const Index divide = about->divide.value_or(1); divide != 1) {
      n->value /= divide;
      n->where += " // " + std::to_string(divide);
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
  const std::optional<WindowRules>& about = view.rules().window;
  const std::string key = about ? about->key : "sliding_window";
  const auto v = view.stated(key);
  const std::string on = about ? about->switch_key : "";
  const bool off = !on.empty() && v && !v->value.is_null();
  const std::string why = !about ? view.class_name() + " has no window"
                          : off  ? on + " is not true"
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
  const std::optional<WindowRules>& about = view.rules().window;
  const std::optional<Index> other = about ? about->every_second : std::nullopt;
  if (!other || slid % 2 == 0) return std::nullopt;
  return Sourced<Index>{*other, Origin::class_default, view.class_name()};
}

}  // namespace

void plan_attention(const ConfigView& view, std::vector<LayerPlan>& plans) {
  const Window w = window_of(view);
  bool said = false;
  const std::string& rotary_on = view.rules().rotary_on;
  const bool bidirectional = (view.rules().bidirectional && !is_decoder(view)) || w.both;
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

}  // namespace posenc::v0::hf
