// SPDX-License-Identifier: Apache-2.0
// A cursor over hostile bytes: every read says what it reads and is checked against what is left.
#pragma once
#include <bit>
#include <concepts>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "posenc/core/error.h"

namespace posenc::inline v0::gguf {

template <class T>
T load(const std::byte* p, bool big_endian) noexcept {
  std::byte raw[sizeof(T)];
  const bool swap = big_endian != (std::endian::native == std::endian::big);
  for (std::size_t i = 0; i < sizeof(T); ++i) raw[i] = p[swap ? sizeof(T) - 1 - i : i];
  T v;
  std::memcpy(&v, raw, sizeof(T));
  return v;
}

class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  std::uint64_t at() const noexcept { return at_; }
  std::uint64_t left() const noexcept { return bytes_.size() - at_; }
  bool big_endian = false;
  std::string place;  // the key or tensor being read; empty: the byte is named instead

  [[noreturn]] void fail(std::string_view problem) const {
    throw FormatError(file_, place.empty() ? "byte " + std::to_string(at_) : place,
                      place.empty() ? std::string(problem)
                                    : std::string(problem) + " (byte " + std::to_string(at_) + ")");
  }
  std::span<const std::byte> take(std::uint64_t n, std::string_view what) {
    if (n > left())
      fail(std::string(what) + " of " + std::to_string(n) +
           " bytes reaches past the end of the file, " + std::to_string(left()) + " are left");
    const auto part = bytes_.subspan(at_, n);
    at_ += n;
    return part;
  }
  template <class T>
  T number(std::string_view what) {
    return load<T>(take(sizeof(T), what).data(), big_endian);
  }
  std::string_view text(std::string_view what) {
    const auto n = number<std::uint64_t>(what);
    const auto part = take(n, what);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& file_;
  std::uint64_t at_ = 0;
};

}  // namespace posenc::v0::gguf
