// SPDX-License-Identifier: Apache-2.0
#include "conformance/runner/check.h"

#include <algorithm>
#include <array>
#include <utility>

#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

constexpr std::array<std::pair<std::string_view, Operation>, 31> kOperations{{
    {"rows", run_rows},
    {"rotate", run_rotate},
    {"rotate_rows", run_rotate_rows},
    {"phase_gradients", run_phase_gradients},
    {"row_gradients", run_row_gradients},
    {"frequencies", run_frequencies},
    {"correction_range", run_correction_range},
    {"calls", run_calls},
    {"temperature", run_temperature},
    {"shift", run_shift},
    {"positions", run_positions},
    {"explain", run_explain},
    {"operators", run_operators},
    {"container", run_container},
    {"doctor", run_doctor},
    {"refuse", run_refuse},
    {"sequence", run_sequence},
    {"scores", run_scores},
    {"encode", run_encode},
    {"complex_embedding", run_complex_embedding},
    {"complex_attention", run_complex_attention},
    {"convolve", run_convolve},
    {"bias", run_bias},
    {"buckets", run_buckets},
    {"pope", run_pope},
    {"extend", run_extend},
    {"embed", run_embed},
    {"regions", run_regions},
    {"documents", run_documents},
    {"attend", run_attend},
    {"merge", run_merge},
}};

}  // namespace

Operation find_operation(std::string_view name) {
  for (const auto& [known, operation] : kOperations)
    if (known == name) return operation;
  return nullptr;
}

