// SPDX-License-Identifier: Apache-2.0
#include "conformance/runner/tolerance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

double number_or(const Json& block, std::string_view key, double fallback) {
  const Json* found = block.find(key);
  return found == nullptr ? fallback : found->as_number();
}

Tolerance from_block(const Json& block) {
  Tolerance t;
  // Blocks of one number say what it bounds in its name: cos_sin_abs.
  t.abs = number_or(block, "abs", number_or(block, "cos_sin_abs", 0));
  t.rel = number_or(block, "rel", 0);
  if (const Json* rows = block.find("abs_by_position"))
    for (const Json& row : rows->as_array()) t.abs_by_position.push_back(row.as_number());
  return t;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

Tolerance of_the_case(const Json& tolerance, const std::string& name) {
  if (const Json* arrays = tolerance.find("arrays"))
    if (const Json* own = arrays->find(name)) return from_block(*own);
  if (ends_with(name, "_f64"))
    if (const Json* f64 = tolerance.find("f64")) return from_block(*f64);
  return from_block(tolerance);
}

}  // namespace

Tolerance tolerance_for(const Case& c, const Json& check, const Slice& array) {
  const Json* tolerance = c.json.find("tolerance");
  if (tolerance == nullptr || !tolerance->is_object())
    refuse("case", "a case needs a tolerance", c.name);
  Tolerance t = of_the_case(*tolerance, array.name);
  if (const Json* named = check.find("tolerance")) {
    if (named->is_string()) {
      const Json* block = tolerance->find(named->as_string());
      if (block == nullptr || !block->is_object())
        refuse("case", "the tolerance has no block of that name", named->as_string());
      t = from_block(*block);
    } else {
      for (const auto& [key, value] : named->as_object())
        if (key != "abs" && key != "rel")
          refuse("case", "a tolerance written in a check has abs and rel", key);
      const Tolerance tight = from_block(*named);
      t.abs = std::min(t.abs, tight.abs);
      t.rel = std::min(t.rel, tight.rel);
      t.abs_by_position.clear();
    }
  }
  t.exact = !array.is_float();
  if (const Json* known = check.find("known_difference")) t.known_difference = known->as_number();
  return t;
}

void Comparison::element(double got, double want, double allowed, const std::string& array,
                         std::function<std::vector<Index>()> index) {
  ++compared;
  double distance = std::abs(got - want);
  if (got == want || (std::isnan(got) && std::isnan(want))) distance = 0;
  double ratio = 0;
  // Equal infinities have no distance, and nothing to allow; NaN fails here.
  if (distance != 0 && !(distance <= allowed)) {
    failed = true;
    ratio = allowed > 0 && std::isfinite(distance) ? distance / allowed
                                                   : std::numeric_limits<double>::infinity();
  } else if (distance > 0) {
    ratio = distance / allowed;
  }
  largest =
      std::isnan(distance) ? std::numeric_limits<double>::infinity() : std::max(largest, distance);
  if (ratio > worst.ratio) worst = {array, index(), got, want, allowed, ratio};
}

void compare(Comparison& c, std::span<const double> got, const Slice& want, const Tolerance& t) {
  const std::vector<double> values = want.values();
  if (got.size() != values.size())
    refuse("case", "the array " + want.text + " holds another number of elements than the result",
           static_cast<Index>(got.size()));
  const std::vector<Index> offsets = want.offsets();
  Comparison own;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto index = [&] { return want.index_of(offsets[i]); };
    double abs = t.abs;
    if (!t.abs_by_position.empty()) {
      const std::vector<Index> at = index();
      const auto row = at.empty() ? std::size_t{0} : static_cast<std::size_t>(at.front());
      if (row >= t.abs_by_position.size())
        refuse_field("case", "abs_by_position", "has fewer rows than the array", want.name);
      abs = t.abs_by_position[row];
    }
    const double allowed = t.exact ? 0 : abs + t.rel * std::abs(values[i]);
    own.element(got[i], values[i], allowed, want.text, index);
  }
  if (t.known_difference) {
    const bool departs = own.failed;
    own.failed = !departs || !(own.largest <= *t.known_difference);
    own.worst.allowed = *t.known_difference;
  }
  c.compared += own.compared;
  c.failed = c.failed || own.failed;
  c.largest = std::max(c.largest, own.largest);
  if (own.worst.ratio > c.worst.ratio) c.worst = own.worst;
}

}  // namespace posenc::conformance
