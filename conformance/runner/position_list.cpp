// SPDX-License-Identifier: Apache-2.0
#include "conformance/runner/position_list.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "conformance/runner/axes.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

OwnedPositions own(std::vector<double> values, bool real, Index axes, Index batch) {
  OwnedPositions out;
  out.axes = static_cast<std::int32_t>(axes);
  out.batch = batch;
  if (real) {
    out.value = std::move(values);
  } else {
    std::vector<Index> whole(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) whole[i] = number_as<Index>(values[i]);
    out.value = std::move(whole);
  }
  return out;
}

std::string default_letters(std::size_t rank) {
  if (rank == 1) return "t";
  if (rank == 2) return "bt";
  if (rank == 3) return "abt";
  refuse_field("case", "positions", "must have 1, 2 or 3 axes", static_cast<Index>(rank));
}

OwnedPositions from_array(const Check& check, const std::string& text) {
  const std::size_t plus = text.find_first_of("+|");
  const Slice s = slice(check.in_case, text.substr(0, plus));
  std::vector<double> values = s.values();
  if (plus != std::string::npos) {
    const std::vector<double> more = slice(check.in_case, text.substr(plus + 1)).values();
    if (more.size() != values.size() && more.size() != 1)
      refuse("case", "positions that are added must be equally many", text);
    const double times = text[plus] == '|' ? 0.5 : 1;
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = times * (values[i] + more[more.size() == 1 ? 0 : i]);
  }
  std::string letters;
  for (const std::string& name : {s.name, s.text, text})
    if (const Json* given = check.member("axes", name)) letters = given->as_string();
  if (letters.empty()) letters = default_letters(s.shape.size());
  const Axes axes(s.shape, letters, {});
  std::vector<double> ordered;
  for (const Index i : axes.walk("abt")) ordered.push_back(values[static_cast<std::size_t>(i)]);
  return own(std::move(ordered), s.is_float(), axes['a'].size, axes['b'].size);
}

OwnedPositions from_range(std::string_view text) {
  std::vector<Index> parts;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(':', from), text.size());
    Index value = 0;
    const auto [end, error] = std::from_chars(text.data() + from, text.data() + to, value);
    if (error != std::errc{} || end != text.data() + to)
      refuse("case", "a range of positions is A:B or A:B:STEP", text);
    parts.push_back(value);
    from = to + 1;
  }
  if (parts.size() < 2 || parts.size() > 3 || (parts.size() == 3 && parts[2] == 0))
    refuse("case", "a range of positions is A:B or A:B:STEP", text);
  const Index step = parts.size() == 3 ? parts[2] : 1;
  constexpr double kMost = 1 << 28;
  const double length =
      (static_cast<double>(parts[1]) - static_cast<double>(parts[0])) / static_cast<double>(step);
  if (length > kMost) refuse("case", "a range has at most 268435456 positions", text);
  std::vector<double> values;
  for (Index n = 0; static_cast<double>(n) < length; ++n)
    values.push_back(static_cast<double>(parts[0] + n * step));
  return own(std::move(values), false, 1, 1);
}

OwnedPositions from_list(const Json& list) {
  std::vector<double> values;
  bool real = false;
  Index axes = 1;
  const auto add = [&](const Json& number) {
    real = real || !number.is_integer();
    values.push_back(number.as_number());
  };
  if (!list.as_array().empty() && list.as_array()[0].is_array()) {
    axes = static_cast<Index>(list.as_array().size());
    for (const Json& row : list.as_array()) {
      if (row.as_array().size() != list.as_array()[0].as_array().size())
        refuse("case", "lists of positions must have one length",
               static_cast<Index>(row.as_array().size()));
      for (const Json& number : row.as_array()) add(number);
    }
  } else {
    for (const Json& number : list.as_array()) add(number);
  }
  return own(std::move(values), real, axes, 1);
}

OwnedPositions repeated_rows(OwnedPositions p, Index rows) {
  std::visit(
      [&](auto& values) {
        const auto one = values;
        for (Index row = 1; row < rows; ++row) values.insert(values.end(), one.begin(), one.end());
      },
      p.value);
  p.batch = rows;
  return p;
}

// Several arrays or ranges, one a position axis; a range serves every row.
OwnedPositions from_arrays(const Check& check, const Json& names) {
  std::vector<OwnedPositions> axes;
  Index rows = 1;
  for (const Json& name : names.as_array()) {
    const std::string& text = name.as_string();
    const bool range = !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) != 0;
    axes.push_back(range ? from_range(text) : from_array(check, text));
    rows = std::max(rows, axes.back().batch);
  }
  for (OwnedPositions& axis : axes)
    if (axis.axes == 1 && axis.batch == 1 && rows > 1) axis = repeated_rows(axis, rows);
  return stacked(axes);
}

const Json* named_in(const Check& check, std::string_view key) {
  return check.member("in", key);
}

OwnedPositions given_positions(const Check& check, std::string_view key) {
  if (const Json* name = named_in(check, key))
    return name->is_array() ? from_arrays(check, *name) : from_array(check, name->as_string());
  const Json* given = check.part(key);
  if (given == nullptr) refuse("case", "the check needs positions", key);
  const Check nested(check, *given, key);  // its own `in`
  if (!given->is_object()) (void)check.find(key);
  if (given->is_string()) {
    const Json value = check.in_case.parameter(given->as_string());
    return value.is_string() ? from_range(value.as_string()) : from_list(value);
  }
  if (given->is_array()) return from_list(*given);
  if (const Json* rows = nested.find("batch")) {
    OwnedPositions p = from_list(*rows);
    p.batch = p.axes, p.axes = 1;
    return p;
  }
  return build_positions(nested, nested.text("rule")).positions;
}

}  // namespace

bool has_positions(const Check& check, std::string_view key) {
  const Json* in = check.part("in");
  return (in != nullptr && in->find(key) != nullptr) || check.part(key) != nullptr;
}

OwnedPositions positions_of(const Check& check, std::string_view key) {
  OwnedPositions p = given_positions(check, key);
  const Index axes = check.integer("repeat_axes", 1);
  if (axes < 1 || axes > 16) refuse_field("case", "repeat_axes", "must be 1 to 16", axes);
  return axes > 1 ? repeated_axes(p, static_cast<std::int32_t>(axes)) : p;
}

}  // namespace posenc::conformance