namespace {

// Places are joined by what no key of ours holds; shown with dots.
constexpr char kWithin = '\x1f';

std::string joined(std::string_view place, std::string_view key) {
  return place.empty() ? std::string(key) : std::string(place) + kWithin + std::string(key);
}

std::string shown(std::string place) {
  std::replace(place.begin(), place.end(), kWithin, '.');
  return place;
}

// The first place at or below `place` that is not read; "" when all is.
std::string unread_at(const std::set<std::string>& read, const std::string& place, const Json& j) {
  if (read.count(place) > 0) return {};
  const auto below = read.lower_bound(place + kWithin);
  const bool some = below != read.end() && below->rfind(place + kWithin, 0) == 0;
  if (!some && j.is_object() && j.as_object().empty()) return {};  // says nothing
  if (!some) return place;
  std::string first;
  if (j.is_object())
    for (const auto& [key, value] : j.as_object())
      if (first.empty()) first = unread_at(read, joined(place, key), value);
  if (j.is_array())
    for (std::size_t i = 0; i < j.as_array().size() && first.empty(); ++i)
      first = unread_at(read, joined(place, std::to_string(i)), j.as_array()[i]);
  return first;
}

bool names_an_array(const Case& c, std::string_view text) {
  try {
    (void)slice(c, text);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

std::vector<Index> without_ones(const std::vector<Index>& shape) {
  std::vector<Index> out;
  for (const Index n : shape)
    if (n != 1) out.push_back(n);
  return out;
}

std::string text_of(const std::vector<Index>& shape) {
  std::string text = "[";
  for (const Index n : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + "]";
}

}  // namespace

Check::Check(const Check& around, Json own, std::string_view place)
    : in_case(around.in_case), json(std::move(own)), around_(&around), place_(place) {}

Check::Check(Inherited, const Check& around, Json whole, const Json& own, std::string_view place)
    : in_case(around.in_case),
      json(std::move(whole)),
      around_(&around),
      place_(place),
      inherits_(true) {
  for (const auto& [key, value] : own.as_object()) own_.insert(key);
}

Check Check::inherited(const Json& own, std::string_view place) const {
  Json whole = own;
  for (const auto& [key, value] : json.as_object())
    if (whole.find(key) == nullptr) whole.set(key, value);
  return Check(Inherited{}, *this, std::move(whole), own, place);
}

std::string Check::place(std::string_view list, std::size_t element) {
  return joined(list, std::to_string(element));
}

void Check::read(std::string place) const {
  if (around_ == nullptr) {
    read_.insert(std::move(place));
  } else if (inherits_ && own_.count(place.substr(0, place.find(kWithin))) == 0) {
    around_->read(std::move(place));
  } else if (!inherits_ || !place_.empty()) {
    around_->read(joined(place_, place));
  }
}

std::string Check::unread() const {
  // Letters say what an array of the case is, whether or not this check looks at it.
  if (const Json* axes = json.find("axes"))
    for (const auto& [key, value] : axes->as_object())
      if (names_an_array(in_case, key)) read(joined("axes", key));
  for (const auto& [key, value] : json.as_object())
    if (const std::string place = unread_at(read_, key, value); !place.empty()) return shown(place);
  return {};
}

const Json* Check::find(std::string_view key) const {
  const Json* found = json.find(key);
  if (found != nullptr) read(std::string(key));
  return found;
}

const Json* Check::member(std::string_view group, std::string_view key) const {
  const Json* members = json.find(group);
  const Json* found = members == nullptr ? nullptr : members->find(key);
  if (found != nullptr) read(joined(group, key));
  return found;
}

std::string Check::text(std::string_view key, std::string_view fallback) const {
  const Json* found = find(key);
  return found == nullptr ? std::string(fallback) : found->as_string();
}

double Check::number(std::string_view key, double fallback) const {
  const Json* found = find(key);
  return found == nullptr ? fallback : found->as_number();
}

Index Check::integer(std::string_view key, Index fallback) const {
  const Json* found = find(key);
  return found == nullptr ? fallback : found->as_integer();
}

bool Check::flag(std::string_view key) const {
  const Json* found = find(key);
  return found != nullptr && found->as_bool();
}

const std::string* Check::array_name(std::string_view group, std::string_view ours) const {
  const Json* found = member(group, ours);
  return found == nullptr ? nullptr : &found->as_string();
}

Slice Check::input(std::string_view ours) const {
  const std::string* name = array_name("in", ours);
  if (name == nullptr) refuse("case", "the check needs an input array", ours);
  return slice(in_case, *name);
}

void Check::expect(std::string_view ours, std::span<const double> got,
                   const std::vector<Index>& shape) {
  const std::string* name = array_name("out", ours);
  if (name != nullptr) expect(slice(in_case, *name), got, shape);
}

void Check::expect(const Slice& want, std::span<const double> got,
                   const std::vector<Index>& shape) {
  if (without_ones(shape) != without_ones(want.shape))
    refuse("case", "the array " + want.text + " has the shape " + text_of(want.shape) +
                       ", the result " + text_of(shape));
  expect(want, got);
}

void Check::expect(const Slice& want, std::span<const double> got) {
  for (const char* key : {"tolerance", "known_difference"}) (void)find(key);
  compare(comparison, got, want, tolerance_for(in_case, json, want));
}

void Check::expect(bool holds, const std::string& what) {
  ++comparison.compared;
  if (holds) return;
  comparison.failed = true;
  if (failure.empty()) failure = what;
}

// Steps in order; each inherits the members of the sequence.
void run_sequence(Check& check) {
  const Json* steps = check.part("steps");
  if (steps == nullptr) refuse("case", "a sequence needs steps");
  for (std::size_t i = 0; i < steps->as_array().size(); ++i) {
    const Json& step = steps->as_array()[i];
    if (step.find("op") == nullptr || step.find("op")->as_string() == "sequence")
      refuse("case", "a step must have an op, and be no sequence", step.dump());
    Check inner = check.inherited(step, Check::place("steps", i));
    const Operation operation = find_operation(inner.text("op"));
    if (operation == nullptr)
      throw NotExpressible("operation " + inner.text("op") + " is not known");
    inner.comparison = std::move(check.comparison);
    operation(inner);
    check.comparison = std::move(inner.comparison);
    if (check.failure.empty()) check.failure = inner.failure;
  }
}

}  // namespace posenc::conformance
