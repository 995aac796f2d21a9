// SPDX-License-Identifier: Apache-2.0
// The scaling of a RotaryWriter: what transformers' ROPE_INIT_FUNCTIONS take from a dictionary.
#include "model/hugging_face/rotary_definition/writer.h"

namespace posenc::hf {

bool RotaryWriter::scaling() {
  if (out_.type == "default") {
    out_.where = view_.class_name();
    return true;
  }
  const Value* type = dict_.find("rope_type");
  out_.where = type ? type->where : view_.class_name();
  if (type_->read) return (this->*type_->read)();
  return read_rows();
}

// All keys are looked at, so that all that is wrong is said. A whole number is a trained length.
bool RotaryWriter::read_rows() {
  out_.encoding.begin(type_->scaling);
  Dict fields;
  bool fine = true;
  for (const ScalingKey& k : type_->keys) {
    const auto v = read(k);
    if (v) fields.set(k.field, *v);
    const Value* given = dict_.find(k.key);
    fine = fine && (v || (!k.required && (!given || given->value.is_null())));
  }
  if (const Value* factor = fields.find("factor")) check_factor(*factor);
  if (!fine) return false;
  for (const ScalingKey& k : type_->keys)
    if (const Value* v = fields.find(k.field)) {
      field(k.field, *v);
      if (k.kind == KeyKind::whole) out_.original_context = v->value.as_integer();
    }
  if (type_->check) (this->*type_->check)(fields);
  return true;
}

void RotaryWriter::check_factor(const Value& v) {
  const double f = v.value.as_number();
  if (f < 1)
    report().warn(
        "factor_below_one",
        "factor " + number_text(f) + " is below 1: it would shorten the context, not stretch it",
        v.where, f);
}

// dynamic NTK: base' = base ((s n / M - (s - 1))^(d / (d - 2)), n the longest row of the call and
// M max_position_embeddings. HunYuan's alpha makes it static.
bool RotaryWriter::dynamic() {
  const Value* alpha = dict_.find("alpha");
  if (alpha && truthy(alpha->value) && view_.class_name().rfind("HunYuan", 0) == 0) {
    out_.encoding.begin("ntk");
    fixed_alpha_ = true;
    const auto a = number({"alpha", "factor"});
    const bool stated = dict_.find("factor") != nullptr;
    if (!stated)
      report().error("missing_key",
                     "rope_type dynamic needs factor, which counts for nothing beside alpha: "
                     "transformers refuses the file",
                     place("factor"), "state factor 1.0");
    if (!a || !stated) return false;
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
  const Value* b = dict_.find("mixed_b");
  const bool mixes = b && !b->value.is_null();
  const auto exponent = mixes ? take("mixed_b") : std::nullopt;
  if (!factor || (mixes && !exponent)) return false;
  if (factor->value.as_number() < 1) {
    report().error("factor_below_one",
                   "factor must be 1 or more, got " + shown(factor->value) + ": below it " +
                       view_.class_name() + " scales long texts only",
                   factor->where, factor->value.as_number());
    return false;
  }
  field("factor", *factor);
  field("formula", {mixes ? "mixed" : "fixed", Origin::derived,
                    mixes ? b->where : view_.class_name() + ": no mixed_b is stated"});
  if (mixes) field("mixed_b", *exponent);
  return true;
}

void RotaryWriter::check_ratio(const Value& factor, const Value& original) {
  const auto longest = view_.value("max_position_embeddings");
  if (!longest || !longest->value.is_number()) return;
  const double ratio = longest->value.as_number() / original.value.as_number();
  if (ratio == factor.value.as_number() || ratio == 1) return;
  report().warn("factor_not_ratio",
                "factor is " + number_text(factor.value.as_number()) +
                    ", and max_position_embeddings / original_max_position_embeddings is " +
                    number_text(ratio) + "; the factor counts",
                factor.where, "make them agree: other programs take the ratio", ratio);
}

void RotaryWriter::check_llama3(const Dict& fields) {
  const Value *low = fields.find("low_freq_factor"), *high = fields.find("high_freq_factor");
  const Value* original = fields.find("original_context");
  const double ramp = high->value.as_number() - low->value.as_number();
  const bool scout = ramp == 0 && view_.class_name() == "Llama4TextConfig";
  if (ramp <= 0)
    report().add(scout ? Severity::note : Severity::warning, "range_reversed",
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
    report().warn("factor_not_ratio",
                  "original_max_position_embeddings " + shown(original->value) +
                      " is not below max_position_embeddings " + shown(longest->value),
                  original->where,
                  original->origin == Origin::derived
                      ? "state original_max_position_embeddings: the length of the pre-training"
                      : "state the length of the pre-training",
                  original->value.as_number());
}

bool RotaryWriter::proportional() {
  out_.encoding.begin("proportional");
  const auto fraction = proportional_fraction();
  const Value* stated = dict_.find("factor");
  if (stated && stated->value.is_null()) {
    report().error("wrong_type", "factor is null, and transformers divides by it", stated->where,
                   "state factor, or leave the key out");
    return false;
  }
  const auto factor = take("factor");
  if (!fraction || (stated && !factor)) return false;
  field("fraction", *fraction);
  field("factor", factor ? *factor : Value{1.0, Origin::class_default, "transformers"});
  return true;
}

std::optional<Value> RotaryWriter::proportional_fraction() {
  const auto fraction = take("partial_rotary_factor");
  if (!fraction) {
    if (const Value* v = dict_.find("partial_rotary_factor"); v && !v->value.is_null())
      return std::nullopt;
    report().note("missing_key", "proportional without partial_rotary_factor: 1, every pair turns",
                  place("partial_rotary_factor"), "state partial_rotary_factor", 1.0);
    return Value{1.0, Origin::class_default, "transformers"};
  }
  if (fraction->value.as_number() > 1) {
    report().error("partial_out_of_range",
                   "partial_rotary_factor must be from 0 to 1, got " + shown(fraction->value),
                   fraction->where, "write the fraction of the pairs that turn",
                   fraction->value.as_number());
    return std::nullopt;
  }
  return fraction;
}

// DeepSeek's factor on the softmax scale: for any type but default with a truthy mscale_all_dim.
void RotaryWriter::logit_factor() {
  if (!view_.entry().find("logit_factor") || out_.type == "default") return;
  const Value *all = dict_.find("mscale_all_dim"), *factor = dict_.find("factor");
  if (!all || !all->value.is_number() || !truthy(all->value)) return;
  if (!factor || !factor->value.is_number()) {
    report().error("missing_key", "mscale_all_dim needs factor for the factor on the logits",
                   place("factor"), "state factor");
    return;
  }
  if (factor->value.as_number() <= 1) return;
  out_.encoding.begin("mscale_logit");
  field("factor", *factor);
  field("mscale_all_dim", *all);
}

}  // namespace posenc::hf
