// SPDX-License-Identifier: Apache-2.0
// What the programs behind the pictures share: rows of a scheme as it starts, their likeness, and
// how they are printed.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "posenc/absolute/initial.h"
#include "posenc/absolute/input_term.h"

namespace posenc_pictures {

using namespace posenc;
using Values = std::vector<double>;

inline std::size_t at(Index i) {
  return static_cast<std::size_t>(i);
}

inline void print(const std::string& name, const Values& v, Index columns) {
  const Index rows = static_cast<Index>(v.size()) / columns;
  std::printf("# %s %d %d\n", name.c_str(), static_cast<int>(rows), static_cast<int>(columns));
  for (Index r = 0; r < rows; ++r)
    for (Index c = 0; c < columns; ++c)
      std::printf("%.6g%c", v[at(r * columns + c)], c + 1 < columns ? ',' : '\n');
}

// Parameters as they start, drawn from Philox.
template <class P>
std::vector<Values> started(const P& parameters, std::uint64_t seed) {
  std::vector<Values> all;
  for (const Parameter& p : parameters)
    all.push_back(initial_values(p, Draws(seed, 0, all.size())));
  return all;
}
template <class P>
std::vector<ConstTensorView> views(const P& parameters, std::vector<Values>& values) {
  std::vector<ConstTensorView> v;
  for (std::size_t i = 0; i < values.size(); ++i)
    v.push_back(tensor(static_cast<void*>(values[i].data()), DType::f64, parameters[i].shape));
  return v;
}

// What a scheme adds at each position.
template <class S>
Values rows(const S& scheme, const Positions& p, Index width, std::uint64_t seed = 1) {
  const auto parameters = scheme.parameters();
  std::vector<Values> values = started(parameters, seed);
  LoweredInput lowered;
  scheme.lower(views(parameters, values), lowered);
  Values y(at(p.count * width));
  apply_input({}, p, lowered, tensor(y.data(), {p.count, width}));
  return y;
}

// Cosine of the angle between row `of` and every row.
inline Values likeness(const Values& y, Index width, Index of) {
  const auto dot = [&](Index i, Index j) {
    double s = 0;
    for (Index c = 0; c < width; ++c) s += y[at(i * width + c)] * y[at(j * width + c)];
    return s;
  };
  Values v;
  for (Index i = 0; i * width < static_cast<Index>(y.size()); ++i)
    v.push_back(dot(of, i) / std::sqrt(dot(of, of) * dot(i, i)));
  return v;
}
// Distance of every row to row `of`, the largest being 1.
inline Values distance_to(const Values& y, Index width, Index of) {
  Values v;
  for (Index i = 0; i * width < static_cast<Index>(y.size()); ++i) {
    double s = 0;
    for (Index c = 0; c < width; ++c)
      s += std::pow(y[at(i * width + c)] - y[at(of * width + c)], 2);
    v.push_back(std::sqrt(s));
  }
  const double most = *std::max_element(v.begin(), v.end());
  for (double& x : v) x /= most;
  return v;
}
inline Values all_likenesses(const Values& y, Index width) {
  Values all;
  for (Index i = 0; i * width < static_cast<Index>(y.size()); ++i)
    for (const double v : likeness(y, width, i)) all.push_back(v);
  return all;
}
inline Values channel(const Values& y, Index width, Index c) {
  Values v;
  for (Index i = 0; i * width < static_cast<Index>(y.size()); ++i)
    v.push_back(y[at(i * width + c)]);
  return v;
}

void print_learned();
void print_terms();  // numbers_learned.cpp

}  // namespace posenc_pictures
