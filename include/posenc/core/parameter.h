// SPDX-License-Identifier: Apache-2.0
// The learned arrays of a scheme: names, shapes, initial values, and functions that read values and
// accumulate gradients of any layout.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/core/array_shape.h"
#include "posenc/core/describe.h"
#include "posenc/core/error.h"
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0 {

// The published distribution of the initial values of every element.
enum class InitialKind : std::uint8_t { zeros, constant, normal, truncated_normal, uniform };
template <>
struct EnumNames<InitialKind> {
  static constexpr std::array<std::string_view, 5> value{"zeros", "constant", "normal",
                                                         "truncated_normal", "uniform"};
};
struct Initial {
  InitialKind kind = InitialKind::zeros;
  double a = 0, b = 0;  // constant a; normal and truncated_normal mean a, deviation b; uniform a..b
};

// A learned array of a scheme.
struct Parameter {
  std::string name;
  ArrayShape shape;
  Initial initial;
  std::vector<double> initial_values;  // fixed initial values, row-major; empty: drawn
};

// A read-only list of writable views, to which a span does not convert.
POSENC_API std::vector<ConstTensorView> const_views(std::span<const TensorView>);

// The learned arrays in double, dense. Throws [who]: a view of another shape than `p`'s, or not f64 or
// f32.
POSENC_API std::vector<double> parameter_values(std::string_view who, const Parameter& p,
                                                const ConstTensorView&);
// The same for a gradient of a lowered table of this shape: zeros when it is empty.
POSENC_API std::vector<double> gradient_values(std::string_view who, const ConstTensorView&,
                                               const std::vector<Index>& shape);
// to += v, element by element; an empty `to` is taken as zeros.
POSENC_API void add_to(std::vector<double>& to, std::span<const double> v);
// The gradient of term `n` among the arguments of pull_back. Throws [who] if there is none.
template <class G>
const G& gradient_of(std::string_view who, std::span<const G> g, std::size_t n) {
  if (n >= g.size())
    refuse_field(
        who, "g",
        "must have an entry for each term that lower appended, at least " + std::to_string(n + 1),
        static_cast<Index>(g.size()));
  return g[n];
}
// to += v; an empty view is skipped. Throws [who]: another shape, or not f64 or f32.
POSENC_API void accumulate(std::string_view who, const Parameter& p, const TensorView& to,
                           std::span<const double> v);
// All parameters at once; an empty list adds nothing. Checked before anything is written.
POSENC_API void accumulate(std::string_view who, std::span<const Parameter>,
                           std::span<const TensorView> to, std::span<const std::vector<double>> v);
// Throws [who] what `accumulate` would throw: one view for each parameter, each empty or of the
// parameter's shape, f64 or f32.
POSENC_API void check_gradients(std::string_view who, std::span<const Parameter>,
                                std::span<const TensorView> to);
// Throws [who]: a list of parameters of another length than the scheme has.
POSENC_API void check_parameter_count(std::string_view who, std::size_t needed, std::size_t given);

}  // namespace posenc::v0
