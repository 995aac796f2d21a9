// SPDX-License-Identifier: Apache-2.0
#include "utf8.h"

#include <array>

namespace posenc::report {
namespace {

// Bytes of the character that begins at t[at]; 0 where none does.
std::size_t character(std::string_view t, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < t.size() ? static_cast<unsigned char>(t[at + i]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  unsigned code = first & (0xffu >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::array<unsigned, 5> least{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < least[size] || code > 0x10ffff || surrogate ? 0 : size;
}

bool control(std::string_view c) {
  return c.size() == 1 && static_cast<unsigned char>(c[0]) < 0x20 && c != "\t" && c != "\n" &&
         c != "\r";
}

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace

std::string utf8(std::string_view t) {
  std::string out;
  for (std::size_t at = 0; at < t.size();) {
    const std::size_t size = character(t, at);
    out += size == 0 ? kReplacement : t.substr(at, size);
    at += size == 0 ? 1 : size;
  }
  return out;
}

Json in_utf8(Json j) {
  if (auto* text = std::get_if<std::string>(&j.value)) {
    *text = utf8(std::string_view(*text));
  } else if (auto* list = std::get_if<Json::Array>(&j.value)) {
    for (Json& x : *list) x = in_utf8(std::move(x));
  } else if (auto* object = std::get_if<Json::Object>(&j.value)) {
    for (auto& [key, x] : *object) key = utf8(std::string_view(key)), x = in_utf8(std::move(x));
  }
  return j;
}

std::string escape_xml(std::string_view text) {
  const std::string t = utf8(text);
  std::string out;
  for (std::size_t at = 0; at < t.size();) {
    const std::string_view c = std::string_view(t).substr(at, character(t, at));
    if (c == "<")
      out += "&lt;";
    else if (c == ">")
      out += "&gt;";
    else if (c == "&")
      out += "&amp;";
    else if (c == "\"")
      out += "&quot;";
    else
      out += control(c) || c == "\xef\xbf\xbe" || c == "\xef\xbf\xbf" ? kReplacement : c;
    at += c.size();
  }
  return out;
}

}  // namespace posenc::report
