// SPDX-License-Identifier: Apache-2.0
#include "registry/grammar_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "posenc/core/error.h"
#include "posenc/core/printable.h"

namespace posenc::inline v0::grammar {
namespace {

constexpr std::string_view kNone = "none", kUnset = "unset";

[[noreturn]] void fail(const ValueContext& c, std::string_view rule, std::string_view got) {
  refuse_sentence("scheme", c.name, c.what() + " " + std::string(rule), printable(got));
}

// Also true for a NaN that has no place in the range.
void check_range(const ValueContext& c, double x, std::string_view text) {
  if (x >= c.field.min && x <= c.field.max) return;
  std::string rule = "must be finite";
  // A finite number beyond the usual end of a range breaks that end, not the other.
  const bool beyond_usual = std::isfinite(x) && (x > 1e300 || x < -1e300);
  if (beyond_usual || (c.field.min > -1e300 && c.field.max < 1e300))
    rule = "must be within " + number_text(c.field.min) + " and " + number_text(c.field.max);
  else if (c.field.min > -1e300)
    rule = "must be finite and at least " + number_text(c.field.min);
  else if (c.field.max < 1e300)
    rule = "must be finite and at most " + number_text(c.field.max);
  fail(c, rule, text);
}

double number(const ValueContext& c, std::string_view text) {
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error == std::errc::result_out_of_range) fail(c, "must fit a double", text);
  if (error != std::errc() || end != text.data() + text.size()) fail(c, "must be a number", text);
  return x;
}

Index whole(const ValueContext& c, double x, std::string_view text) {
  if (!(x >= -0x1p53 && x <= 0x1p53) || x != std::floor(x)) fail(c, "must be a whole number", text);
  return static_cast<Index>(x);
}

Index integer(const ValueContext& c, std::string_view text) {
  Index i = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), i);
  if (error == std::errc() && end == text.data() + text.size()) return i;
  return whole(c, number(c, text), text);  // 1e6
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

// [a,b,c], or the array that @name names.
template <class T, class Element, class FromDouble>
std::vector<T> list(const ValueContext& c, std::string_view text, Element element,
                    FromDouble from_double) {
  std::vector<T> values;
  if (text.size() > 1 && text.front() == '@') {
    if (!c.arrays) fail(c, "names an array, but no arrays are given", text);
    for (const double x : c.arrays(text.substr(1))) values.push_back(from_double(x, text));
    return values;
  }
  if (text.size() < 2 || text.front() != '[' || text.back() != ']')
    fail(c, "must be a list [a,b,...] or @array", text);
  std::string_view rest = trimmed(text.substr(1, text.size() - 2));
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    values.push_back(element(trimmed(rest.substr(0, comma))));
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
    if (trimmed(rest).empty()) fail(c, "must have an entry after each comma", text);
  }
  return values;
}

// Letters and digits as they stand; everything else in double quotes, \" and \\ inside.
std::string unquoted(const ValueContext& c, std::string_view text) {
  if (text.empty() || text.front() != '"') {
    if (text.empty() || text.find_first_of("\"[]@,") != std::string_view::npos)
      fail(c, "must be a word or \"text\" in double quotes", text);
    return std::string(text);
  }
  std::string s;
  std::size_t i = 1;
  for (; i < text.size() && text[i] != '"'; ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    s += text[i];
  }
  if (i + 1 != text.size()) fail(c, "must end with its closing quote", text);
  return s;
}

std::string text_value(std::string_view text) {
  const bool plain = !text.empty() && text != kNone && text != "+" &&
                     text.find_first_of(" \t\n\r\"\\[]@,") == std::string_view::npos;
  if (plain) return std::string(text);
  std::string s = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') s += '\\';
    s += c;
  }
  return s + '"';
}

// What somebody may choose: the names but unset.
std::vector<std::string_view> choices_of(std::span<const std::string_view> names) {
  std::vector<std::string_view> choices;
  for (const std::string_view n : names)
    if (n != kUnset) choices.push_back(n);
  return choices;
}

std::size_t choice(const ValueContext& c, std::string_view text,
                   std::span<const std::string_view> names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == text && text != kUnset) return i;
  refuse_unknown(c.what(), text, choices_of(names), c.name);
}

