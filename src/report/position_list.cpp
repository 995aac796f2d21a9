// SPDX-License-Identifier: Apache-2.0
// Positions on the command line: ranges, lists and files.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "common.h"
#include "notes.h"

namespace posenc::report {
namespace {

Index integer(std::string_view text) {
  Index v = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  if (text.empty() || r.ec != std::errc() || r.ptr != text.data() + text.size())
    throw UsageError(
        fmt::format("positions must be A:B[:STEP], a list or an .npy file; \"{}\" is no "
                    "64-bit integer",
                    text));
  return v;
}

double real(std::string_view text) {
  double v = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  if (text.empty() || r.ec != std::errc() || r.ptr != text.data() + text.size() ||
      !std::isfinite(v))
    throw UsageError(fmt::format("positions must be finite numbers, got \"{}\"", text));
  return v;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t from = 0;;) {
    const std::size_t to = text.find(at, from);
    parts.push_back(text.substr(from, to - from));
    if (to == std::string_view::npos) return parts;
    from = to + 1;
  }
}

constexpr std::uint64_t kMostPositions = std::uint64_t{1} << 32;

PositionList position_range(std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() > 3) throw UsageError("positions must be A:B or A:B:STEP");
  const Index first = integer(parts[0]), last = integer(parts[1]);
  const Index step = parts.size() == 3 ? integer(parts[2]) : 1;
  if (step == 0) throw UsageError("the step of the positions must not be 0");
  // Unsigned differences: A:B may span the whole 64-bit range.
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  if (step > 0 ? last < first : last > first)
    throw UsageError(
        fmt::format("the range of positions {} is empty: the step points away from the end", text));
  const bool empty = last == first;  // said so: a call without tokens
  const std::uint64_t span = step > 0 ? u(last) - u(first) : u(first) - u(last);
  const std::uint64_t width = step > 0 ? u(step) : 0 - u(step);
  const std::uint64_t count = empty ? 0 : (span - 1) / width + 1;
  if (count > kMostPositions)
    throw UsageError(
        fmt::format("at most {} positions in one call, got {}", kMostPositions, count));
  PositionList list;
  std::vector<Index> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<Index>(i) * step;
  list.shape = {static_cast<Index>(count)};
  list.owned.value = std::move(values);
  return list;
}

PositionList position_list(std::string_view text) {
  if (text.front() == '[') {
    if (text.back() != ']') throw UsageError("a list of positions ends with ]");
    text = text.substr(1, text.size() - 2);
  }
  PositionList list;
  const auto parts = text.empty() ? std::vector<std::string_view>{} : split(text, ',');
  bool whole = true;
  for (auto part : parts) whole = whole && part.find_first_of(".eE") == std::string_view::npos;
  if (whole) {
    std::vector<Index> values;
    for (auto part : parts) values.push_back(integer(part));
    list.owned.value = std::move(values);
  } else {
    std::vector<double> values;
    for (auto part : parts) values.push_back(real(part));
    list.owned.value = std::move(values);
  }
  list.shape = {static_cast<Index>(parts.size())};
  return list;
}

std::vector<double> finite(const std::string& file, std::vector<double> values) {
  for (const double v : values)
    if (!std::isfinite(v))
      throw InputError(fmt::format("{}: positions must be finite, got {}", file, v));
  return values;
}

PositionList position_file(const std::string& file) {
  const Array a = read_npy(file);
  if (a.shape.empty() || a.shape.size() > 3)
    throw InputError(file + ": positions must be [t], [b, t] or [axes, b, t]");
  PositionList list;
  list.shape = a.shape;
  if (a.dtype == DType::i64 || a.dtype == DType::i32)
    list.owned.value = a.integers();
  else if (a.dtype == DType::f64)
    list.owned.value = finite(file, a.doubles());
  else
    throw InputError(
        fmt::format("{}: positions must be i32, i64 or f64, got {}", file, dtype_name(a.dtype)));
  if (a.shape.size() > 1) list.owned.batch = a.shape[a.shape.size() - 2];
  if (a.shape.size() > 2) list.owned.axes = static_cast<std::int32_t>(a.shape[0]);
  return list;
}

}  // namespace

OwnedPositions positions_of_text(std::string_view text) {
  return read_positions(text).owned;
}

PositionList read_positions(std::string_view text) {
  if (text.size() > 4 && text.substr(text.size() - 4) == ".npy")
    return position_file(std::string(text));
  if (text.empty()) throw UsageError("--positions must not be empty");
  if (text.find(':') != std::string_view::npos) return position_range(text);
  return position_list(text);
}

Positions spread_over_axes(const PositionList& list, Index axes) {
  Positions p = list;
  if (p.axes == axes) return p;
  if (p.axes != 1)
    throw InputError(fmt::format("positions have {} axes, the encoding has {}", p.axes, axes));
  note(fmt::format("one list of positions for {} axes: every axis uses it, as for text\n", axes));
  p.axes = static_cast<std::int32_t>(axes);
  p.axis_stride = 0;
  return p;
}

}  // namespace posenc::report
