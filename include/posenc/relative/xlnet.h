// SPDX-License-Identifier: Apache-2.0
// XLNet's relative positions and segments. Yang et al., arXiv:1906.08237, sections 2.4 and 2.5:
//   S_ij = s [ (q_i + u_h) . k_j + (q_i + v_h) . (R_delta W)_h + (q_i + b_h) . e_h(i, j) ]
//   R_delta = [sin(delta w_m) | cos(delta w_m)], w_m = base^(-2m / d_model)
// s is the scale of the content. e is row 0 of seg_embed where both tokens have the same segment,
// row 1 where not. Distances have both signs and are clamped on both sides, Transformer-XL's for
// the past only. `bi_data` (half of the batch reads backwards) is a batch entry of negated positions.
// Two streams are two calls with the same keys. Implementations disagree on nothing in the score.
// Funnel-Transformer (Dai et al., arXiv:2006.03236) is the same score, and with class_token
//   the terms with R and e are 0 where the query or the key is the class token,
//   row 0 of seg_embed is that of different segments (segment_rows=differs_first),
//   the class token's segment counts as the same as every other (shared_segment=2).
// Its blocks pool: the positions of a call are those that the pooled tokens had.
// What computes it is in src/relative/xlnet.cpp.
#pragma once
#include <array>
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

// Which row of seg_embed is that of two tokens of one segment: 0 (XLNet) or 1 (Funnel).
enum class XlNetSegmentRows : std::uint8_t { same_first, differs_first };
template <>
struct EnumNames<XlNetSegmentRows> {
  static constexpr std::array<std::string_view, 2> value{"same_first", "differs_first"};
};

struct XlNet {
  static constexpr Card card{"xlnet", "XLNet relative positions", "arXiv:1906.08237",
                             "sec. 2.4, 2.5"};
  Index d_model = 0;
  double base = 10000;
  Index clamp_len = 0;
  Index segments = 0;
  double init = 0.02;
  bool class_token = false;
  XlNetSegmentRows segment_rows = XlNetSegmentRows::same_first;
  Index shared_segment = -1;

  // w_kr [d_model, heads, head_dim], u and v_bias [heads, head_dim]; with segments s_bias
  // [heads, head_dim] and seg_embed [2, heads, head_dim]. All N(0, init).
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  // With segments query_segment and key_segment, 0 .. segments - 1; a call without both has no term
  // of them. With class_token query_class and key_class, 1 for a class token and 0 for others; a
  // call without both has it as its first query and its first key.
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const XlNet&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("d_model", s.d_model,
      Field{.doc = "width of the sinusoid", .min = 2, .max = 1e6, .required = true});
    v("base", s.base, Field{.doc = "of the sinusoid", .min = 1e-300});
    v("clamp_len", s.clamp_len,
      Field{.doc = "largest distance on each side, 0 = none", .unit = "tokens", .min = 0});
    v("segments", s.segments,
      Field{.doc = "number of segments, 0 = no segment term", .min = 0, .max = 4096});
    v("init", s.init, Field{.doc = "initial deviation of the parameters", .min = 0});
    v("class_token", s.class_token,
      Field{.doc = "pairs with the class token have no position and segment terms (Funnel)"});
    v("segment_rows", s.segment_rows,
      Field{.doc = "row 0 of seg_embed: of one segment, or of different ones (Funnel)"});
    v("shared_segment", s.shared_segment,
      Field{.doc = "segment that is equal to every other, -1 = none (Funnel: 2)",
            .min = -1,
            .max = 4095});
  }

 private:
  DistanceRange range(const ScoreShape& s) const;
  void check_fields(const ScoreShape& s) const;
  IndexPair segment_pair(LoweredTerms& out) const;
};

}  // namespace posenc::v0
