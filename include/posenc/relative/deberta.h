// SPDX-License-Identifier: Apache-2.0
// DeBERTa's disentangled attention. He et al., arXiv:2006.03654, equations (2) to (4), Algorithm 1;
// v3 (arXiv:2111.09543) has the arithmetic of v2.
//   S_ij = s [ q_i.k_j + q_i.K_row(i - j) + k_j.Q_row(i - j) + Q_row(i - j).K_row(i - j) ]
//          content   + c2p             + p2c             + p2p
//   K = E_rel W_pk^T + b_pk, Q = E_rel W_pq^T + b_pq, [2 S, heads, head_dim]
//   row(delta) = clip(bucket(delta) + S, 0, 2 S - 1), so distances -S .. S - 1 without buckets
//   s = 1 / sqrt(c head_dim), c = 1 + the number of terms
// Buckets (v2, v3; B buckets, M distances): mid = B / 2, bucket(r) = r for |r| <= mid, else
//   sign(r) (mid + ceil((mid - 1) ln(|r| / mid) / ln((M - 1) / mid)))
// without a logarithm: the ceiling is the smallest c with |r|^(mid-1) mid^c <= (M-1)^c mid^(mid-1).
//
// What implementations disagree on:
// * the row of p2c: the paper and Algorithm 1 use row(j - i), every program uses row(i - j). Reversing
//   E_rel does not convert one into the other, because -S has a row and S has none.
// * |r| >= M with buckets: Microsoft's repository clamps r to +-(M - 1) first and reads row 1 in the
//   far future; transformers, SEW-D and Microsoft's package 0.1.12 read row 0.
// * c: Microsoft counts c2p, p2c, p2p; transformers' v1 every entry of pos_att_type, also p2p that it
//   does not compute; its v2 only c2p and p2c. `count` selects c.
// * v1 slices the rows of min(length, S) distances from E_rel, which are the same rows.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

// tables: pos_key and pos_query are parameters. own: E_rel has its own projections (v1, or
// share_att_key=False). shared: it uses those of the content (share_att_key=True); the gradient returned
// here is the part from E_rel.
enum class DebertaProjection : std::uint8_t { tables, own, shared };
template <>
struct EnumNames<DebertaProjection> {
  static constexpr std::array<std::string_view, 3> value{"tables", "own", "shared"};
};
// code: row(i - j), as all programs; paper: row(j - i).
enum class DebertaP2c : std::uint8_t { code, paper };
template <>
struct EnumNames<DebertaP2c> {
  static constexpr std::array<std::string_view, 2> value{"code", "paper"};
};

// Last distances of the buckets mid + 1, mid + 2, ...; at most `n`, without those above
// 2^52. Throws [deberta]: buckets < 4, max_distance not above buckets / 2 + 1.
POSENC_API std::vector<Index> deberta_thresholds(Index buckets, Index max_distance, Index n);

struct Deberta {
  static constexpr Card card{"deberta", "DeBERTa disentangled attention", "arXiv:2006.03654",
                             "eq. (2)-(4)"};
  Index max_relative_positions = 512, position_buckets = 256;
  bool c2p = true, p2c = true, p2p = false;
  DebertaP2c p2c_index = DebertaP2c::code;
  bool clamp_distance = false;
  Index count = 0;
  DebertaProjection projection = DebertaProjection::shared;
  Index width = 0;
  bool key_bias = true;
  bool norm = true;
  double norm_epsilon = 1e-7, init = 0.02;

  // S; E_rel has 2 S rows.
  Index span() const noexcept {
    return position_buckets > 0 ? position_buckets : max_relative_positions;
  }
  // Bucket and row of delta = query - key.
  POSENC_API Index bucket(Index delta) const;
  POSENC_API Index row(Index delta) const;
  // s of the formula.
  POSENC_API double scale(const ScoreShape& s) const;

  // tables: pos_key, pos_query [heads, 2 S, head_dim]. Else e_rel [2 S, width], norm_weight and
  // norm_bias [width], w_pos_k [heads * head_dim, width], b_pos_k [heads * head_dim], w_pos_q,
  // b_pos_q; shared: w_k, b_k, w_q, b_q. Arrays that no term reads are omitted.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  // v1 (deberta-base, -large, -xlarge), v2_xlarge (and v2-xxlarge), v3_base (and the other sizes),
  // mdeberta_v3_base: the published models in transformers.
  POSENC_API static std::vector<Preset<Deberta>> presets();

  bool operator==(const Deberta&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("max_relative_positions", s.max_relative_positions,
      Field{.doc = "distances that have their own row, or M of the buckets",
            .unit = "tokens",
            .min = 1,
            .max = 1e6});
    v("position_buckets", s.position_buckets,
      Field{.doc = "logarithmic buckets of v2 and v3, 0 = none (v1)", .min = 0, .max = 65536});
    v("c2p", s.c2p, Field{.doc = "content of the query with position"});
    v("p2c", s.p2c, Field{.doc = "position with content of the key"});
    v("p2p", s.p2p, Field{.doc = "position with position"});
    v("p2c_index", s.p2c_index,
      Field{.doc = "row of the query's position: i - j as programs, j - i as the paper"});
    v("clamp_distance", s.clamp_distance,
      Field{.doc = "distances to +-(M - 1) before buckets: Microsoft's repository"});
    v("count", s.count,
      Field{.doc = "c in 1 / sqrt(c head_dim), 0 = 1 + terms",
            .min = 0,
            .max = 4,
            .from = "1 + c2p + p2c + p2p"});
    v("projection", s.projection, Field{.doc = "projection of E_rel"});
    v("width", s.width,
      Field{.doc = "channels of E_rel, 0 = heads * head_dim",
            .min = 0,
            .max = 1e6,
            .from = "heads * head_dim"});
    v("key_bias", s.key_bias, Field{.doc = "bias of the key projection; v1: false"});
    v("norm", s.norm, Field{.doc = "LayerNorm of E_rel: norm_rel_ebd"});
    v("norm_epsilon", s.norm_epsilon, Field{.doc = "of the LayerNorm", .min = 0});
    v("init", s.init, Field{.doc = "initial deviation of the parameters", .min = 0});
  }

 private:
  bool needs_key() const noexcept { return c2p || p2p; }
  bool needs_query() const noexcept { return p2c || p2p; }
  void check_fields(const ScoreShape& s) const;
  IndexLine rows(const ScoreShape& s, TermStore& store, bool mirrored) const;
  DistanceRange range(const ScoreShape& s) const;
};

}  // namespace posenc::v0
