// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/mrope.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "positions/vision_grids.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kMrope = "mrope";

struct Token {
  Index t, h, w;
};

void check_rule(const MropeRule& r) {
  if (r.merge < 1) refuse_field(kMrope, "merge", "must be positive", r.merge);
  if (!std::isfinite(r.tokens_per_second) || r.tokens_per_second < 0)
    refuse_field(kMrope, "tokens_per_second", "must be finite and not negative",
                 r.tokens_per_second);
}

// Appends one grid at `start`; returns where the text behind it goes on.
Index append_grid(const MropeRule& rule, const VisionGrid& g, bool video, Index start,
                  std::vector<Token>& out) {
  const Index rows = g.rows / rule.merge, columns = g.columns / rule.merge;
  const double seconds = rule.whole_seconds ? std::trunc(g.seconds) : g.seconds;
  // In a program that multiplies in float32 a product next to an integer may fall on its other
  // side.
  const auto held = [&](double x) {
    return rule.float32_times ? static_cast<double>(static_cast<float>(x)) : x;
  };
  const double interval = video ? held(rule.tokens_per_second * held(seconds)) : 1;
  Index last = 0;
  for (Index f = 0; f < g.frames; ++f) {
    const double time = std::trunc(held(static_cast<double>(f) * interval));
    if (!(time < 0x1p62)) refuse_field(kMrope, "positions", "must stay inside 64 bits, time", time);
    last = static_cast<Index>(time);
    for (Index r = 0; r < rows; ++r)
      for (Index c = 0; c < columns; ++c) out.push_back({start + last, start + r, start + c});
  }
  const Index space = std::max(rows, columns);
  if (rule.next_text == NextText::after_space) return start + space;
  return start + std::max(space, last + 1);
}

// The real tokens of one row.
std::vector<Token> row_tokens(const MropeRule& rule, const std::vector<Index>& types,
                              VisionGrids& images, VisionGrids& videos) {
  std::vector<Token> tokens;
  Index next = 0;
  while (tokens.size() < types.size()) {
    const std::size_t first = tokens.size();
    const Index type = types[first];
    if (type == 0) {
      tokens.push_back({next, next, next});
      ++next;
      continue;
    }
    if (type != 1 && type != 2)
      refuse(kMrope, "token types must be 0 text, 1 image or 2 video", type);
    const VisionGrid g = type == 2 ? videos.next() : images.next();
    const double need = merged_tokens(g, rule.merge);
    std::size_t run = first;
    while (run < types.size() && types[run] == type) ++run;
    if (need > static_cast<double>(run - first))
      refuse(kMrope, "a grid must fit its run of tokens, grid of", need);
    next = append_grid(rule, g, type == 2, next, tokens);
  }
  return tokens;
}

}  // namespace

MropeRule qwen2_vl_rule() {
  return {};
}
MropeRule qwen2_vl_classic_rule() {
  MropeRule r;
  r.next_text = NextText::after_all_axes;
  r.delta_count = DeltaCount::all_tokens;
  r.padded = 1;
  return r;
}
MropeRule qwen2_5_vl_rule(double tokens_per_second) {
  MropeRule r;
  r.tokens_per_second = tokens_per_second;
  r.float32_times = true;
  return r;
}
MropeRule qwen3_vl_rule() {
  MropeRule r;
  r.frames_apart = true;
  return r;
}

MropePositions mrope_positions(const MropeRule& rule, const ConstTensorView& token_types,
                               const ConstTensorView& mask, std::span<const VisionGrid> images,
                               std::span<const VisionGrid> videos) {
  check_rule(rule);
  const TypedRows rows(kMrope, token_types, mask);
  const IntegerRows& types = rows.types;
  VisionGrids image_grids(kMrope, rule.merge, rule.frames_apart, images, "images");
  VisionGrids video_grids(kMrope, rule.merge, rule.frames_apart, videos, "videos");
  MropePositions result;
  std::vector<Index> v(static_cast<std::size_t>(3 * types.batch * types.tokens), rule.padded);
  for (Index b = 0; b < types.batch; ++b) {
    const std::vector<Index> places = rows.places(b);
    std::vector<Index> row_types;
    for (const Index t : places) row_types.push_back(types(b, t));
    const std::vector<Token> row = row_tokens(rule, row_types, image_grids, video_grids);
    Index largest = -1;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::array<Index, 3> token{row[i].t, row[i].h, row[i].w};
      for (std::size_t a = 0; a < 3; ++a) {
        largest = std::max(largest, token[a]);
        const Index at = (static_cast<Index>(a) * types.batch + b) * types.tokens + places[i];
        v[static_cast<std::size_t>(at)] = token[a];
      }
    }
    const Index counted =
        rule.delta_count == DeltaCount::real_tokens ? static_cast<Index>(row.size()) : types.tokens;
    result.delta.push_back(largest + 1 - counted);
  }
  image_grids.check_used_up();
  video_grids.check_used_up();
  result.positions = own(std::move(v), types.batch, 3);
  return result;
}

}  // namespace posenc::v0
