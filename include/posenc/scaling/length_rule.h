// SPDX-License-Identifier: Apache-2.0
// Which length a length rule uses. There is no default: the choice determines whether cached keys and new
// queries have the same frequencies.
//   per_call   the length of each call, as transformers does; the result is valid for that length only
//   declared   one declared maximum for everything (vLLM, llama.cpp, TensorRT-LLM): caches agree
//   held       the length of the call that opened the cache, kept for its life: caches agree
// Implementation: src/scaling/length_rule.cpp.
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc::inline v0 {

enum class LengthRule : std::uint8_t { unset, per_call, declared, held };
template <>
struct EnumNames<LengthRule> {
  static constexpr std::array<std::string_view, 4> value{"unset", "per_call", "declared", "held"};
};

namespace detail {

POSENC_API Index known_length(std::string_view who, Context context);

// The length that the rule uses.
POSENC_API Index ruled_length(std::string_view who, LengthRule rule, Index declared,
                              Context context);

// The result of per_call for `length` is valid for from .. to only; that of other rules always.
POSENC_API void hold(Spectrum& s, LengthRule rule, Index from, Index to);

}  // namespace detail

// The length whose frequencies a transformers 5.23 module uses in a call of `length` tokens when it
// last used those of `held`: it grows, stays, and falls back only below `trained`. Start with
// held = trained.
constexpr Index hugging_face_held_length(Index held, Index length, Index trained) noexcept {
  if (length > held) return length;
  return length < trained && held > trained ? trained : held;
}

}  // namespace posenc::v0
