// SPDX-License-Identifier: Apache-2.0
// A bias read from learned curves over distance, mixed by the query's hidden state (x-transformers,
// the scheme of Inkling):
//   S_ij += sum_b x_ihb curve[b, i - j] for 0 <= i - j < max_distance, else nothing
//   x_i = hidden_i W_r^T + b_r
// The curves are shared by all heads; beyond them the bias is zero, not constant. The bias is
// outside the scale of the content. Inkling multiplies x_i on layers that see every token by
//   tau_i = 1 + log_scaling_alpha ln(max((p_i + 1) / log_scaling_n_floor, 1)),
// p_i the order of the query (Inkling 2: its position), as it does q (which is not this scheme's: its
// query temperature); and its projection has no b_r. Inkling 2 limits the vector of each head before:
//   x_i = y_i min(1, l2_clip / (|y_i| + 1e-6)),   y_i = (hidden_i W_r^T + b_r) * clip_scale
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

// Which number of a query log scaling reads.
enum class LogScalingBy : std::uint8_t { position, order };
template <>
struct EnumNames<LogScalingBy> {
  static constexpr std::array<std::string_view, 2> value{"position", "order"};
};

struct RelativeProjection {
  static constexpr Card card{"relative_projection", "projection on curves over distance",
                             "x-transformers, Inkling", ""};
  static constexpr bool width_is_of_model = true;  // that of the hidden state
  Index basis = 16, max_distance = 128, width = 0;
  double init = 0.02;
  bool projection_bias = true;
  double log_scaling_n_floor = 0, log_scaling_alpha = 0.1;
  LogScalingBy log_scaling_by = LogScalingBy::position;
  double l2_clip = 0;

  // distance_bank [basis, max_distance], w_r [heads * basis, width], with projection_bias b_r
  // [heads * basis], with l2_clip clip_scale [heads, basis].
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  // hidden [batch, queries, width].
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const RelativeProjection&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("basis", s.basis, Field{.doc = "curves", .min = 1, .max = 65536});
    v("max_distance", s.max_distance,
      Field{.doc = "distances of a curve", .unit = "tokens", .min = 1, .max = 1e7});
    v("width", s.width,
      Field{.doc = "channels of the hidden state", .min = 1, .max = 1e6, .required = true});
    v("init", s.init, Field{.doc = "initial deviation of the curves", .min = 0});
    v("projection_bias", s.projection_bias, Field{.doc = "the projection has a bias, b_r"});
    v("log_scaling_n_floor", s.log_scaling_n_floor,
      Field{.doc = "tokens from which the bias grows with the logarithm of the query's position, "
                   "0 = it does not",
            .unit = "tokens",
            .min = 0});
    v("log_scaling_alpha", s.log_scaling_alpha, Field{.doc = "slope of that growth", .min = 0});
    v("log_scaling_by", s.log_scaling_by,
      Field{.doc = "the query's position, or its order among the keys"});
    v("l2_clip", s.l2_clip,
      Field{.doc = "largest norm of the projected vector of a head, 0 = no limit", .min = 0});
  }

 private:
  void check_fields() const;
};

}  // namespace posenc::v0
