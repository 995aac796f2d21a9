// SPDX-License-Identifier: Apache-2.0
// Dynamic NTK: the base grows with the length n beyond the trained length M.
//   base'(n) = base * (s n / M - (s - 1))^(d/(d-2)),   n = max(length, M)
// emozilla 2023; transformers "dynamic" (per_call; M = max_position_embeddings). vLLM computes one
// base for everything: length_rule=declared, declared_length=max_position, trained_length=
// max_trained_positions (which it sets equal unless told otherwise, and then nothing is scaled);
// before 0.33 declared_length = s M. See length_rule.h for what keeps a live cache consistent.
// With per_call, cached keys have the frequencies of another length than new queries: see
// rotary/rerotate.h.
// Implementation: src/scaling/dynamic.cpp.
#pragma once
#include "posenc/scaling/length_rule.h"

namespace posenc::inline v0 {

struct Dynamic {
  static constexpr Card card{"dynamic", "dynamic NTK-aware scaling", "arXiv:2309.00071",
                             "section 3.3"};
  double factor = 0;
  Index trained_length = 0;
  LengthRule length_rule = LengthRule::unset;
  Index declared_length = 0;

  POSENC_API Spectrum rescale(Spectrum s, Context context) const;
  bool operator==(const Dynamic&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("factor", s.factor, Field{.doc = "s", .min = 1e-300, .required = true});
    v("trained_length", s.trained_length,
      Field{.doc = "M, up to which nothing changes", .unit = "tokens", .min = 1, .required = true});
    v("length_rule", s.length_rule, Field{.doc = "which length is used", .required = true});
    v("declared_length", s.declared_length,
      Field{.doc = "n of length_rule=declared", .unit = "tokens", .min = 0});
  }
};

}  // namespace posenc::v0
