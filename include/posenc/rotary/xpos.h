// SPDX-License-Identifier: Apache-2.0
// xPos: rotary whose scores decay with the distance. Sun et al., arXiv:2212.10554, eq. 10 to 12:
//   zeta_i = (2i/d + gamma) / (1 + gamma), gamma = 0.4
//   q_i grows by zeta_i^((p - c)/B), k_i shrinks by it;  B = scale_base (512)
// Causal attention only. The centre c cancels in the score as long as it is the SAME for q and k:
// it is an overflow guard, is required, and must not change during the life of a key cache.
// power_divisor: what position interpolation divides the power's position by. Interpolation by s
// divides it too in rotary-embedding-torch (power_divisor = s), not in x-transformers (1).
// Implementation: src/rotary/xpos.cpp.
#pragma once
#include <optional>

#include "posenc/rotary/rope.h"

namespace posenc::inline v0 {

// Centres that known programs use for a table or sequence of `length` positions.
namespace xpos_centers {
constexpr Index torchscale(Index length) noexcept {
  return length / 2 + length % 2;
}
constexpr Index flash_attention(Index length) noexcept {
  return length / 2;
}
constexpr Index rotary_embedding_torch(Index length) noexcept {
  return length / 2;
}
constexpr Index x_transformers(Index largest_position) noexcept {
  return (largest_position + 1) / 2;
}
}  // namespace xpos_centers

struct Xpos {
  static constexpr Card card{"xpos", "extrapolatable rotary (xPos)", "arXiv:2212.10554",
                             "10 to 12"};
  Index head_dim = 0, rotary_dim = 0, offset = 0;
  double base = 10000;
  Pairing pairing = Pairing::unset;
  std::optional<double> center;
  double scale_base = 512, gamma = 0.4, power_divisor = 1;
  Index direction = 1;

  POSENC_API Rope rope() const;
  POSENC_API Spectrum spectrum() const;
  POSENC_API RotarySpec place(const Spectrum& scaled) const;
  // Named settings of programs (their pairings, and xpos_centers of a length).
  POSENC_API static std::vector<Preset<Xpos>> presets();

  bool operator==(const Xpos&) const = default;
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
    v("center", s.center,
      Field{.doc = "c, the position with factor 1", .unit = "positions", .required = true});
    v("scale_base", s.scale_base, Field{.doc = "B", .unit = "positions", .min = 1e-300});
    v("gamma", s.gamma, Field{.doc = "gamma", .min = 1e-300});
    v("power_divisor", s.power_divisor,
      Field{.doc = "divides the position of the power", .min = 1e-300});
    v("direction", s.direction,
      Field{.doc = "1 counter-clockwise, -1 clockwise", .min = -1, .max = 1});
  }

 private:
  static void need(std::string_view field, bool fine, double got);
};

}  // namespace posenc::v0
