// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/xpos.h"

#include <cmath>
#include <string>
#include <string_view>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Spectrum Xpos::spectrum() const {
  return rope().spectrum();
}

Rope Xpos::rope() const {
  Rope r;
  r.head_dim = head_dim;
  r.rotary_dim = rotary_dim;
  r.offset = offset;
  r.base = base;
  r.pairing = pairing;
  r.direction = direction;
  return r;
}

RotarySpec Xpos::place(const Spectrum& scaled) const {
  if (!center)
    refuse_field("xpos", "center",
                 "must be given: it must not change during the life of a key cache");
  need("center", std::isfinite(*center), *center);
  need("scale_base", scale_base > 0 && std::isfinite(scale_base), scale_base);
  need("gamma", gamma > 0 && std::isfinite(gamma), gamma);
  need("power_divisor", power_divisor > 0 && std::isfinite(power_divisor), power_divisor);
  RotarySpec spec = rope().place(scaled);
  RotaryBlock& b = spec.blocks.front();
  const double n = static_cast<double>(scaled.pairs());
  for (Index i = 0; i < scaled.pairs(); ++i)
    b.log2_decay.push_back(std::log2((static_cast<double>(i) / n + gamma) / (1 + gamma)));
  b.decay_center = *center * power_divisor;
  b.decay_scale = scale_base * power_divisor;
  return spec;
}

void Xpos::need(std::string_view field, bool fine, double got) {
  if (!fine)
    refuse_field("xpos", field,
                 field == "center" ? "must be finite" : "must be finite and positive", got);
}

}  // namespace posenc::v0
