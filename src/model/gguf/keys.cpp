// SPDX-License-Identifier: Apache-2.0
#include "model/gguf/keys.h"

#include <charconv>
#include <cmath>

#include "posenc/registry/fields.h"

namespace posenc::inline v0::gguf {
namespace {

// A value that a person gave as text.
template <class T>
std::optional<T> parsed(const std::string& text) {
  if constexpr (std::is_same_v<T, std::string>) {
    return text;
  } else if constexpr (std::is_same_v<T, bool>) {
    return text == "true" || text == "false" ? std::optional<bool>(text == "true") : std::nullopt;
  } else {
    T v{};
    const char* end = text.data() + text.size();
    const auto r = std::from_chars(text.data(), end, v);
    if (r.ec != std::errc() || r.ptr != end) return std::nullopt;
    if (std::is_same_v<T, Index> && !(v >= 0 && v <= T{0xffffffffLL})) return std::nullopt;
    return v;
  }
}

}  // namespace

std::string Keys::full(std::string_view key) const {
  if (key.starts_with("general.") || architecture.empty()) return std::string(key);
  return architecture + "." + std::string(key);
}

const std::pair<const std::string, std::string>* Keys::given(std::string_view key) const {
  for (const std::string& name : {full(key), std::string(key)})
    if (const auto it = options_.assume.find(name); it != options_.assume.end()) return &*it;
  return nullptr;
}

const std::string* Keys::assumed(std::string_view key) {
  assumable_.emplace(key);
  const auto* found = given(key);
  if (found) used_.insert(found->first);
  return found ? &found->second : nullptr;
}

// What could be meant by a key that nothing asks for.
std::string Keys::how_to_assume(const std::string& key) const {
  const std::string before = architecture + ".";
  const bool whole = !architecture.empty() && key.starts_with(before);
  const std::vector<std::string_view> known(assumable_.begin(), assumable_.end());
  const std::string_view meant = nearest_word(whole ? key.substr(before.size()) : key, known);
  return (meant.empty() ? "" : "did you mean " + std::string(meant) + "? ") +
         "name a GGUF key, with or without '" + before + "', as --assume " +
         full("rope.freq_base") + "=10000";
}

void Keys::report_assumptions() {
  for (const auto& [key, value] : options_.assume)
    if (used_.count(key) == 0)
      report_.error("assume_unused", {"nothing asks for '{}' in this file", key}, key,
                    how_to_assume(key));
    else
      report_.note("assumed", {"{} = {} was set by --assume, not by the file", key, value}, key);
}

bool Keys::has(std::string_view key) const {
  return file_.find(full(key)) != nullptr || given(key) != nullptr;
}

void Keys::add(Severity severity, std::string code, std::string_view key, const Sentence& text,
               const Sentence& fix, std::optional<double> value) {
  const std::string hint = fix.of("");
  report_.add(severity, std::move(code), text, full(key), hint.empty() ? reconvert_hint(key) : hint,
              value);
}

void Keys::wrong_type(std::string_view key, std::string_view wanted, std::string_view got) {
  error("wrong_type", key, {"{} must be {}, got {}", full(key), wanted, printable(got)},
        "write the key again with the type that llama.cpp reads");
}

template <class T>
std::optional<Sourced<T>> Keys::get(std::string_view key) {
  constexpr bool whole = std::is_same_v<T, Index>, real = std::is_same_v<T, double>,
                 flag = std::is_same_v<T, bool>;
  constexpr GgufType type = whole  ? GgufType::u32
                            : real ? GgufType::f32
                            : flag ? GgufType::boolean
                                   : GgufType::string;
  constexpr std::string_view wanted = whole  ? "u32"
                                      : real ? "a number"
                                      : flag ? "true or false"
                                             : "a string";
  using Stored = std::conditional_t<whole, std::uint64_t,
                                    std::conditional_t<real || flag, T, std::string_view>>;
  std::optional<Sourced<T>> out;
  if (const std::string* text = assumed(key)) {
    if (auto v = parsed<T>(*text))
      out = {*std::move(v), Origin::user, "--assume " + full(key)};
    else
      wrong_type(key, wanted, *text);
  } else if (const GgufValue* v = file_.find(full(key))) {
    if (v->type == type)
      out = {T(std::get<Stored>(v->value)), Origin::stated, full(key)};
    else
      wrong_type(key, type == GgufType::string ? wanted : gguf_type_name(type),
                 gguf_type_name(v->type));
  }
  if constexpr (real)
    if (out && !std::isfinite(out->value)) {
      error("not_finite", key, {"{} must be finite, got {}", full(key), out->value});
      out.reset();
    }
  return out;
}
template std::optional<Sourced<Index>> Keys::get(std::string_view);
template std::optional<Sourced<double>> Keys::get(std::string_view);
template std::optional<Sourced<bool>> Keys::get(std::string_view);
template std::optional<Sourced<std::string>> Keys::get(std::string_view);

std::optional<Sourced<std::vector<Index>>> Keys::per_layer(std::string_view key, Index count) {
  const GgufValue* v = file_.find(full(key));
  const auto* array = v != nullptr ? std::get_if<GgufArray>(&v->value) : nullptr;
  if (array == nullptr || assumed(key) != nullptr) {
    const auto one = get<Index>(key);
    if (!one) return std::nullopt;
    return Sourced<std::vector<Index>>{
        std::vector<Index>(static_cast<std::size_t>(count), one->value), one->origin, one->where};
  }
  if (array->type != GgufType::u32 && array->type != GgufType::i32 &&
      array->type != GgufType::boolean)
    return wrong_type(key, "an array of u32, i32 or bool", gguf_type_name(array->type)),
           std::nullopt;
  auto values = v->integers(1u << 16);
  if (!values || static_cast<Index>(values->size()) < count) {
    error("list_length", key, {"{} must have {} elements, got {}", full(key), count, array->count},
          "convert the model again: one element a layer");
    return std::nullopt;
  }
  return Sourced<std::vector<Index>>{std::move(*values), Origin::stated, full(key)};
}

}  // namespace posenc::v0::gguf
