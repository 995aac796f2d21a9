// SPDX-License-Identifier: Apache-2.0
// Every rule for positions by name: one line of the table, one function of the library.
#include <array>

#include "posenc/positions.h"
#include "positions/exact.h"
#include "positions/rule/reader.h"

namespace posenc::inline v0 {
namespace {

using detail::RuleReader;

OwnedPositions build_shard(const RuleReader& r) {
  const auto layout = r.choice<ShardLayout>("layout");
  if (r.name() == "shard")
    return shard_positions(r.whole("tokens"), r.whole("ranks"), r.whole("rank"), layout,
                           r.whole("first"));
  return shard_positions(r.whole_array("cu_seqlens"), r.whole("ranks"), r.whole("rank"), layout);
}

// What every grid may have on top: merged blocks, the other order, tokens that are not rotated.
OwnedPositions finished_grid(OwnedPositions p, const RuleReader& r, std::span<const Index> shape) {
  if (const Index merge = r.whole("merge"); merge != 1) {
    if (shape.size() < 2) refuse_field("rule", "merge", "needs a grid of two axes or more");
    p = merge_blocks(p, shape[shape.size() - 2], shape.back(), merge);
  }
  if (r.flag("swap_xy")) p = swap_xy(p);
  if (r.flag("float32")) p = in_float32(p);
  if (const Index before = r.whole("before"), after = r.whole("after"); before != 0 || after != 0)
    p = with_special_tokens(p, before, after, r.whole("value"));
  return p;
}

OwnedPositions build_grid(const RuleReader& r) {
  if (r.name() == "patch_centres") {
    const std::array<Index, 2> shape{r.whole("rows"), r.whole("columns")};
    return finished_grid(
        patch_centres(shape[0], shape[1], r.choice<CentreNormalisation>("normalisation")), r,
        shape);
  }
  const std::vector<Index> shape = r.wholes("shape");
  const auto made = [&] {
    if (r.name() == "grid") return grid(shape, r.whole("first"));
    if (r.name() == "scaled_grid")
      return scaled_grid(shape, r.reals("reference"), r.real("offset"));
    return linspace_grid(shape, r.real("low"), r.real("high"));
  };
  return finished_grid(made(), r, shape);
}

OwnedPositions build_counted_grid(const RuleReader& r) {
  return counted_grid(
      r.array("mask"),
      {.normalise = r.flag("normalise"), .scale = r.real("scale"), .eps = r.real("eps")});
}

RulePositions build_mrope(const RuleReader& r) {
  MropeRule m{.merge = r.whole("merge"),
              .tokens_per_second = r.real("tokens_per_second"),
              .next_text = r.choice<NextText>("next_text"),
              .delta_count = r.choice<DeltaCount>("delta_count"),
              .padded = r.whole("padded"),
              .frames_apart = r.flag("frames_apart"),
              .whole_seconds = r.flag("whole_seconds"),
              .float32_times = r.flag("float32_times")};
  MropePositions p = mrope_positions(m, r.array("token_types"), r.array("mask"),
                                     r.grids("image_grid"), r.grids("video_grid", "seconds"));
  return {std::move(p.positions), {p.delta.begin(), p.delta.end()}};
}

RulePositions build_omni(const RuleReader& r) {
  OmniRule o{.merge = r.whole("merge"),
             .positions_per_second = r.real("positions_per_second"),
             .interleave = r.choice<SoundInterleave>("interleave"),
             .seconds_per_chunk = r.real("seconds_per_chunk"),
             .whole_positions = r.flag("whole_positions"),
             .shared_marks = r.flag("shared_marks"),
             .padded = r.whole("padded"),
             .padded_without_grids = r.whole("padded_without_grids")};
  OmniPositions p = omni_positions(o, r.array("token_types"), r.array("mask"),
                                   r.grids("image_grid"), r.grids("video_grid", "seconds"));
  return {std::move(p.positions), std::move(p.delta)};
}

RulePositions build_xd_rope(const RuleReader& r) {
  XdRopeRule x{.axes = r.whole("axes"),
               .merge = r.whole("merge"),
               .image_number = r.choice<ImageNumber>("image_number"),
               .padded = r.whole("padded")};
  MropePositions p =
      xd_rope_positions(x, r.array("token_types"), r.array("mask"), r.grids("image_grid"));
  return {std::move(p.positions), {p.delta.begin(), p.delta.end()}};
}

OwnedPositions build_chatglm(const RuleReader& r) {
  return chatglm_positions({.tokens = {.start = r.whole("start"),
                                       .mask = r.whole("mask"),
                                       .gmask = r.whole("gmask"),
                                       .smask = r.whole("smask")},
                            .two_streams = r.flag("two_streams"),
                            .gmask_counts_on = r.flag("gmask_counts_on"),
                            .padded = r.whole("padded")},
                           r.array("tokens"), r.array("mask"));
}

OwnedPositions build_glm(const RuleReader& r) {
  const std::vector<Index> masks = r.wholes("masks"), tokens = r.wholes("tokens");
  if (masks.size() != tokens.size())
    refuse_field("rule", "tokens", "must have one number for each of masks",
                 std::to_string(tokens.size()));
  std::vector<GlmSpan> spans;
  for (std::size_t i = 0; i < masks.size(); ++i) spans.push_back({masks[i], tokens[i]});
  return glm_positions(r.whole("context"), spans);
}

OwnedPositions build_dual_chunk(const RuleReader& r) {
  DualChunkPositions all = dual_chunk_positions(r.whole_array("positions"),
                                                {r.whole("chunk_size"), r.whole("local_size")});
  const std::pair<std::string_view, OwnedPositions*> lists[] = {
      {"key", &all.key},
      {"intra", &all.intra},
      {"successive", &all.successive},
      {"inter", &all.inter},
      {"successive_critical", &all.successive_critical},
      {"inter_critical", &all.inter_critical}};
  const std::string of(r.word("of"));
  for (const auto& [name, list] : lists)
    if (name == of) return std::move(*list);
  refuse_field("rule", "of",
               "must be one of key, intra, successive, inter, successive_critical, "
               "inter_critical",
               of);
}

OwnedPositions build_cache_slots(const RuleReader& r) {
  CacheSlots slots = cache_slots(r.whole("cached"), r.whole("incoming"));
  const std::string of(r.word("of"));
  if (of != "query" && of != "key") refuse_field("rule", "of", "must be one of query, key", of);
  return of == "query" ? std::move(slots.query) : std::move(slots.key);
}

std::uint64_t natural(const RuleReader& r, std::string_view key) {
  const Index n = r.whole(key);
  if (n < 0) refuse_field("rule", key, "must not be negative", std::to_string(n));
  return static_cast<std::uint64_t>(n);
}

DrawKey draw_key(const RuleReader& r) {
  return {natural(r, "seed"), natural(r, "step"), natural(r, "sequence")};
}

OwnedPositions build_cape(const RuleReader& r) {
  const Cape c{.max_global_shift = r.real("max_global_shift"),
               .max_local_shift = r.real("max_local_shift"),
               .max_global_scaling = r.real("max_global_scaling"),
               .local = r.choice<CapeLocal>("local"),
               .normalise = r.flag("normalise"),
               .padding = r.choice<CapePadding>("padding")};
  const Index batch = r.whole("batch"), tokens = r.whole("tokens");
  const CapeDraws drawn = draw_cape(c, batch, tokens, 1, draw_key(r));
  return cape_positions(c, batch, tokens, r.real_array("time_steps"), r.real_array("lengths"),
                        drawn, r.whole("padded"));
}

OwnedPositions build_shape(const RuleReader& r) {
  const ShapeShift s{.max_shift = r.whole("max_shift"),
                     .variant = r.choice<ShapeVariant>("variant"),
                     .table = r.whole("table")};
  const Index tokens = r.whole("tokens");
  return shifted(arange(0, tokens), shape_offsets(s, r.whole("batch"), tokens, draw_key(r)));
}

// 0, l0, l0 + l1, ... of documents of l0, l1, ... tokens.
std::vector<Index> boundaries_of(const std::vector<Index>& lengths) {
  std::vector<Index> cu{0};
  for (const Index n : lengths) {
    if (n < 0) refuse_field("rule", "lengths", "must not be negative", std::to_string(n));
    cu.push_back(add_exact(cu.back(), n, "packed_lengths"));
  }
  return cu;
}

RulePositions only(OwnedPositions p) {
  return {std::move(p)};
}

struct Entry {
  RuleInfo about;
  RulePositions (*build)(const RuleReader&);
};

const std::array kRules{
    Entry{{"arange", "first=0 count step=1", "", "", "first, first + step, ... (count of them)"},
          [](const RuleReader& r) {
            return only(arange(r.whole("first"), r.whole("count"), r.whole("step")));
          }},
    Entry{{"from_mask", "padded=0 first=0", "mask", "",
           "running count of the real tokens of each batch entry; padding gets `padded`"},
          [](const RuleReader& r) {
            return only(from_mask(r.array("mask"), r.whole("padded"), r.whole("first")));
          }},
    Entry{
        {"left_padded", "padded=0", "mask", "", "the same; the padding must be on the left"},
        [](const RuleReader& r) { return only(left_padded(r.array("mask"), r.whole("padded"))); }},
    Entry{
        {"right_padded", "padded=0", "mask", "", "the same; the padding must be on the right"},
        [](const RuleReader& r) { return only(right_padded(r.array("mask"), r.whole("padded"))); }},
    Entry{{"from_lengths", "tokens padded=0 first=0", "lengths", "mask",
           "sequences of which the first lengths[b] tokens are real"},
          [](const RuleReader& r) {
            return only(from_lengths(r.whole_array("lengths"), r.whole("tokens"), r.whole("padded"),
                                     r.whole("first"), r.array("mask")));
          }},
    Entry{{"from_starts", "count first=0", "starts", "",
           "sequences that start at token starts[b]: max(0, first + t - starts[b])"},
          [](const RuleReader& r) {
            return only(from_starts(r.whole_array("starts"), r.whole("count"), r.whole("first")));
          }},
    Entry{{"fairseq", "padding_idx past=0", "tokens", "",
           "fairseq, RoBERTa: real tokens count from padding_idx + 1 + past"},
          [](const RuleReader& r) {
            return only(from_tokens(r.array("tokens"), r.whole("padding_idx"), r.whole("past")));
          }},
    Entry{{"packed", "first=0", "cu_seqlens", "",
           "documents packed in one sequence: positions restart at each of them"},
          [](const RuleReader& r) {
            return only(packed(r.whole_array("cu_seqlens"), r.whole("first")));
          }},
    Entry{
        {"packed_lengths", "first=0", "lengths", "", "the same from the lengths of the documents"},
        [](const RuleReader& r) {
          return only(packed(boundaries_of(r.whole_array("lengths")), r.whole("first")));
        }},
    Entry{{"decode", "count=1", "lengths", "",
           "tokens after a cache of lengths[b] tokens: lengths[b], lengths[b] + 1, ..."},
          [](const RuleReader& r) {
            return only(decode_positions(r.whole_array("lengths"), r.whole("count")));
          }},
    Entry{{"cells", "limit", "column row", "", "TAPAS: tokens counted in their cell of a table"},
          [](const RuleReader& r) {
            return only(cell_positions(r.array("column"), r.array("row"), r.whole("limit")));
          }},
    Entry{{"distance_to_largest", "", "positions", "",
           "Segatron-XL: the largest position of the row minus each, on every axis"},
          [](const RuleReader& r) {
            return only(distance_to_largest(positions(r.array("positions"))));
          }},
    Entry{{"reversed", "", "positions", "", "every row from its end"},
          [](const RuleReader& r) { return only(reversed(positions(r.array("positions")))); }},
    Entry{{"shard", "tokens ranks rank layout=contiguous first=0", "", "",
           "tokens of one rank; layout: contiguous, zigzag or striped"},
          [](const RuleReader& r) { return only(build_shard(r)); }},
    Entry{{"shard_packed", "ranks rank layout=contiguous", "cu_seqlens", "",
           "the same of packed documents, each split by itself"},
          [](const RuleReader& r) { return only(build_shard(r)); }},
    Entry{{"sink_cache", "seen sinks recent", "", "",
           "StreamingLLM: numbers of the tokens that stay in the cache"},
          [](const RuleReader& r) {
            return only(explicit_positions(
                sink_cache_tokens(r.whole("seen"), r.whole("sinks"), r.whole("recent"))));
          }},
    Entry{
        {"cache_slots", "cached incoming of=query", "", "", "slots of the cache; of: query or key"},
        [](const RuleReader& r) { return only(build_cache_slots(r)); }},
    Entry{{"dual_chunk", "chunk_size local_size of=key", "positions", "",
           "dual chunk attention; of: key, intra, successive, inter, successive_critical, "
           "inter_critical"},
          [](const RuleReader& r) { return only(build_dual_chunk(r)); }},
    Entry{{"mrope",
           "merge=2 tokens_per_second=1 next_text=after_space delta_count=real_tokens padded=0 "
           "frames_apart=false whole_seconds=false float32_times=false",
           "token_types", "mask image_grid video_grid seconds",
           "Qwen2-VL and later: time, height, width of text, images and videos"},
          &build_mrope},
    Entry{{"omni",
           "merge=2 positions_per_second interleave=by_time seconds_per_chunk=2 "
           "whole_positions=false shared_marks=false padded=0 padded_without_grids=1",
           "token_types", "mask image_grid video_grid seconds",
           "Qwen2.5-Omni, Qwen3-Omni: the same with sound"},
          &build_omni},
    Entry{{"xd_rope", "axes=4 merge=2 image_number=over_batch padded=0", "token_types",
           "mask image_grid", "HunYuan: three or four streams of text and images"},
          &build_xd_rope},
    Entry{{"grid", "shape first=0 merge=1 swap_xy=false float32=false before=0 after=0 value=0", "",
           "", "coordinates of the cells of a grid, row by row"},
          [](const RuleReader& r) { return only(build_grid(r)); }},
    Entry{{"scaled_grid",
           "shape reference offset=0 merge=1 swap_xy=false float32=false before=0 after=0 value=0",
           "", "", "EVA-02: (index + offset) / shape * reference on every axis"},
          [](const RuleReader& r) { return only(build_grid(r)); }},
    Entry{{"linspace_grid",
           "shape low=-1 high=1 merge=1 swap_xy=false float32=false before=0 after=0 value=0", "",
           "", "linspace(low, high, n) on every axis"},
          [](const RuleReader& r) { return only(build_grid(r)); }},
    Entry{{"patch_centres",
           "rows columns normalisation=separate merge=1 swap_xy=false float32=false before=0 "
           "after=0 value=0",
           "", "", "DINOv3: patch centres in [-1, 1]; normalisation: separate, max or min"},
          [](const RuleReader& r) { return only(build_grid(r)); }},
    Entry{{"counted_grid", "normalise=true scale=6.283185307179586 eps=1e-6", "mask", "",
           "DETR: running counts of the visible pixels, mask [b, rows, columns]"},
          [](const RuleReader& r) { return only(build_counted_grid(r)); }},
    Entry{{"normalised", "size low=-1 high=1", "positions", "",
           "SAM: points in pixels to coordinates from low to high"},
          [](const RuleReader& r) {
            return only(normalised(positions(r.array("positions")), r.reals("size"), r.real("low"),
                                   r.real("high")));
          }},
    Entry{
        {"glm", "context masks tokens", "", "", "GLM: a context and its masked spans, two streams"},
        [](const RuleReader& r) { return only(build_glm(r)); }},
    Entry{{"chatglm",
           "start=130004 mask=130000 gmask=130001 smask=130002 two_streams=true "
           "gmask_counts_on=false padded=0",
           "tokens", "mask", "ChatGLM-6B, from its token ids"},
          [](const RuleReader& r) { return only(build_chatglm(r)); }},
    Entry{
        {"random", "max_length tokens seed=0 step=0 sequence=0 smallest=drawn", "", "",
         "randomised positions: `tokens` distinct ones below max_length; smallest: drawn or zero"},
        [](const RuleReader& r) {
          return only(random_positions(r.whole("max_length"), r.whole("tokens"), draw_key(r),
                                       r.choice<RandomisedFirst>("smallest")));
        }},
    Entry{{"shape", "tokens batch=1 max_shift variant=paper table=0 seed=0 step=0 sequence=0", "",
           "", "SHAPE: every row plus one drawn offset"},
          [](const RuleReader& r) { return only(build_shape(r)); }},
    Entry{{"cape",
           "tokens batch=1 max_global_shift=0 max_local_shift=0 max_global_scaling=1 local=whole "
           "normalise=false padding=at_length padded=-1099511627776 seed=0 step=0 sequence=0",
           "", "time_steps lengths", "CAPE: shifted, jittered and scaled positions of rows"},
          [](const RuleReader& r) { return only(build_cape(r)); }}};

const Entry& entry_of(std::string_view text) {
  const std::vector<std::string_view> words = detail::words_of(text);
  if (words.empty()) refuse("rule", "a rule must begin with its name");
  std::string known;
  for (const Entry& e : kRules) {
    if (e.about.name == words.front()) return e;
    known += (known.empty() ? "" : ", ") + std::string(e.about.name);
  }
  refuse("rule", "a rule must be one of " + known, words.front());
}

}  // namespace

std::span<const RuleInfo> position_rules() noexcept {
  static const auto all = [] {
    std::array<RuleInfo, kRules.size()> rules{};
    for (std::size_t i = 0; i < rules.size(); ++i) rules[i] = kRules[i].about;
    return rules;
  }();
  return all;
}

const RuleInfo& position_rule(std::string_view text) {
  return entry_of(text).about;
}

RulePositions positions_by_rule(std::string_view text, std::span<const PositionArray> arrays) {
  return entry_of(text).build(RuleReader(text, arrays));
}

}  // namespace posenc::v0
