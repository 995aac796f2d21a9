// SPDX-License-Identifier: Apache-2.0
// The scaling of a RotaryWriter: what transformers' ROPE_INIT_FUNCTIONS take from a dictionary.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/rotary_text.h"

namespace posenc::hf {

bool RotaryWriter::scaling() {
  if (out_.type == "default") {
    out_.where = view_.class_name();
    return true;
  }
  const Value* type = dict_.find("rope_type");
  out_.where = type ? type->where : view_.class_name();
  if (out_.type == "linear") return linear();
  if (out_.type == "dynamic") return dynamic();
  if (out_.type == "qwen_dynamic") return qwen_dynamic();
  if (out_.type == "yarn") return yarn();
  if (out_.type == "longrope") return longrope();
  if (out_.type == "llama3") return llama3();
  return proportional();
}

void RotaryWriter::check_factor(const Value& v, std::string_view key) {
  const double f = v.value.as_number();
  if (f < 1)
    reading().warn("factor_below_one",
                   std::string(key) + " " + number_text(f) +
                       " is below 1: it would shorten the context, not stretch it",
                   v.where, "state new length / trained length", f);
}

bool RotaryWriter::linear() {
  begin("linear", true);
  const auto factor = number("factor", "factor", {true, 0});
  if (!factor) return false;
  check_factor(*factor, "factor");
  field("factor", *factor);
  return true;
}

// dynamic NTK: base' = base ((s n / M - (s - 1))^(d / (d - 2)), n the longest row of the call and
// M max_position_embeddings. HunYuan's alpha makes it static.
bool RotaryWriter::dynamic() {
  const Value* alpha = dict_.find("alpha");
  if (alpha && truthy(alpha->value) && view_.class_name().rfind("HunYuan", 0) == 0) {
    begin("ntk", true);
    const auto a = number("alpha", "factor", {true, 0});
    if (!a) return false;
    if (!dict_.find("factor")) {
      reading().error("missing_key",
                      "rope_type dynamic needs factor, which counts for nothing beside alpha: "
                      "transformers refuses the file",
                      place("factor"), "state factor 1.0");
      return false;
    }
    field("factor", *a);
    field("formula", {"alpha", Origin::class_default, view_.class_name() + " reads alpha"});
    fixed_alpha_ = true;
    return true;
  }
  begin("dynamic", true);
  const auto factor = number("factor", "factor", {true, 0});
  if (!factor) return false;
  check_factor(*factor, "factor");
  const auto longest = view_.integer("max_position_embeddings", 1, kUnbounded / 4, true);
  if (!longest) return false;
  field("factor", *factor);
  field("trained_length", {longest->value, longest->origin, longest->where});
  field("length_rule",
        {"per_call", Origin::class_default, view_.program() + " decides at every call"});
  out_.original_context = longest->value;
  return true;
}

// Qwen-1: the length of the prompt decides, and is kept while decoding.
bool RotaryWriter::qwen_dynamic() {
  begin("qwen_dynamic", true);
  const auto trained = whole("trained_length", "trained_length", true);
  if (!trained) return false;
  field("trained_length", *trained);
  field("length_rule", {"held", Origin::class_default, view_.class_name() + " keeps the prompt's"});
  out_.original_context = trained->value.as_integer();
  return true;
}

void RotaryWriter::check_ratio(const Value& factor, const Value& original) {
  const auto longest = view_.value("max_position_embeddings");
  if (!longest || !longest->value.is_number()) return;
  const double ratio = longest->value.as_number() / original.value.as_number();
  if (ratio == factor.value.as_number() || ratio == 1) return;
  reading().warn("factor_not_ratio",
                 "factor is " + number_text(factor.value.as_number()) +
                     ", and max_position_embeddings / original_max_position_embeddings is " +
                     number_text(ratio) + "; the factor counts",
                 factor.where, "make them agree: other programs take the ratio", ratio);
}

bool RotaryWriter::yarn() {
  begin("yarn", true);
  for (const char* key : {"short_factor", "long_factor"})
    if (const Value* v = dict_.find(key))
      reading().warn("yarn_with_lists",
                     std::string("rope_type yarn with ") + key +
                         ": Phi's old files mean longrope by it, but " + view_.class_name() +
                         " computes YaRN and ignores the list",
                     v->where, "write rope_type longrope if the lists are meant");
  const auto original = whole("original_max_position_embeddings", "original_context", true);
  if (!original) return false;
  auto factor = number("factor", "factor", {false, 0});
  if (!factor) {
    const Value* null = dict_.find("factor");
    if (!null || !null->value.is_null()) {
      if (!null) (void)number("factor", "factor", {true, 0});
      return false;
    }
    const auto longest = view_.value("max_position_embeddings");
    if (!longest || !longest->value.is_number()) {
      reading().error("missing_key", "factor is null, and there is no max_position_embeddings",
                      null->where, "state factor");
      return false;
    }
    factor = Value{longest->value.as_number() / original->value.as_number(), Origin::derived,
                   "max_position_embeddings / original_max_position_embeddings"};
    reading().warn("missing_key",
                   "factor is null: transformers 5 takes the ratio of the lengths, " +
                       number_text(factor->value.as_number()) + "; version 4 fails",
                   null->where, "state factor", factor->value.as_number());
  } else {
    check_ratio(*factor, *original);
  }
  check_factor(*factor, "factor");
  field("factor", *factor);
  field("original_context", *original);
  out_.original_context = original->value.as_integer();
  return yarn_options(factor->value.as_number());
}

namespace {
// The ends of the ramp, reference 4.5.
double correction(double turns, double width, double base, double length) {
  return width * std::log(length / (2 * std::numbers::pi * turns)) / (2 * std::log(base));
}
}  // namespace

bool RotaryWriter::yarn_options(double factor) {
  double beta[2] = {32, 1};
  const char* names[2] = {"beta_fast", "beta_slow"};
  for (int i = 0; i < 2; ++i) {
    const Value* v = dict_.find(names[i]);
    if (v && truthy(v->value)) {
      const auto b = number(names[i], names[i], {false, 0});
      if (!b) return false;
      beta[i] = b->value.as_number();
      field(names[i], *b);
    } else {
      field(names[i], {beta[i], Origin::class_default,
                       v ? "transformers takes null and 0 for its default" : "transformers"});
    }
  }
  bool truncate = true;
  Value said{true, Origin::class_default, "transformers"};
  if (const Value* v = dict_.find("truncate")) {
    said = *v;
    said.value = truthy(v->value);
    if (!v->value.is_bool())
      reading().warn("wrong_type",
                     "truncate must be true or false, got " + shown(v->value) +
                         ": transformers takes it as " + (truthy(v->value) ? "true" : "false"),
                     v->where, "write true or false");
    if (nested_ && !truthy(v->value)) {
      reading().warn("truncate_ignored",
                     "truncate is looked up beside the layer types, so that a nested false is "
                     "ignored: the ramp is rounded",
                     v->where, "a model trained with truncate false is served wrongly here");
      said = {true, Origin::class_default, "transformers ignores a nested truncate"};
    }
    truncate = said.value.as_bool();
  }
  if (!truncate)
    reading().note("truncate_rounded",
                   "truncate is false: llama.cpp has no such key and rounds the ramp", said.where,
                   "other frequencies there, up to a factor between 1 and " + number_text(factor));
  field("truncate", said);
  double low = correction(beta[0], 2.0 * static_cast<double>(pairs_), base_,
                          static_cast<double>(*out_.original_context));
  double high = correction(beta[1], 2.0 * static_cast<double>(pairs_), base_,
                           static_cast<double>(*out_.original_context));
  if (truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, 2.0 * static_cast<double>(pairs_) - 1);
  if (high < low) {
    const Value* at = dict_.find("original_max_position_embeddings");
    if (const Value* fast = dict_.find("beta_fast"); fast && beta[0] < beta[1]) at = fast;
    reading().warn("range_reversed",
                   "the ramp runs from pair " + number_text(low) + " down to " + number_text(high) +
                       ": transformers scales no pair at all, ggml all beyond",
                   at ? at->where : view_.where(),
                   "beta_fast must be above beta_slow and the original length above 2 pi",
                   high - low);
  }
  return yarn_gain(factor);
}

// The gain: attention_factor, or the ratio of mscale and mscale_all_dim where both stand, or
// 0.1 ln(factor) + 1, which one of the two alone does not change.
bool RotaryWriter::yarn_gain(double factor) {
  const Value *m = dict_.find("mscale"), *all = dict_.find("mscale_all_dim");
  const bool has_m = m && truthy(m->value), has_all = all && truthy(all->value);
  const bool logits = view_.entry().find("logit_factor") != nullptr;
  if (const auto a = number("attention_factor", "attention_factor", {false, 0})) {
    field("attention_factor", *a);
    const bool both = has_m && has_all && m->value.is_number() && all->value.is_number();
    const double log = factor > 1 ? 0.1 * std::log(factor) : 0;
    const double ratio =
        both ? (log * m->value.as_number() + 1) / (log * all->value.as_number() + 1) : log + 1;
    const double gain = a->value.as_number();
    if ((has_m || (has_all && !logits)) && std::abs(gain - ratio) > 1e-6 * ratio)
      reading().warn("key_ignored",
                     std::string(has_m ? "mscale" : "mscale_all_dim") +
                         " is not read beside attention_factor, " + number_text(gain) +
                         ", which is the gain",
                     (has_m ? m : all)->where, "keep the one that is right", gain);
    return true;
  }
  if (const Value* v = dict_.find("attention_factor"); v && !v->value.is_null()) return false;
  if (has_m && has_all) {
    const auto a = number("mscale", "mscale", {false, 0});
    const auto b = number("mscale_all_dim", "mscale_all_dim", {false, 0});
    if (!a || !b) return false;
    field("mscale", *a);
    field("mscale_all_dim", *b);
  } else if (has_m) {
    reading().warn("key_ignored", "mscale alone is ignored: it needs mscale_all_dim", m->where,
                   "state both, or attention_factor");
  } else if (has_all && factor > 1) {
    const double gain = 0.1 * std::log(factor) + 1;
    reading().warn("key_ignored",
                   "mscale_all_dim alone does not change cos and sin: it needs mscale, and the "
                   "gain is that of the factor, " +
                       number_text(gain) +
                       (logits ? "; the softmax scale has it. DeepSeek's own code takes 1 for a "
                                 "missing mscale"
                               : ""),
                   all->where, "state both, or attention_factor", gain);
  }
  return true;
}

// PhiMoE's forward makes its frequencies anew without a length: the long list never counts, and
// only the gain switches (transformers 5.23, modeling_phimoe.py).
constexpr const char* kOneList = "the forward takes short_factor at every length";

bool RotaryWriter::longrope() {
  begin("longrope", true);
  const Json* rule = view_.entry().find("rope");
  const bool gains = rule && rule->find("mscales");
  if (gains)
    for (const char* key : {"short_mscale", "long_mscale"})
      if (const Value* v = dict_.find(key); !v || !v->value.is_number()) {
        reading().error(v ? "wrong_type" : "missing_key",
                        std::string(key) + " must be a number: " + view_.class_name() +
                            " refuses longrope without it" + (v ? ", got " + shown(v->value) : ""),
                        v ? v->where : place(key), "state short_mscale and long_mscale");
        return false;
      }
  const auto shorter = list("short_factor", "short_factor", pairs_);
  const auto longer = list("long_factor", "long_factor", pairs_);
  const auto original = whole("original_max_position_embeddings", "original_context", true);
  if (!shorter || !longer || !original) return false;
  field("short_factor", *shorter);
  field("long_factor", gains ? Value{shorter->value, Origin::derived, kOneList} : *longer);
  field("original_context", *original);
  out_.original_context = original->value.as_integer();
  if (rule && rule->find("table_at_once")) return longrope_of_table(original->value.as_integer());
  field("switch_rule", {"per_call", Origin::class_default, "transformers decides at every call"});
  if (gains) return longrope_of_gains();
  auto factor = number("factor", "factor", {false, 0});
  if (const Value* v = dict_.find("factor"); v && !factor && !v->value.is_null()) return false;
  if (factor) {
    check_factor(*factor, "factor");
    check_ratio(*factor, *original);
  } else {
    const auto longest = view_.integer("max_position_embeddings", 1, kUnbounded / 4, true);
    if (!longest) return false;
    factor = Value{static_cast<double>(longest->value) / original->value.as_number(),
                   Origin::derived, "max_position_embeddings / original_max_position_embeddings"};
  }
  field("factor", *factor);
  if (const auto a = number("attention_factor", "attention_factor", {false, 0}))
    field("attention_factor", *a);
  else if (const Value* v = dict_.find("attention_factor"); v && !v->value.is_null())
    return false;
  return true;
}

bool RotaryWriter::longrope_of_gains() {
  for (const char* key : {"short_mscale", "long_mscale"}) {
    const auto gain = number(key, key, {true, 0});
    if (!gain) return false;
    field(key, *gain);
  }
  return true;
}

// MiniCPM-4 makes its table for max_position_embeddings at once, by the list that such a length
// has; a longer text makes it anew, by the long one.
bool RotaryWriter::longrope_of_table(Index original) {
  const auto longest = view_.integer("max_position_embeddings", 1, kUnbounded / 4, true);
  if (!longest) return false;
  const bool over = longest->value > original;
  field("switch_rule", {over ? "always_long" : "per_call", Origin::derived,
                        "the table is made for max_position_embeddings at once"});
  const double ratio = static_cast<double>(longest->value) / static_cast<double>(original);
  field("factor",
        {ratio, Origin::derived, "max_position_embeddings / original_max_position_embeddings"});
  if (ratio < 1)
    field("attention_factor",
          {std::sqrt(1 + std::log(ratio) / std::log(static_cast<double>(original))),
           Origin::derived, "sqrt(1 + ln(factor) / ln(original_max_position_embeddings))"});
  return true;
}

bool RotaryWriter::llama3() {
  begin("llama3", true);
  const auto factor = number("factor", "factor", {true, 0});
  const auto low = number("low_freq_factor", "low_freq_factor", {true, 0});
  const auto high = number("high_freq_factor", "high_freq_factor", {true, 0});
  const auto original = whole("original_max_position_embeddings", "original_context", true);
  if (!factor || !low || !high || !original) return false;
  check_factor(*factor, "factor");
  const double ramp = high->value.as_number() - low->value.as_number();
  const bool scout = ramp == 0 && view_.class_name() == "Llama4TextConfig";
  if (ramp <= 0)
    reading().add(scout ? Severity::note : Severity::warning, "range_reversed",
                  "high_freq_factor " + shown(high->value) + " is not above low_freq_factor " +
                      shown(low->value) +
                      (ramp == 0 ? ": the ramp is a step" : ": there is no ramp, frequencies jump"),
                  high->where,
                  scout ? "nothing to do: Llama-4-Scout is published so"
                        : "Llama-3.1 has low_freq_factor 1 and high_freq_factor 4",
                  ramp);
  const auto longest = view_.value("max_position_embeddings");
  if (longest && longest->value.is_number() &&
      original->value.as_number() >= longest->value.as_number())
    reading().warn("factor_not_ratio",
                   "original_max_position_embeddings " + shown(original->value) +
                       " is not below max_position_embeddings " + shown(longest->value),
                   original->where,
                   original->origin == Origin::derived
                       ? "state original_max_position_embeddings: the length of the pre-training"
                       : "state the length of the pre-training",
                   original->value.as_number());
  field("factor", *factor);
  field("low_freq_factor", *low);
  field("high_freq_factor", *high);
  field("original_context", *original);
  out_.original_context = original->value.as_integer();
  return true;
}

bool RotaryWriter::proportional() {
  begin("proportional", true);
  auto fraction = number("partial_rotary_factor", "fraction", {false, -1e-300});
  if (!fraction) {
    if (const Value* v = dict_.find("partial_rotary_factor"); v && !v->value.is_null())
      return false;
    fraction = Value{1.0, Origin::class_default, "transformers"};
    reading().note("missing_key", "proportional without partial_rotary_factor: 1, every pair turns",
                   place("partial_rotary_factor"), "state partial_rotary_factor", 1.0);
  }
  if (fraction->value.as_number() > 1) {
    reading().error("partial_out_of_range",
                    "partial_rotary_factor must be from 0 to 1, got " + shown(fraction->value),
                    fraction->where, "write the fraction of the pairs that turn",
                    fraction->value.as_number());
    return false;
  }
  field("fraction", *fraction);
  const Value* stated = dict_.find("factor");
  if (stated && stated->value.is_null()) {
    reading().error("wrong_type", "factor is null, and transformers divides by it", stated->where,
                    "state factor, or leave the key out");
    return false;
  }
  const auto factor = number("factor", "factor", {false, 0});
  if (stated && !factor) return false;
  if (factor)
    field("factor", *factor);
  else
    field("factor", {1.0, Origin::class_default, "transformers"});
  return true;
}

// DeepSeek's factor on the softmax scale: for any type but default with a truthy mscale_all_dim.
void RotaryWriter::logit_factor() {
  if (!view_.entry().find("logit_factor") || out_.type == "default") return;
  const Value *all = dict_.find("mscale_all_dim"), *factor = dict_.find("factor");
  if (!all || !all->value.is_number() || !truthy(all->value)) return;
  if (!factor || !factor->value.is_number()) {
    reading().error("missing_key", "mscale_all_dim needs factor for the factor on the logits",
                    place("factor"), "state factor");
    return;
  }
  if (factor->value.as_number() <= 1) return;
  begin("mscale_logit", true);
  field("factor", *factor);
  field("mscale_all_dim", *all);
}

}  // namespace posenc::hf
