// SPDX-License-Identifier: Apache-2.0
// Risks at the context that a sound file still carries. docs/doctor.md has a paragraph on each.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "model/doctor/input.h"
#include "model/gguf/convert.h"
#include "posenc/core/error.h"
#include "posenc/laws.h"
#include "posenc/model/read.h"
#include "posenc/model/weights.h"

namespace posenc::inline v0 {
namespace {

class Doctor {
 public:
  Doctor(const ModelSpec& spec, Diagnostics& report)
      : spec_(spec), report_(report), length_(spec.context.value) {}

  void run() {
    std::vector<SharedRotary> seen;
    for (const auto& layer : spec_.layers) {
      if (!layer.rotary || contains(seen, layer.rotary)) continue;
      seen.push_back(layer.rotary);
      one(layer);
    }
    if (spec_.layers.empty() && spec_.towers.empty() && spec_.reader == "llama_cpp" &&
        !spec_.has_error())
      add(Severity::warning, "no_layers", "the model has 0 layers",
          "state how many layers the model has", 0.0);
    hidden_by_window();
    table();
  }

 private:
  void add(Severity severity, std::string code, const Sentence& text, const Sentence& fix,
           std::optional<double> value, const LayerSpec* layer = nullptr) {
    std::string where = spec_.file;
    if (layer) where += " layer " + std::to_string(layer->index);
    report_.add(severity, std::move(code), text, std::move(where), fix, value);
  }

  // A number of the layer's scaling; 0: it has none.
  static double scaling_number(const LayerSpec& layer, std::string_view name) {
    for (const auto& f : layer.fields) {
      const auto dot = f.name.rfind('.');
      if (dot != std::string::npos && f.name.substr(dot + 1) == name)
        return f.value.is_number() ? f.value.as_number() : 0;
    }
    return 0;
  }
  // What changes the layer's frequencies; null: nothing.
  static const Scaling* scaling_of(const LayerSpec& layer) {
    for (const auto& e : layer.encodings)
      for (const Scaling& s : e.value.scalings)
        if (!is_any<MscaleLogit>(s)) return &s;
    return nullptr;
  }
  template <class... Kinds>
  static bool is_any(const Scaling& s) {
    return (std::holds_alternative<Kinds>(static_cast<const Scalings::Variant&>(s)) || ...);
  }

  void one(const LayerSpec& layer) {
    if (length_ > 0) {
      double error = 0;
      for (const RotaryBlock& b : layer.rotary->blocks)
        error = std::max(error, float32_error(b.spectrum, length_));
      const bool much = float32_severity(error) == Severity::warning;
      add(float32_severity(error), "float32_angle",
          {"angles computed in float32 are wrong by up to {} rad at position {}{}", rounded(error),
           length_ - 1, much ? ": neighbouring tokens become indistinguishable" : ""},
          "compute angles in double or use precision=exact", error, &layer);
      slow_pairs(layer);
    }
    still_pairs(layer);
    scaling(layer);
    const RotaryBlock& b = layer.rotary->blocks.front();
    const double logit = layer.rotary->logit_factor();
    if (logit != 1)
      add(Severity::note, "mla_logit_factor",
          {"the softmax scale is multiplied by {} (mscale_all_dim); many ports forget it, and it "
           "cannot be folded into cos and sin",
           logit},
          "multiply the logits or q by this factor", logit, &layer);
    if (b.output_order == OutputOrder::even_then_odd)
      add(Severity::note, "pairing_risk",
          "rotated channels are written half-split although pairs are interleaved: scores agree "
          "with other programs, cached keys do not",
          "do not exchange key caches with a program that keeps the order of channels", {}, &layer);
    else if (b.direction != 1)
      add(Severity::warning, "pairing_risk",
          "pairs rotate clockwise; nearly every program rotates them counter-clockwise",
          "use direction=-1", {}, &layer);
    else if (b.pairing == Pairing::interleaved)
      add(Severity::note, "pairing_risk",
          "pairs are neighbours (2i, 2i+1); a program that pairs halves computes wrong results "
          "without an error",
          "use pairing=interleaved", {}, &layer);
    else if (spec_.reader == "transformers" &&
             contains(hf::gguf_conversions().at("permutes").as_array(), Json(spec_.model_type)))
      add(Severity::note, "pairing_risk",
          "pairs are halves (i, i + d/2) in this file; the converter to GGUF permutes q and k of "
          "this model, so pairs are neighbours in GGUF",
          "do not use the weights of one format with code for the other", {}, &layer);
  }

