// SPDX-License-Identifier: Apache-2.0
// One check of a case while it runs, and the operations (OPERATIONS.md has a line for each).
#pragma once
#include "conformance/runner/tolerance.h"

namespace posenc::conformance {

class Check {
 public:
  Check(const Case& c, const Json& j) : in_case(c), json(j) {}

  // Members of the check. text: "" when absent.
  const Json* find(std::string_view key) const { return json.find(key); }
  std::string text(std::string_view key, std::string_view fallback = {}) const;
  double number(std::string_view key, double fallback) const;
  bool flag(std::string_view key) const;
  // The case's name of our `in` or `out` array; nullptr when the check does not have it.
  const std::string* array_name(std::string_view group, std::string_view ours) const;
  Slice input(std::string_view ours) const;  // throws when absent

  // Compares a result (row-major, in the order of the wanted array) with out[ours].
  void expect(std::string_view ours, std::span<const double> got);
  void expect(const Slice& want, std::span<const double> got);
  // One yes-or-no fact; `what` goes into the reason when it does not hold.
  void expect(bool holds, const std::string& what);

  const Case& in_case;
  const Json& json;
  Comparison comparison;
  std::string failure;  // the first fact that did not hold
};

using Operation = void (*)(Check&);
// nullptr: unknown. Reasons for those that are named in OPERATIONS.md but refused come from the
// operation itself.
Operation find_operation(std::string_view name);

void run_rows(Check&);
void run_rotate(Check&);
void run_rotate_rows(Check&);
void run_phase_gradients(Check&);
void run_row_gradients(Check&);
void run_frequencies(Check&);
void run_correction_range(Check&);
void run_calls(Check&);
void run_temperature(Check&);
void run_shift(Check&);
void run_positions(Check&);
void run_explain(Check&);
void run_operators(Check&);
void run_container(Check&);
void run_doctor(Check&);
void run_refuse(Check&);
void run_sequence(Check&);
void run_scores(Check&);
void run_encode(Check&);
void run_complex_embedding(Check&);
void run_complex_attention(Check&);
void run_convolve(Check&);
void run_bias(Check&);
void run_buckets(Check&);
void run_extend(Check&);
void run_pope(Check&);
void run_embed(Check&);
void run_regions(Check&);
void run_documents(Check&);

}  // namespace posenc::conformance
