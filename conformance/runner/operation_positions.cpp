// SPDX-License-Identifier: Apache-2.0
// positions: every builder of posenc/positions.h by name.
#include <algorithm>

#include "conformance/runner/axes.h"
#include "conformance/runner/position_list.h"
#include "conformance/runner/rule.h"
#include "conformance/runner/tensors.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

std::vector<Index> whole_numbers(const Slice& s) {
  if (s.is_float()) refuse("case", "the array must hold integers", s.text);
  std::vector<Index> out;
  for (const double v : s.values()) out.push_back(static_cast<Index>(v));
  return out;
}

std::vector<Index> numbers_in(const Check& check, std::string_view ours) {
  return whole_numbers(check.input(ours));
}

// Integers of a slice as a dense tensor.
struct Integers {
  std::vector<Index> values;
  TensorView view;
};
Integers tensor_in(const Check& check, std::string_view ours) {
  const Slice s = check.input(ours);
  Integers out;
  out.values = whole_numbers(s);
  out.view = tensor(static_cast<void*>(out.values.data()), DType::i64, s.shape);
  return out;
}

std::vector<VisionGrid> grids_in(const Check& check, std::string_view ours,
                                 std::string_view seconds) {
  std::vector<VisionGrid> grids;
  if (check.array_name("in", ours) == nullptr) return grids;
  const std::vector<Index> thw = numbers_in(check, ours);
  for (std::size_t i = 0; i + 2 < thw.size(); i += 3)
    grids.push_back({thw[i], thw[i + 1], thw[i + 2], 1});
  if (check.array_name("in", seconds) != nullptr) {
    const std::vector<double> values = check.input(seconds).values();
    for (std::size_t i = 0; i < grids.size(); ++i) grids[i].seconds = values.at(i);
  }
  return grids;
}

BuiltPositions build_mrope(const Check& check, const Rule& rule) {
  MropeRule m;
  m.merge = rule.integer("merge", m.merge);
  m.tokens_per_second = rule.number("tokens_per_second", m.tokens_per_second);
  m.next_text = rule.choice("next_text", m.next_text);
  m.delta_count = rule.choice("delta_count", m.delta_count);
  m.padded = rule.integer("padded", m.padded);
  m.frames_apart = rule.flag("frames_apart");
  m.whole_seconds = rule.flag("whole_seconds");
  m.float32_times = rule.flag("float32_times");
  Integers types = tensor_in(check, "token_types"), mask;
  if (check.array_name("in", "mask") != nullptr) mask = tensor_in(check, "mask");
  const MropePositions built =
      mrope_positions(m, types.view, mask.view, grids_in(check, "image_grid", "none"),
                      grids_in(check, "video_grid", "seconds"));
  return {built.positions, {built.delta.begin(), built.delta.end()}};
}

BuiltPositions build_omni(const Check& check, const Rule& rule) {
  OmniRule o;
  o.merge = rule.integer("merge", o.merge);
  o.positions_per_second = rule.number("positions_per_second");
  o.interleave = rule.choice("interleave", o.interleave);
  o.seconds_per_chunk = rule.number("seconds_per_chunk", o.seconds_per_chunk);
  o.whole_positions = rule.flag("whole_positions");
  o.shared_marks = rule.flag("shared_marks");
  o.padded = rule.integer("padded", o.padded);
  o.padded_without_grids = rule.integer("padded_without_grids", o.padded_without_grids);
  Integers types = tensor_in(check, "token_types"), mask;
  if (check.array_name("in", "mask") != nullptr) mask = tensor_in(check, "mask");
  OmniPositions built =
      omni_positions(o, types.view, mask.view, grids_in(check, "image_grid", "none"),
                     grids_in(check, "video_grid", "seconds"));
  return {std::move(built.positions), std::move(built.delta)};
}

BuiltPositions build_xd_rope(const Check& check, const Rule& rule) {
  XdRopeRule x;
  x.axes = rule.integer("axes", x.axes);
  x.merge = rule.integer("merge", x.merge);
  x.image_number = rule.choice("image_number", x.image_number);
  x.padded = rule.integer("padded", x.padded);
  Integers types = tensor_in(check, "token_types"), mask;
  if (check.array_name("in", "mask") != nullptr) mask = tensor_in(check, "mask");
  const MropePositions built =
      xd_rope_positions(x, types.view, mask.view, grids_in(check, "image_grid", "none"));
  return {built.positions, {built.delta.begin(), built.delta.end()}};
}

