// SPDX-License-Identifier: Apache-2.0
// The scaling of a RotaryWriter: what transformers' ROPE_INIT_FUNCTIONS take from a dictionary.
#include <algorithm>
#include <iterator>

#include "model/hugging_face/rotary_definition/writer.h"

namespace posenc::inline v0::hf {
const RotaryWriter::TypeReader* RotaryWriter::reader_of(std::string_view type) {
  using W = RotaryWriter;
  static constexpr TypeReader readers[] = {
      {.type = "dynamic", .read = &W::dynamic},
      {.type = "yarn", .read = &W::yarn},
      {.type = "llama3", .check = &W::check_llama3},
      {.type = "longrope", .read = &W::longrope},
      {.type = "proportional", .read = &W::proportional},
      {.type = "ntk", .read = &W::ntk},
      {.type = "qwen_dynamic", .check = &W::hold_length},
  };
  const auto* at = std::ranges::find(readers, type, &TypeReader::type);
  return at == std::end(readers) ? nullptr : at;
}

// All keys are looked at, so that all that is wrong is said. A whole number is a trained length.
bool RotaryWriter::scaling() {
  const Value* type = dict_.find("rope_type");
  const bool scaled = out_.type != "default";
  out_.where = type && scaled ? type->where : view_.class_name();
  if (!scaled) return true;
  const TypeReader* reader = reader_of(out_.type);
  if (reader && reader->read) return (this->*reader->read)();
  out_.encoding.begin(out_.type);
  Dict fields;
  bool fine = true;
  for (const ScalingKey& k : type_->keys) {
    const auto v = read(k);
    if (v) fields.set(k.field, *v);
    fine = fine && (v || (!k.required && absent(k.key)));
  }
  if (const Value* factor = fields.find("factor")) check_factor(*factor);
  if (!fine) return false;
  for (const ScalingKey& k : type_->keys)
    if (const Value* v = fields.find(k.field)) {
      field(k.field, *v);
      if (k.kind == KeyKind::whole) out_.original_context = v->value.as_integer();
    }
  if (reader && reader->check) (this->*reader->check)(fields);
  return true;
}

void RotaryWriter::check_factor(const Value& v) {
  const double f = v.value.as_number();
  if (f < 1)
    view_.warn("factor_below_one", {"factor {} is below 1: it would shorten the context", f}, v, "",
               f);
}

// dynamic NTK: base' = base ((s n / M - (s - 1))^(d / (d - 2)), n the longest row of the call and
// M max_position_embeddings. HunYuan's alpha makes it static.
bool RotaryWriter::dynamic() {
  const Value* alpha = dict_.find("alpha");
  fixed_alpha_ = rules().alpha && alpha && truthy(alpha->value);
  if (fixed_alpha_) {
    out_.encoding.begin("ntk");
    const auto a = number({"alpha", "factor"});
    if (!dict_.find("factor"))
      return view_.error("missing_key",
                         "rope_type dynamic needs factor, which counts for nothing beside alpha: "
                         "transformers refuses the file",
                         place("factor"), "state factor 1.0");
    if (!a) return false;
    field("factor", *a);
    field("formula", {"alpha", Origin::class_default, view_.class_name() + " reads alpha"});
    return true;
  }
  out_.encoding.begin("dynamic");
  const auto factor = take("factor");
  if (factor) check_factor(*factor);
  const auto longest = view_.integer("max_position_embeddings", 1, kUnbounded / 4, true);
  if (!factor || !longest) return false;
  field("factor", *factor);
  field("trained_length", {longest->value, longest->origin, longest->where});
  field("length_rule",
        {"per_call", Origin::class_default, view_.program() + " decides at every call"});
  out_.original_context = longest->value;
  return true;
}

// Qwen-1: the length of the prompt decides, and is kept while decoding.
void RotaryWriter::hold_length(const Dict&) {
  field("length_rule", {"held", Origin::class_default, view_.class_name() + " keeps the prompt's"});
}

// GTE, after kexue.fm/archives/9706: fixed, or mixed where the file states an exponent.
bool RotaryWriter::ntk() {
  out_.encoding.begin("ntk");
  const auto factor = take("factor");
  const bool mixes = !absent("mixed_b");
  const auto exponent = mixes ? take("mixed_b") : std::nullopt;
  if (!factor || (mixes && !exponent)) return false;
  if (factor->value.as_number() < 1)
    return view_.error("factor_below_one",
                       {"factor must be 1 or more, got {}: below it {class} scales long texts only",
                        factor->value},
                       *factor, "", factor->value.as_number());
  field("factor", *factor);
  field("formula",
        derived(mixes ? "mixed" : "fixed", mixes ? dict_.find("mixed_b")->where
                                                 : view_.class_name() + ": no mixed_b is stated"));
  if (mixes) field("mixed_b", *exponent);
  return true;
}

void RotaryWriter::check_ratio(const Value& factor, const Value& original) {
  const auto longest = number_of(view_.value("max_position_embeddings"));
  if (!longest) return;
  const double ratio = *longest / original.value.as_number();
  if (ratio == 1) {
    // A length that was filled in has a finding of its own.
    if (factor.value.as_number() != 1 && original.origin != Origin::derived)
      check_original(original, *longest);
    return;
  }
  if (ratio != factor.value.as_number())
    view_.warn("factor_not_ratio",
               {"factor is {}, but max_position_embeddings / original_max_position_embeddings is "
                "{}; transformers uses the factor",
                factor.value.as_number(), ratio},
               factor, "make them agree, because other programs use the ratio", ratio);
}

// One that is not below the longest text: nothing is stretched, or the longest text is understated.
void RotaryWriter::check_original(const Value& original, double longest) {
  if (original.value.as_number() < longest) return;
  view_.warn("factor_not_ratio",
             {"original_max_position_embeddings {} is not below max_position_embeddings {}",
              original.value, longest},
             original,
             original.origin == Origin::derived
                 ? "state original_max_position_embeddings: the length of the pre-training"
                 : "state the length of the pre-training, and the longest text as "
                   "max_position_embeddings",
             original.value.as_number());
}

void RotaryWriter::check_llama3(const Dict& fields) {
  const Value &low = *fields.find("low_freq_factor"), &high = *fields.find("high_freq_factor");
  const Value& original = *fields.find("original_context");
  const double ramp = high.value.as_number() - low.value.as_number();
  const bool published = ramp == 0 && rules().step;
  if (ramp <= 0)
    report().add(
        published ? Severity::note : Severity::warning, "range_reversed",
        message("high_freq_factor {} is not above low_freq_factor {}{}", high.value, low.value,
                ramp == 0 ? ": the ramp is a step" : ": there is no ramp, frequencies jump"),
        high.where,
        published ? "nothing to do: Llama-4-Scout is published so"
                  : "Llama-3.1 has low_freq_factor 1 and high_freq_factor 4",
        ramp);
  if (const auto longest = number_of(view_.value("max_position_embeddings")))
    check_original(original, *longest);
}

bool RotaryWriter::proportional() {
  out_.encoding.begin("proportional");
  auto fraction = take("partial_rotary_factor");
  if (fraction && fraction->value.as_number() > 1) {
    view_.error("partial_out_of_range",
                {"partial_rotary_factor must be from 0 to 1, got {}", fraction->value}, *fraction,
                "write the fraction of the pairs that rotate", fraction->value.as_number());
    fraction.reset();
  } else if (!fraction && absent("partial_rotary_factor")) {
    view_.note(
        "missing_key",
        "proportional without partial_rotary_factor: the default 1 is used, so every pair rotates",
        place("partial_rotary_factor"), "state partial_rotary_factor", 1.0);
    fraction = Value{1.0, Origin::class_default, "transformers"};
  }
  const Value* stated = dict_.find("factor");
  if (stated && stated->value.is_null())
    return view_.wrong_type("factor is null, and transformers divides by it", *stated,
                            "state factor, or remove the key");
  const auto factor = take("factor");
  if (!fraction || (stated && !factor)) return false;
  field("fraction", *fraction);
  field("factor", factor.value_or(Value{1.0, Origin::class_default, "transformers"}));
  return true;
}

// DeepSeek's factor on the softmax scale: for any type but default with a truthy mscale_all_dim.
void RotaryWriter::logit_factor() {
  if (!view_.rules().logit_factor || out_.type == "default") return;
  const Value *all = dict_.find("mscale_all_dim"), *factor = dict_.find("factor");
  if (!all || !all->value.is_number() || !truthy(all->value)) return;
  if (!factor || !factor->value.is_number()) {
    view_.error("missing_key", "mscale_all_dim needs factor for the factor on the logits",
                place("factor"), "state factor");
    return;
  }
  if (factor->value.as_number() <= 1) return;
  out_.encoding.begin("mscale_logit");
  field("factor", *factor);
  field("mscale_all_dim", *all);
}

}  // namespace posenc::v0::hf
