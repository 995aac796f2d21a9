// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/shape.h"
#include "posenc/core/error.h"
#include "posenc/relative/term.h"

namespace posenc {
namespace {

Index count_of(const std::vector<Index>& shape) {
  Index n = 1;
  for (const Index s : shape) n *= s;
  return n;
}

// fn(dense number, offset in elements) for every element, row-major.
template <class F>
void each_element(const TensorView& v, const F& fn) {
  const Index n = v.count();
  for (Index i = 0; i < n; ++i) {
    Index rest = i, at = 0;
    for (std::int32_t a = v.rank; a-- > 0;) {
      const auto axis = static_cast<std::size_t>(a);
      at += rest % v.shape[axis] * v.stride[axis];
      rest /= v.shape[axis];
    }
    fn(i, at);
  }
}

bool has_shape(const TensorView& v, const std::vector<Index>& shape) {
  return v.rank == static_cast<std::int32_t>(shape.size()) &&
         std::equal(shape.begin(), shape.end(), v.shape.begin());
}

void check_parameter(std::string_view who, const Parameter& p, const TensorView& v) {
  const std::string rule =
      "parameter " + p.name + " must be " + detail::sizes_text(p.shape) + " of f64 or f32";
  if (v.dtype != DType::f64 && v.dtype != DType::f32) refuse(who, rule, name(v.dtype));
  if (v.device != Device::cpu) refuse(who, rule + ", in the CPU's memory");
  if (!has_shape(v, p.shape)) detail::refuse_shape(who, rule, v);
}

void check_size(std::string_view who, const Parameter& p, std::span<const double> v) {
  if (static_cast<Index>(v.size()) != count_of(p.shape))
    refuse(who, "a gradient must have the size of its parameter " + p.name,
           static_cast<Index>(v.size()));
}

double element(const TensorView& v, Index at) {
  return v.dtype == DType::f64 ? static_cast<const double*>(v.data)[at]
                               : static_cast<const float*>(v.data)[at];
}

}  // namespace

TensorView Lowered::table(std::vector<double> v, std::initializer_list<Index> shape) {
  const std::span<const Index> s(shape.begin(), shape.size());
  Index n = 1;
  for (const Index x : s) n *= x;
  if (n != static_cast<Index>(v.size()))
    refuse("lowered", "a table must fill its shape, size", static_cast<Index>(v.size()));
  values.push_back(std::move(v));
  return tensor(static_cast<void*>(values.back().data()), DType::f64, s);
}

IndexLine Lowered::line(std::vector<std::int32_t> row, Index lo, std::int32_t axis) {
  if (row.empty()) refuse("lowered", "a line must have at least one row, size", Index{0});
  rows.push_back(std::move(row));
  const std::vector<std::int32_t>& kept = rows.back();
  return {kept.data(), lo, lo + static_cast<Index>(kept.size()) - 1, axis};
}

IndexPair Lowered::pair(std::vector<std::int32_t> row, Index query_classes, Index key_classes) {
  if (query_classes < 1 || key_classes < 1 ||
      static_cast<Index>(row.size()) != query_classes * key_classes)
    refuse("lowered", "a pair must have a row for every two classes, size",
           static_cast<Index>(row.size()));
  rows.push_back(std::move(row));
  IndexPair p;
  p.row = rows.back().data();
  p.query_classes = query_classes;
  p.key_classes = key_classes;
  return p;
}

std::vector<double> parameter_values(std::string_view who, const Parameter& p,
                                     const TensorView& v) {
  check_parameter(who, p, v);
  std::vector<double> r(static_cast<std::size_t>(v.count()));
  each_element(v, [&](Index i, Index at) { r[static_cast<std::size_t>(i)] = element(v, at); });
  return r;
}

std::vector<double> gradient_values(std::string_view who, const TensorView& v,
                                    const std::vector<Index>& shape) {
  std::vector<double> r(static_cast<std::size_t>(count_of(shape)), 0.0);
  if (v.empty()) return r;
  if ((v.dtype != DType::f64 && v.dtype != DType::f32) || !has_shape(v, shape))
    detail::refuse_shape(
        who, "a gradient in g must be " + detail::sizes_text(shape) + " of f64 or f32", v);
  if (v.device != Device::cpu) refuse(who, "a gradient in g must be in the CPU's memory");
  each_element(v, [&](Index i, Index at) { r[static_cast<std::size_t>(i)] = element(v, at); });
  return r;
}

void check_gradients(std::string_view who, std::span<const Parameter> p,
                     std::span<const TensorView> to) {
  check_parameter_count(who, p.size(), to.size());
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (to[i].empty()) continue;
    check_parameter(who, p[i], to[i]);
    if (to[i].read_only) refuse(who, "a gradient must be writable, parameter", p[i].name);
  }
}

void add_to(std::vector<double>& to, std::span<const double> v) {
  if (to.empty()) to.assign(v.size(), 0.0);
  if (to.size() != v.size())
    refuse("gradient", "numbers to add must be " + std::to_string(to.size()),
           static_cast<Index>(v.size()));
  for (std::size_t i = 0; i < v.size(); ++i) to[i] += v[i];
}

void accumulate(std::string_view who, std::span<const Parameter> p, std::span<const TensorView> to,
                std::span<const std::vector<double>> v) {
  check_gradients(who, p, to);
  check_parameter_count(who, p.size(), v.size());
  for (std::size_t i = 0; i < p.size(); ++i)
    if (!v[i].empty()) check_size(who, p[i], v[i]);
  for (std::size_t i = 0; i < p.size(); ++i)
    if (!v[i].empty()) accumulate(who, p[i], to[i], v[i]);
}

void accumulate(std::string_view who, const Parameter& p, const TensorView& to,
                std::span<const double> v) {
  if (to.empty()) return;
  check_gradients(who, std::span(&p, 1), std::span(&to, 1));
  check_size(who, p, v);
  each_element(to, [&](Index i, Index at) {
    const double x = v[static_cast<std::size_t>(i)];
    if (to.dtype == DType::f64)
      static_cast<double*>(to.data)[at] += x;
    else
      static_cast<float*>(to.data)[at] = static_cast<float>(static_cast<float*>(to.data)[at] + x);
  });
}

void check(const Shape& s, std::string_view who) {
  if (s.heads < 1 || s.heads > 65536) refuse(who, "heads must lie between 1 and 65536", s.heads);
  if (s.head_dim < 1 || s.head_dim > 65536)
    refuse(who, "head_dim must lie between 1 and 65536", s.head_dim);
  if (s.min_delta > s.max_delta) refuse(who, "min_delta must not be above max_delta", s.min_delta);
}

void check_parameter_count(std::string_view who, std::size_t needed, std::size_t given) {
  if (needed != given)
    refuse(who, "there must be " + std::to_string(needed) + " parameters",
           static_cast<Index>(given));
}

}  // namespace posenc
