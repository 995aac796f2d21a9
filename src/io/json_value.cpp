// SPDX-License-Identifier: Apache-2.0
// The JSON value: access, change, text.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "posenc/core/error.h"
#include "posenc/io/json.h"

namespace posenc::inline v0 {
namespace {

constexpr int kMaxDepth = 200;
constexpr std::string_view kTypeNames[] = {"null",     "a boolean", "an integer", "a number",
                                           "a string", "an array",  "an object"};

[[noreturn]] void wrong_type(std::string_view want, const Json& got) {
  refuse("json", "must be " + std::string(want), kTypeNames[got.value.index()]);
}

template <class T>
auto& get(auto& json, std::string_view want) {
  auto* p = std::get_if<T>(&json.value);
  if (!p) wrong_type(want, json);
  return *p;
}

// Bytes of the UTF-8 character at text[i], 0 when it is none (overlong, surrogate, beyond 10FFFF).
std::size_t utf8_length(std::string_view text, std::size_t i) {
  const auto at = [&](std::size_t k) -> unsigned {
    return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u;
  };
  const auto tail = [&](std::size_t k) { return (at(k) & 0xc0u) == 0x80u; };
  const unsigned c = at(0);
  if (c < 0x80) return 1;
  if (c >= 0xc2 && c <= 0xdf) return tail(1) ? 2 : 0;
  if (c >= 0xe0 && c <= 0xef) {
    const bool low = c == 0xe0 && at(1) < 0xa0, surrogate = c == 0xed && at(1) > 0x9f;
    return tail(1) && tail(2) && !low && !surrogate ? 3 : 0;
  }
  if (c >= 0xf0 && c <= 0xf4) {
    const bool low = c == 0xf0 && at(1) < 0x90, high = c == 0xf4 && at(1) > 0x8f;
    return tail(1) && tail(2) && tail(3) && !low && !high ? 4 : 0;
  }
  return 0;
}

void write_string(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    const std::size_t n = utf8_length(text, i);
    if (n == 0)
      refuse_field("json", "strings", "must be UTF-8, broken at byte", static_cast<Index>(i));
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out.append(text, i, n);
    }
    i += n;
  }
  out += '"';
}

void write_double(std::string& out, double d) {
  if (!std::isfinite(d)) refuse_field("json", "numbers", "must be finite", d);
  const std::string text = number_text(d);
  out += text;
  // A number without fraction or exponent would read back as an integer.
  if (text.find_first_of(".e") == std::string::npos) out += ".0";
}

struct JsonText {
  std::string out;
  int indent;

  void line(int depth) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(indent) * static_cast<std::size_t>(depth), ' ');
  }
  void write(const Json& j, int depth) {
    switch (j.value.index()) {
      case 0:
        out += "null";
        break;
      case 1:
        out += std::get<bool>(j.value) ? "true" : "false";
        break;
      case 2:
        out += std::to_string(std::get<std::int64_t>(j.value));
        break;
      case 3:
        write_double(out, std::get<double>(j.value));
        break;
      case 4:
        write_string(out, std::get<std::string>(j.value));
        break;
      default:
        write_container(j, depth);
    }
  }
  void write_container(const Json& j, int depth) {
    if (depth >= kMaxDepth) refuse("json", "must not be nested deeper than 200 levels");
    const bool object = j.is_object();
    bool first = true;
    const auto separate = [&] {
      if (!first) out += ',';
      if (!first && indent < 0) out += ' ';
      first = false;
      line(depth + 1);
    };
    out += object ? '{' : '[';
    if (object) {
      for (const auto& [key, v] : j.as_object()) {
        separate();
        write_string(out, key);
        out += ": ";
        write(v, depth + 1);
      }
    } else {
      for (const Json& v : j.as_array()) {
        separate();
        write(v, depth + 1);
      }
    }
    if (!first) line(depth);
    out += object ? '}' : ']';
  }
};

// One token of a JSON pointer, ~1 and ~0 undone.
std::string unescaped(std::string_view token) {
  std::string s;
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1'))
      s += token[++i] == '0' ? '~' : '/';
    else
      s += token[i];
  }
  return s;
}

const Json* child(const Json& j, std::string_view token) {
  if (j.is_object()) return j.find(unescaped(token));
  if (!j.is_array() || token.empty() || (token.size() > 1 && token[0] == '0')) return nullptr;
  std::size_t i = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), i);
  if (error != std::errc() || end != token.data() + token.size()) return nullptr;
  return i < j.as_array().size() ? &j.as_array()[i] : nullptr;
}

}  // namespace

Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;
Json::Json() : value(nullptr) {}
Json::Json(std::nullptr_t) : value(nullptr) {}
Json::Json(bool b) : value(b) {}
Json::Json(int i) : value(std::int64_t{i}) {}
Json::Json(std::int64_t i) : value(i) {}
Json::Json(double d) : value(d) {}
Json::Json(const char* s) : value(std::string(s)) {}
Json::Json(std::string s) : value(std::move(s)) {}
Json::Json(std::string_view s) : value(std::string(s)) {}
Json::Json(Array a) : value(std::move(a)) {}
Json::Json(Object o) : value(std::move(o)) {}
Json Json::object(std::initializer_list<Member> m) {
  return Json(Object(m));
}
Json Json::array(std::initializer_list<Json> a) {
  return Json(Array(a));
}
bool Json::operator==(const Json& other) const {
  return value == other.value;
}

bool Json::as_bool() const {
  return get<bool>(*this, "a boolean");
}
std::int64_t Json::as_integer() const {
  return get<std::int64_t>(*this, "an integer");
}
double Json::as_number() const {
  if (is_integer()) return static_cast<double>(std::get<std::int64_t>(value));
  return get<double>(*this, "a number");
}
const std::string& Json::as_string() const {
  return get<std::string>(*this, "a string");
}
const Json::Array& Json::as_array() const {
  return get<Array>(*this, "an array");
}
const Json::Object& Json::as_object() const {
  return get<Object>(*this, "an object");
}
Json::Array& Json::as_array() {
  return get<Array>(*this, "an array");
}
Json::Object& Json::as_object() {
  return get<Object>(*this, "an object");
}

const Json* Json::find(std::string_view key) const {
  if (const auto* members = std::get_if<Object>(&value))
    for (const auto& m : *members)
      if (m.first == key) return &m.second;
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  if (!is_object()) wrong_type("an object", *this);
  if (const Json* p = find(key)) return *p;
  refuse("json", "the object must have the key", key);
}

const Json* Json::at_pointer(std::string_view pointer) const {
  const Json* at = this;
  while (at && !pointer.empty()) {
    if (pointer[0] != '/') return nullptr;
    const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
    at = child(*at, pointer.substr(1, end - 1));
    pointer.remove_prefix(end);
  }
  return at;
}

void Json::set(std::string_view key, Json v) {
  if (is_null()) value = Object();
  for (auto& m : as_object())
    if (m.first == key) {
      m.second = std::move(v);
      return;
    }
  as_object().emplace_back(std::string(key), std::move(v));
}

void Json::push(Json v) {
  if (is_null()) value = Array();
  as_array().push_back(std::move(v));
}

std::string Json::dump(int indent) const {
  JsonText w{{}, indent};
  w.write(*this, 0);
  return std::move(w.out);
}

}  // namespace posenc::v0
