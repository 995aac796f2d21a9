// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "chart.h"

namespace posenc::cli {
namespace {

// Bytes of the character that begins at t[at]; 0 where it is no UTF-8 or no character of XML 1.0.
std::size_t character(std::string_view t, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < t.size() ? static_cast<unsigned char>(t[at + i]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 || first == '\t' || first == '\n' || first == '\r';
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  unsigned code = first & (0xffu >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::array<unsigned, 5> least{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < least[size] || code > 0x10ffff || surrogate || code == 0xfffe || code == 0xffff
             ? 0
             : size;
}

}  // namespace

std::string escape_xml(std::string_view t) {
  std::string out;
  for (std::size_t at = 0; at < t.size();) {
    const std::size_t size = character(t, at);
    const char c = t[at];
    if (size == 0)
      out += "\xef\xbf\xbd";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += t.substr(at, size);
    at += size == 0 ? 1 : size;
  }
  return out;
}

}  // namespace posenc::cli
