// SPDX-License-Identifier: Apache-2.0
// Rules of positions whose draws are arrays of the case, and of points measured against an image.
#include <cmath>

#include "conformance/runner/axes.h"
#include "conformance/runner/position_list.h"
#include "conformance/runner/rule.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

// An array of `in`, else a list of the rule, else nothing.
std::vector<double> numbers_of(const Check& check, const Rule& rule, std::string_view name) {
  if (check.array_name("in", name) != nullptr) return check.input(name).values();
  return rule.has(name) ? rule.numbers(name) : std::vector<double>{};
}
// Both axes of what was drawn for a grid, one behind the other.
std::vector<double> of_two_axes(const Check& check, const Rule& rule, std::string_view name) {
  std::vector<double> all;
  for (const char* axis : {"_first", "_second"}) {
    const std::vector<double> one = numbers_of(check, rule, std::string(name) + axis);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

OwnedPositions build_cape(const Check& check, const Rule& rule) {
  const CapeDraws drawn{numbers_of(check, rule, "shift"), numbers_of(check, rule, "local"),
                        numbers_of(check, rule, "log_scale")};
  Cape c;
  c.normalise = rule.flag("normalise");
  c.padding = rule.choice("padding", c.padding);
  return cape_positions(c, rule.integer("batch"), rule.integer("tokens"),
                        numbers_of(check, rule, "time_steps"), numbers_of(check, rule, "lengths"),
                        drawn, rule.integer("padded", -1000000));
}

OwnedPositions build_cape_grid(const Check& check, const Rule& rule) {
  const CapeDraws drawn{of_two_axes(check, rule, "shift"), of_two_axes(check, rule, "local"),
                        numbers_of(check, rule, "log_scale")};
  return cape_grid_positions(rule.integer("first"), rule.integer("second"), rule.integer("batch"),
                             drawn, rule.choice("step", CapeStep::first_axis));
}

OwnedPositions build_counted(const Check& check, const Rule& rule) {
  const Slice s = check.input("mask");
  std::vector<Index> mask;
  const bool ones_are_padding = rule.flag("ones_are_padding");
  for (const double x : s.values())
    mask.push_back(ones_are_padding ? 1 - static_cast<Index>(x) : static_cast<Index>(x));
  CountedGrid c;
  c.normalise = rule.flag("normalise");
  c.scale = rule.number("scale", c.scale);
  c.eps = rule.number("eps", c.eps);
  return counted_grid(tensor(static_cast<void*>(mask.data()), DType::i64, s.shape), c);
}

std::vector<Index> whole(const std::vector<double>& v) {
  return {v.begin(), v.end()};
}

}  // namespace

bool build_drawn_positions(const Check& check, const Rule& rule, OwnedPositions& out) {
  const std::string& name = rule.name();
  if (name == "cape")
    out = build_cape(check, rule);
  else if (name == "cape_grid")
    out = build_cape_grid(check, rule);
  else if (name == "counted_grid")
    out = build_counted(check, rule);
  else if (name == "normalised")
    out = normalised(positions_of(check), rule.numbers("size"), rule.number("low", -1),
                     rule.number("high", 1));
  else if (name == "shifted_rows")
    out = shifted(arange(rule.integer("first", 0), rule.integer("count")),
                  whole(numbers_of(check, rule, "deltas")));
  else if (name == "reversed")
    out = reversed(arange(rule.integer("first", 0), rule.integer("count")));
  else if (name == "from_lengths")
    out = from_lengths(whole(numbers_of(check, rule, "lengths")), rule.integer("tokens"),
                       rule.integer("padded"), rule.integer("first", 0));
  else if (name == "packed")
    out = with_special_tokens(
        packed(whole(numbers_of(check, rule, "cu_seqlens")), rule.integer("first", 0)), 0,
        rule.integer("after", 0), rule.integer("value", 0));
  else
    return false;
  return true;
}

}  // namespace posenc::conformance
