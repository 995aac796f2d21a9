// SPDX-License-Identifier: Apache-2.0
// What scales the frequencies, as llama.cpp reads it: base, scaling type, factor, the YaRN keys, and
// the tensors that divide: rope_freqs.weight wins; else long beyond the original context, short
// within it.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "model/gguf/hparams.h"

namespace posenc::inline v0::gguf {
namespace {

void need_positive(Keys& keys, const char* code, std::string_view key, const std::string& what,
                   double value, std::string fix = "") {
  if (!(value > 0))
    keys.error(code, key, {"{} must be positive, got {}", what, value}, std::move(fix));
}

void read_base(const Architecture& arch, Keys& keys, Hparams& h) {
  constexpr const char* key = "rope.freq_base";
  keys.take(key, h.base);
  if (arch.has("plain_base"))
    h.base = arch.constant(static_cast<double>(arch.number("plain_base", 0)));
  if (h.mode != Mode::none)
    need_positive(keys, "theta_not_positive", key, "the base", h.base.value,
                  "--assume rope.freq_base=10000");
}

void read_factor(const Architecture& arch, Keys& keys, Hparams& h) {
  const char* key = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  const auto v = keys.get<double>(key);
  if (v && v->value != 0) {  // 0 counts as absent
    need_positive(keys, "factor_not_positive", key, "the factor", v->value);
    if (v->value > 0) h.factor = *v;
    if (v->value > 0 && v->value < 1)
      keys.warn("factor_below_one", key, {"a factor below 1 shortens the context: {}", v->value},
                "write new length / trained length", v->value);
  }
  h.factor_sliding = h.factor;
  if (h.scaling_type.value == "none") h.factor = {1, h.scaling_type.origin, h.scaling_type.where};
  if (arch.has("plain_base")) h.factor_sliding = h.factor = arch.constant(1.0);
}

void read_yarn(const Architecture& arch, Keys& keys, Hparams& h) {
  const auto yarn_key = [&](std::string_view name, Sourced<double>& value) {
    if (arch.lists("yarn_keys", name)) keys.take("rope.scaling.yarn_" + std::string(name), value);
  };
  const bool yarn = h.scaling_type.value == "yarn" && !arch.has("plain_base");
  h.ext_factor.value = -1;
  yarn_key("ext_factor", h.ext_factor);
  if (!(h.ext_factor.value >= 0))
    h.ext_factor = {yarn ? 1.0 : 0.0, Origin::derived, "rope.scaling.type"};
  yarn_key("attn_factor", h.yarn_attn);
  h.beta_fast = arch.has("beta_fast")
                    ? arch.constant(static_cast<double>(arch.number("beta_fast", 32)))
                    : usual(32.0);
  yarn_key("beta_fast", h.beta_fast);
  yarn_key("beta_slow", h.beta_slow);
  keys.take("rope.scaling.attn_factor", h.attn_key);
  need_positive(keys, "factor_not_positive", "rope.scaling.attn_factor",
                "the factor on cos and sin", h.attn_key.value);
  if (arch.has("yarn_log_multiplier")) {
    auto& m = h.log_multiplier = keys.get<double>("rope.scaling.yarn_log_multiplier");
    // The file holds 0.1 m as a float: m is that float over the float 0.1, as the loader divides.
    if (m && arch.text("yarn_log_multiplier") == "tenth")
      m->value = static_cast<double>(static_cast<float>(m->value) / 0.1f);
    if (m && m->value < 0)
      keys.error("factor_not_positive", "rope.scaling.yarn_log_multiplier", "must not be negative");
    if (m && m->value == 0) m.reset();
  }
  if (arch.flag("alpha")) h.alpha = keys.get<double>("rope.scaling.alpha");
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
    const bool stated = keys.take(key, h.base_sliding);
    if (const auto number = static_cast<double>(rule->number("base", 0)); !stated && number > 0)
      h.base_sliding = arch.constant(number);
    else if (!stated && rule->text("base") == "required" && !keys.failed())
      keys.error("missing_key", key, "rope.freq_base_swa is required");
    need_positive(keys, "theta_not_positive", stated ? key : "rope.freq_base", "the base",
                  h.base_sliding.value);
  }
  if (rule->number("scale", 0) == 1) h.factor_sliding = arch.constant(1.0);
  if (rule->text("scale") == "global") h.factor_sliding = h.factor;
}

Divisor read_divisor(Keys& keys, std::string_view name) {
  Divisor d;
  d.tensor = std::string(name);
  const GgufTensor* t = keys.file().tensor(name);
  if (t == nullptr) return d;
  const auto wrong = [&](const char* code, const Sentence& text, const char* fix) {
    keys.report().error(code, text, d.tensor, fix);
  };
  if (!t->complete) {
    wrong("gguf_data_missing",
          {"the file ends before the data of {} do: {} bytes are needed, it has {}", d.tensor,
           t->offset + t->size, keys.file().bytes.size()},
          "download the file again");
    return d;
  }
  try {
    d.values = keys.file().values(*t, 65536);
  } catch (const FormatError& e) {
    wrong("wrong_type", std::string(e.what()), "convert the model again: divisors are f32");
    return d;
  }
  // llama.cpp loads a list only: other axes must have one element.
  if (std::any_of(t->shape.begin() + 1, t->shape.end(), [](std::uint64_t n) { return n != 1; }))
    wrong("list_length",
          {"{} must be a list of one number a pair, got {} axes", d.tensor, t->shape.size()},
          "convert the model again");
  const auto bad =
      std::ranges::find_if(d.values, [](double v) { return !std::isfinite(v) || v <= 0; });
  if (bad != d.values.end())
    wrong(std::isfinite(*bad) ? "table_zero" : "not_finite",
          {"{}[{}] divides a frequency and must be positive, got {}", d.tensor,
           bad - d.values.begin(), *bad},
          "convert the model again: the tensor is damaged");
  if (d.values.empty()) wrong("list_length", {"{} is empty", d.tensor}, "convert the model again");
  return d;
}

}  // namespace

