// SPDX-License-Identifier: Apache-2.0
// A scaling is a pure function from spectrum to spectrum; scalings are chained by applying them in
// turn. One policy a file in this folder, one line each in registry.h.
#pragma once
#include <concepts>
#include <utility>

#include "posenc/core/describe.h"
#include "posenc/phase.h"

namespace posenc::inline v0 {

// What a length rule may ask. 0 = not known: policies that depend on it refuse 0 by name.
struct Context {
  Index length = 0;
};

// rescale writes frequency, gain, logit_factor; keeps, drops or replaces `geometric` and `ggml`;
// and narrows [valid_from, valid_to] when its result depends on the length. Throws [name] ...
template <class S>
concept ScalingPolicy = Described<S> && requires(const S& s, Spectrum in, Context c) {
  { s.rescale(std::move(in), c) } -> std::same_as<Spectrum>;
};

// The law base^(-2i/width), or a refusal in the name of the scaling that needs it.
POSENC_API const Geometric& needs_geometric(const Spectrum&, std::string_view who);

// A length rule's result holds for lengths [from, to] only.
inline void narrow_validity(Spectrum& s, Index from, Index to) {
  s.valid_from = from > s.valid_from ? from : s.valid_from;
  s.valid_to = to < s.valid_to ? to : s.valid_to;
}

}  // namespace posenc::v0
