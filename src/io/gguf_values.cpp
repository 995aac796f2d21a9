// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "io/gguf_reader.h"
#include "posenc/core/printable.h"
#include "posenc/io/gguf.h"

namespace posenc::inline v0 {
namespace {

constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());

Index element(const GgufArray& a, std::uint64_t i, bool big) {
  const std::byte* p = a.bytes.data();
  switch (a.type) {
    case GgufType::u8:
    case GgufType::boolean:
      return static_cast<Index>(gguf::load<std::uint8_t>(p + i, big));
    case GgufType::i8:
      return gguf::load<std::int8_t>(p + i, big);
    case GgufType::u16:
      return gguf::load<std::uint16_t>(p + 2 * i, big);
    case GgufType::i16:
      return gguf::load<std::int16_t>(p + 2 * i, big);
    case GgufType::u32:
      return gguf::load<std::uint32_t>(p + 4 * i, big);
    case GgufType::i32:
      return gguf::load<std::int32_t>(p + 4 * i, big);
    case GgufType::u64:
      return static_cast<Index>(std::min(gguf::load<std::uint64_t>(p + 8 * i, big), kMost));
    default:
      return gguf::load<std::int64_t>(p + 8 * i, big);
  }
}

// IEEE binary16, widened.
double from_half(std::uint16_t h) {
  const double sign = (h & 0x8000u) != 0 ? -1.0 : 1.0;
  const int exponent = (h >> 10) & 31;
  const int fraction = h & 1023;
  if (exponent == 31)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

}  // namespace

std::optional<Index> GgufValue::integer() const noexcept {
  if (const auto* u = std::get_if<std::uint64_t>(&value); u != nullptr && *u <= kMost)
    return static_cast<Index>(*u);
  if (const auto* i = std::get_if<std::int64_t>(&value)) return *i;
  return std::nullopt;
}

std::optional<double> GgufValue::number() const noexcept {
  if (const auto* d = std::get_if<double>(&value)) return *d;
  if (const auto* u = std::get_if<std::uint64_t>(&value)) return static_cast<double>(*u);
  if (const auto* i = std::get_if<std::int64_t>(&value)) return static_cast<double>(*i);
  return std::nullopt;
}

std::optional<bool> GgufValue::boolean() const noexcept {
  if (const auto* b = std::get_if<bool>(&value)) return *b;
  return std::nullopt;
}

std::optional<std::string_view> GgufValue::text() const noexcept {
  if (const auto* s = std::get_if<std::string_view>(&value)) return *s;
  return std::nullopt;
}

std::optional<std::vector<Index>> GgufValue::integers(std::uint64_t limit) const {
  const auto* a = std::get_if<GgufArray>(&value);
  if (a == nullptr || a->count > limit) return std::nullopt;
  if (a->type == GgufType::f32 || a->type == GgufType::f64 || a->type == GgufType::string)
    return std::nullopt;
  std::vector<Index> out(a->count);
  for (std::uint64_t i = 0; i < a->count; ++i) out[i] = element(*a, i, big_endian);
  return out;
}

const GgufValue* GgufFile::find(std::string_view key) const noexcept {
  const auto it = std::find_if(metadata.begin(), metadata.end(),
                               [&](const GgufValue& v) { return v.key == key; });
  return it == metadata.end() ? nullptr : &*it;
}

const GgufTensor* GgufFile::tensor(std::string_view wanted) const noexcept {
  const auto it = std::find_if(tensors.begin(), tensors.end(),
                               [&](const GgufTensor& t) { return t.name == wanted; });
  return it == tensors.end() ? nullptr : &*it;
}

std::vector<double> GgufFile::values(const GgufTensor& t, std::uint64_t limit) const {
  const auto fail = [&](const std::string& problem) {
    throw FormatError(file, printable(t.name), problem);
  };
  std::uint64_t width = 0;
  if (t.type == 0) width = 4;
  if (t.type == 1 || t.type == 30) width = 2;
  if (t.type == 28) width = 8;
  if (width == 0) fail("must be f32, f16, bf16 or f64, got type " + std::to_string(t.type));
  if (!t.complete) fail("the file ends before the data of this tensor do");
  const std::uint64_t count = t.size / width;
  if (count > limit)
    fail("at most " + std::to_string(limit) + " elements are read, got " + std::to_string(count));
  std::vector<double> out(count);
  const std::byte* p = bytes.data() + t.offset;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::byte* at = p + i * width;
    if (t.type == 0) out[i] = static_cast<double>(gguf::load<float>(at, big_endian));
    if (t.type == 28) out[i] = gguf::load<double>(at, big_endian);
    if (t.type == 1) out[i] = from_half(gguf::load<std::uint16_t>(at, big_endian));
    if (t.type == 30) {
      const auto bits = static_cast<std::uint32_t>(gguf::load<std::uint16_t>(at, big_endian)) << 16;
      float f = 0;
      static_assert(sizeof f == sizeof bits);
      std::memcpy(&f, &bits, sizeof f);
      out[i] = static_cast<double>(f);
    }
  }
  return out;
}

}  // namespace posenc::v0
