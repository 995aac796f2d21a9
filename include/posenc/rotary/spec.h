// SPDX-License-Identifier: Apache-2.0
// Lowered rotary schemes: plain structs that state which channels rotate by which phase. A rotary
// definition has two functions: the spectrum that scalings change, and the place of its pairs in a head.
#pragma once
#include <concepts>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/core/precision.h"
#include "posenc/phase.h"
#include "posenc/scaling/policy.h"

namespace posenc::inline v0 {

// One window [offset, offset + 2 * pairs) of a head. Pair k of it is
//   half_split   (offset + k, offset + pairs + k)        interleaved  (offset + 2k, offset + 2k +
//   1)
// and becomes, with phi = sum over axes of position * frequency,
//   y_a = gain * (x_a cos phi - direction * x_b sin phi),  y_b = gain * (direction * x_a sin phi +
//   x_b cos phi)
// output_order even_then_odd (interleaved only): y_a goes to offset + k, y_b to offset + pairs + k.
struct RotaryBlock {
  Index offset = 0;
  Pairing pairing = Pairing::unset;
  std::int32_t direction = 1;  // 1 counter-clockwise (nearly everybody), -1 clockwise
  OutputOrder output_order = OutputOrder::in_place;
  Spectrum spectrum;
  // xPos (arXiv:2212.10554): q grows by 2^(log2_decay[k] * (p - decay_center) / decay_scale), k
  // shrinks by it. Empty: none. The centre must stay the same for the life of a key cache.
  std::vector<double> log2_decay;
  double decay_center = 0, decay_scale = 512;

  Index pairs() const noexcept { return spectrum.pairs(); }
  Index width() const noexcept { return 2 * spectrum.pairs(); }
  bool operator==(const RotaryBlock&) const = default;
};

// Resolved for one range of lengths. No blocks: no rotation (NoPE).
struct RotarySpec {
  Index head_dim = 0;
  std::vector<RotaryBlock> blocks;  // must not overlap; channels outside all are copied untouched
  Precision precision = Precision::exact;
  // hf_bfloat16_table only: true rounds once (products in float32), false rounds x cos, x sin and
  // their sum one by one. conformance layouts.json says which model type does which.
  bool bfloat16_rounds_once = false;

  POSENC_API double logit_factor() const;  // of the blocks; rejects blocks that disagree
  POSENC_API Index axes() const noexcept;  // position streams needed (at least 1)
  POSENC_API Index valid_from() const noexcept;
  POSENC_API Index valid_to() const noexcept;
  POSENC_API std::uint64_t hash() const;
  bool operator==(const RotarySpec&) const = default;
};

// The direction of a definition for a block; an invalid one becomes 0, which the check rejects.
constexpr std::int32_t block_direction(Index direction) noexcept {
  return direction == 1 || direction == -1 ? static_cast<std::int32_t>(direction) : 0;
}

// Throws std::invalid_argument("[rotary] ..."): head_dim odd, 0, negative or > 65536; pairing
// unset; direction not 1 or -1; block outside the head; blocks that overlap; spectrum not finite;
// ...
POSENC_API void check_rotary(const RotarySpec&);

// A rotary definition: the spectrum that scalings act on, and its placement in a head.
template <class S>
concept RotaryScheme = Described<S> && requires(const S& s, const Spectrum& scaled) {
  { s.spectrum() } -> std::same_as<Spectrum>;
  { s.place(scaled) } -> std::same_as<RotarySpec>;
};

// An element of a chain of scalings: a policy, or Scaling (registry.h).
template <class P>
concept Rescales = requires(const P& scaling, Spectrum in, Context c) {
  { scaling.rescale(std::move(in), c) } -> std::same_as<Spectrum>;
};

// Definition x scalings x length -> spec: resolve(rope, Yarn{...}), resolve(rope, {Linear{4}}),
// or any range of scalings, applied in order.
template <RotaryScheme S, class Chain>
RotarySpec resolve(const S& scheme, const Chain& chain, Context context = {}) {
  Spectrum s = scheme.spectrum();
  for (const auto& scaling : chain) s = scaling.rescale(std::move(s), context);
  RotarySpec spec = scheme.place(s);
  check_rotary(spec);
  return spec;
}
template <RotaryScheme S, Rescales P>
RotarySpec resolve(const S& scheme, const P& scaling, Context context = {}) {
  return resolve(scheme, std::span<const P>(&scaling, 1), context);
}
template <RotaryScheme S, Rescales P>
RotarySpec resolve(const S& scheme, std::initializer_list<P> chain, Context context = {}) {
  return resolve(scheme, std::span<const P>(chain.begin(), chain.size()), context);
}
template <RotaryScheme S>
RotarySpec resolve(const S& scheme) {
  RotarySpec spec = scheme.place(scheme.spectrum());
  check_rotary(spec);
  return spec;
}

}  // namespace posenc::v0
