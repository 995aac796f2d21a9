// SPDX-License-Identifier: Apache-2.0
// The tensors that divide frequencies: rope_freqs.weight wins; else long beyond the original
// context, short within it.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "model/gguf/lower.h"

namespace posenc::inline v0::gguf {
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
  // llama.cpp loads a list only: other axes must have one element.
  if (std::any_of(t->shape.begin() + 1, t->shape.end(), [](std::uint64_t n) { return n != 1; }))
    wrong("list_length",
          d.tensor + " must be a list of one number a pair, got " +
              std::to_string(t->shape.size()) + " axes",
          "convert the model again");
  const auto bad =
      std::ranges::find_if(d.values, [](double v) { return !std::isfinite(v) || v <= 0; });
  if (bad != d.values.end())
    wrong(std::isfinite(*bad) ? "table_zero" : "not_finite",
          d.tensor + "[" + std::to_string(bad - d.values.begin()) +
              "] divides a frequency and must be positive, got " + number_text(*bad),
          "convert the model again: the tensor is damaged");
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
