// SPDX-License-Identifier: Apache-2.0
// Base, scaling type, factor and the YaRN keys, as llama.cpp reads them.
#include <cmath>

#include "model/gguf/hparams.h"

namespace posenc::gguf {
namespace {

Sourced<double> or_default(std::optional<Sourced<double>> v, double absent,
                           const std::string& where) {
  return v ? *v : Sourced<double>{absent, Origin::class_default, where};
}

void read_base(const Architecture& arch, Keys& keys, Hparams& h) {
  h.base = or_default(keys.number("rope.freq_base"), 10000, "llama.cpp");
  if (arch.has("plain_base"))
    h.base = arch.constant(static_cast<double>(arch.number("plain_base", 0)));
  if (!(h.base.value > 0) && h.mode != Mode::none)
    keys.error("theta_not_positive", "rope.freq_base",
               "the base must be positive, got " + number_text(h.base.value),
               "--assume rope.freq_base=10000");
}

void read_factor(const Architecture& arch, Keys& keys, Hparams& h) {
  h.factor = {1, Origin::class_default, "llama.cpp"};
  const char* key = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  const auto v = keys.number(key);
  if (v && v->value < 0)
    keys.error("factor_not_positive", key,
               "the factor must be positive, got " + number_text(v->value));
  if (v && v->value > 0) h.factor = *v;  // 0 counts as absent
  if (v && v->value > 0 && v->value < 1)
    keys.warn("factor_below_one", key,
              "a factor below 1 shortens the context: " + number_text(v->value),
              "state new length / trained length", v->value);
  h.factor_sliding = h.factor;
  if (h.scaling_type.value == "none") h.factor = {1, h.scaling_type.origin, h.scaling_type.where};
  if (arch.has("plain_base")) h.factor_sliding = h.factor = arch.constant(1.0);
}

void read_yarn(const Architecture& arch, Keys& keys, Hparams& h) {
  const auto yarn_key = [&](std::string_view name) -> std::optional<Sourced<double>> {
    if (!arch.lists("yarn_keys", name)) return std::nullopt;
    return keys.number("rope.scaling.yarn_" + std::string(name));
  };
  const std::string who = "llama.cpp";
  const bool yarn = h.scaling_type.value == "yarn" && !arch.has("plain_base");
  const auto ext = yarn_key("ext_factor");
  h.ext_factor = ext && ext->value >= 0
                     ? *ext
                     : Sourced<double>{yarn ? 1.0 : 0.0, Origin::derived, "rope.scaling.type"};
  h.yarn_attn = or_default(yarn_key("attn_factor"), 1, who);
  h.beta_fast = or_default(yarn_key("beta_fast"), static_cast<double>(arch.number("beta_fast", 32)),
                           arch.has("beta_fast") ? who + " (" + arch.name() + ")" : who);
  h.beta_slow = or_default(yarn_key("beta_slow"), 1, who);
  h.attn_key = or_default(keys.number("rope.scaling.attn_factor"), 1, who);
  if (!(h.attn_key.value > 0))
    keys.error("factor_not_positive", "rope.scaling.attn_factor",
               "the factor on cos and sin must be positive, got " + number_text(h.attn_key.value));
  if (arch.has("yarn_log_multiplier")) {
    h.log_multiplier = keys.number("rope.scaling.yarn_log_multiplier");
    if (h.log_multiplier && arch.text("yarn_log_multiplier") == "tenth")
      // The file holds 0.1 m as a float: m is that float over the float 0.1, as the loader divides.
      h.log_multiplier->value =
          static_cast<double>(static_cast<float>(h.log_multiplier->value) / 0.1f);
    if (h.log_multiplier && h.log_multiplier->value == 0) h.log_multiplier.reset();
    if (h.log_multiplier && h.log_multiplier->value < 0)
      keys.error("factor_not_positive", "rope.scaling.yarn_log_multiplier", "must not be negative");
  }
  if (arch.flag("alpha")) h.alpha = keys.number("rope.scaling.alpha");
  if (h.alpha && !(h.alpha->value > 0)) h.alpha.reset();
}

void read_sliding(const Architecture& arch, Keys& keys, Hparams& h) {
  const auto rule = arch.group("sliding_rope");
  h.base_sliding = h.base;
  if (!rule) {
    h.factor_sliding = h.factor;
    return;
  }
  h.sliding_plain = rule->flag("plain");
  if (rule->text("base") != "global") {
    constexpr const char* key = "rope.freq_base_swa";
    const auto stated = keys.number(key);
    const auto number = static_cast<double>(rule->number("base", 0));
    if (stated)
      h.base_sliding = *stated;
    else if (number > 0)
      h.base_sliding = arch.constant(number);
    else if (rule->text("base") == "required" && !keys.failed())
      keys.error("missing_key", key, "rope.freq_base_swa is required");
    if (!(h.base_sliding.value > 0))
      keys.error("theta_not_positive", stated ? key : "rope.freq_base",
                 "the base must be positive, got " + number_text(h.base_sliding.value));
  }
  if (rule->number("scale", 0) == 1) h.factor_sliding = arch.constant(1.0);
  if (rule->text("scale") == "global") h.factor_sliding = h.factor;
}

}  // namespace

void read_scaling(const Architecture& arch, Keys& keys, Hparams& h) {
  h.scaling_type = {"linear", Origin::class_default, "llama.cpp"};
  if (auto v = keys.text("rope.scaling.type")) h.scaling_type = *v;
  const std::string& type = h.scaling_type.value;
  if (type != "none" && type != "linear" && type != "yarn" && type != "longrope")
    keys.error(
        "unknown_rope_type", "rope.scaling.type",
        "the scaling type must be none, linear, yarn or longrope, got '" + printable(type) + "'",
        "--assume rope.scaling.type=none");
  read_base(arch, keys, h);
  read_factor(arch, keys, h);
  read_yarn(arch, keys, h);
  read_sliding(arch, keys, h);
}

}  // namespace posenc::gguf