// A value of a file as the grammar would write it, for errors.
std::string text_of(const Json& j) {
  if (j.is_string()) return j.as_string();
  if (j.is_number() && !j.is_integer()) return number_text(j.as_number());
  if (!j.is_array()) return j.dump();
  std::string text = "[";
  for (const Json& x : j.as_array()) text.append(text.size() > 1 ? "," : "").append(text_of(x));
  return text + "]";
}

struct Parse {
  const ValueContext& c;
  std::string_view text;

  double checked(std::string_view t) const {
    const double x = number(c, t);
    check_range(c, x, t);
    return x;
  }
  Index checked_integer(std::string_view t) const {
    const Index i = integer(c, t);
    check_range(c, static_cast<double>(i), t);
    return i;
  }
  void operator()(double* x) const { *x = checked(text); }
  void operator()(Index* x) const { *x = checked_integer(text); }
  void operator()(bool* x) const {
    if (text != "true" && text != "false") fail(c, "must be true or false", text);
    *x = text == "true";
  }
  void operator()(std::string* x) const { *x = unquoted(c, text); }
  void operator()(std::vector<double>* x) const {
    *x = list<double>(
        c, text, [this](std::string_view t) { return checked(t); },
        [this](double d, std::string_view) {
          check_range(c, d, number_text(d));
          return d;
        });
  }
  void operator()(std::vector<Index>* x) const {
    *x = list<Index>(
        c, text, [this](std::string_view t) { return checked_integer(t); },
        [this](double d, std::string_view) {
          check_range(c, d, number_text(d));
          return whole(c, d, number_text(d));
        });
  }
  void operator()(const EnumRef& e) const { e.set(e.value, choice(c, text, e.names)); }
  void operator()(const EnumListRef& e) const {
    if (text.starts_with('@')) fail(c, "must be a list of words, not an array", text);
    e.set(e.value, list<std::size_t>(
                       c, text, [&](std::string_view t) { return choice(c, t, e.names); },
                       [](double, std::string_view) { return std::size_t{0}; }));
  }
  void operator()(const OptionalRef& o) const {
    if (text == kNone)
      o.reset(o.value);
    else
      std::visit(*this, o.engage(o.value).target);
  }
};

struct Assign {
  const ValueContext& c;
  const Json& value;

  double checked(const Json& j) const {
    if (!j.is_number()) fail(c, "must be a number", text_of(j));
    check_range(c, j.as_number(), text_of(j));
    return j.as_number();
  }
  Index checked_integer(const Json& j) const {
    if (!j.is_number()) fail(c, "must be a number", text_of(j));
    const Index i = j.is_integer() ? j.as_integer() : whole(c, j.as_number(), text_of(j));
    check_range(c, static_cast<double>(i), text_of(j));
    return i;
  }
  template <class T, class Element>
  std::vector<T> list_of(Element element) const {
    if (!value.is_array()) fail(c, "must be a list [a,b,...] or @array", text_of(value));
    std::vector<T> values;
    for (const Json& j : value.as_array()) values.push_back(element(j));
    return values;
  }
  void operator()(double* x) const { *x = checked(value); }
  void operator()(Index* x) const { *x = checked_integer(value); }
  void operator()(bool* x) const {
    if (!value.is_bool()) fail(c, "must be true or false", text_of(value));
    *x = value.as_bool();
  }
  void operator()(std::string*) const { fail(c, "must be a word", text_of(value)); }
  void operator()(std::vector<double>* x) const {
    *x = list_of<double>([this](const Json& j) { return checked(j); });
  }
  void operator()(std::vector<Index>* x) const {
    *x = list_of<Index>([this](const Json& j) { return checked_integer(j); });
  }
  void operator()(const EnumRef& e) const { e.set(e.value, choice(c, text_of(value), e.names)); }
  void operator()(const EnumListRef& e) const {
    e.set(e.value,
          list_of<std::size_t>([&](const Json& j) { return choice(c, text_of(j), e.names); }));
  }
  void operator()(const OptionalRef& o) const {
    if (value.is_null())
      o.reset(o.value);
    else
      std::visit(*this, o.engage(o.value).target);
  }
};

