// SPDX-License-Identifier: Apache-2.0
// Which layers slide, which have no softmax attention, which turn: from keys where the file has
// them, by the architecture's name where it has not.
#include <algorithm>

#include "model/gguf/hparams.h"

namespace posenc::gguf {
namespace {

void read_linear(const Architecture& arch, Keys& keys, Hparams& h) {
  const auto n = static_cast<std::size_t>(h.run_layers);
  h.linear.assign(n, false);
  const std::string_view rule = arch.text("linear");
  if (rule == "all") h.linear.assign(n, true);
  const auto at = [&](const std::vector<Index>& v, std::size_t i) {
    return v.empty() ? Index{0} : v[i % v.size()];
  };
  if (rule == "no_kv_heads" || rule == "no_kv_heads_no_ff")
    for (std::size_t i = 0; i < n; ++i)
      h.linear[i] = at(h.kv_heads, i) == 0 && (rule == "no_kv_heads" || at(h.feed_forward, i) == 0);
  if (rule != "interval") return;
  if (const auto list = keys.per_layer("attention.recurrent_layers", h.layers)) {
    for (std::size_t i = 0; i < n; ++i) h.linear[i] = at(list->value, i) != 0;
    return;
  }
  Index every = arch.number("interval", 4);
  if (const auto v = keys.integer("full_attention_interval")) every = v->value;
  if (every < 1) {
    keys.error("out_of_range", "full_attention_interval", "must be positive");
    return;
  }
  for (std::size_t i = 0; i < n; ++i) h.linear[i] = (static_cast<Index>(i) + 1) % every != 0;
}

// True when the layers have a window.
bool read_window_size(const Architecture& rule, Keys& keys, Hparams& h) {
  constexpr std::string_view key = "attention.sliding_window";
  if (const Index only = rule.number("layers", 0); only != 0 && only != h.layers) return false;
  const auto stated = keys.integer(key);
  if (!stated && rule.text("key") == "required" && !keys.failed()) keys.missing(key);
  const Index absent = rule.number("default", 0);
  if (rule.flag("off_by_zero") && stated && stated->value == 0) return false;
  if (rule.flag("when_stated") && (!stated || stated->value == 0)) return false;
  h.window.size = stated && !rule.flag("fixed") ? *stated : rule.constant(absent);
  if (stated && rule.flag("fixed") && stated->value != absent)
    keys.warn("key_ignored", key,
              "llama.cpp takes " + std::to_string(absent) + " for " + rule.name() +
                  " whatever the file says",
              "a model that was trained with another window runs wrongly here",
              static_cast<double>(stated->value));
  if (h.window.size.value == 0 && rule.text("key") == "required" && !keys.failed())
    keys.error("out_of_range", key, "the window must be positive");
  return h.window.size.value > 0;
}

void read_pattern(const Architecture& rule, Keys& keys, Hparams& h) {
  constexpr std::string_view key = "attention.sliding_window_pattern";
  const auto n = static_cast<std::size_t>(h.run_layers);
  const GgufValue* stored = keys.file().find(keys.full(key));
  const bool list = stored != nullptr && stored->type == GgufType::array;
  if (list || rule.text("pattern_key") == "required") {
    if (!list) {
      keys.error("missing_key", key, keys.full(key) + " is required, one a layer",
                 "convert the model again: which layers slide is layer_types of its config.json");
      return;
    }
    const auto values = keys.per_layer(key, h.layers);
    if (!values) return;
    for (std::size_t i = 0; i < n; ++i)
      h.sliding[i] = values->value[i % static_cast<std::size_t>(h.layers)] != 0;
    h.window.pattern_origin = Origin::stated;
    h.window.pattern_where = keys.full(key);
    return;
  }
  Index period = rule.number("pattern", 1);
  h.window.pattern_where = rule.program();
  if (const auto v = keys.integer(key)) {
    period = v->value;
    h.window.pattern_origin = v->origin;
    h.window.pattern_where = v->where;
  }
  for (std::size_t i = 0; i < n; ++i) {
    const Index il = static_cast<Index>(i);
    h.sliding[i] =
        period == 0 || (rule.flag("dense_first") ? il % period != 0 : il % period < period - 1);
  }
}

void read_window(const Architecture& arch, Keys& keys, Hparams& h) {
  const auto n = static_cast<std::size_t>(h.run_layers);
  h.sliding.assign(n, false);
  const auto rule = arch.group("window");
  if (!rule || !read_window_size(*rule, keys, h)) return;
  const std::string_view kind = rule->text("kind");
  h.window.kind = kind == "chunked" ? AttentionKind::chunked : AttentionKind::sliding;
  if (rule->flag("all_layers")) h.sliding.assign(n, true);
  if (rule->flag("attention_layers"))
    for (std::size_t i = 0; i < n; ++i) h.sliding[i] = !h.linear[i];
  if (rule->flag("all_layers") || rule->flag("attention_layers"))
    h.window.pattern_where = arch.program();
  else
    read_pattern(*rule, keys, h);
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
  bool switched_on = true;
  if (rule == "finetuned_key")
    if (const auto v = keys.boolean("rope.scaling.finetuned")) switched_on = v->value;
  std::optional<Sourced<std::vector<Index>>> pattern;
  if (rule == "pattern_key") pattern = keys.per_layer("attention.rope_pattern", h.layers);
  h.rotated.assign(static_cast<std::size_t>(h.run_layers), false);
  for (Index il = 0; il < h.run_layers; ++il) {
    const auto i = static_cast<std::size_t>(il);
    const bool value =
        pattern ? pattern->value[i % static_cast<std::size_t>(h.layers)] != 0 : switched_on;
    const bool headless = h.heads.empty() || h.heads[i % h.heads.size()] == 0;
    h.rotated[i] = h.mode != Mode::none && !h.linear[i] && !headless && turns(rule, h, il, value);
  }
}

void read_compressed(const Architecture& arch, Keys& keys, Hparams& h) {
  if (!arch.flag("dsv4")) return;
  h.compress_base = keys.number("attention.compress_rope_freq_base");
  const auto ratios = keys.per_layer("attention.compress_ratios", h.layers);
  if (!h.compress_base || !ratios) {
    if (!keys.failed())
      keys.error("missing_key", "attention.compress_ratios",
                 "attention.compress_ratios and attention.compress_rope_freq_base are required",
                 "convert the model again");
    return;
  }
  h.compress_ratio = ratios->value;
  if (!(h.compress_base->value > 0))
    keys.error("theta_not_positive", "attention.compress_rope_freq_base",
               "the base must be positive");
}

}  // namespace

void read_layers(const Architecture& arch, Keys& keys, Hparams& h) {
  read_linear(arch, keys, h);
  read_window(arch, keys, h);
  if (keys.failed()) return;
  read_rotated(arch, keys, h);
  read_compressed(arch, keys, h);
}

}  // namespace posenc::gguf
