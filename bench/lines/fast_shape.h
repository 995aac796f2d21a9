// SPDX-License-Identifier: Apache-2.0
// Which call of the fast attention engine a line measures.
#pragma once
#include <cmath>
#include <string>

#include "posenc/core/heads.h"

namespace posenc::bench {

// Shaw and the next two read rows of a table: of 129 clipped distances by the query and for the values (Shaw), of all distances
// (Transformer-XL), of 512 buckets by the query and by the key (DeBERTa).
// Forgetting sums a gate for each pair (form=per_row). SAM has one table for the rows and one for the columns of a picture.
// Segments have a number for each pair of four classes, whose tokens are neighbours; mixed classes change at every token; the
// third has T5's numbers besides. The class token turns T5's numbers off and has others. LayoutLM has buckets of the order and
// of both coordinates of boxes, which are in no order.
enum class By : std::uint8_t {
  plain,
  alibi,
  t5,
  tupe,
  capped,
  fire,
  cope,
  stick_breaking,
  shaw,
  transformer_xl,
  deberta,
  kerple,
  sam,
  swin,
  decay,
  forgetting,
  segments,
  mixed_segments,
  t5_segments,
  class_token,
  layoutlm
};
inline constexpr const char* kBy[] = {
    "plain",       "alibi",          "t5",      "tupe",           "capped",   "fire",
    "cope",        "stick_breaking", "shaw",    "transformer_xl", "deberta",  "kerple",
    "sam",         "swin",           "decay",   "forgetting",     "segments", "mixed_segments",
    "t5_segments", "class_token",    "layoutlm"};

// What is computed: the output; gradients of q, k and v; those of the term's table too.
enum class Gradient : std::uint8_t { none, inputs, table };
inline constexpr const char* kGradient[] = {"", "backward/", "backward/table/"};

struct FastShape {
  Index tokens, heads, dim;
  bool causal;
  By by;
  Gradient gradient = Gradient::none;
  Index batch = 1;
  Index behind = 0;  // tokens between the keys and the queries, which then see all of them
  std::string name() const {
    std::string sizes =
        std::to_string(tokens) + 'x' + std::to_string(heads) + 'x' + std::to_string(dim);
    if (batch > 1) sizes = std::to_string(batch) + 'x' + sizes;
    const char* seen = causal ? "/causal/" : behind > 0 ? "/behind/" : "/full/";
    return std::string("attend/f32/") + kGradient[static_cast<std::size_t>(gradient)] +
           kBy[static_cast<std::size_t>(by)] + seen + sizes;
  }
  // Of a square picture.
  Index side() const {
    return static_cast<Index>(std::lround(std::sqrt(static_cast<double>(tokens))));
  }
  double pairs() const {
    const auto n = static_cast<double>(tokens);
    return static_cast<double>(batch * heads) * (causal ? n * (n + 1) / 2 : n * n);
  }
  // Products beside those of q, k and v, forward.
  double more_products() const {
    const auto n = static_cast<double>(batch * tokens * heads);
    return by == By::shaw                               ? 2 * n * 129
           : by == By::transformer_xl || by == By::tupe ? pairs()
           : by == By::deberta                          ? 2 * n * 512
           : by == By::cope                             ? n * 64
           : by == By::forgetting                       ? pairs()
           : by == By::sam ? 4 * n * std::sqrt(static_cast<double>(tokens))
                           : 0;
  }
};

}  // namespace posenc::bench