template <class T, class ToText>
std::string list_text(const std::vector<T>& values, ToText to_text) {
  std::string s = "[";
  for (const T& v : values) s.append(s.size() > 1 ? "," : "").append(to_text(v));
  return s + "]";
}

struct Text {
  std::string operator()(const double* x) const { return number_text(*x); }
  std::string operator()(const Index* x) const { return std::to_string(*x); }
  std::string operator()(const bool* x) const { return *x ? "true" : "false"; }
  std::string operator()(const std::string* x) const { return text_value(*x); }
  std::string operator()(const std::vector<double>* x) const { return list_text(*x, number_text); }
  std::string operator()(const std::vector<Index>* x) const {
    return list_text(*x, [](Index i) { return std::to_string(i); });
  }
  std::string operator()(const EnumRef& e) const { return std::string(e.names[e.get(e.value)]); }
  std::string operator()(const EnumListRef& e) const {
    return list_text(e.get(e.value), [&e](std::size_t i) { return std::string(e.names[i]); });
  }
  std::string operator()(const OptionalRef& o) const {
    return o.has(o.value) ? std::visit(*this, o.engage(o.value).target) : std::string(kNone);
  }
};

struct ToJson {
  template <class T>
  Json operator()(const T* x) const {
    return Json(*x);
  }
  template <class T>
  Json operator()(const std::vector<T>* x) const {
    Json::Array a;
    for (const T& v : *x) a.emplace_back(v);
    return Json(std::move(a));
  }
  Json operator()(const EnumRef& e) const { return Json(e.names[e.get(e.value)]); }
  Json operator()(const EnumListRef& e) const {
    Json::Array a;
    for (const std::size_t i : e.get(e.value)) a.emplace_back(e.names[i]);
    return Json(std::move(a));
  }
  Json operator()(const OptionalRef& o) const {
    return o.has(o.value) ? std::visit(*this, o.engage(o.value).target) : Json();
  }
};

struct Type {
  std::string operator()(const double*) const { return "number"; }
  std::string operator()(const Index*) const { return "integer"; }
  std::string operator()(const bool*) const { return "boolean"; }
  std::string operator()(const std::string*) const { return "text"; }
  std::string operator()(const std::vector<double>*) const { return "list of numbers"; }
  std::string operator()(const std::vector<Index>*) const { return "list of integers"; }
  std::string operator()(const EnumRef& e) const {
    std::string s;
    for (const std::string_view n : choices_of(e.names)) s.append(s.empty() ? "" : "|").append(n);
    return s;
  }
  std::string operator()(const EnumListRef&) const { return "list of words"; }
  std::string operator()(const OptionalRef& o) const {
    const bool had = o.has(o.value);
    std::string s = std::visit(*this, o.engage(o.value).target);
    if (!had) o.reset(o.value);
    return s;
  }
};

}  // namespace

void parse_value(const ValueContext& c, std::string_view text, const ValueRef& v) {
  std::visit(Parse{c, text}, v.target);
}

void set_value(const ValueContext& c, const Json& value, const ValueRef& v) {
  if (value.is_string())
    parse_value(c, value.as_string(), v);
  else
    std::visit(Assign{c, value}, v.target);
}

std::string value_text(const ValueRef& v) {
  return std::visit(Text{}, v.target);
}

Json value_json(const ValueRef& v) {
  return std::visit(ToJson{}, v.target);
}

FieldInfo field_info(const FieldRef& f) {
  FieldInfo info;
  info.name = f.name;
  info.type = std::visit(Type{}, f.value.target);
  info.doc = f.field.doc;
  info.unit = f.field.unit;
  if (f.field.min > -1e300) info.min = f.field.min;
  if (f.field.max < 1e300) info.max = f.field.max;
  info.required = f.field.required;
  info.optional = std::holds_alternative<OptionalRef>(f.value.target);
  info.default_text = value_text(f.value);
  if (!f.field.required) info.default_value = value_json(f.value);
  info.default_from = f.field.from;
  if (const auto* e = std::get_if<EnumRef>(&f.value.target)) info.choices = choices_of(e->names);
  if (const auto* e = std::get_if<EnumListRef>(&f.value.target))
    info.choices = choices_of(e->names);
  return info;
}

}  // namespace posenc::v0::grammar
