// SPDX-License-Identifier: Apache-2.0
// A learned number a head and clipped distance, S_ij += T[clip(i - j, -k, k) + k, h]; as ESMFold and
// AlphaFold's relative positions (Jumper et al. 2021, supplementary algorithm 4) use it, and as any
// table of all distances where k is the longest one.
//   sign         query_minus_key, or key_minus_query (ESMFold), which reverses the rows
//   masked_row   row 0 is for pairs with a masked token, the others follow (ESMFold): inputs
//                query_mask and key_mask, 0 for masked; without them nothing is masked
// Not scaled with q.k.
#pragma once
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

enum class DistanceSign : std::uint8_t { query_minus_key, key_minus_query };
template <>
struct EnumNames<DistanceSign> {
  static constexpr std::array<std::string_view, 2> value{"query_minus_key", "key_minus_query"};
};

struct Clipped {
  static constexpr Card card{"clipped", "learned bias by clipped distance", "Jumper et al. 2021",
                             "suppl. alg. 4"};
  Index clip = 32;
  DistanceSign sign = DistanceSign::query_minus_key;
  bool masked_row = false;
  bool heads_first = false;
  Index axis = 0;

  Index rows() const noexcept { return 2 * clip + (masked_row ? 2 : 1); }

  // table [rows, heads], heads_first: [heads, rows]; starts at 0.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Clipped&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("clip", s.clip,
      Field{
          .doc = "largest distance that has its own row", .unit = "tokens", .min = 0, .max = 1e8});
    v("sign", s.sign, Field{.doc = "what row 0 is"});
    v("masked_row", s.masked_row, Field{.doc = "row 0 for pairs with a masked token"});
    v("heads_first", s.heads_first, Field{.doc = "the table is [heads, rows]"});
    v("axis", s.axis, Field{.doc = "axis of the positions", .min = 0, .max = 7});
  }
};

}  // namespace posenc::v0
