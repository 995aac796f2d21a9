// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/parameter.h"

#include <algorithm>
#include <type_traits>

#include "core/shape.h"

namespace posenc::inline v0 {
namespace {

Index count_of(const std::vector<Index>& shape) {
  Index n = 1;
  for (const Index s : shape) n *= s;
  return n;
}

// fn(dense number of the first, its offset, count, stride) of every line of the last axis.
template <class F>
void each_line(const ConstTensorView& v, const F& fn) {
  const auto size = [&](std::int32_t a) { return v.shape[static_cast<std::size_t>(a)]; };
  const auto stride = [&](std::int32_t a) { return v.stride[static_cast<std::size_t>(a)]; };
  const std::int32_t last = v.rank - 1;
  const Index n = v.count(), count = last < 0 ? 1 : size(last);
  for (Index i = 0; i < n; i += count) {
    Index rest = i / count, at = 0;
    for (std::int32_t a = last; a-- > 0; rest /= size(a)) at += rest % size(a) * stride(a);
    fn(i, at, count, last < 0 ? 1 : stride(last));
  }
}

// The numbers of f64 or f32, dense.
std::vector<double> dense_values(const ConstTensorView& v) {
  std::vector<double> r(static_cast<std::size_t>(v.count()));
  const auto copy = [&](const auto* from) {
    each_line(v, [&](Index i, Index at, Index n, Index stride) {
      double* to = r.data() + i;
      if (stride == 1)
        std::copy_n(from + at, n, to);
      else
        for (Index k = 0; k < n; ++k) to[k] = from[at + k * stride];
    });
  };
  if (v.dtype == DType::f64)
    copy(static_cast<const double*>(v.data));
  else
    copy(static_cast<const float*>(v.data));
  return r;
}

bool has_shape(const ConstTensorView& v, const std::vector<Index>& shape) {
  return v.rank == static_cast<std::int32_t>(shape.size()) &&
         std::equal(shape.begin(), shape.end(), v.shape.begin());
}

void check_parameter(std::string_view who, const Parameter& p, const ConstTensorView& v) {
  const std::string rule =
      "parameter " + p.name + " must be " + detail::sizes_text(p.shape) + " of f64 or f32";
  if (v.dtype != DType::f64 && v.dtype != DType::f32)
    refuse_sentence(who, p.name, rule, dtype_name(v.dtype));
  if (v.device != Device::cpu) refuse_sentence(who, p.name, rule + ", in the CPU's memory");
  if (!has_shape(v, p.shape)) refuse_sentence(who, p.name, rule + ", got " + detail::shape_text(v));
}

void check_size(std::string_view who, const Parameter& p, std::span<const double> v) {
  if (static_cast<Index>(v.size()) != count_of(p.shape))
    refuse(who, "a gradient must have the size of its parameter " + p.name,
           static_cast<Index>(v.size()));
}

}  // namespace

std::vector<ConstTensorView> const_views(std::span<const TensorView> v) {
  return {v.begin(), v.end()};
}

std::vector<double> parameter_values(std::string_view who, const Parameter& p,
                                     const ConstTensorView& v) {
  check_parameter(who, p, v);
  return dense_values(v);
}

std::vector<double> gradient_values(std::string_view who, const ConstTensorView& v,
                                    const std::vector<Index>& shape) {
  if (v.empty()) return std::vector<double>(static_cast<std::size_t>(count_of(shape)), 0.0);
  if ((v.dtype != DType::f64 && v.dtype != DType::f32) || !has_shape(v, shape))
    detail::refuse_shape(
        who, "a gradient in g must be " + detail::sizes_text(shape) + " of f64 or f32", v);
  if (v.device != Device::cpu) refuse(who, "a gradient in g must be in the CPU's memory");
  return dense_values(v);
}

void check_gradients(std::string_view who, std::span<const Parameter> p,
                     std::span<const TensorView> to) {
  check_parameter_count(who, p.size(), to.size());
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (to[i].empty()) continue;
    check_parameter(who, p[i], to[i]);
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
  const auto add = [&](auto* numbers) {
    using Number = std::remove_pointer_t<decltype(numbers)>;
    each_line(to, [&](Index i, Index at, Index n, Index stride) {
      for (Index k = 0; k < n; ++k) {
        Number& x = numbers[at + k * stride];
        x = static_cast<Number>(x + v[static_cast<std::size_t>(i + k)]);
      }
    });
  };
  if (to.dtype == DType::f64)
    add(static_cast<double*>(to.data));
  else
    add(static_cast<float*>(to.data));
}

void check_parameter_count(std::string_view who, std::size_t needed, std::size_t given) {
  if (needed != given)
    refuse(who, "there must be " + std::to_string(needed) + " parameters",
           static_cast<Index>(given));
}

}  // namespace posenc::v0
