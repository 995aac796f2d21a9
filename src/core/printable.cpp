// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "posenc/core/printable.h"

namespace posenc::inline v0 {
namespace {

// Length of the UTF-8 sequence at the front of `s`, 0 when it is none or a control character.
std::size_t printable_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  std::size_t n = 0;
  if (lead >= 0xc2 && lead < 0xe0) n = 2;
  if (lead >= 0xe0 && lead < 0xf0) n = 3;
  if (lead >= 0xf0 && lead < 0xf5) n = 4;
  if (n == 0 || s.size() < n) return 0;
  for (std::size_t i = 1; i < n; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if (lead == 0xc2 && byte(1) < 0xa0) return 0;  // U+0080 .. U+009F control a terminal too
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;
  if (lead == 0xed && byte(1) >= 0xa0) return 0;
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) >= 0x90) return 0;
  // Marks that reorder the line around them: U+200E, U+200F, U+202A .. U+202E, U+2066 .. U+2069.
  if (lead == 0xe2 && byte(1) == 0x80 &&
      (byte(2) == 0x8e || byte(2) == 0x8f || (byte(2) >= 0xaa && byte(2) <= 0xae)))
    return 0;
  if (lead == 0xe2 && byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9) return 0;
  return n;
}

}  // namespace

std::string printable(std::string_view s, std::size_t limit) {
  std::string out;
  out.reserve(std::min(s.size(), limit));
  for (std::size_t shown = 0; !s.empty() && shown < limit; ++shown) {
    const std::size_t n = printable_length(s);
    if (n == 0)
      out += '?';
    else
      out.append(s.substr(0, n));
    s.remove_prefix(n == 0 ? 1 : n);
  }
  if (!s.empty()) out += "...";
  return out;
}

}  // namespace posenc::v0
