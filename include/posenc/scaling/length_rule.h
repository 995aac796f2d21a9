// SPDX-License-Identifier: Apache-2.0
// Which length a rule of length goes by. There is no default: the choice decides whether cached
// keys and new queries meet in the same frequencies.
//   per_call   the length of each call, as transformers does; the result holds for that length only
//   declared   one declared maximum for everything (vLLM, llama.cpp, TensorRT-LLM): caches agree
//   held       the length of the call that opened the cache, kept for its life: caches agree
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc {

enum class LengthRule : std::uint8_t { unset, per_call, declared, held };
template <>
struct EnumNames<LengthRule> {
  static constexpr std::array<std::string_view, 4> value{"unset", "per_call", "declared", "held"};
};

namespace detail {

inline Index known_length(std::string_view who, Context context) {
  if (context.length < 0) refuse(who, "the length must not be negative", context.length);
  if (context.length == 0)
    refuse(who, "depends on the length, which is not known: give the context length");
  return context.length;
}

// The length that the rule goes by.
inline Index ruled_length(std::string_view who, LengthRule rule, Index declared, Context context) {
  if (rule == LengthRule::unset)
    refuse(who, "length_rule must be per_call, declared or held", "unset");
  if (rule == LengthRule::declared) {
    need_positive(who, "declared_length", declared);
    return declared;
  }
  if (declared != 0) refuse(who, "declared_length belongs to length_rule=declared", declared);
  return known_length(who, context);
}

// What per_call found for `length` holds from..to only; the other rules hold for good.
inline void hold(Spectrum& s, LengthRule rule, Index from, Index to) {
  if (rule == LengthRule::per_call) narrow_validity(s, from, to);
}

}  // namespace detail

// The length whose frequencies a transformers 5.23 module uses in a call of `length` tokens when it
// last used those of `held`: it grows, stays, and falls back only below `trained`. Start with
// held = trained.
constexpr Index hugging_face_held_length(Index held, Index length, Index trained) noexcept {
  if (length > held) return length;
  return length < trained && held > trained ? trained : held;
}

}  // namespace posenc
