// SPDX-License-Identifier: Apache-2.0
#include "conformance/runner/check.h"

#include <array>
#include <utility>

#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

[[noreturn]] void later(Check& check) {
  throw NotExpressible("operation " + check.text("op") +
                       " needs a part of posenc that is not built");
}

constexpr std::array<std::pair<std::string_view, Operation>, 31> kOperations{{
    {"rows", run_rows},
    {"rotate", run_rotate},
    {"rotate_rows", run_rotate_rows},
    {"phase_gradients", run_phase_gradients},
    {"row_gradients", run_row_gradients},
    {"frequencies", run_frequencies},
    {"correction_range", run_correction_range},
    {"calls", run_calls},
    {"temperature", run_temperature},
    {"shift", run_shift},
    {"positions", run_positions},
    {"explain", run_explain},
    {"operators", run_operators},
    {"container", run_container},
    {"doctor", run_doctor},
    {"refuse", run_refuse},
    {"sequence", run_sequence},
    {"scores", run_scores},
    {"encode", run_encode},
    {"complex_embedding", run_complex_embedding},
    {"complex_attention", run_complex_attention},
    {"convolve", run_convolve},
    {"bias", run_bias},
    {"buckets", run_buckets},
    {"pope", run_pope},
    {"extend", run_extend},
    {"embed", run_embed},
    {"regions", run_regions},
    {"documents", run_documents},
    {"attend", later},
    {"merge", later},
}};

}  // namespace

Operation find_operation(std::string_view name) {
  for (const auto& [known, operation] : kOperations)
    if (known == name) return operation;
  return nullptr;
}

std::string Check::text(std::string_view key, std::string_view fallback) const {
  const Json* found = json.find(key);
  return found == nullptr ? std::string(fallback) : found->as_string();
}

double Check::number(std::string_view key, double fallback) const {
  const Json* found = json.find(key);
  return found == nullptr ? fallback : found->as_number();
}

bool Check::flag(std::string_view key) const {
  const Json* found = json.find(key);
  return found != nullptr && found->as_bool();
}

const std::string* Check::array_name(std::string_view group, std::string_view ours) const {
  const Json* names = json.find(group);
  const Json* found = names == nullptr ? nullptr : names->find(ours);
  return found == nullptr ? nullptr : &found->as_string();
}

Slice Check::input(std::string_view ours) const {
  const std::string* name = array_name("in", ours);
  if (name == nullptr) refuse("case", "the check needs an input array", ours);
  return slice(in_case, *name);
}

void Check::expect(std::string_view ours, std::span<const double> got) {
  const std::string* name = array_name("out", ours);
  if (name != nullptr) expect(slice(in_case, *name), got);
}

void Check::expect(const Slice& want, std::span<const double> got) {
  compare(comparison, got, want, tolerance_for(in_case, json, want));
}

void Check::expect(bool holds, const std::string& what) {
  ++comparison.compared;
  if (holds) return;
  comparison.failed = true;
  if (failure.empty()) failure = what;
}

// Steps in order; each inherits the members of the sequence.
void run_sequence(Check& check) {
  const Json* steps = check.find("steps");
  if (steps == nullptr) refuse("case", "a sequence needs steps");
  for (const Json& step : steps->as_array()) {
    Json whole = step;
    for (const auto& [key, value] : check.json.as_object())
      if (key != "steps" && key != "op" && whole.find(key) == nullptr) whole.set(key, value);
    Check inner(check.in_case, whole);
    const Operation operation = find_operation(inner.text("op"));
    if (operation == nullptr)
      throw NotExpressible("operation " + inner.text("op") + " is not known");
    inner.comparison = std::move(check.comparison);
    operation(inner);
    check.comparison = std::move(inner.comparison);
    if (check.failure.empty()) check.failure = inner.failure;
  }
}

}  // namespace posenc::conformance
