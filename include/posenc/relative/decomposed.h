// SPDX-License-Identifier: Apache-2.0
// The query is multiplied with a vector for each offset on each axis. MViTv2, Li et al., arXiv:2112.01526,
// equation 4; ViTDet, SAM (arXiv:2304.02643):
//   S_ij += sum over axes of q_i . R_axis[floor(qy max(k/q, 1) - ky max(q/k, 1) + (k - 1) max(q/k, 1))]
// q and k are the sizes of the axis for queries and keys (pooled ones differ). The q here is not
// scaled, whatever the scale of q.k is. The positions of a call are products: a query's index
// times max(k/q, 1), a key's times max(q/k, 1); for equal grids the index itself. Two axes are rows and
// columns, three are time, rows, columns. A table of other than 2 max(q, k) - 1 rows is resized
// linearly (SAM, ViTDet, torchvision; not by the authors of MViT). class_token: what the call's
// query_class and key_class mark with 1 has no term.
#pragma once
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct Decomposed {
  static constexpr Card card{"decomposed", "query times a vector for each axis offset",
                             "arXiv:2112.01526", "eq. 4"};
  std::vector<Index> size{};
  std::vector<Index> key_size{};
  std::vector<Index> table_rows{};
  bool class_token = false;

  // rel_pos_h, rel_pos_w, before them of three axes rel_pos_t: [rows, head_dim], zeros.
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

  bool operator==(const Decomposed&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("size", s.size, Field{.doc = "size of each axis for queries, 2 or 3 axes", .required = true});
    v("key_size", s.key_size, Field{.doc = "size of each axis for keys; none: as size"});
    v("table_rows", s.table_rows,
      Field{.doc = "rows of each table; none: 2 max(size, key_size) - 1"});
    v("class_token", s.class_token, Field{.doc = "inputs mark class tokens, which have no term"});
  }

 private:
  struct Axis;
  Axis axis(std::size_t n) const;
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
