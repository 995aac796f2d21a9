// SPDX-License-Identifier: Apache-2.0
// Positions against the lengths for which the frequencies of a subject hold.
#include <fmt/format.h>

#include "common.h"

namespace posenc::cli {

void check_lengths(const SubjectOptions& o, const RotarySpec& spec, const Positions& p) {
  const Index length = length_of(p), from = spec.valid_from(), to = spec.valid_to();
  if ((length >= from && length <= to) || length <= o.context.value_or(0)) return;
  const std::string holds =
      to == kUnbounded ? fmt::format("{} tokens and more", with_commas(from))
      : from <= 1      ? fmt::format("up to {} tokens", with_commas(to))
                       : fmt::format("{} to {} tokens", with_commas(from), with_commas(to));
  throw InputError(fmt::format(
      "--positions make a sequence of {} tokens, and the frequencies taken hold for {}: give the "
      "length of the sequence, --context {}{}",
      with_commas(length), holds, length, length < from ? " or more" : ""));
}

}  // namespace posenc::cli
