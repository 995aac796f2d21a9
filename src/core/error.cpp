// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/error.h"

#include <charconv>
#include <cmath>
#include <system_error>

namespace posenc {
namespace {

std::string sentence(std::string_view who, std::string_view rule) {
  std::string s = "[";
  s.append(who).append("] ").append(rule);
  return s;
}

}  // namespace

FormatError::FormatError(std::string file, std::string place, std::string_view problem)
    : std::runtime_error(file + ": " + (place.empty() ? "" : place + ": ") + std::string(problem)),
      file_(std::move(file)),
      place_(std::move(place)) {}

void refuse(std::string_view who, std::string_view rule) {
  throw std::invalid_argument(sentence(who, rule));
}
void refuse(std::string_view who, std::string_view rule, Index got) {
  throw std::invalid_argument(sentence(who, rule) + ", got " + std::to_string(got));
}
void refuse(std::string_view who, std::string_view rule, double got) {
  throw std::invalid_argument(sentence(who, rule) + ", got " + number_text(got));
}
void refuse(std::string_view who, std::string_view rule, std::string_view got) {
  throw std::invalid_argument(sentence(who, rule) + ", got \"" + std::string(got) + "\"");
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

}  // namespace posenc
