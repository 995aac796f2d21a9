// SPDX-License-Identifier: Apache-2.0
// A plan from SCHEME text.
#include <optional>

#include "attention/plan/plan_call.h"
#include "posenc/core/error.h"
#include "posenc/registry.h"

namespace posenc::inline v0 {
namespace {

struct Parsed {
  std::vector<AnyRelativeScheme> schemes;
  std::optional<RotarySpec> rotary;
};

void add_encoding(const Encoding& e, Index length, Parsed& to) {
  std::visit(
      [&](const auto& scheme) {
        using S = std::decay_t<decltype(scheme)>;
        if constexpr (RelativeScheme<S>) {
          to.schemes.push_back(relative_scheme(e));
        } else if constexpr (RotaryScheme<S>) {
          if (to.rotary)
            refuse_sentence(detail::kPlan, "encodings", "one rotary encoding at most; a second is",
                            S::card.name);
          to.rotary = resolve(e, Context{.length = length});
        } else if constexpr (std::is_same_v<S, Pope>) {
          refuse_sentence(
              detail::kPlan, "encodings",
              "an encoding must keep the channels of q and k; apply PopePlan to them before the "
              "call (posenc.torch.Attention does) instead of",
              S::card.name);
        } else {
          refuse_sentence(
              detail::kPlan, "encodings",
              "an encoding must act in attention, be rotary or relative; at the input acts",
              S::card.name);
        }
      },
      e.scheme);
}

Parsed parse(std::span<const std::string_view> encodings, Index length) {
  Parsed all;
  for (const std::string_view text : encodings) add_encoding(parse_encoding(text), length, all);
  return all;
}

}  // namespace

AnyRelativeScheme relative_scheme(const Encoding& e) {
  return std::visit(
      [&](const auto& scheme) -> AnyRelativeScheme {
        using S = std::decay_t<decltype(scheme)>;
        if constexpr (RelativeScheme<S>) {
          if (!e.scalings.empty())
            refuse_sentence(detail::kPlan, "encodings",
                            "scalings act on rotary encodings; one follows", S::card.name);
          return scheme;
        } else {
          refuse_sentence(detail::kPlan, "encodings",
                          "an encoding must act in the score of attention, got", S::card.name);
        }
      },
      e.scheme);
}

AttentionPlan::AttentionPlan(std::span<const std::string_view> encodings,
                             const AttentionSizes& sizes, Index length) {
  if (length < 0) refuse_field(detail::kPlan, "length", "must not be negative", length);
  Parsed all = parse(encodings, length);
  *this = AttentionPlan(std::move(all.schemes), sizes, all.rotary ? &*all.rotary : nullptr);
}

}  // namespace posenc::v0
