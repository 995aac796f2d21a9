// SPDX-License-Identifier: Apache-2.0
// Forgetting attention (FoX). Lin et al., arXiv:2503.02130, equation (4); x-transformers' data
// dependent ALiBi:
//   S_ij += c_i - c_j,  c_t = sum over u <= t of log f_u,  f = sigmoid(z)
// so that the gate of the query's own step counts and that of the key's does not.
//   bidirectional  two sets of gates: c_i - c_j for keys up to the query's own, c'_j - c'_i for later ones
//   per_row        a gate for every pair: S_ij += sum over j <= t < i of log sigmoid(s_g x_i.y_t)
// The bias is outside the scale of the content. It reads no positions: c follows the order of the
// keys of a call, and each query is among them at its own order.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

enum class ForgettingForm : std::uint8_t { causal, bidirectional, per_row };
template <>
struct EnumNames<ForgettingForm> {
  static constexpr std::array<std::string_view, 3> value{"causal", "bidirectional", "per_row"};
};
// Where gates come from: log_gate is log f; logit is z; hidden projects a hidden state,
// z = hidden W_f^T + b_f. per_row: inputs x and y unless hidden.
enum class ForgettingGates : std::uint8_t { log_gate, logit, hidden };
template <>
struct EnumNames<ForgettingGates> {
  static constexpr std::array<std::string_view, 3> value{"log_gate", "logit", "hidden"};
};

struct Forgetting {
  static constexpr Card card{"forgetting", "forgetting gates", "arXiv:2503.02130", "eq. (4)"};
  ForgettingForm form = ForgettingForm::causal;
  ForgettingGates gates = ForgettingGates::log_gate;
  Index width = 0, gate_dim = 0;
  double log_scale = 1, bias_init = 0;

  // hidden: w_f [sets * heads, width], b_f [sets * heads], two sets if bidirectional; per_row: w_f
  // [2 * heads * gate_dim, width], x before y, no bias. Else none.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  // log_gate or gate_logit [batch, keys, sets * heads]; hidden [batch, keys, width]; per_row:
  // gate_query [batch, queries, heads, gate_dim], gate_key [batch, keys, heads, gate_dim].
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  // Gates of a token, or channels of x and y together.
  Index gate_columns(const ScoreShape& s) const noexcept {
    if (form == ForgettingForm::per_row) return 2 * s.heads * gate_dim;
    return (form == ForgettingForm::bidirectional ? 2 : 1) * s.heads;
  }

  bool operator==(const Forgetting&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("form", s.form, Field{.doc = "which pairs gates are summed for"});
    v("gates", s.gates, Field{.doc = "inputs of the call"});
    v("width", s.width,
      Field{.doc = "channels of the hidden state, with gates=hidden", .min = 0, .max = 1e6});
    v("gate_dim", s.gate_dim,
      Field{.doc = "channels of the queries and keys of gates, with form=per_row",
            .min = 0,
            .max = 65536});
    v("log_scale", s.log_scale,
      Field{.doc = "multiplies log gates: post_log_scale of x-transformers"});
    v("bias_init", s.bias_init, Field{.doc = "initial value of b_f; x-transformers: 5"});
  }

 private:
  void check_fields(const ScoreShape& s) const;
  void check_call(const ScoreShape& s, const CallData& call) const;
};

}  // namespace posenc::v0
