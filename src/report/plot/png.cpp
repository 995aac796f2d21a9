// SPDX-License-Identifier: Apache-2.0
#include "png.h"

#include <algorithm>
#include <string_view>

namespace posenc::report {
namespace {

using Bytes = std::vector<std::uint8_t>;

void big_endian(Bytes& out, std::uint32_t v) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<std::uint8_t>(v >> shift));
}

std::uint32_t crc32(const std::uint8_t* p, std::size_t n) {
  std::uint32_t c = 0xffffffffu;
  for (std::size_t i = 0; i < n; ++i) {
    c ^= p[i];
    for (int k = 0; k < 8; ++k) c = (c >> 1) ^ (0xedb88320u & (0u - (c & 1)));
  }
  return ~c;
}

void chunk(Bytes& out, std::string_view type, const Bytes& body) {
  big_endian(out, static_cast<std::uint32_t>(body.size()));
  const std::size_t from = out.size();
  out.insert(out.end(), type.begin(), type.end());
  out.insert(out.end(), body.begin(), body.end());
  big_endian(out, crc32(out.data() + from, out.size() - from));
}

Bytes stored(const Bytes& raw) {
  Bytes z{0x78, 0x01};
  std::uint32_t a = 1, b = 0;  // Adler-32
  for (const std::uint8_t v : raw) a = (a + v) % 65521, b = (b + a) % 65521;
  for (std::size_t at = 0; at < raw.size() || at == 0;) {
    const std::size_t n = std::min<std::size_t>(65535, raw.size() - at);
    z.push_back(at + n == raw.size() ? 1 : 0);
    const std::uint8_t low = static_cast<std::uint8_t>(n & 255),
                       high = static_cast<std::uint8_t>(n >> 8);
    z.insert(z.end(),
             {low, high, static_cast<std::uint8_t>(~low), static_cast<std::uint8_t>(~high)});
    z.insert(z.end(), raw.begin() + static_cast<std::ptrdiff_t>(at),
             raw.begin() + static_cast<std::ptrdiff_t>(at + n));
    at += n;
    if (raw.empty()) break;
  }
  big_endian(z, b << 16 | a);
  return z;
}

}  // namespace

Bytes png(const Bytes& rgb, int width, int height) {
  Bytes out{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, head, raw;
  big_endian(head, static_cast<std::uint32_t>(width));
  big_endian(head, static_cast<std::uint32_t>(height));
  head.insert(head.end(), {8, 2, 0, 0, 0});
  const std::size_t row = 3 * static_cast<std::size_t>(width);
  for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y) {
    raw.push_back(0);  // filter: none
    raw.insert(raw.end(), rgb.begin() + static_cast<std::ptrdiff_t>(y * row),
               rgb.begin() + static_cast<std::ptrdiff_t>((y + 1) * row));
  }
  chunk(out, "IHDR", head);
  chunk(out, "IDAT", stored(raw));
  chunk(out, "IEND", {});
  return out;
}

std::string base64(const Bytes& in) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < in.size(); i += 3) {
    const std::uint32_t v = static_cast<std::uint32_t>(in[i]) << 16 |
                            (i + 1 < in.size() ? static_cast<std::uint32_t>(in[i + 1]) << 8 : 0) |
                            (i + 2 < in.size() ? static_cast<std::uint32_t>(in[i + 2]) : 0);
    out += digits[v >> 18];
    out += digits[v >> 12 & 63];
    out += i + 1 < in.size() ? digits[v >> 6 & 63] : '=';
    out += i + 2 < in.size() ? digits[v & 63] : '=';
  }
  return out;
}

}  // namespace posenc::report
