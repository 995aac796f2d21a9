// SPDX-License-Identifier: Apache-2.0
// Instances of a definition made of what it says of itself: required fields get a number within
// their range, then each choice is taken in turn. What is required must fit together; a choice that
// asks for more than that is left out.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "laws/numbers.h"
#include "posenc/rotary/spec.h"
#include "posenc/scaling/policy.h"
#include "registry/field_ref.h"

namespace posenc::test {

inline constexpr Index kWidth = 16;  // of the spectra that samples of lists fit: eight pairs

inline std::vector<double> ramp(double from, double to) {
  std::vector<double> v;
  for (int i = 0; i < kWidth / 2; ++i) v.push_back(from + (to - from) * i / (kWidth / 2 - 1));
  return v;
}

inline void fill(const ValueRef& to, const Field& f) {
  const auto near = [&](double x) { return std::clamp(x, f.min, f.max); };
  if (auto* d = std::get_if<double*>(&to.target)) **d = near(2);
  if (auto* i = std::get_if<Index*>(&to.target)) **i = static_cast<Index>(near(kWidth));
  if (auto* d = std::get_if<std::vector<double>*>(&to.target)) **d = ramp(near(1), near(2));
  if (auto* i = std::get_if<std::vector<Index>*>(&to.target))
    **i = {static_cast<Index>(near(4)), static_cast<Index>(near(4))};
  if (auto* e = std::get_if<EnumRef>(&to.target)) e->set(e->value, e->names.size() > 1 ? 1 : 0);
  if (auto* o = std::get_if<OptionalRef>(&to.target)) fill(o->engage(o->value), f);
}

// How many other choices a field has.
inline std::size_t choices(const ValueRef& of) {
  if (const auto* e = std::get_if<EnumRef>(&of.target)) return e->names.size();
  return std::holds_alternative<bool*>(of.target) ? 2 : 0;
}
inline void choose(const ValueRef& of, std::size_t choice) {
  if (const auto* e = std::get_if<EnumRef>(&of.target)) e->set(e->value, choice);
  if (auto* b = std::get_if<bool*>(&of.target)) **b = choice == 1;
}

// Throws std::invalid_argument where the definition does not stand.
template <class T>
void run_once(const T& x) {
  if constexpr (ScalingPolicy<T>) {
    for (const Index length : {1, 4096}) x.rescale(geometric_spectrum(10000, kWidth), {length});
  } else if constexpr (RotaryScheme<T>) {
    resolve(x);
  } else {
    static_assert(AbsoluteScheme<T>,
                  "no samples are made of this family's fields: give an overload samples(Type<X>) "
                  "in tests/laws/module_samples.h");
    std::vector<Numbers> parameters = waves_for(x.parameters());
    LoweredInput low;
    x.lower(const_views(views(parameters)), low);
  }
}

template <class T>
std::vector<T> described_samples() {
  T first{};
  for (const FieldRef& f : field_refs(first))
    if (f.field.required) fill(f.value, f.field);
  try {
    run_once(first);
  } catch (const std::invalid_argument& e) {
    throw std::logic_error("the sample made of the fields of " + std::string(T::card.name) +
                           " is refused (" + e.what() +
                           "): give an overload samples(Type<X>) in tests/laws/" +
                           (AbsoluteScheme<T> ? "absolute_samples.h" : "samples.h"));
  }
  std::vector<T> all{first};
  for (std::size_t field = 0; field < field_refs(first).size(); ++field)
    for (std::size_t c = 0; c < choices(field_refs(first)[field].value); ++c) {
      T x = first;
      choose(field_refs(x)[field].value, c);
      if (x == first) continue;
      try {
        run_once(x);
      } catch (const std::invalid_argument&) {
        continue;
      }
      all.push_back(x);
    }
  return all;
}

}  // namespace posenc::test
