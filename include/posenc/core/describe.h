// SPDX-License-Identifier: Apache-2.0
// How a definition describes itself, once. From one `describe` come the grammar of the command
// line, JSON, printing, hashing, the docs and the bindings.
//
//   struct Linear {
//     static constexpr Card card{"linear", "position interpolation", "arXiv:2306.15595", "eq. 4"};
//     double factor = 0;
//     bool operator==(const Linear&) const = default;
//     template <class S, class V> static constexpr void describe(S& s, V&& v) {
//       v("factor", s.factor, Field{.doc = "new length over old", .min = 0, .required = true});
//     }
//   };
//
// A field is a double, Index, bool, an enum with EnumNames, a string, an optional of these, or a
// vector of doubles, Indices or such enums.
#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "posenc/core/dtype.h"
#include "posenc/core/export.h"

namespace posenc::inline v0 {

struct Card {
  std::string_view name;       // the word in the SCHEME grammar
  std::string_view title;      // what people call it
  std::string_view paper;      // arXiv id or source
  std::string_view equations;  // where in it
};

struct Field {
  std::string_view doc;
  std::string_view unit{};
  double min = -1e300, max = 1e300;  // inclusive; of every element of a list
  bool required = false;
  // What the default means if other fields decide: their names, or heads and head_dim of a
  // call, with +, - and *.
  std::string_view from{};
};

// Text of an enum's values, in order of the values, which start at 0 and have no gaps.
template <class E>
struct EnumNames;
template <class E>
concept NamedEnum = std::is_enum_v<E> && requires {
  EnumNames<E>::value.size();
};

namespace detail {
// For messages about a value that has not been checked yet.
template <std::size_t N>
constexpr std::string_view name_of(const std::array<std::string_view, N>& names,
                                   std::size_t value) noexcept {
  return value < N ? names[value] : "?";
}
struct AnyVisitor {
  void operator()(std::string_view, auto&, const Field&) const {}
};
}  // namespace detail

// "?" for a number that the enum does not have.
template <NamedEnum E>
constexpr std::string_view enum_text(E e) {
  return detail::name_of(EnumNames<E>::value, static_cast<std::size_t>(e));
}

template <class T>
concept Described = std::equality_comparable<T> && std::default_initializable<T> &&
    requires(T& t, const T& c) {
  { T::card } -> std::convertible_to<Card>;
  T::describe(t, detail::AnyVisitor{});
  T::describe(c, detail::AnyVisitor{});
};

// A family: one type a line in registry.h.
template <class... T>
struct TypeList {
  using Variant = std::variant<T...>;
  static constexpr std::size_t size = sizeof...(T);
};
template <class... T, class F>
constexpr void for_each(TypeList<T...>, F&& f) {
  (f.template operator()<T>(), ...);
}
// Families joined: Concat<A, B, ...>::type.
template <class... Lists>
struct Concat;
template <class... A>
struct Concat<TypeList<A...>> {
  using type = TypeList<A...>;
};
template <class... A, class... B, class... Rest>
struct Concat<TypeList<A...>, TypeList<B...>, Rest...> {
  using type = typename Concat<TypeList<A..., B...>, Rest...>::type;
};

// A program's settings by name: "sinusoidal preset=fairseq width=1024". `sizes` names the numbers that
// `make` accepts, with the values that lists show; a SCHEME must state each of them.
struct PresetSize {
  std::string_view key;
  Index usual;
};
template <class T>
struct Preset {
  std::string_view name;
  T (*make)(std::span<const Index> sizes);
  std::vector<PresetSize> sizes;
};

// Which two channels rotate together. There is no default: unset is rejected.
enum class Pairing : std::uint8_t { unset, half_split, interleaved };
template <>
struct EnumNames<Pairing> {
  static constexpr std::array<std::string_view, 3> value{"unset", "half_split", "interleaved"};
};

// even_then_odd: interleaved input, half-split output (DeepSeek-V3 in transformers).
enum class OutputOrder : std::uint8_t { in_place, even_then_odd };
template <>
struct EnumNames<OutputOrder> {
  static constexpr std::array<std::string_view, 2> value{"in_place", "even_then_odd"};
};

}  // namespace posenc::v0
