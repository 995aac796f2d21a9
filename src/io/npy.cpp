// SPDX-License-Identifier: Apache-2.0
// .npy: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1 to 3.
//   \x93NUMPY, major, minor, length of the header (u16, from version 2 u32), a Python dictionary
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, data.
#include "io/npy.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "io/files.h"
#include "io/widen.h"
#include "posenc/core/error.h"
#include "posenc/core/printable.h"
#include "posenc/io/array.h"

namespace posenc::inline v0 {
namespace {

constexpr std::size_t kMaxRank = 64;  // numpy's own limit
constexpr std::size_t kMaxHeaderOfStream = 1'000'000;

using detail::NpyHeader;

// The header's dictionary literal: only what numpy writes, in any order and spacing.
class Reader {
 public:
  Reader(std::string_view text, std::size_t offset, const std::string& file)
      : text_(text), offset_(offset), file_(file) {}

  NpyHeader read() {
    std::optional<std::string> descr;
    std::optional<bool> fortran;
    std::optional<std::vector<Index>> shape;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !descr)
        descr = type();
      else if (key == "fortran_order" && !fortran)
        fortran = boolean();
      else if (key == "shape" && !shape)
        shape = tuple();
      else
        fail("the header must have descr, fortran_order and shape once each, got " +
             printable(key));
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    blanks();
    if (at_ != text_.size()) fail("the header must end after its dictionary");
    if (!descr || !fortran || !shape) fail("the header must have descr, fortran_order and shape");
    return {std::move(*descr), *fortran, std::move(*shape), offset_ + text_.size()};
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw FormatError(file_, "byte " + std::to_string(offset_ + at_), problem);
  }
  void blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  bool accept(char c) {
    blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("the header must have '") + c + "' here");
  }
  bool word(std::string_view w) {
    blanks();
    if (text_.substr(at_, w.size()) != w) return false;
    at_ += w.size();
    return true;
  }
  std::string string() {
    blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail("the header must have a string here");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("a string of the header does not end");
    std::string s(text_.substr(at_ + 1, end - at_ - 1));
    if (s.size() > 64 || s.find('\\') != std::string::npos) fail("a string of the header is odd");
    at_ = end + 1;
    return s;
  }
  std::string type() {
    blanks();
    if (at_ < text_.size() && text_[at_] == '[') fail("structured types are not tensors");
    return string();
  }
  bool boolean() {
    if (word("True")) return true;
    if (word("False")) return false;
    fail("fortran_order must be True or False");
  }
  Index integer() {
    blanks();
    const std::size_t begin = at_;
    Index n = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      const Index digit = text_[at_] - '0';
      if (n > (kUnbounded - digit) / 10) fail("a size of the shape does not fit 63 bits");
      n = 10 * n + digit;
      ++at_;
    }
    if (at_ == begin) fail("the shape must hold non-negative integers");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // written by Python 2
    return n;
  }
  std::vector<Index> tuple() {
    std::vector<Index> shape;
    expect('(');
    bool comma = true;
    while (!accept(')')) {
      if (!comma) fail("the sizes of the shape must be separated by commas");
      if (shape.size() == kMaxRank) fail("the shape has more than 64 axes");
      shape.push_back(integer());
      comma = accept(',');
    }
    if (shape.size() == 1 && !comma) fail("a shape of one axis must be written (n,)");
    return shape;
  }

  std::string_view text_;
  std::size_t offset_, at_ = 0;
  const std::string& file_;
};

// numpy's kind and size -> how the bytes are to be widened.
std::optional<FileType> type_of_kind(std::string_view kind) {
  constexpr std::pair<std::string_view, FileType> kTypes[] = {
      {"f8", FileType::f64}, {"f4", FileType::f32}, {"f2", FileType::f16},
      {"i8", FileType::i64}, {"i4", FileType::i32}, {"i2", FileType::i16},
      {"i1", FileType::i8},  {"u8", FileType::u64}, {"u4", FileType::u32},
      {"u2", FileType::u16}, {"u1", FileType::u8},  {"b1", FileType::boolean}};
  for (const auto& [name, type] : kTypes)
    if (name == kind) return type;
  return std::nullopt;
}

// Column-major to row-major: the first axis of the file runs fastest.
std::vector<std::byte> row_major(std::span<const std::byte> from, const std::vector<Index>& shape,
                                 std::size_t size) {
  std::vector<std::byte> to(from.size());
  std::vector<std::size_t> stride(shape.size()), at(shape.size(), 0);
  std::size_t step = size;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    stride[i] = step;
    step *= static_cast<std::size_t>(shape[i]);
  }
  std::size_t source = 0;
  for (std::size_t out = 0; out < to.size(); out += size) {
    std::memcpy(to.data() + out, from.data() + source, size);
    for (std::size_t i = shape.size(); i-- > 0;) {
      source += stride[i];
      if (++at[i] < static_cast<std::size_t>(shape[i])) break;
      source -= stride[i] * at[i];
      at[i] = 0;
    }
  }
  return to;
}

}  // namespace

