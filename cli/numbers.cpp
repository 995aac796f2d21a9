// SPDX-License-Identifier: Apache-2.0
#include "numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace posenc::cli {
namespace {

template <class T>
bool read(const std::string& text, T& to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
  return error == std::errc{} && end == text.data() + text.size();
}

// The number that was perhaps meant: 1e5, 1.5e4, 128k.
std::string meant(const std::string& text) {
  double x = 0;
  if (read(text, x) && x == std::floor(x) && std::abs(x) < 1e15)
    return fmt::format(" (in digits: {:.0f})", x);
  const char last = text.empty() ? ' ' : text.back();
  Index n = 0;
  if ((last == 'k' || last == 'K') && read(text.substr(0, text.size() - 1), n) && n > 0 &&
      n < 1000000000)
    return fmt::format(" ({} or {}?)", n * 1000, n * 1024);
  return "";
}

}  // namespace

CLI::Validator whole_number(Index low, Index high) {
  const auto check = [low, high](std::string& text) -> std::string {
    if (text.empty()) return "must not be empty";
    Index n = 0;
    const bool whole = read(text, n);
    if (whole && n >= low && n <= high) {
      text = std::to_string(n);  // 010 is ten
      return {};
    }
    return fmt::format(
        "must be a whole number {}, got \"{}\"{}",
        high < kMost ? fmt::format("from {} to {}", low, high) : fmt::format("of at least {}", low),
        text, whole ? "" : meant(text));
  };
  return CLI::Validator(check, "");
}

CLI::Validator real_number() {
  const auto check = [](std::string& text) -> std::string {
    if (text.empty()) return "must not be empty";
    double x = 0;
    if (read(text, x) && std::isfinite(x)) return {};
    return fmt::format("must be a finite number, got \"{}\"", text);
  };
  return CLI::Validator(check, "");
}

}  // namespace posenc::cli
