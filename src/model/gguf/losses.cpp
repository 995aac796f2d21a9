// SPDX-License-Identifier: Apache-2.0
// What the doctor should say of a GGUF file: what the conversion lost, what llama.cpp knows by name
// only, what it ignores, and where it departs from the model it runs.
#include <algorithm>
#include <cmath>

#include "model/gguf/hparams.h"

namespace posenc::inline v0::gguf {
namespace {

void note_known_by_name(const Architecture& arch, const Hparams& h, Keys& keys) {
  const bool turns = contains(h.rotated, true), windows = contains(h.sliding, true);
  const auto by_name = [](Origin o) { return o == Origin::class_default; };
  if (turns && by_name(h.base.origin) && !arch.has("plain_base"))
    keys.note("gguf_lost", "rope.freq_base",
              "the file states no base; llama.cpp uses 10000, whatever the model was trained with",
              "--assume rope.freq_base=BASE");
  const std::string_view rule = arch.text("rope_on");
  const bool by_key = rule == "finetuned_key" || rule == "pattern_key" || rule == "none";
  const bool some_stand = turns && contains(h.rotated, false);
  struct Lost {
    bool is;
    const char *key, *what;
  };
  for (const Lost& lost :
       {Lost{windows && by_name(h.window.pattern_origin), "attention.sliding_window_pattern",
             "the file does not say which layers slide"},
        Lost{windows && by_name(h.window.size.origin), "attention.sliding_window",
             "the file does not say how wide the window is"},
        Lost{some_stand && !rule.empty() && !by_key, "rope",
             "the file does not say which layers have no rotary"},
        Lost{arch.number("alibi", 0) > 0 && arch.number("alibi_layers", h.layers) == h.layers,
             "attention.max_alibi_bias", "the file does not say that ALiBi is used"},
        Lost{arch.flag("t5"), "attention.relative_buckets_count",
             "the file has no largest distance (128 is used)"}})
    if (lost.is)
      keys.note("gguf_lost", lost.key,
                {"{}; llama.cpp knows it by the name {}", lost.what, arch.name()},
                "nothing to do in llama.cpp; another reader needs config.json");
}

// ggml rounds YaRN's range outwards whatever the model does (gpt-oss: truncate false).
void note_truncation(const Architecture& arch, Keys& keys, const ModelSpec& m) {
  if (!arch.lists("lost", "truncate") || m.layers.empty() || m.layers[0].encodings.empty()) return;
  Encoding meant = m.layers[0].encodings[0].value;
  for (Scaling& s : meant.scalings)
    if (auto* y = std::get_if<Yarn>(&s)) y->truncate = false;
  if (meant == m.layers[0].encodings[0].value) return;
  const auto rounded = m.layers[0].rotary->blocks.at(0).spectrum.frequency;
  const auto exact = resolve(meant, Context{m.context.value}).blocks.at(0).spectrum.frequency;
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    if (rounded[i] != 0) worst = std::max(worst, std::abs(exact[i] / rounded[i] - 1));
  if (worst > 0)
    keys.warn("truncate_rounded", "rope.scaling.type",
              {"the model was trained without rounding YaRN's range, but ggml rounds it: "
               "frequencies differ by up to {} (relative)",
               worst},
              "read config.json for the intended values", worst);
}

void note_factors(const Hparams& h, const DivisorTensors& d, Keys& keys) {
  if (!contains(h.rotated, true)) return;
  if (!d.always.values.empty())
    keys.report().note(
        "gguf_factors_only",
        {"the scaling exists only as divisors in {}; no metadata name it", d.always.tensor},
        d.always.tensor, "nothing to do in llama.cpp; another reader must divide by the tensor");
  if (d.by_length() && h.scaling_type.origin == Origin::class_default)
    keys.note("gguf_factors_only", "rope.scaling.type",
              {"LongRoPE exists only as divisors in {} and {}; no rope.scaling.type names it",
               d.beyond.tensor, d.within.tensor},
              "nothing to do in llama.cpp; another reader must divide by the tensors");
}

void note_ignored(const Architecture& arch, const Hparams& h, Keys& keys) {
  const auto sliding = arch.group("sliding_rope");
  const bool windows = contains(h.sliding, true);
  const bool lists = windows && !h.window.pattern_where.empty();
  const std::string_view heat = arch.text("temperature");
  const auto yarn = [&](std::string_view name) { return arch.lists("yarn_keys", name); };
  struct Key {
    const char* name;
    bool read;
    std::optional<double> harmless{};  // a value that changes nothing
  };
  for (const Key& key :
       {Key{"attention.sliding_window", windows, 0},
        Key{"attention.sliding_window_pattern", lists && arch.group("window")},
        Key{"rope.freq_base_swa", sliding && sliding->text("base") != "global" && windows},
        Key{"rope.dimension_sections", h.sections || arch.has("sections")},
        Key{"attention.max_alibi_bias", arch.text("alibi") == "key", 0},
        Key{"rope.scaling.alpha", arch.flag("alpha"), 0},
        Key{"rope.scaling.yarn_log_multiplier", arch.has("yarn_log_multiplier"), 0},
        Key{"rope.scaling.yarn_ext_factor", yarn("ext_factor"), 1},
        Key{"rope.scaling.yarn_attn_factor", yarn("attn_factor"), 1},
        Key{"rope.scaling.yarn_beta_fast", yarn("beta_fast"), 32},
        Key{"rope.scaling.yarn_beta_slow", yarn("beta_slow"), 1},
        Key{"attention.temperature_scale", heat == "keys" || heat == "original_context", 0},
        Key{"attention.temperature_length", heat == "keys"},
        Key{"rope.freq_base", !arch.has("plain_base"), h.base.value}}) {
    const GgufValue* v = keys.file().find(keys.full(key.name));
    if (v != nullptr && !key.read && !(key.harmless && v->number() == key.harmless))
      keys.warn("key_ignored", key.name,
                {"llama.cpp does not read {} in a {}", keys.full(key.name), arch.name()},
                "if the model was trained with it, llama.cpp runs it wrongly; otherwise remove it",
                v->number());
  }
  if (h.log_multiplier && h.ext_factor.value == 0)
    keys.warn("key_ignored", "rope.scaling.yarn_log_multiplier",
              "the multiplier needs rope.scaling.type yarn",
              "--assume rope.scaling.type=yarn, or remove it");
}

// Keys of the scaling that contradict each other: llama.cpp takes one and says nothing.
void note_contradictions(const Hparams& h, const DivisorTensors& d, Keys& keys) {
  const std::string& type = h.scaling_type.value;
  const auto factor = keys.get<double>("rope.scaling.factor");
  if (type == "none" && factor && factor->value > 0 && factor->value != 1)
    keys.warn("key_ignored", "rope.scaling.factor",
              {"rope.scaling.type is none: llama.cpp ignores the factor {}", factor->value},
              "write the type of the factor, or remove the factor", factor->value);
  const GgufValue* old = keys.file().find(keys.full("rope.scale_linear"));
  if (factor && old != nullptr && old->number() != factor->value)
    keys.warn(
        "key_ignored", "rope.scale_linear",
        {"rope.scaling.factor {} is also present: llama.cpp ignores the older key", factor->value},
        "keep only the intended key", old->number());
  if (type == "longrope" && d.always.values.empty() && !d.by_length())
    keys.warn("missing_key", "rope.scaling.type",
              "rope.scaling.type is longrope and no tensor holds its factors "
              "(rope_factors_long.weight, rope_factors_short.weight): llama.cpp divides by none",
              "convert the model again");
}

// The sections of M-RoPE are meant to share out all pairs; ggml counts modulo their sum instead.
void note_sections(const Hparams& h, Keys& keys) {
  if (!h.sections) return;
  Index sum = 0;
  for (const Index n : h.sections->value) sum += n;
  const Index pairs = h.rotary_dim.value / 2;
  if (sum == pairs) return;
  keys.warn(
      "sections_sum", "rope.dimension_sections",
      {"the sections add up to {}, the pairs that rotate are {}: llama.cpp counts modulo the sum",
       sum, pairs},
      "read config.json for the sections that the model was trained with",
      static_cast<double>(sum));
}

void note_still_pairs(const Hparams& h, Keys& keys, const ModelSpec& m) {
  if (h.mode != Mode::imrope && h.mode != Mode::mrope) return;
  for (const LayerSpec& layer : m.layers) {
    if (!layer.rotary) continue;
    const Spectrum& s = layer.rotary->blocks.at(0).spectrum;
    std::vector<Index> pairs;
    for (Index i = 0; s.axes == 4 && i < s.pairs(); ++i)
      if (s.frequency[static_cast<std::size_t>(3 * s.pairs() + i)] != 0) pairs.push_back(i);
    if (!pairs.empty())
      keys.warn("pair_never_turns", "rope.dimension_sections",
                {"pairs {} follow the fourth position stream, which llama.cpp leaves 0 for text: "
                 "they never rotate there",
                 printable(listed(pairs))},
                "read config.json for the intended values", static_cast<double>(pairs.size()));
    return;
  }
}

}  // namespace

void note_losses(const Architecture& arch, const Hparams& h, const DivisorTensors& d, Keys& keys,
                 const ModelSpec& m) {
  note_known_by_name(arch, h, keys);
  note_factors(h, d, keys);
  note_ignored(arch, h, keys);
  if (keys.failed()) return;
  note_contradictions(h, d, keys);
  note_truncation(arch, keys, m);
  note_still_pairs(h, keys, m);
  note_sections(h, keys);
}

}  // namespace posenc::v0::gguf
