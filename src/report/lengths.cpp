// SPDX-License-Identifier: Apache-2.0
// Positions against the lengths for which the frequencies of a subject hold.
#include <fmt/format.h>

#include "common.h"

namespace posenc::report {

std::string lengths_text(const RotarySpec& spec) {
  const Index from = spec.valid_from(), to = spec.valid_to();
  if (from <= 1 && to == kUnbounded) return "";
  if (to == kUnbounded) return fmt::format("{} tokens and more", with_commas(from));
  if (from <= 1) return fmt::format("up to {} tokens", with_commas(to));
  return fmt::format("{} to {} tokens", with_commas(from), with_commas(to));
}

void check_lengths(const SubjectOptions& o, const RotarySpec& spec, const Positions& p) {
  const Index length = length_of(p), from = spec.valid_from();
  if ((length >= from && length <= spec.valid_to()) || length <= o.context.value_or(0)) return;
  throw InputError(fmt::format(
      "--positions make a sequence of {} tokens, and the frequencies taken hold for {}: give the "
      "length of the sequence, --context {}{}",
      with_commas(length), lengths_text(spec), length, length < from ? " or more" : ""));
}

}  // namespace posenc::report