  void slow_pairs(const LayerSpec& layer) {
    Index slow = 0;
    for (const auto& b : layer.rotary->blocks)
      for (const PairTurns& t : turns_over(b.spectrum, length_))
        slow += !t.is_still() && !t.is_complete();
    if (slow > 0)
      add(Severity::note, "pair_never_turns",
          {"{} pairs make less than one full rotation within {} positions: beyond the trained "
           "length they reach angles that did not occur in training",
           slow, length_},
          "nothing to do within the trained length; scale positions to go beyond it",
          static_cast<double>(slow), &layer);
  }

  void still_pairs(const LayerSpec& layer) {
    Index still = 0;
    for (const auto& b : layer.rotary->blocks) {
      const Index pairs = b.pairs();
      for (Index i = 0; i < pairs; ++i) {
        bool turns = false;
        for (std::size_t k = static_cast<std::size_t>(i); k < b.spectrum.frequency.size();
             k += static_cast<std::size_t>(pairs))
          turns = turns || b.spectrum.frequency[k] != 0;
        still += !turns;
      }
    }
    if (still > 0)
      add(Severity::note, "pair_never_turns", {"{} pairs have frequency 0 and never rotate", still},
          "correct for proportional rotary; otherwise check the table of frequencies",
          static_cast<double>(still), &layer);
  }

  void scaling(const LayerSpec& layer) {
    const Scaling* scaling = scaling_of(layer);
    if (scaling && is_any<Dynamic, DynamicYarn, QwenDynamic, DynamicLinear>(*scaling))
      add(Severity::warning, "dynamic_cache",
          "frequencies depend on the length of each call: cached keys do not fit queries of a "
          "longer call",
          "declare a length for the life of the cache (length_rule=declared), or cache keys before "
          "the rotation",
          scaling_number(layer, "trained_length"), &layer);
    // The reader has noted the switch.
    if (auto f = switch_length(layer); f && static_cast<double>(length_) > *f->value) {
      f->severity = Severity::warning;
      report_.add(std::move(*f));
    }
    const double original = scaling_number(layer, "original_context");
    if (!scaling || !is_any<Yarn>(*scaling)) return;
    const bool within = length_ > 0 && static_cast<double>(length_) <= original;
    add(within ? Severity::warning : Severity::note, "static_yarn_short",
        within ? message("YaRN is always active: at {} tokens, within the trained {}, it changes "
                         "frequencies and gain without a benefit",
                         length_, original)
               : message("YaRN is always active: contexts within the trained {} get stretched "
                         "frequencies too",
                         original),
        within ? "omit the scaling for short contexts"
               : "omit the scaling if long contexts are not needed",
        scaling_number(layer, "factor"), &layer);
  }

  // Scaled layers that never see as far as the trained length gain nothing from the scaling.
  void hidden_by_window() {
    bool any = false, all_hidden = true;
    double window = 0, original = 0;
    for (const auto& layer : spec_.layers) {
      const Scaling* scaling = scaling_of(layer);
      if (!layer.rotary || !scaling || is_any<Proportional>(*scaling)) continue;
      any = true;
      const double trained = scaling_number(layer, "original_context");
      const auto& a = layer.attention;
      const bool sees_less = a.left && trained > 0 && static_cast<double>(*a.left + 1) <= trained;
      all_hidden = all_hidden && sees_less;
      if (sees_less) window = static_cast<double>(*a.left + 1), original = trained;
    }
    if (any && all_hidden)
      add(Severity::warning, "scaling_hidden_by_window",
          {"every scaled layer sees at most {} tokens, less than the trained {}: the scaling "
           "changes frequencies without extending the context",
           window, original},
          "check which layers the scaling should apply to", window);
  }

  void table() {
    if (!spec_.trained_context || spec_.context.origin != Origin::user) return;
    double limit =
        static_cast<double>(std::max(*spec_.trained_context, spec_.stated_context.value_or(0)));
    for (const auto& layer : spec_.layers)
      if (layer.rotary)
        limit = std::max(
            limit, scaling_number(layer, "factor") * static_cast<double>(*spec_.trained_context));
    // Learned rows and kept sinusoids have findings of their own.
    if (std::ranges::any_of(spec_.input,
                            [](const InputEncoding& e) { return e.positions.has_value(); }))
      return;
    if (static_cast<double>(length_) > limit)
      add(Severity::warning, "context_beyond_table",
          {"the context of {} is longer than the {} positions that the file states", length_,
           limit},
          "scale positions, or use at most the trained length", limit);
  }

  const ModelSpec& spec_;
  Diagnostics& report_;
  Index length_;
};

}  // namespace

std::vector<Finding> doctor(const ModelSpec& spec) {
  Diagnostics report;
  report.add(spec.findings);
  Doctor(spec, report).run();
  find_implausible(spec, report);
  find_input_risks(spec, report);
  find_table_faults(spec, report);
  return report.take();
}

}  // namespace posenc::v0
