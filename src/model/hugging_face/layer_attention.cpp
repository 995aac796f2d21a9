// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <tuple>
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
  std::optional<Sourced<Index>> size;   // as the mask counts: the query's own included
  std::optional<Sourced<Index>> after;  // keys after the query, where a key counts them
  std::vector<Sourced<Index>> each;     // of each layer, where they differ
  bool both = false, on_all = false;

  // Keys before the query and after it; `later`: the layer sees those after it.
  std::pair<Index, Index> sides(const ConfigView& view, Index n, bool later) const {
    if (view.rules().window->halves) return {(n + 1) / 2 - 1, n / 2};
    if (after) return {std::max<Index>(0, n - 1), after->value};
    if (both || later) return {n, n};
    return {std::max<Index>(0, n - 1), 0};
  }
};

constexpr const char* kBothWays = "use_bidirectional_attention";

// use_bidirectional_attention: true or false, or (Gemma-4) "all", "vision".
bool sees_all(const ConfigView& view) {
  const std::string& how = view.rules().bidirectional_key;
  if (how.empty() || how == "ignored") return false;
  const auto stated = view.value(kBothWays);
  if (stated && stated->value.is_string() && how == "whole") return truthy(stated->value);
  if (stated && (stated->value == Json("all") || stated->value == Json("vision")))
    return stated->value == Json("all");
  return view.flag(kBothWays, false);
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

// Longformer: an even number for all layers, or one for each; half of it is seen on either side.
void by_layer(const ConfigView& view, const std::string& key, Window& w) {
  const auto all = view.value_or_none(key);
  if (!all) return;
  const bool list = all->value.is_array();
  const Json::Array& given = list ? all->value.as_array() : Json::Array{all->value};
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto n = whole_number(given[i]);
    const std::string where = all->where + (list ? "/" + std::to_string(i) : "");
    if (!n || *n < 2 || *n % 2 != 0)
      return void(view.wrong_type(
          {"{} must be a positive even number, or one for each layer, got {}", key, given[i]},
          where, "state the windows of the model"));
    w.each.push_back(counted(*n / 2, where + " // 2"));
  }
  if (!w.each.empty()) w.size = w.each.front();
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
  if (about->by_layer) {
    by_layer(view, about->key, w);
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
  if (!about->later.empty()) w.after = view.integer(about->later, 0, kUnbounded / 4, true);
  if (!about->set_by.empty() && view.stated(about->set_by)) {
    w.size = set_by(view, *about, w.size);
    return w;
  }
  if (w.size && about->divide.value_or(1) != 1) halve(*w.size, *about->divide);
  return w;
}

// What use_bidirectional_attention makes of the window.
void see_both_ways(const ConfigView& view, Window& w) {
  const std::string& how = view.rules().bidirectional_key;
  if (const auto v = view.stated(kBothWays);
      how.empty() && v && truthy(v->value) && !w.both && !view.rules().bidirectional)
    view.warn("key_ignored",
              {"{} is {}, but {class} always hides the keys after a query", kBothWays, v->value},
              *v, "remove it, or use the code that reads it");
  if (w.both || !sees_all(view)) return;
  w.both = true;
  if (how == "sdpa")
    view.warn("one_kernel",
              {"{} affects only the default kernel of {class} (sdpa), and only without padding: "
               "then a token sees later ones; with other kernels it does not",
               kBothWays},
              view.place(view.value(kBothWays), kBothWays),
              "run the model with the kernel of its training");
  if (!w.size) return;
  if (how != "whole") halve(*w.size, 2);  // Gemma-3 as an encoder
  if (how == "halved_and_one")            // Gemma-4, whose bound is inclusive
    w.size->value += 1, w.size->where += " + 1";
  if (how == "whole")  // Step-3.5: the query's own counts on either side
    w.size->value -= 1, w.size->where += " - 1";
  w.size->origin = Origin::derived;
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

// Tokens of images, a prefix: none where the class has no such, or the file switches it off.
std::optional<TokenMask> token_mask(const ConfigView& view, const AttentionSpec& a) {
  const std::optional<TokenMaskRules>& about = view.rules().token_mask;
  if (!about || (about->on == "sliding" && a.kind != AttentionKind::sliding)) return std::nullopt;
  if (about->needs.is_object())
    for (const auto& [key, want] : about->needs.as_object())
      if (const auto v = view.value(key); !v || v->value != want) return std::nullopt;
  return TokenMask{about->tokens, about->input, about->types, about->runs, about->within_window};
}

// Whether the masks hide keys after the query, and what says so.
Value causality(const ConfigView& view, const Window& w) {
  const bool encoder = w.both || (view.rules().bidirectional && !is_decoder(view));
  const Value own = view.of_class<Json>(!encoder);
  constexpr const char* kernel = "run the model with the kernel of its training";
  if (const std::string& note = view.rules().mask_note; !note.empty())
    view.warn("one_kernel", note, view.where("model_type"), kernel);
  const auto stated = view.stated("is_causal");
  if (!stated) return own;
  const std::string how = view.rules().remote.empty() ? view.rules().is_causal : "ignored";
  if (stated->value.is_null()) {
    view.wrong_type(
        "is_causal is null: masks of transformers are then made for both sides, and its kernels "
        "hide the keys after a query",
        *stated, "write true or false, or remove the key");
    return own;
  }
  const bool causal = view.flag("is_causal", true);
  if (causal != encoder) return own;
  if (encoder)
    view.warn("one_kernel",
              "is_causal is true, but {class} sees both sides: the default kernel of transformers "
              "(sdpa) hides later keys if there is no padding, the eager one never does",
              *stated, kernel);
  else if (how == "sdpa")
    view.warn("one_kernel",
              "is_causal is false, but {class} uses it with the eager kernel only: with the "
              "default kernel (sdpa) a token does not see later ones",
              *stated, kernel);
  else if (how == "ignored")
    view.warn("key_ignored",
              {"is_causal is {}, but {class} always hides the keys after a query", stated->value},
              *stated, "remove it, or use the code that reads it");
  else
    view.note("bidirectional_decoder",
              "is_causal is false: tokens of this decoder see later ones, and windows extend to "
              "both sides",
              *stated, "nothing to do; do not add a causal mask");
  if (!how.empty() || encoder) return own;
  return {causal, stated->origin, stated->where};
}

// What all layers of a model share.
struct Masks {
  const ConfigView& view;
  Window window;
  Value causal;
  std::optional<Sourced<Index>> chunk;

  bool later() const { return !causal.value.as_bool(); }
  // transformers makes masks of chunks causal whatever is_causal says.
  bool hides_later(const AttentionSpec& a) const {
    return !later() || (a.chunk && causal.origin != Origin::class_default);
  }
};

// Attention and fields of one layer; `window`: none where it has no such.
void mask_layer(const Masks& m, const std::optional<Sourced<Index>>& window, LayerPlan& p) {
  AttentionSpec& a = p.attention;
  const bool acts = attends(p.type);
  if (!acts) {
    a.kind = contains({"linear_attention", "recurrent"}, p.type) ? AttentionKind::linear
                                                                 : AttentionKind::none;
  } else if (p.type == "chunked_attention") {
    a.kind = AttentionKind::chunked;
    if (m.chunk) a.chunk = m.chunk->value;
  } else if (window) {
    a.kind = AttentionKind::sliding;
    std::tie(a.left, a.right) = m.window.sides(m.view, window->value, m.later());
  }
  p.fields = {{"layer_type", p.type, p.origin, p.where},
              {"attention", std::string(enum_text(a.kind)), p.origin, p.where}};
  if (!acts) return;
  if (m.hides_later(a)) a.right = 0;
  p.fields.push_back(window ? field_of("window", *window)
                            : FieldValue{"window", nullptr, p.origin, p.where});
  if (window && m.window.after) p.fields.push_back(field_of("window_after", *m.window.after));
  if (a.chunk) p.fields.push_back(field_of("chunk", *m.chunk));
  p.fields.push_back(field_of("causal", m.causal));
  if (m.later()) return;
  a.by_token_type = token_mask(m.view, a);
  if (!a.by_token_type) return;
  a.right.reset();
  const Json tokens = a.by_token_type->tokens;
  p.fields.push_back(field_of("mask_by_token_type", m.view.of_class(tokens)));
}

}  // namespace

void plan_attention(const ConfigView& view, std::vector<LayerPlan>& plans) {
  Window w = window_of(view);
  see_both_ways(view, w);
  const auto has = [&](const char* type) {
    return std::ranges::any_of(plans, [&](const LayerPlan& p) { return p.type == type; });
  };
  const bool chunked = has("chunked_attention");
  if (w.size && has("reference_sliding_attention"))  // Unlimited-OCR
    view.note("encoding_not_covered",
              "the window of reference_sliding_attention hides no key of the prompt: every token "
              "sees those before it, and of the generated ones those within the window",
              view.where("layer_types"));
  const Masks masks{
      view, w, causality(view, w),
      chunked ? view.integer("attention_chunk_size", 1, kUnbounded / 4) : std::nullopt};
  const auto own = w.size ? view.stated("per_layer_config") : std::nullopt;
  bool said = false;
  Index slid = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    LayerPlan& p = plans[i];
    p.turns = turns(view.rules().rotary_on, p, w);
    std::optional<Sourced<Index>> window;
    if (attends(p.type) && w.size && (slides(p.type) || (w.on_all && p.type == "full_attention"))) {
      window = i < w.each.size() ? w.each[i] : own_window(view, own, i, slid).value_or(*w.size);
      ++slid;
    }
    if (!w.size && slides_only(p.type) && !std::exchange(said, true)) no_window(view, p, i);
    if (window && window->value == 0 && !w.both)
      view.wrong_type("a window of 0 hides all keys from every query", *window,
                      "write null for no window");
    mask_layer(masks, window, p);
  }
}

}  // namespace posenc::v0::hf