OwnedPositions build_chatglm(const Check& check, const Rule& rule) {
  ChatGlmRule c;
  c.tokens.start = rule.integer("start", c.tokens.start);
  c.tokens.mask = rule.integer("mask", c.tokens.mask);
  c.tokens.gmask = rule.integer("gmask", c.tokens.gmask);
  c.tokens.smask = rule.integer("smask", c.tokens.smask);
  c.two_streams = !rule.has("two_streams") || rule.flag("two_streams");
  c.gmask_counts_on = rule.flag("gmask_counts_on");
  c.padded = rule.integer("padded", c.padded);
  Integers ids = tensor_in(check, "tokens"), mask;
  if (check.array_name("in", "mask") != nullptr) mask = tensor_in(check, "mask");
  return chatglm_positions(c, ids.view, mask.view);
}

OwnedPositions build_glm(const Rule& rule) {
  const std::vector<Index> masks = rule.integers("masks"), tokens = rule.integers("tokens");
  if (masks.size() != tokens.size())
    refuse("case", "glm needs as many masks as spans", static_cast<Index>(masks.size()));
  std::vector<GlmSpan> spans;
  for (std::size_t i = 0; i < masks.size(); ++i) spans.push_back({masks[i], tokens[i]});
  return glm_positions(rule.integer("context"), spans);
}

// What every grid may have on top: merged blocks, the other order, tokens that stay unturned.
OwnedPositions finished_grid(OwnedPositions p, const Rule& rule, const std::vector<Index>& shape) {
  if (rule.has("merge") && shape.size() >= 2)
    p = merge_blocks(p, shape[shape.size() - 2], shape.back(), rule.integer("merge"));
  if (rule.flag("swap_xy")) p = swap_xy(p);
  if (rule.flag("float32")) p = in_float32(p);
  if (rule.has("before") || rule.has("after"))
    p = with_special_tokens(p, rule.integer("before", 0), rule.integer("after", 0),
                            rule.integer("value", 0));
  return p;
}

OwnedPositions build_centres(const Check& check, const Rule& rule) {
  OwnedPositions p = patch_centres(rule.integer("rows"), rule.integer("columns"),
                                   rule.choice("normalisation", CentreNormalisation::separate));
  GridAugmentation drawn;
  if (check.array_name("in", "shift") != nullptr) drawn.shift = check.input("shift").values();
  if (check.array_name("in", "log_jitter") != nullptr)
    drawn.log_jitter = check.input("log_jitter").values();
  if (check.array_name("in", "log_rescale") != nullptr)
    drawn.log_rescale = check.input("log_rescale").values().at(0);
  return augmented(p, drawn);
}

OwnedPositions build_grid(const Check& check, const Rule& rule, bool& known) {
  const std::string& name = rule.name();
  known = true;
  if (name == "patch_centres")
    return finished_grid(build_centres(check, rule), rule,
                         {rule.integer("rows"), rule.integer("columns")});
  if (name != "grid" && name != "scaled_grid" && name != "linspace_grid") {
    known = false;
    return {};
  }
  const std::vector<Index> shape = rule.integers("shape");
  OwnedPositions p;
  if (name == "grid") p = grid(shape, rule.integer("first", 0));
  if (name == "scaled_grid")
    p = scaled_grid(shape, rule.numbers("reference"), rule.number("offset", 0));
  if (name == "linspace_grid")
    p = linspace_grid(shape, rule.number("low", -1), rule.number("high", 1));
  return finished_grid(p, rule, shape);
}

OwnedPositions build_dual_chunk(const Check& check, const Rule& rule) {
  const std::vector<Index> positions = numbers_in(check, "positions");
  const DualChunkPositions all =
      dual_chunk_positions(positions, {rule.integer("chunk_size"), rule.integer("local_size")});
  const auto which = rule.name().substr(rule.name().find('.') + 1);
  if (which == "key") return all.key;
  if (which == "intra") return all.intra;
  if (which == "successive") return all.successive;
  if (which == "inter") return all.inter;
  if (which == "successive_critical") return all.successive_critical;
  if (which == "inter_critical") return all.inter_critical;
  refuse("case", "dual_chunk has no such list", which);
}

