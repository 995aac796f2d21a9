// SPDX-License-Identifier: Apache-2.0
// Sandwich: sums of cosines of the distance. Chi et al., arXiv:2212.10356, section 5:
//   nemo           S_ij += (sum over m = 1 .. w/2 of cos(n 10000^(-2m/w)) - w/2) / (8 h / H)
//   attention_gym  S_ij +=  sum over m = 0 .. w/2 - 1 of cos(n 10000^(-2m/w))    / (8 h / H)
// n = |i - j|, heads h = 1 .. H, w the width of the sinusoid (128 in the paper). No program of the
// authors is public; NeMo's starts at m = 1 and is 0 at n = 0. Not scaled with q.k.
#pragma once
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

enum class SandwichForm : std::uint8_t { nemo, attention_gym };
template <>
struct EnumNames<SandwichForm> {
  static constexpr std::array<std::string_view, 2> value{"nemo", "attention_gym"};
};

struct Sandwich {
  static constexpr Card card{"sandwich", "sums of cosines of the distance (Sandwich)",
                             "arXiv:2212.10356", "sec. 5"};
  Index width = 128;
  SandwichForm form = SandwichForm::nemo;

  // The bias of head h (from 0) of so many at a distance.
  POSENC_API double bias(Index h, Index heads, Index distance) const;
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Sandwich&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width, Field{.doc = "of the sinusoid", .unit = "channels", .min = 2, .max = 1e6});
    v("form", s.form, Field{.doc = "program whose sum is computed"});
  }

 private:
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
