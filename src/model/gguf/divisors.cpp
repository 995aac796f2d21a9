// SPDX-License-Identifier: Apache-2.0
// The tensors that divide frequencies: rope_freqs.weight wins; else long beyond the original
// context, short within it.
#include <cmath>

#include "model/gguf/lower.h"

namespace posenc::gguf {
namespace {

Divisor read_divisor(Keys& keys, std::string_view name) {
  Divisor d;
  d.tensor = std::string(name);
  const GgufTensor* t = keys.file().tensor(name);
  if (t == nullptr) return d;
  const auto wrong = [&](const char* code, const std::string& message, const char* fix) {
    keys.report().error(code, message, d.tensor, fix);
  };
  if (!t->complete) {
    wrong("gguf_data_missing",
          "the file ends before the data of " + d.tensor +
              " do: " + std::to_string(t->offset + t->size) + " bytes are needed, it has " +
              std::to_string(keys.file().bytes.size()),
          "fetch the file again");
    return d;
  }
  try {
    d.values = keys.file().values(*t, 65536);
  } catch (const FormatError& e) {
    wrong("wrong_type", e.what(), "convert the model again: divisors are f32");
    return d;
  }
  for (std::size_t i = 0; i < d.values.size(); ++i) {
    const double v = d.values[i];
    if (std::isfinite(v) && v > 0) continue;
    wrong(std::isfinite(v) ? "table_zero" : "not_finite",
          d.tensor + "[" + std::to_string(i) + "] divides a frequency and must be positive, got " +
              number_text(v),
          "convert the model again: the tensor is damaged");
    break;
  }
  if (d.values.empty()) wrong("list_length", d.tensor + " is empty", "convert the model again");
  return d;
}

}  // namespace

DivisorTensors read_divisors(const Architecture& arch, Keys& keys) {
  DivisorTensors d;
  const std::string_view rule = arch.text("factors");
  const bool all = rule == "all" || rule == "full";
  const auto read = [&](std::string_view name, bool used) -> Divisor {
    if (keys.file().tensor(name) == nullptr) return {};
    if (used) return read_divisor(keys, name);
    keys.report().warn(
        "key_ignored", "llama.cpp does not divide by " + std::string(name) + " in a " + arch.name(),
        std::string(name),
        "convert the model again; a model that was trained with them runs wrongly here");
    return {};
  };
  d.always = read("rope_freqs.weight", !rule.empty());
  const bool wins = !d.always.values.empty();
  d.beyond = read("rope_factors_long.weight", all && !wins);
  d.within = read("rope_factors_short.weight", all && !wins);
  return d;
}

}  // namespace posenc::gguf