// What a rank owns: of one text, or of packed ones (in.cu_seqlens).
OwnedPositions build_shard(const Check& check, const Rule& rule) {
  const Index ranks = rule.integer("ranks"), rank = rule.integer("rank");
  if (rule.name() == "shard" && check.array_name("in", "cu_seqlens") == nullptr)
    return shard_positions(rule.integer("tokens"), ranks, rank,
                           rule.choice("layout", ShardLayout::contiguous),
                           rule.integer("first", 0));
  const std::vector<Index> cu = numbers_in(check, "cu_seqlens");
  if (rule.name() == "shard")
    return shard_positions(cu, ranks, rank, rule.choice("layout", ShardLayout::contiguous));
  if (rule.name() == "shard_tokens")
    return explicit_positions(
        shard_tokens(cu, ranks, rank, rule.choice("layout", ShardLayout::contiguous)));
  const PackedRun run = packed_run(cu, ranks, rank, rule.flag("causal"));
  const auto which = rule.name().substr(rule.name().find('.') + 1);
  if (which == "query_cu_seqlens") return explicit_positions(run.query_cu_seqlens);
  if (which == "key_cu_seqlens") return explicit_positions(run.key_cu_seqlens);
  if (which == "longest")
    return explicit_positions(std::vector<Index>{run.longest_query, run.longest_key});
  if (which == "keys") return explicit_positions(std::vector<Index>{run.first_key, run.last_key});
  refuse("case", "packed_run has no such list", which);
}

// The tokens from `first` on.
OwnedPositions without_first(const OwnedPositions& p, Index first) {
  std::vector<Index> v;
  const auto& from = std::get<std::vector<Index>>(p.value);
  for (std::size_t i = 0; i < from.size(); ++i)
    if (static_cast<Index>(i) % p.count() >= first) v.push_back(from[i]);
  return explicit_positions(std::move(v), p.batch, p.axes);
}

// Lengths one behind the other: 0, l0, l0 + l1, ...
std::vector<Index> boundaries(const std::vector<Index>& lengths) {
  std::vector<Index> cu{0};
  for (const Index n : lengths) cu.push_back(cu.back() + n);
  return cu;
}

// (y, x) or (t, y, x) of every patch of images and clips, frames in blocks of merge x merge.
OwnedPositions build_patches(const Check& check, const Rule& rule) {
  const Index merge = rule.integer("merge", 1), axes = rule.integer("axes", 2);
  std::vector<OwnedPositions> images;
  for (const VisionGrid& g : grids_in(check, "grids", "none")) {
    const OwnedPositions all =
        merge_blocks(grid({g.frames, g.rows, g.columns}), g.rows, g.columns, merge);
    const auto& v = std::get<std::vector<Index>>(all.value);
    const auto begin = v.begin() + (axes == 2 ? static_cast<std::ptrdiff_t>(all.count()) : 0);
    images.push_back(
        explicit_positions(std::vector<Index>(begin, v.end()), 1, static_cast<std::int32_t>(axes)));
  }
  return join_positions(images);
}

// Lists of arrays, one an axis, each joined along the tokens: memory first.
OwnedPositions build_distance_to_largest(const Check& check) {
  std::vector<OwnedPositions> axes;
  const Json* ids = check.find("ids");
  if (ids == nullptr) refuse("case", "distance_to_largest needs ids");
  for (const Json& parts : ids->as_array()) {
    std::vector<OwnedPositions> list;
    for (const Json& part : parts.as_array()) {
      list.push_back(positions_of(
          check.inherited(Json::object({{"in", Json::object({{"positions", part}})}}))));
    }
    axes.push_back(join_positions(list));
  }
  return distance_to_largest(stacked(axes));
}

OwnedPositions build_counted(const Check& check, const Rule& rule, bool& known) {
  const std::string& name = rule.name();
  known = true;
  if (name == "from_starts")
    return from_starts(numbers_in(check, "starts"), rule.integer("count"),
                       rule.integer("first", 0));
  if (name == "cells")
    return cell_positions(tensor_in(check, "column").view, tensor_in(check, "row").view,
                          rule.integer("limit"));
  if (name == "distance_to_largest") return build_distance_to_largest(check);
  if (name == "patches") return build_patches(check, rule);
  known = false;
  return {};
}

