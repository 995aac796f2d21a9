// SPDX-License-Identifier: Apache-2.0
// positions: every builder of posenc/positions.h by name.
#include <algorithm>
#include <deque>
#include <iterator>

#include "conformance/runner/axes.h"
#include "conformance/runner/position_list.h"
#include "conformance/runner/rule.h"
#include "conformance/runner/tensors.h"
#include "posenc/core/error.h"
#include "posenc/positions/rule.h"

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

std::vector<VisionGrid> grids_in(const Check& check, std::string_view ours) {
  std::vector<VisionGrid> grids;
  if (check.array_name("in", ours) == nullptr) return grids;
  const std::vector<Index> thw = numbers_in(check, ours);
  for (std::size_t i = 0; i + 2 < thw.size(); i += 3)
    grids.push_back({thw[i], thw[i + 1], thw[i + 2], 1});
  return grids;
}

// An array of the case as the library reads it, for the rules of posenc/positions/rule.h.
struct RuleArray {
  std::vector<Index> whole;
  std::vector<double> real;
  ConstTensorView view;
};
RuleArray rule_array(const Check& check, std::string_view name) {
  const Slice s = check.input(name);
  RuleArray a;
  std::vector<Index> shape = s.shape;
  if (name.ends_with("_grid") && shape.size() == 1) shape = {shape[0] / 3, 3};
  if (s.is_float()) {
    a.real = s.values();
    a.view = tensor(static_cast<const void*>(a.real.data()), DType::f64, shape);
  } else {
    a.whole = whole_numbers(s);
    a.view = tensor(static_cast<const void*>(a.whole.data()), DType::i64, shape);
  }
  return a;
}

BuiltPositions build_by_rule(const Check& check, std::string_view text) {
  const RuleInfo& rule = position_rule(text);
  std::deque<RuleArray> held;
  std::vector<PositionArray> arrays;
  for (const std::string_view list : {rule.arrays, rule.optional})
    for (std::size_t from = 0; from < list.size();) {
      const std::size_t to = std::min(list.find(' ', from), list.size());
      const std::string_view name = list.substr(from, to - from);
      if (check.array_name("in", name) != nullptr)
        arrays.push_back({name, held.emplace_back(rule_array(check, name)).view});
      from = to + 1;
    }
  RulePositions built = positions_by_rule(text, arrays);
  return {std::move(built.positions), std::move(built.delta)};
}

// Those of which the cases say no more than the rule.
bool is_whole_rule(const Check& check, const Rule& rule) {
  constexpr std::string_view names[] = {"arange",      "left_padded", "right_padded", "fairseq",
                                        "from_starts", "cells",       "decode",       "chatglm",
                                        "glm",         "mrope",       "omni",         "xd_rope",
                                        "grid",        "scaled_grid", "linspace_grid"};
  if (rule.name() == "shard") return check.array_name("in", "cu_seqlens") == nullptr;
  if (rule.name() == "from_mask") return !rule.has("drop");
  if (rule.name() == "patch_centres")
    return check.array_name("in", "shift") == nullptr &&
           check.array_name("in", "log_jitter") == nullptr &&
           check.array_name("in", "log_rescale") == nullptr;
  return std::find(std::begin(names), std::end(names), rule.name()) != std::end(names);
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
  refuse_field("case", "dual_chunk", "has no such list", which);
}

// What a rank owns of packed texts (in.cu_seqlens).
OwnedPositions build_shard(const Check& check, const Rule& rule) {
  const Index ranks = rule.integer("ranks"), rank = rule.integer("rank");
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
  refuse_field("case", "packed_run", "has no such list", which);
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
  for (const VisionGrid& g : grids_in(check, "grids")) {
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
  if (ids == nullptr) refuse_field("case", "distance_to_largest", "needs ids");
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
  if (name == "from_mask")
    return without_first(
        from_mask(tensor_in(check, "mask").view, rule.integer("padded"), rule.integer("first", 0)),
        rule.integer("drop", 0));
  if (name == "shard" || name == "shard_tokens" || name.rfind("packed_run.", 0) == 0)
    return build_shard(check, rule);
  if (name.rfind("dual_chunk.", 0) == 0) return build_dual_chunk(check, rule);
  throw NotExpressible("no rule for positions is called " + name);
}

}  // namespace

BuiltPositions build_positions(const Check& check, std::string_view text) {
  const Rule rule(text);
  if (is_whole_rule(check, rule)) return build_by_rule(check, text);
  BuiltPositions built;
  if (rule.name() == "patch_centres")
    built.positions = build_centres(check, rule);
  else if (!build_drawn_positions(check, rule, built.positions))
    built.positions = build_text(check, rule);
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
