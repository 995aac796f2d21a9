// SPDX-License-Identifier: Apache-2.0
// A plan whose relative schemes stand at drawn distances.
#include "attention_drawn.h"

#include "posenc/core/error.h"
#include "posenc/registry.h"
#include "posenc/relative/drawn_distances.h"

namespace posenc::python {

AttentionPlan drawn_plan(std::span<const std::string_view> encodings, const AttentionSizes& sizes,
                         Index length, const DrawnLists& lists) {
  std::vector<AnyRelativeScheme> schemes;
  std::optional<RotarySpec> rotary;
  for (const std::string_view text : encodings) {
    const Encoding e = parse_encoding(text);
    if (is_rotary(e.scheme)) {
      if (rotary) refuse("attention", "one rotary encoding at most; a second is", text);
      rotary = resolve(e, Context{.length = length});
      continue;
    }
    relative_scheme(e);  // refuses what does not act in the score
    std::visit(
        [&](const auto& scheme) {
          using S = std::decay_t<decltype(scheme)>;
          if constexpr (RelativeScheme<S>)
            schemes.emplace_back(DrawnDistances<S>{scheme, lists.past, lists.future});
        },
        e.scheme);
  }
  if (schemes.empty())
    refuse_field("attention", "past_distances",
                 "need an encoding that acts in the score; a rotation goes by positions");
  return AttentionPlan(std::move(schemes), sizes, rotary ? &*rotary : nullptr);
}

}  // namespace posenc::python
