// SPDX-License-Identifier: Apache-2.0
// LongRoPE in a RotaryWriter: what transformers' _compute_longrope_parameters takes from a
// dictionary.
#include <cmath>

#include "model/hugging_face/rotary_definition/writer.h"

namespace posenc::inline v0::hf {
namespace {

constexpr const char* kRatio = "max_position_embeddings / original_max_position_embeddings";
constexpr const char* kGains[] = {"short_mscale", "long_mscale"};
// PhiMoE's forward makes its frequencies anew without a length: the long list never counts, and
// only the gain switches (transformers 5.23, modeling_phimoe.py).
constexpr const char* kOneList = "the forward takes short_factor at every length";

}  // namespace

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
