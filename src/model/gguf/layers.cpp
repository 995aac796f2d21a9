// SPDX-License-Identifier: Apache-2.0
// Which layers slide, which have no softmax attention, which turn: from keys where the file has
// them, by the architecture's name where it has not.
#include "model/gguf/hparams.h"

namespace posenc::inline v0::gguf {
namespace {

// One switch for each layer that the graph runs.
template <class F>
std::vector<bool> each(const Hparams& h, const F& is) {
  std::vector<bool> out(static_cast<std::size_t>(h.run_layers));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = is(static_cast<Index>(i));
  return out;
}

void read_linear(const Architecture& arch, Keys& keys, Hparams& h) {
  const std::string_view rule = arch.text("linear");
  std::optional<Sourced<std::vector<Index>>> list;
  auto every = usual<Index>(arch.number("interval", 4));
  if (rule == "interval") {
    list = keys.per_layer("attention.recurrent_layers", h.layers);
    if (!list) keys.take("full_attention_interval", every);
    if (!list && every.value < 1) {
      keys.error("out_of_range", "full_attention_interval", "must be positive");
      every.value = 1;
    }
  }
  h.linear = each(h, [&](Index il) {
    if (rule == "no_kv_heads") return of_layer(h.kv_heads, il) == 0;
    if (rule == "no_kv_heads_no_ff")
      return of_layer(h.kv_heads, il) == 0 && of_layer(h.feed_forward, il) == 0;
    if (list) return of_layer(list->value, il) != 0;
    return rule == "all" || (rule == "interval" && (il + 1) % every.value != 0);
  });
}

// True when the layers have a window.
bool read_window_size(const Architecture& rule, Keys& keys, Hparams& h) {
  constexpr std::string_view key = "attention.sliding_window";
  if (const Index only = rule.number("layers", 0); only != 0 && only != h.layers) return false;
  const auto stated = keys.get<Index>(key);
  if (!stated && rule.text("key") == "required" && !keys.failed()) keys.missing(key);
  const Index absent = rule.number("default", 0);
  if (rule.flag("off_by_zero") && stated && stated->value == 0) return false;
  if (rule.flag("when_stated") && (!stated || stated->value == 0)) return false;
  h.window.size = stated && !rule.flag("fixed") ? *stated : rule.constant(absent);
  if (stated && rule.flag("fixed") && stated->value != absent)
    keys.warn("key_ignored", key,
              {"llama.cpp uses {} for {}, whatever the file says", absent, rule.name()},
              "if the model was trained with another window, llama.cpp runs it wrongly",
              static_cast<double>(stated->value));
  if (h.window.size.value == 0 && rule.text("key") == "required" && !keys.failed())
    keys.error("out_of_range", key, "the window must be positive");
  return h.window.size.value > 0;
}

void read_pattern(const Architecture& rule, Keys& keys, Hparams& h) {
  constexpr std::string_view key = "attention.sliding_window_pattern";
  const GgufValue* stored = keys.file().find(keys.full(key));
  if (stored != nullptr && stored->type == GgufType::array) {
    const auto values = keys.per_layer(key, h.layers);
    if (!values) return;
    // A list is longer than the layers where next-token layers stand behind them.
    h.sliding = each(h, [&](Index il) { return of_layer(values->value, il % h.layers) != 0; });
    h.window.pattern_origin = Origin::stated;
    h.window.pattern_where = keys.full(key);
    return;
  }
  if (rule.text("pattern_key") == "required")
    return keys.error(
        "missing_key", key, {"{} is required, one a layer", keys.full(key)},
        "convert the model again: which layers slide is layer_types of its config.json");
  Sourced<Index> period = rule.constant<Index>(rule.number("pattern", 1));
  keys.take(key, period);
  h.window.pattern_origin = period.origin;
  h.window.pattern_where = period.where;
  h.sliding = each(h, [&, n = period.value](Index il) {
    return n == 0 || (rule.flag("dense_first") ? il % n != 0 : il % n < n - 1);
  });
}

void read_window(const Architecture& arch, Keys& keys, Hparams& h) {
  h.sliding = each(h, [](Index) { return false; });
  const auto rule = arch.group("window");
  if (!rule || !read_window_size(*rule, keys, h)) return;
  const bool all = rule->flag("all_layers");
  h.window.kind = rule->text("kind") == "chunked" ? AttentionKind::chunked : AttentionKind::sliding;
  if (!all && !rule->flag("attention_layers")) return read_pattern(*rule, keys, h);
  h.sliding = each(h, [&](Index il) { return all || !h.linear[static_cast<std::size_t>(il)]; });
  h.window.pattern_where = arch.program();
}

// Does layer `il` turn, by the rule that the architecture's graph follows?
bool turns(std::string_view rule, const Hparams& h, Index il, bool key_value) {
  const bool slides = h.sliding[static_cast<std::size_t>(il)];
  const bool windows = h.window.kind != AttentionKind::full;
  if (rule.empty()) return true;
  if (rule == "sliding") return slides;
  if (rule == "sliding_or_no_window") return slides || !windows;
  if (rule == "sliding_or_leading_dense") return slides || il < h.leading_dense;
  if (rule == "all_but_every_4th") return (il + 1) % 4 != 0;
  // Without chunks the step is the number of layers: the last one does not turn.
  if (rule == "all_but_every_4th_or_last") return (il + 1) % (windows ? 4 : h.layers) != 0;
  if (rule == "all_but_0_4_8") return !windows || il % 4 != 0;
  if (rule == "32_layers") return h.layers == 32;
  if (rule == "finetuned_key" || rule == "pattern_key") return key_value;
  return false;  // none
}

void read_rotated(const Architecture& arch, Keys& keys, Hparams& h) {
  const std::string_view rule = arch.text("rope_on");
  auto switched_on = usual(true);
  if (rule == "finetuned_key") keys.take("rope.scaling.finetuned", switched_on);
  std::optional<Sourced<std::vector<Index>>> pattern;
  if (rule == "pattern_key") pattern = keys.per_layer("attention.rope_pattern", h.layers);
  h.rotated = each(h, [&](Index il) {
    const bool value = pattern ? of_layer(pattern->value, il % h.layers) != 0 : switched_on.value;
    return h.mode != Mode::none && !h.linear[static_cast<std::size_t>(il)] &&
           of_layer(h.heads, il) != 0 && turns(rule, h, il, value);
  });
}

void read_compressed(const Architecture& arch, Keys& keys, Hparams& h) {
  if (!arch.flag("dsv4")) return;
  h.compress_base = keys.get<double>("attention.compress_rope_freq_base");
  const auto ratios = keys.per_layer("attention.compress_ratios", h.layers);
  if (ratios) h.compress_ratio = ratios->value;
  if (h.compress_base && ratios && !(h.compress_base->value > 0))
    keys.error("theta_not_positive", "attention.compress_rope_freq_base",
               "the base must be positive");
  if ((!h.compress_base || !ratios) && !keys.failed())
    keys.error("missing_key", "attention.compress_ratios",
               "attention.compress_ratios and attention.compress_rope_freq_base are required",
               "convert the model again");
}

}  // namespace

void read_layers(const Architecture& arch, Keys& keys, Hparams& h) {
  read_linear(arch, keys, h);
  read_window(arch, keys, h);
  if (keys.failed()) return;
  read_rotated(arch, keys, h);
  read_compressed(arch, keys, h);
}

}  // namespace posenc::v0::gguf