OwnedPositions build_text(const Check& check, const Rule& rule) {
  const std::string& name = rule.name();
  bool known = false;
  OwnedPositions counted = build_counted(check, rule, known);
  if (known) return counted;
  if (name == "arange")
    return arange(rule.integer("first", 0), rule.integer("count"), rule.integer("step", 1));
  if (name == "from_mask")
    return without_first(
        from_mask(tensor_in(check, "mask").view, rule.integer("padded"), rule.integer("first", 0)),
        rule.integer("drop", 0));
  if (name == "left_padded")
    return left_padded(tensor_in(check, "mask").view, rule.integer("padded"));
  if (name == "right_padded")
    return right_padded(tensor_in(check, "mask").view, rule.integer("padded"));
  if (name == "fairseq")
    return from_tokens(tensor_in(check, "tokens").view, rule.integer("padding_idx"),
                       rule.integer("past", 0));
  if (name == "chatglm") return build_chatglm(check, rule);
  if (name == "glm") return build_glm(rule);
  if (name == "decode")
    return decode_positions(numbers_in(check, "lengths"), rule.integer("count", 1));
  if (name == "shard" || name == "shard_tokens" || name.rfind("packed_run.", 0) == 0)
    return build_shard(check, rule);
  if (name.rfind("dual_chunk.", 0) == 0) return build_dual_chunk(check, rule);
  throw NotExpressible("no rule for positions is called " + name);
}

}  // namespace

BuiltPositions build_positions(const Check& check, std::string_view text) {
  const Rule rule(text);
  BuiltPositions built;
  bool is_grid = false;
  if (rule.name() == "mrope") {
    built = build_mrope(check, rule);
  } else if (rule.name() == "omni") {
    built = build_omni(check, rule);
  } else if (rule.name() == "xd_rope") {
    built = build_xd_rope(check, rule);
  } else {
    built.positions = build_grid(check, rule, is_grid);
    if (!is_grid && !build_drawn_positions(check, rule, built.positions))
      built.positions = build_text(check, rule);
  }
  rule.all_used();
  return built;
}

void run_positions(Check& check) {
  const BuiltPositions built = build_positions(check, check.text("rule"));
  const std::string* name = check.array_name("out", "positions");
  if (name != nullptr) {
    const Slice want = slice(check.in_case, *name);
    const char* usual[] = {"t", "t", "bt", "abt"};
    const std::size_t rank = std::min<std::size_t>(want.shape.size(), 3);
    const Axes axes(want.shape, letters_of(check, want, usual[rank]), {});
    const OwnedPositions& p = built.positions;
    const std::vector<Index> to = axes.walk("abt");
    if (axes['a'].size != p.axes || axes['b'].size != p.batch || axes['t'].size != p.count())
      refuse("case", "the rule gives positions of another shape than " + want.text,
             p.axes * p.batch * p.count());
    std::vector<double> ordered(to.size());
    const Positions view = p;
    std::size_t i = 0;
    for (std::int32_t a = 0; a < p.axes; ++a)
      for (Index b = 0; b < p.batch; ++b)
        for (Index t = 0; t < p.count(); ++t)
          ordered[static_cast<std::size_t>(to[i++])] = position_at(view, a, b, t);
    check.expect(want, ordered);
  }
  check.expect("delta", built.deltas, {static_cast<Index>(built.deltas.size())});
}

// Documents of packed rows, from the positions of each row, or from their lengths.
void run_documents(Check& check) {
  std::vector<double> documents, cu_seqlens;
  Index longest = 0, rows = 1;
  const auto add = [&](const std::vector<Index>& cu, const std::vector<Index>& document) {
    documents.insert(documents.end(), document.begin(), document.end());
    cu_seqlens.assign(cu.begin(), cu.end());
    for (std::size_t i = 1; i < cu.size(); ++i) longest = std::max(longest, cu[i] - cu[i - 1]);
  };
  if (const Json* lengths = check.find("lengths")) {
    std::vector<Index> list;
    const Json given = check.in_case.parameter(lengths->as_string());
    for (const Json& n : given.as_array()) list.push_back(n.as_integer());
    const std::vector<Index> cu = boundaries(list);
    add(cu, document_index(cu));
  } else {
    const OwnedPositions p = positions_of(check);
    const auto& v = std::get<std::vector<Index>>(p.value);
    rows = std::max<Index>(p.batch, 1);
    for (Index b = 0; b < p.batch; ++b) {
      const std::span<const Index> row(v.data() + b * p.count(),
                                       static_cast<std::size_t>(p.count()));
      add(cu_seqlens_of_positions(row), document_index_of_positions(row));
    }
  }
  const double most = static_cast<double>(longest);
  const auto tokens = static_cast<Index>(documents.size());
  check.expect("documents", documents, {rows, tokens / rows});
  check.expect("cu_seqlens", cu_seqlens, {static_cast<Index>(cu_seqlens.size())});
  check.expect("max_length", std::span(&most, 1), {1});
}

}  // namespace posenc::conformance
