// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding. Su et al., arXiv:2104.09864v5, eq. 15 and 34:
//   theta_i = base^(-2i/rotary_dim),  i = 0 .. rotary_dim/2 - 1;  pair i rotates by position *
//   theta_i
// rotary_dim < head_dim is a partial rotary (exponents over rotary_dim, prefix or any offset):
// GPT-NeoX, GPT-J, Phi, GLM; DeepSeek's multi-head latent attention rotates the last channels. It is NOT
// `proportional`.
// Implementation: src/rotary/rope.cpp.
#pragma once
#include "posenc/rotary/spec.h"

namespace posenc::inline v0 {

struct Rope {
  static constexpr Card card{"rope", "rotary position embedding", "arXiv:2104.09864v5", "15, 34"};
  Index head_dim = 0, rotary_dim = 0, offset = 0;
  double base = 10000;
  Pairing pairing = Pairing::unset;
  Index direction = 1;
  OutputOrder output_order = OutputOrder::in_place;

  Index width() const noexcept { return rotary_dim == 0 ? head_dim - offset : rotary_dim; }
  POSENC_API Spectrum spectrum() const;
  POSENC_API RotarySpec place(const Spectrum& s) const;
  bool operator==(const Rope&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("head_dim", s.head_dim,
      Field{.doc = "channels of a head", .min = 1, .max = 65536, .required = true});
    v("rotary_dim", s.rotary_dim,
      Field{.doc = "rotated channels, 0 = all from offset on",
            .min = 0,
            .max = 65536,
            .from = "head_dim - offset"});
    v("offset", s.offset, Field{.doc = "first rotated channel", .min = 0, .max = 65536});
    v("base", s.base, Field{.doc = "theta", .min = 1e-300});
    v("pairing", s.pairing, Field{.doc = "which channels rotate together", .required = true});
    v("direction", s.direction,
      Field{.doc = "1 counter-clockwise, -1 clockwise", .min = -1, .max = 1});
    v("output_order", s.output_order, Field{.doc = "order of the rotated channels"});
  }
};

}  // namespace posenc::v0
