// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/error.h"
#include "posenc/core/printable.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

namespace posenc::inline v0 {
namespace {

std::string sentence(std::string_view who, std::string_view rule, std::string_view value) {
  std::string s = "[";
  s.append(who).append("] ").append(rule);
  if (!value.empty()) s.append(", got ").append(value);
  return s;
}

std::string quoted(std::string_view text) {
  return "\"" + printable(text) + "\"";
}

constexpr auto kWhole = std::numeric_limits<std::size_t>::max();

std::string joined(std::string_view field, std::string_view rule) {
  return std::string(field).append(" ").append(rule);
}

}  // namespace

FormatError::FormatError(std::string file, std::string place, std::string_view problem)
    // Whatever was not cut where it was read is made printable here.
    : std::runtime_error(printable(
          file + ": " + (place.empty() ? "" : place + ": ") + std::string(problem), kWhole)),
      file_(std::move(file)),
      place_(printable(place, kWhole)) {}

ArgumentError::ArgumentError(std::string_view who, std::string_view field, std::string_view rule,
                             std::string_view value)
    : std::invalid_argument(sentence(who, rule, value)),
      who_(who),
      field_(field),
      rule_(rule),
      value_(value) {}

Cancelled::Cancelled(std::string_view who)
    : std::runtime_error(sentence(who, "the call was cancelled", {})) {}

OutOfMemory::OutOfMemory(std::string_view who, std::string_view what, std::size_t bytes,
                         std::string_view limit)
    : text_([&] {
        const bool counts = bytes != std::numeric_limits<std::size_t>::max();
        const std::string size = counts ? std::to_string(bytes) : "more than 2^64";
        return sentence(who, std::string(what) + " needs " + size + " bytes, " + std::string(limit),
                        {});
      }()),
      bytes_(bytes) {}

void refuse_field(std::string_view who, std::string_view field, std::string_view rule) {
  throw ArgumentError(who, field, joined(field, rule), {});
}
void refuse_field(std::string_view who, std::string_view field, std::string_view rule, Index got) {
  throw ArgumentError(who, field, joined(field, rule), std::to_string(got));
}
void refuse_field(std::string_view who, std::string_view field, std::string_view rule, double got) {
  throw ArgumentError(who, field, joined(field, rule), number_text(got));
}
void refuse_field(std::string_view who, std::string_view field, std::string_view rule,
                  std::string_view got) {
  throw ArgumentError(who, field, joined(field, rule), quoted(got));
}
void refuse_sentence(std::string_view who, std::string_view field, std::string_view sentence) {
  throw ArgumentError(who, field, sentence, {});
}
void refuse_sentence(std::string_view who, std::string_view field, std::string_view sentence,
                     std::string_view got) {
  throw ArgumentError(who, field, sentence, quoted(got));
}
void refuse(std::string_view who, std::string_view rule) {
  throw ArgumentError(who, {}, rule, {});
}
void refuse(std::string_view who, std::string_view rule, Index got) {
  throw ArgumentError(who, {}, rule, std::to_string(got));
}
void refuse(std::string_view who, std::string_view rule, double got) {
  throw ArgumentError(who, {}, rule, number_text(got));
}
void refuse(std::string_view who, std::string_view rule, std::string_view got) {
  throw ArgumentError(who, {}, rule, quoted(got));
}

std::string number_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  char buffer[32];
  // The shortest text of 500000 would be 5e+05, beside a 150000.
  const bool plain = std::abs(x) < 1e9 && x == std::trunc(x);
  const auto end = plain
                       ? std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::fixed)
                       : std::to_chars(buffer, buffer + sizeof buffer, x);
  return std::string(buffer, end.ptr);
}

}  // namespace posenc::v0
