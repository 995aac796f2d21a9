// SPDX-License-Identifier: Apache-2.0
// One check of a case while it runs, and the operations (OPERATIONS.md has a line for each).
#pragma once
#include <set>

#include "conformance/runner/tolerance.h"

namespace posenc::conformance {

// Every member that an operation reads is remembered by its place in the check ("in.q",
// "steps.1.scheme"), so that one that nothing read can be named: a word misspelt, or one that means
// nothing here, must not pass for a check of what its author meant.
class Check {
 public:
  Check(const Case& c, Json members) : in_case(c), json(std::move(members)) {}
  Check(const Check&) = delete;
  Check& operator=(const Check&) = delete;

  // A check within this one with members of its own: {"norm": {...}} is Check(check, own, "norm").
  Check(const Check& around, Json own, std::string_view place);
  // `own` before the members of this one, which it inherits; `own` stands at `place`, or is made up
  // by the operation where that is "".
  Check inherited(const Json& own, std::string_view place = {}) const;

  // Members of the check. text: "" when absent. find counts all that is within as read, part
  // nothing: what is within is read by checks of its own or by member.
  const Json* find(std::string_view key) const;
  const Json* part(std::string_view key) const { return json.find(key); }
  const Json* member(std::string_view group, std::string_view key) const;
  std::string text(std::string_view key, std::string_view fallback = {}) const;
  double number(std::string_view key, double fallback) const;
  Index integer(std::string_view key, Index fallback) const;  // throws on a fraction
  bool flag(std::string_view key) const;
  // The case's name of our `in` or `out` array; nullptr when the check does not have it.
  const std::string* array_name(std::string_view group, std::string_view ours) const;
  Slice input(std::string_view ours) const;  // throws when absent
  // The place of an element of a list, for checks within: "parts" and 1.
  static std::string place(std::string_view list, std::size_t element);
  // The place of the first member that nothing has read; "" when there is none.
  std::string unread() const;

  // Compares a result (row-major) with out[ours]: the same sizes in the same order; axes of size
  // one count for nothing.
  void expect(std::string_view ours, std::span<const double> got, const std::vector<Index>& shape);
  void expect(const Slice& want, std::span<const double> got, const std::vector<Index>& shape);
  // The same, already put in the order of the wanted array by its letters.
  void expect(const Slice& want, std::span<const double> got);
  // One yes-or-no fact; `what` goes into the reason when it does not hold.
  void expect(bool holds, const std::string& what);

  const Case& in_case;
  const Json json;
  Comparison comparison;
  std::string failure;  // the first fact that did not hold

 private:
  struct Inherited {};
  Check(Inherited, const Check& around, Json whole, const Json& own, std::string_view place);
  void read(std::string place) const;

  const Check* around_ = nullptr;
  std::string place_;          // of `own_` in around_
  std::set<std::string> own_;  // keys that stand at place_; the others are around_'s
  bool inherits_ = false;
  mutable std::set<std::string> read_;  // of the outermost check
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
void run_attend(Check&);
void run_attend_function(Check&);
void run_merge(Check&);
void run_bias(Check&);
void run_buckets(Check&);
void run_extend(Check&);
void run_pope(Check&);
void run_embed(Check&);
void run_regions(Check&);
void run_documents(Check&);

}  // namespace posenc::conformance
