// SPDX-License-Identifier: Apache-2.0
// A scaling is a pure function from spectrum to spectrum. A chain applies several, one after the other.
// Each policy has one file in this folder and one line in registry.h.
#pragma once
#include <concepts>
#include <utility>

#include "posenc/core/describe.h"
#include "posenc/phase.h"

namespace posenc::inline v0 {

// The input of length rules. 0 = not known: policies that depend on it reject 0 by name.
struct Context {
  Index length = 0;
};

// rescale writes frequency, gain, logit_factor; keeps, drops or replaces `geometric` and `ggml`;
// and narrows [valid_from, valid_to] when its result depends on the length. Throws [name] ...
template <class S>
concept ScalingPolicy = Described<S> && requires(const S& s, Spectrum in, Context c) {
  { s.rescale(std::move(in), c) } -> std::same_as<Spectrum>;
};

// The law base^(-2i/width), or an error in the name of the scaling that needs it.
POSENC_API const Geometric& needs_geometric(const Spectrum&, std::string_view who);

// The result of a length rule is valid for lengths [from, to] only.
inline void narrow_validity(Spectrum& s, Index from, Index to) {
  s.valid_from = from > s.valid_from ? from : s.valid_from;
  s.valid_to = to < s.valid_to ? to : s.valid_to;
}

}  // namespace posenc::v0
