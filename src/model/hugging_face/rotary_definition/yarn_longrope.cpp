// SPDX-License-Identifier: Apache-2.0
// YaRN and LongRoPE in a RotaryWriter: what transformers' _compute_yarn_parameters and
// _compute_longrope_parameters take from a dictionary.
#include <cmath>

#include "model/hugging_face/rotary_definition/writer.h"
#include "posenc/scaling/correction.h"

namespace posenc::inline v0::hf {
namespace {

constexpr const char* kRatio = "max_position_embeddings / original_max_position_embeddings";
constexpr const char* kGains[] = {"short_mscale", "long_mscale"};
// PhiMoE's forward makes its frequencies anew without a length: the long list never counts, and
// only the gain switches (transformers 5.23, modeling_phimoe.py).
constexpr const char* kOneList = "the forward takes short_factor at every length";

}  // namespace

bool RotaryWriter::yarn() {
  out_.encoding.begin("yarn");
  for (const char* key : {"short_factor", "long_factor"})
    if (const Value* v = dict_.find(key))
      view_.warn("yarn_with_lists",
                 {"rope_type yarn with {}: old Phi files mean longrope, but {class} computes YaRN "
                  "and ignores the list",
                  key},
                 *v, "write rope_type longrope to use the lists");
  const auto original = take("original_max_position_embeddings");
  if (original) out_.original_context = original->value.as_integer();
  const auto factor = yarn_factor(original);
  if (factor) {
    check_factor(*factor);
    field("factor", *factor);
  }
  if (original) field("original_context", *original);
  const bool ramp = yarn_ramp(factor);
  const bool gain = yarn_gain(factor ? factor->value.as_number() : 1);
  return original && factor && ramp && gain;
}

// A null is the ratio of the lengths.
std::optional<Value> RotaryWriter::yarn_factor(const std::optional<Value>& original) {
  const Value* stated = dict_.find("factor");
  if (!stated || !stated->value.is_null() || assumed("factor")) {
    const auto factor = take("factor");
    if (factor && original) check_ratio(*factor, *original);
    return factor;
  }
  if (!original) return std::nullopt;
  const auto longest = number_of(view_.value("max_position_embeddings"));
  if (!longest)
    return view_.error("missing_key", "factor is null, and there is no max_position_embeddings",
                       *stated, "state factor");
  const double ratio = *longest / original->value.as_number();
  view_.warn(
      "missing_key",
      {"factor is null: transformers 5 uses the ratio of the lengths, {}; version 4 fails", ratio},
      *stated, "state factor", ratio);
  return derived(ratio, kRatio);
}

bool RotaryWriter::yarn_ramp(const std::optional<Value>& factor) {
  double beta[2] = {32, 1};
  const char* names[2] = {"beta_fast", "beta_slow"};
  bool fine = true;
  for (int i = 0; i < 2; ++i) {
    const Value* v = dict_.find(names[i]);
    if (v && truthy(v->value)) {
      const auto b = take(names[i]);
      fine = fine && b;
      if (!b) continue;
      beta[i] = b->value.as_number();
      field(names[i], *b);
    } else {
      field(names[i], {beta[i], Origin::class_default,
                       v ? "transformers replaces null and 0 by its default" : "transformers"});
    }
  }
  const bool truncate = yarn_truncate(factor);
  if (fine) check_ramp(beta[0], beta[1], truncate);
  return fine;
}

bool RotaryWriter::yarn_truncate(const std::optional<Value>& factor) {
  Value said{true, Origin::class_default, "transformers"};
  if (const Value* v = dict_.find("truncate")) {
    const bool on = truthy(v->value);
    said = {on, v->origin, v->where};
    if (!v->value.is_bool())
      view_.warn("wrong_type",
                 {"truncate must be true or false, got {}: transformers reads it as {}", v->value,
                  Json(on)},
                 *v, "write true or false");
    if (nested_ && !on) {
      view_.warn("truncate_ignored",
                 "transformers reads truncate only beside the layer types, so a nested false is "
                 "ignored and the ramp is rounded",
                 *v, "if the model was trained with truncate false, llama.cpp runs it wrongly");
      said = {true, Origin::class_default, "transformers ignores a nested truncate"};
    }
  }
  field("truncate", said);
  if (said.value.as_bool()) return true;
  view_.note(
      "truncate_rounded", "truncate is false, but llama.cpp has no such key and rounds the ramp",
      said,
      {"other frequencies there{}",
       factor ? message(", up to a factor between 1 and {}", factor->value.as_number()) : ""});
  return false;
}

void RotaryWriter::check_ramp(double fast, double slow, bool truncate) {
  if (fast <= slow) {
    const Value *upper = dict_.find("beta_fast"), *lower = dict_.find("beta_slow");
    const Value* stated = upper ? upper : lower;
    view_.warn("range_reversed",
               {"beta_fast {} is not above beta_slow {}: {}", fast, slow,
                fast == slow ? "the ramp is a step" : "the ramp is reversed"},
               stated ? stated->where : view_.where(), "exchange the two; 32 and 1 are usual",
               fast - slow);
    return;
  }
  if (!out_.original_context || pairs_ == 0 || base_ == 0) return;  // refused already
  const auto [low, high] = correction_range(
      {base_, 2 * pairs_}, static_cast<double>(*out_.original_context), fast, slow, truncate);
  if (!(high < low)) return;
  const Value* at = dict_.find("original_max_position_embeddings");
  view_.warn("range_reversed",
             {"the ramp runs from pair {} down to {}: transformers scales no pair, ggml scales all "
              "pairs beyond",
              low, high},
             at ? at->where : view_.where(),
             "state the length of the pre-training, which must be above 2 pi", high - low);
}

// The gain: attention_factor, or the ratio of mscale and mscale_all_dim where both stand, or
// 0.1 ln(factor) + 1, which one of the two alone does not change.
bool RotaryWriter::yarn_gain(double factor) {
  const Value *m = dict_.find("mscale"), *all = dict_.find("mscale_all_dim");
  const bool has_m = m && truthy(m->value), has_all = all && truthy(all->value);
  const bool logits = view_.rules().logit_factor;
  const double log = factor > 1 ? 0.1 * std::log(factor) : 0;
  if (const auto a = take("attention_factor")) {
    field("attention_factor", *a);
    const bool both = has_m && has_all && m->value.is_number() && all->value.is_number();
    const double ratio =
        both ? (log * m->value.as_number() + 1) / (log * all->value.as_number() + 1) : log + 1;
    const double gain = a->value.as_number();
    if ((has_m || (has_all && !logits)) && std::abs(gain - ratio) > 1e-6 * ratio)
      view_.warn("key_ignored",
                 {"{} is ignored, because attention_factor, {}, sets the gain",
                  has_m ? "mscale" : "mscale_all_dim", gain},
                 (has_m ? m : all)->where, "keep the one that is right", gain);
    return true;
  }
  if (!absent("attention_factor")) return false;
  if (has_m && has_all) {
    const bool fine = take_optional("mscale");
    return take_optional("mscale_all_dim") && fine;
  }
  if (has_m)
    view_.warn("key_ignored", "mscale alone is ignored: it needs mscale_all_dim", *m,
               "state both, or attention_factor");
  else if (has_all && factor > 1)
    view_.warn(
        "key_ignored",
        {"mscale_all_dim alone does not change cos and sin: it needs mscale, and the gain is that "
         "of the factor, {}{}",
         log + 1,
         logits ? "; the softmax scale includes it. DeepSeek's own code uses 1 for a missing mscale"
                : ""},
        *all, "state both, or attention_factor", log + 1);
  return true;
}

bool RotaryWriter::longrope() {
  out_.encoding.begin("longrope");
  const bool gains = rules().mscales, at_once = rules().table_at_once;
  const bool fine = !gains || states_gains();
  const auto shorter = take("short_factor");
  const auto longer = take("long_factor");
  const auto original =
      old_name_lacks_original() ? std::nullopt : take("original_max_position_embeddings");
  if (!fine || !shorter || !longer || !original) {
    if (!gains && !at_once) (void)longrope_factor(original);
    return false;
  }
  field("short_factor", *shorter);
  field("long_factor", gains ? derived(shorter->value, kOneList) : *longer);
  field("original_context", *original);
  out_.original_context = original->value.as_integer();
  if (at_once) return longrope_of_table(*out_.original_context);
  field("switch_rule", {"per_call", Origin::class_default, "transformers decides at every call"});
  if (!gains) return longrope_factor(original);
  for (const char* key : kGains) {
    const auto gain = number({key, key});
    if (!gain) return false;
    field(key, *gain);
  }
  return true;
}

bool RotaryWriter::longrope_factor(const std::optional<Value>& original) {
  auto factor = take("factor");
  bool fine = factor || absent("factor");
  if (factor) {
    check_factor(*factor);
    if (original) check_ratio(*factor, *original);
  } else if (fine) {
    const auto longest = view_.integer("max_position_embeddings", 1, kUnbounded / 4, true);
    fine = longest && original;
    if (fine && original->origin != Origin::derived)
      check_original(*original, static_cast<double>(longest->value));
    if (fine)
      factor = derived(static_cast<double>(longest->value) / original->value.as_number(), kRatio);
  }
  if (factor) field("factor", *factor);
  return take_optional("attention_factor") && fine;
}

bool RotaryWriter::states_gains() {
  for (const char* key : kGains)
    if (const Value* v = dict_.find(key); !v || !v->value.is_number())
      return view_.error(v ? "wrong_type" : "missing_key",
                         {"{} must be a number: {class} refuses longrope without it{}", key,
                          v ? message(", got {}", v->value) : ""},
                         v ? v->where : place(key), "state short_mscale and long_mscale");
  return true;
}

// Phi-3 makes longrope of su after it has taken the length beside the dictionary for the types that
// need it: transformers 4 reads such a file, 5.23 fails on loading (the real Phi-3.5-vision's too).
bool RotaryWriter::old_name_lacks_original() {
  const Value* type = dict_.find("rope_type");
  if (!type || type->origin != Origin::derived || dict_.find("original_max_position_embeddings") ||
      !(view_.stated("original_max_position_embeddings") ||
        view_.value("max_position_embeddings")) ||
      assumed("original_context"))
    return false;
  const std::string renamed = type->where.substr(type->where.rfind('(') + 1);
  view_.error("missing_key",
              {"rope_type {}, and under that name transformers 5 fails on loading: it looks for "
               "original_max_position_embeddings inside the dictionary only",
               renamed.substr(0, renamed.rfind(')'))},
              place("original_max_position_embeddings"),
              "write rope_type longrope, which takes the one beside it too, or --assume "
              "longrope.original_context=VALUE");
  return true;
}

// MiniCPM-4 makes its table for max_position_embeddings at once, by the list that such a length
// has; a longer text makes it anew, by the long one.
bool RotaryWriter::longrope_of_table(Index original) {
  const auto longest = view_.integer("max_position_embeddings", 1, kUnbounded / 4, true);
  if (!longest) return false;
  field("switch_rule", derived(longest->value > original ? "always_long" : "per_call",
                               "the table is made for max_position_embeddings at once"));
  const double ratio = static_cast<double>(longest->value) / static_cast<double>(original);
  field("factor", derived(ratio, kRatio));
  if (ratio < 1)
    field("attention_factor",
          derived(std::sqrt(1 + std::log(ratio) / std::log(static_cast<double>(original))),
                  "sqrt(1 + ln(factor) / ln(original_max_position_embeddings))"));
  return true;
}

}  // namespace posenc::v0::hf
