// SPDX-License-Identifier: Apache-2.0
// Calls of the fast attention engine in 16 bits, of the numbers of one in f32.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>

#include "fast_call.h"

namespace posenc::bench {

// Of multiples of 1/64, which both types hold.
inline std::uint16_t narrow_number(float y, DType type) {
  const auto bits = std::bit_cast<std::uint32_t>(y);
  if (type == DType::bf16) return static_cast<std::uint16_t>(bits >> 16);
  if (y == 0) return 0;
  const std::uint32_t exponent_and_rest = ((bits & 0x7fffffffU) >> 13) - (112U << 10);
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | exponent_and_rest);
}
inline double widen_number(std::uint16_t y, DType type) {
  if (type == DType::bf16) return static_cast<double>(std::bit_cast<float>(std::uint32_t{y} << 16));
  const int exponent = y >> 10 & 31, rest = y & 1023;
  const double size =
      exponent == 0 ? std::ldexp(rest, -24) : std::ldexp(1024 + rest, exponent - 25);
  return y >> 15 != 0 ? -size : size;
}

struct NarrowAttend {
  NarrowAttend(const FastShape& s, DType t) : wide(s), type(t) {
    for (std::size_t array = 0; array < 3; ++array)
      for (float& y : wide.x[array]) {
        y = std::round(64 * y) / 64;
        x[array].push_back(narrow_number(y, type));
      }
    out.resize(wide.out.size());
    args = wide.args;
    args.q = view(x[0]), args.k = view(x[1]), args.v = view(x[2]);
  }
  NarrowAttend(const NarrowAttend&) = delete;
  ConstHeads view(const std::vector<std::uint16_t>& of) const {
    return heads(tensor(static_cast<const void*>(of.data()), type, wide.shape_of()),
                 HeadsLayout::bthd);
  }
  void run() {
    const Heads to =
        heads(tensor(static_cast<void*>(out.data()), type, wide.shape_of()), HeadsLayout::bthd);
    AttentionResult result = wide.result();
    result.out = to;
    attend(args, result, inline_executor());
  }
  // As FastAttend::backward, gradients in f32.
  void backward() {
    AttentionGradients g;
    g.q = wide.view(wide.gradients[0]), g.k = wide.view(wide.gradients[1]);
    g.v = wide.view(wide.gradients[2]);
    std::vector<TermGradient> of_terms;
    for (std::size_t n = 0; wide.shape.gradient == Gradient::table && n < wide.terms.size(); ++n)
      of_terms.push_back(wide.term_gradient(n));
    g.terms = of_terms;
    ConstAttentionResult result = wide.result();
    result.out = view(out);
    attend_backward(args, result, {view(out), {}}, g, inline_executor());
  }
  // Of rounded weights and gradients of scores, whose errors add like random numbers.
  static constexpr double kBackwardBound = 0x1p-6;
  // Of gradients beside those in f32, of the largest one.
  double backward_error() {
    const auto clear = [&] {
      for (std::vector<float>& g : wide.gradients) std::fill(g.begin(), g.end(), 0.0f);
    };
    run();
    for (std::size_t n = 0; n < out.size(); ++n)
      wide.out[n] = static_cast<float>(widen_number(out[n], type));
    clear(), wide.backward();
    const std::vector<float> want[] = {wide.gradients[0], wide.gradients[1], wide.gradients[2]};
    clear(), backward();
    double worst = 0;
    for (std::size_t array = 0; array < 3; ++array) {
      double error = 0, most = 0;
      for (std::size_t n = 0; n < want[array].size(); ++n) {
        const auto exact = static_cast<double>(want[array][n]);
        error = std::max(error, std::abs(static_cast<double>(wide.gradients[array][n]) - exact));
        most = std::max(most, std::abs(exact));
      }
      worst = std::max(worst, error / most);
    }
    return worst;
  }
  double error() {
    run(), wide.run();
    double worst = 0;
    for (std::size_t n = 0; n < out.size(); ++n)
      worst =
          std::max(worst, std::abs(widen_number(out[n], type) - static_cast<double>(wide.out[n])));
    return worst;
  }
  // Half a unit of 1, for the rounding of the result, and of weights.
  double bound() const { return (type == DType::bf16 ? 0x1p-8 : 0x1p-12) + 5e-6; }

  FastAttend wide;
  DType type;
  std::vector<std::uint16_t> x[3], out;
  AttentionArgs args;
};

}  // namespace posenc::bench
