// SPDX-License-Identifier: Apache-2.0
// Calls in float for the fast engine, and what the reference in double says of them.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "attention/engine_compare.h"
#include "kernels/attention/fast_words.h"
#include "posenc/attention/explain_plan.h"
#include "posenc/core/isa.h"
#include "posenc/positions/sequence.h"
#include "support/random.h"

namespace posenc {

// Of scores below 50: docs/attention.md, "Engines".
inline constexpr double kFloatError = 2e-5;
inline double fast_tolerance(DType t) {
  // Machines that multiply pairs of bf16 round weights too: 2^-8 of the mean distance of values from their mean.
  const double bf16 = detail::word_kernels(active_isa()) == nullptr ? 0x1p-8 : 3 * 0x1p-8;
  return kFloatError + (t == DType::bf16 ? bf16 : t == DType::f16 ? 0x1p-10 : 0);
}

inline CallResult of_attend(const AttentionArgs& a, const Executor& e = default_executor()) {
  ResultArrays to(a, a.q.dtype);
  attend(a, to.r, e);
  return {widened(to.r.out), to.lse, {}, {}};
}
inline CallResult forward_of_reference(const AttentionArgs& a) {
  ResultArrays to(a, DType::f64);
  support::attention_forward(a, to.r);
  return {widened(to.r.out), to.lse, {}, {}};
}
inline bool is_fast(const AttentionArgs& a) {
  return explain_plan(a).engine == "fast";
}
inline std::string wrong_of_fast(const CallResult& got, const AttentionArgs& plain, DType type) {
  return differences(got, forward_of_reference(plain), fast_tolerance(type), kFloatError);
}

// d_log_sum_exp takes back what the rounding of the output changes in d_out.out, which the gradients are computed from.
inline void undo_rounding(const AttentionArgs& a, const std::vector<double>& rounded,
                          const std::vector<double>& out, EngineUpstream& up) {
  const ConstHeads& q = a.q;
  for (Index row = 0; row < q.batch * q.tokens * q.heads; ++row) {
    const Index h = row % q.heads, i = row / q.heads % q.tokens, b = row / q.heads / q.tokens;
    double& d = up.lse[static_cast<std::size_t>((b * q.heads + h) * q.tokens + i)];
    for (auto n = static_cast<std::size_t>(row * head_size(a.v)),
              end = n + static_cast<std::size_t>(head_size(a.v));
         n < end; ++n)
      d += up.out[n] * (rounded[n] - out[n]);
  }
}
// The same with gradients, by the fast engine where it takes the call. d: d_out and d_log_sum_exp. out: not rounded, of a
// call in 16 bits.
inline CallResult gradients_of_fast(const AttentionArgs& a, const Executor& e = default_executor(),
                                    bool with_sums = true,
                                    const std::vector<double>* out = nullptr) {
  EngineUpstream up(a);
  ResultArrays to(a, a.q.dtype);
  GradientArrays g(a);
  attend(a, to.r, e);
  // Gradients of sticks do not read the output.
  if (out != nullptr && a.normalisation == Normalisation::softmax)
    undo_rounding(a, widened(to.r.out), *out, up);
  ConstAttentionResult read = to.r;
  if (!with_sums) read.log_sum_exp = {};
  attend_backward(a, read, {up.d_out, up.d_lse}, g.g, e);
  return {widened(to.r.out), to.lse, std::move(g.value), std::move(g.name)};
}
// Gradients of the output rounded to 16 bits: d_out.out is read of the rounded output.
inline double gradient_tolerance(DType t) {
  return t == DType::bf16 ? 0.05 : t == DType::f16 ? 0.01 : 5 * kFloatError;
}
inline std::string wrong_gradients(const CallResult& got, const CallResult& want, DType type,
                                   double most) {
  std::string text =
      differences({got.out, got.log_sum_exp, {}, {}}, {want.out, want.log_sum_exp, {}, {}},
                  fast_tolerance(type), kFloatError);
  if (got.gradients.size() != want.gradients.size()) return text + "gradients";
  for (std::size_t n = 0; n < got.gradients.size(); ++n)
    if (const double d = difference(got.gradients[n], want.gradients[n]); !(d <= most))
      text += "d " + got.names[n] + " " + std::to_string(d) + "; ";
  return text;
}

// One thread and all of them give the same bits.
inline void expect_same_bits(const AttentionArgs& a) {
  const CallResult one = of_attend(a, inline_executor()), all = of_attend(a);
  EXPECT_EQ(one.out, all.out);
  EXPECT_EQ(one.log_sum_exp, all.log_sum_exp);
}
inline void expect_same_gradient_bits(const AttentionArgs& a) {
  const CallResult one = gradients_of_fast(a, inline_executor()), all = gradients_of_fast(a);
  ASSERT_EQ(one.gradients.size(), all.gradients.size());
  for (std::size_t n = 0; n < one.gradients.size(); ++n)
    EXPECT_EQ(one.gradients[n], all.gradients[n]) << one.names[n];
}

// q, k and v of normal numbers in float, and the same as doubles.
struct FloatCall {
  FloatCall(Index b, Index queries, Index keys, Index h, Index g, Index d, Index dv,
            std::uint64_t seed)
      : B(b), Tq(queries), Tk(keys), H(h), G(g), D(d), V(dv) {
    test::Random r(seed);
    const Index sizes[] = {B * Tq * H * D, B * Tk * G * D, B * Tk * G * V};
    for (std::size_t n = 0; n < 3; ++n) {
      for (const double x : r.normals(static_cast<std::size_t>(sizes[n]) + 1)) {
        narrow[n].push_back(static_cast<float>(x));
        wide[n].push_back(static_cast<double>(narrow[n].back()));
      }
    }
    args.scale = 1 / std::sqrt(static_cast<double>(D));
    query_at = arange(keys - queries, queries), key_at = arange(0, keys);
    args.query_positions = query_at, args.key_positions = key_at;
    args.mask.query_offset = Tk - Tq;
    args.q = view(narrow[0], Tq, H, D), args.k = view(narrow[1], Tk, G, D),
    args.v = view(narrow[2], Tk, G, V);
  }
  template <class T>
  ConstHeads view(const std::vector<T>& x, Index tokens, Index count, Index dim) const {
    return heads(tensor(x.data(), {B, tokens, count, dim}), HeadsLayout::bthd);
  }
  virtual ~FloatCall() = default;
  virtual AttentionArgs plain() const {
    AttentionArgs a = args;
    a.q = view(wide[0], Tq, H, D), a.k = view(wide[1], Tk, G, D), a.v = view(wide[2], Tk, G, V);
    return a;
  }
  std::string wrong() const {
    EXPECT_TRUE(is_fast(args)) << explain_plan(args).others[0].why_not;
    return posenc::wrong_of_fast(of_attend(args), plain(), DType::f32);
  }
  std::string wrong_backward() const { return wrong_backward(of_reference(plain(), args)); }
  std::string wrong_backward(const CallResult& want) const {
    EXPECT_EQ(explain_plan(args).backward_engine, "fast");
    return wrong_gradients(gradients_of_fast(args), want, DType::f32,
                           gradient_tolerance(DType::f32));
  }
  // The same with every instruction set of the machine, one after the other.
  std::string wrong_backward_of_all_isas() const {
    const CallResult want = of_reference(plain(), args);
    std::string all;
    for (const Isa isa : supported_isas()) {
      force_isa(isa);
      if (const std::string wrong = wrong_backward(want); !wrong.empty())
        all.append(isa_name(isa)).append(": ").append(wrong);
    }
    reset_isa();
    return all;
  }
  Index B, Tq, Tk, H, G, D, V;
  std::vector<float> narrow[3];
  std::vector<double> wide[3];
  OwnedPositions query_at, key_at;
  AttentionArgs args;
};

// Of one head without masks and terms: the sums of magnitudes that gradients of q, k and v add.
struct GradientMagnitudes {
  std::vector<double> of[3];
  double scores = 0;  // the largest sum of |scale q_c k_c|
};
// log_sum_exp: of the rows. cancels: gradients of scores have their own magnitude; else that of all numbers they are
// made of.
inline GradientMagnitudes gradient_magnitudes(const FloatCall& call, const EngineUpstream& up,
                                              const std::vector<double>& log_sum_exp,
                                              bool cancels) {
  const auto queries = static_cast<std::size_t>(call.Tq), keys = static_cast<std::size_t>(call.Tk);
  const auto dim = static_cast<std::size_t>(call.D), values = static_cast<std::size_t>(call.V);
  const std::vector<double>&q = call.wide[0], &k = call.wide[1], &v = call.wide[2];
  GradientMagnitudes m{{std::vector<double>(queries * dim), std::vector<double>(keys * dim),
                        std::vector<double>(keys * values)}};
  for (std::size_t i = 0; i < queries; ++i) {
    std::vector<double> p(keys), dp(keys);
    double less = cancels ? -up.lse[i] : std::fabs(up.lse[i]);
    for (std::size_t j = 0; j < keys; ++j) {
      double score = 0, size = 0;
      for (std::size_t c = 0; c < dim; ++c) {
        const double x = *call.args.scale * q[i * dim + c] * k[j * dim + c];
        score += x, size += std::fabs(x);
      }
      m.scores = std::max(m.scores, size);
      p[j] = std::exp(score - log_sum_exp[i]);
      for (std::size_t c = 0; c < values; ++c) {
        const double x = up.out[i * values + c] * v[j * values + c];
        dp[j] += cancels ? x : std::fabs(x);
      }
      less += p[j] * dp[j];
    }
    for (std::size_t j = 0; j < keys; ++j) {
      const double s = p[j] * (cancels ? std::fabs(dp[j] - less) : dp[j] + less) * *call.args.scale;
      for (std::size_t c = 0; c < dim; ++c) {
        m.of[0][i * dim + c] += s * std::fabs(k[j * dim + c]);
        m.of[1][j * dim + c] += s * std::fabs(q[i * dim + c]);
      }
      for (std::size_t c = 0; c < values; ++c)
        m.of[2][j * values + c] += p[j] * std::fabs(up.out[i * values + c]);
    }
  }
  return m;
}

// Two rows of 300 keys, of which lengths and flags hide some.
struct HiddenKeysCall : FloatCall {
  HiddenKeysCall(Index first, Index second)
      : FloatCall(2, 40, 300, 2, 1, 8, 8, 3), length{first, second} {
    for (std::size_t j = 50; j < 60; ++j) visible[j] = 0, visible[300 + j + 20] = 0;
    args.mask.query_offset = 0;
    args.mask.key_length = tensor(std::as_const(length).data(), {2});
    args.mask.key_visible = tensor(std::as_const(visible).data(), {2, 300});
  }
  void fill_hidden_with_nan() {
    for (std::size_t b = 0; b < 2; ++b)
      for (std::size_t j = 0; j < 300; ++j)
        if (static_cast<Index>(j) >= length[b] || visible[b * 300 + j] == 0)
          for (std::size_t d = 0; d < 8; ++d)
            narrow[1][(b * 300 + j) * 8 + d] = narrow[2][(b * 300 + j) * 8 + d] = std::nanf("");
  }
  std::vector<std::int64_t> length;
  std::vector<std::uint8_t> visible = std::vector<std::uint8_t>(600, 1);
};

}  // namespace posenc
