// SPDX-License-Identifier: Apache-2.0
// A described value with every type that a field may have.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/core/describe.h"

namespace posenc {

enum class Shade : std::uint8_t { unset, dark, light };
template <>
struct EnumNames<Shade> {
  static constexpr std::array<std::string_view, 3> value{"unset", "dark", "light"};
};

// Every type that a field may have.
struct Everything {
  static constexpr Card card{"everything", "all field types", "", ""};
  double number = 1.5;
  Index integer = 7;
  bool flag = true;
  Shade shade = Shade::unset;
  std::string text = "word";
  std::vector<double> numbers{0.5};
  std::vector<Index> integers;
  std::vector<Shade> shades;
  std::optional<double> maybe_number;
  std::optional<Index> maybe_integer = 3;
  std::optional<Shade> maybe_shade;
  std::optional<std::string> maybe_text;
  bool operator==(const Everything&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("number", s.number, Field{.doc = "a number", .unit = "rad"});
    v("integer", s.integer, Field{.doc = "an integer", .min = -10, .max = 1e15});
    v("flag", s.flag, Field{.doc = "a flag"});
    v("shade", s.shade, Field{.doc = "a choice", .required = true});
    v("text", s.text, Field{.doc = "a text"});
    v("numbers", s.numbers, Field{.doc = "numbers", .min = 0});
    v("integers", s.integers, Field{.doc = "integers"});
    v("shades", s.shades, Field{.doc = "choices"});
    v("maybe_number", s.maybe_number, Field{.doc = "number or none", .max = 5});
    v("maybe_integer", s.maybe_integer, Field{.doc = "integer or none"});
    v("maybe_shade", s.maybe_shade, Field{.doc = "choice or none"});
    v("maybe_text", s.maybe_text, Field{.doc = "text or none"});
  }
};

}  // namespace posenc