namespace detail {

std::size_t npy_bound(std::span<const std::byte> have, const std::string& file) {
  constexpr std::size_t kPrefix = 12;
  if (have.size() < kPrefix) return kPrefix;
  const auto* p = reinterpret_cast<const unsigned char*>(have.data());
  if (std::memcmp(p, "\x93NUMPY", 6) != 0 || p[6] < 1 || p[6] > 3) return kPrefix;
  std::size_t end = p[6] == 1 ? 10 : 12;
  end += p[8] | static_cast<std::size_t>(p[9]) << 8;
  if (p[6] != 1)
    end += static_cast<std::size_t>(p[10]) << 16 | static_cast<std::size_t>(p[11]) << 24;
  if (end > kPrefix + kMaxHeaderOfStream) return kPrefix;
  if (have.size() < end) return end;
  const NpyHeader header = npy_header(have, file);
  const auto type =
      header.descr.empty() ? std::nullopt : type_of_kind(std::string_view(header.descr).substr(1));
  return type ? end + checked_file_bytes(*type, header.shape, file, "shape") : end;
}

NpyHeader npy_header(std::span<const std::byte> bytes, const std::string& file) {
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  if (bytes.size() < 10 || std::memcmp(p, "\x93NUMPY", 6) != 0)
    throw FormatError(file, "byte 0", "is no .npy file: must begin with \\x93NUMPY");
  if (p[6] < 1 || p[6] > 3 || p[7] != 0)
    throw FormatError(file, "byte 6",
                      ".npy version must be 1.0, 2.0 or 3.0, got " + std::to_string(p[6]) + "." +
                          std::to_string(p[7]));
  const std::size_t start = p[6] == 1 ? 10 : 12;
  if (bytes.size() < start) throw FormatError(file, "byte 8", "ends inside the header's length");
  std::size_t length = p[8] | static_cast<std::size_t>(p[9]) << 8;
  if (start == 12)
    length |= static_cast<std::size_t>(p[10]) << 16 | static_cast<std::size_t>(p[11]) << 24;
  if (length > bytes.size() - start)
    throw FormatError(file, "byte 8",
                      "the header must end inside the file, got length " + std::to_string(length));
  const std::string_view text(reinterpret_cast<const char*>(p) + start, length);
  return Reader(text, start, file).read();
}

}  // namespace detail

Array parse_npy(std::span<const std::byte> bytes, const std::string& file) {
  const NpyHeader header = detail::npy_header(bytes, file);
  const std::size_t start = header.offset;
  const std::string place = "descr";
  const char order = header.descr.empty() ? '\0' : header.descr[0];
  const auto type =
      type_of_kind(std::string_view(header.descr).substr(header.descr.empty() ? 0 : 1));
  if (!type || (order != '<' && order != '>' && order != '|' && order != '='))
    throw FormatError(file, place,
                      "must be a float of 2, 4 or 8 bytes, an integer or bool, got '" +
                          printable(header.descr) + "'");
  const std::size_t size = file_size(*type);
  if (order == '|' && size != 1)
    throw FormatError(file, place,
                      "must state a byte order, got '" + printable(header.descr) + "'");
  const std::size_t need = checked_file_bytes(*type, header.shape, file, "shape");
  if (need != bytes.size() - start)
    throw FormatError(file, "byte " + std::to_string(start),
                      "the shape needs " + std::to_string(need) + " bytes of data, got " +
                          std::to_string(bytes.size() - start));
  std::vector<std::byte> data(bytes.begin() + static_cast<std::ptrdiff_t>(start), bytes.end());
  if (order == '>' && size > 1)
    for (std::size_t i = 0; i < data.size(); i += size)
      std::reverse(data.data() + i, data.data() + i + size);
  if (header.fortran_order && header.shape.size() > 1 && !data.empty())
    data = row_major(data, header.shape, size);
  return widen(*type, header.shape, std::move(data), file, "byte " + std::to_string(start));
}

Array read_npy(const std::filesystem::path& path) {
  return parse_npy(read_array_file(path,
                                   [&](std::span<const std::byte> have) {
                                     return detail::npy_bound(have, path.string());
                                   }),
                   path.string());
}

std::vector<std::byte> npy_bytes(const Array& a) {
  constexpr std::string_view kDescr[] = {"<f8", "<f4", "<f2", "", "<i8", "<i4", "|u1"};
  if (a.dtype == DType::bf16)
    refuse_field("npy", "dtype", "must be one that numpy has (write .safetensors)",
                 dtype_name(a.dtype));
  if (a.shape.size() > kMaxRank)
    refuse("npy", "the shape must have at most 64 axes", static_cast<Index>(a.shape.size()));
  check_array(a, "npy");
  std::string text = "{'descr': '";
  text.append(kDescr[static_cast<std::size_t>(a.dtype)])
      .append("', 'fortran_order': False, 'shape': (");
  for (const Index s : a.shape) text += std::to_string(s) + (a.shape.size() == 1 ? "," : ", ");
  if (a.shape.size() > 1) text.resize(text.size() - 2);
  text += "), }";
  // Magic, version, length, header: together a multiple of 64, ended by a newline.
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  const auto n = static_cast<std::uint16_t>(text.size());
  std::string head("\x93NUMPY\x01\x00", 8);
  head += static_cast<char>(n & 0xff);
  head += static_cast<char>(n >> 8);
  head += text;
  std::vector<std::byte> bytes(head.size() + a.bytes.size());
  std::memcpy(bytes.data(), head.data(), head.size());
  if (!a.bytes.empty()) std::memcpy(bytes.data() + head.size(), a.bytes.data(), a.bytes.size());
  return bytes;
}

void write_npy(const std::filesystem::path& path, const Array& a) {
  write_file_atomically(path, npy_bytes(a));
}

}  // namespace posenc::v0