void read_scaling(const Architecture& arch, Keys& keys, Hparams& h) {
  keys.take("rope.scaling.type", h.scaling_type);
  const std::string& type = h.scaling_type.value;
  if (type != "none" && type != "linear" && type != "yarn" && type != "longrope")
    keys.error(
        "unknown_rope_type", "rope.scaling.type",
        {"the scaling type must be none, linear, yarn or longrope, got '{}'", printable(type)},
        "--assume rope.scaling.type=none");
  read_base(arch, keys, h);
  read_factor(arch, keys, h);
  read_yarn(arch, keys, h);
  read_sliding(arch, keys, h);
}

DivisorTensors read_divisors(const Architecture& arch, Keys& keys) {
  DivisorTensors d;
  const std::string_view rule = arch.text("factors");
  const bool all = rule == "all" || rule == "full";
  const auto read = [&](std::string_view name, bool used) -> Divisor {
    if (keys.file().tensor(name) == nullptr) return {};
    if (used) return read_divisor(keys, name);
    keys.report().warn(
        "key_ignored", {"llama.cpp does not divide by {} in a {}", name, arch.name()},
        std::string(name),
        "convert the model again; a model that was trained with them runs wrongly here");
    return {};
  };
  d.always = read("rope_freqs.weight", !rule.empty());
  const bool wins = !d.always.values.empty();
  d.beyond = read("rope_factors_long.weight", all && !wins);
  d.within = read("rope_factors_short.weight", all && !wins);
  // Without its twin one of them would be 1 for every pair on one side of the trained length.
  if (d.by_length() && !keys.failed())
    for (const auto& [one, other, name] :
         {std::tuple{&d.beyond, &d.within, "rope_factors_short.weight"},
          std::tuple{&d.within, &d.beyond, "rope_factors_long.weight"}})
      if (other->tensor.empty())
        keys.report().error("table_missing",
                            {"the file has {} and no {}: contexts on the other side of the trained "
                             "length divide by none",
                             one->tensor, name},
                            name, "convert the model again: LongRoPE needs both lists");
  return d;
}

}  // namespace posenc::v0::gguf
