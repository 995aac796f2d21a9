// SPDX-License-Identifier: Apache-2.0
#include "model/gguf/keys.h"

#include <charconv>
#include <cmath>

#include "posenc/core/fields.h"

namespace posenc::gguf {
namespace {

template <class T>
std::optional<T> parse_number(const std::string& text) {
  T v{};
  const auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size()) return std::nullopt;
  return v;
}

}  // namespace

std::string Keys::full(std::string_view key) const {
  if (key.substr(0, 8) == "general." || architecture.empty()) return std::string(key);
  return architecture + "." + std::string(key);
}

const std::string* Keys::assumed(std::string_view key) {
  asked_.emplace(key);
  for (const std::string& name : {full(key), std::string(key)}) {
    const auto it = options_.assume.find(name);
    if (it == options_.assume.end()) continue;
    used_.insert(name);
    return &it->second;
  }
  return nullptr;
}

// What could be meant by a key that nothing asks for.
std::string Keys::assumable(const std::string& key) const {
  const std::string before = architecture + ".";
  const bool whole = !architecture.empty() && key.starts_with(before);
  const std::vector<std::string_view> known(asked_.begin(), asked_.end());
  const std::string_view meant = nearest_word(whole ? key.substr(before.size()) : key, known);
  return (meant.empty() ? "" : "did you mean " + std::string(meant) + "? ") +
         "name a GGUF key, with or without '" + before + "', as --assume " +
         full("rope.freq_base") + "=10000";
}

void Keys::report_assumptions() {
  for (const auto& [key, value] : options_.assume)
    if (used_.count(key) == 0)
      error("assume_unused", key, "nothing asks for '" + printable(key) + "' in this file",
            assumable(key));
    else
      add(Severity::note, "assumed", key,
          printable(key) + " = " + printable(value) + " is a person's decision, not the file's",
          "check it against the model's code");
}

bool Keys::has(std::string_view key) const {
  return file_.find(full(key)) != nullptr || options_.assume.count(full(key)) != 0 ||
         options_.assume.count(std::string(key)) != 0;
}

void Keys::add(Severity severity, std::string code, std::string_view key, std::string message,
               std::string fix, std::optional<double> value) {
  if (severity == Severity::error) failed_ = true;
  findings_.push_back(Finding{severity, std::move(code), std::move(message), printable(key),
                              std::move(fix), value});
}

void Keys::error(std::string code, std::string_view key, std::string message, std::string fix) {
  add(Severity::error, std::move(code), key, std::move(message), std::move(fix));
}

std::string Keys::anew(std::string_view key) const {
  return "convert the model again, or --assume " + full(key) + "=VALUE";
}

void Keys::wrong_type(std::string_view key, std::string_view wanted, std::string_view got) {
  error("wrong_type", full(key),
        full(key) + " must be " + std::string(wanted) + ", got " + printable(got),
        "write the key anew with the type that llama.cpp reads");
}

std::optional<Sourced<Index>> Keys::integer(std::string_view key) {
  if (const std::string* text = assumed(key)) {
    const auto v = parse_number<Index>(*text);
    if (!v || *v < 0 || *v > 0xffffffffLL) return wrong_type(key, "u32", *text), std::nullopt;
    return Sourced<Index>{*v, Origin::user, "--assume"};
  }
  const GgufValue* v = file_.find(full(key));
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::u32) return wrong_type(key, "u32", name(v->type)), std::nullopt;
  return Sourced<Index>{*v->integer(), Origin::stated, full(key)};
}

std::optional<Sourced<double>> Keys::number(std::string_view key) {
  Sourced<double> out{0, Origin::stated, full(key)};
  if (const std::string* text = assumed(key)) {
    const auto v = parse_number<double>(*text);
    if (!v) return wrong_type(key, "a number", *text), std::nullopt;
    out = {*v, Origin::user, "--assume"};
  } else {
    const GgufValue* v = file_.find(full(key));
    if (v == nullptr) return std::nullopt;
    if (v->type != GgufType::f32) return wrong_type(key, "f32", name(v->type)), std::nullopt;
    out.value = *v->number();
  }
  if (!std::isfinite(out.value)) {
    error("not_finite", full(key), full(key) + " must be finite, got " + number_text(out.value),
          anew(key));
    return std::nullopt;
  }
  return out;
}

std::optional<Sourced<bool>> Keys::boolean(std::string_view key) {
  if (const std::string* text = assumed(key)) {
    if (*text != "true" && *text != "false")
      return wrong_type(key, "true or false", *text), std::nullopt;
    return Sourced<bool>{*text == "true", Origin::user, "--assume"};
  }
  const GgufValue* v = file_.find(full(key));
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::boolean) return wrong_type(key, "bool", name(v->type)), std::nullopt;
  return Sourced<bool>{*v->boolean(), Origin::stated, full(key)};
}

std::optional<Sourced<std::string>> Keys::text(std::string_view key) {
  if (const std::string* text = assumed(key))
    return Sourced<std::string>{*text, Origin::user, "--assume"};
  const GgufValue* v = file_.find(full(key));
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::string) return wrong_type(key, "a string", name(v->type)), std::nullopt;
  return Sourced<std::string>{std::string(*v->text()), Origin::stated, full(key)};
}

std::optional<Sourced<std::vector<Index>>> Keys::each(std::string_view key, Index count) {
  const GgufValue* v = file_.find(full(key));
  const auto* array = v != nullptr ? std::get_if<GgufArray>(&v->value) : nullptr;
  if (array == nullptr || assumed(key) != nullptr) {
    const auto one = integer(key);
    if (!one) return std::nullopt;
    return Sourced<std::vector<Index>>{
        std::vector<Index>(static_cast<std::size_t>(count), one->value), one->origin, one->where};
  }
  if (array->type != GgufType::u32 && array->type != GgufType::i32 &&
      array->type != GgufType::boolean)
    return wrong_type(key, "an array of u32, i32 or bool", name(array->type)), std::nullopt;
  auto values = v->integers(1u << 16);
  if (!values || static_cast<Index>(values->size()) < count) {
    error("list_length", full(key),
          full(key) + " must have " + std::to_string(count) + " elements, got " +
              std::to_string(array->count),
          "convert the model again: one element a layer");
    return std::nullopt;
  }
  return Sourced<std::vector<Index>>{std::move(*values), Origin::stated, full(key)};
}

}  // namespace posenc::gguf
