// SPDX-License-Identifier: Apache-2.0
#include "attention/call/check_overlap.h"

#include <vector>

#include "attention/call/check_parts.h"
#include "positions/memory.h"

namespace posenc::inline v0::detail {
namespace {

// Whatever has elements.
template <class View>
void put(OperandList& all, std::string_view name, const View& view) {
  if (const Memory m = memory_of(view); m.data != nullptr) all.push_back({name, m});
}
void put_numbers(OperandList& all, std::string_view name, const void* data, Index count,
                 Index size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  if (data != nullptr && count > 0)
    put(all, name, std::span(bytes, static_cast<std::size_t>(count * size)));
}

void put_mask(OperandList& all, const Mask& m) {
  put(all, "head_side", m.head_side);
  put(all, "prefix", m.prefix);
  put(all, "chunk_origin", m.chunk_origin);
  put(all, "query_order", m.query_order);
  put(all, "key_order", m.key_order);
  put(all, "query_document", m.query_document);
  put(all, "key_document", m.key_document);
  put(all, "key_length", m.key_length);
  put(all, "key_visible", m.key_visible);
  put(all, "visible", m.visible);
  put(all, "bias", m.bias);
  put(all, "query_cu_seqlens", m.query_cu_seqlens);
  put(all, "key_cu_seqlens", m.key_cu_seqlens);
}

void put_rows(OperandList& all, const PickedRows& t) {
  constexpr Index kRow = sizeof(std::int32_t), kEdge = sizeof(double);
  for (const IndexLine& line : t.lines) {
    if (line.row == nullptr) continue;
    put_numbers(all, "the rows of a line", line.row, line.count, kRow);
    put_numbers(all, "the edges of a line", line.edges, line.count - 1, kEdge);
  }
  if (t.pair.row == nullptr) return;
  put_numbers(all, "the rows of a pair", t.pair.row, t.pair.query_classes * t.pair.key_classes,
              kRow);
  put(all, "query_class", t.pair.query_class);
  put(all, "key_class", t.pair.key_class);
}

void put_term(OperandList& all, const Term& term) {
  const TermArrays t = term_arrays(term);
  put(all, "the table of a term", t.table);
  if (const PickedRows* rows = picked_rows(term)) put_rows(all, *rows);
  put(all, "the query of a term", t.query.given);
  put(all, "the key of a term", t.key.given);
  put(all, "mlp in", t.mlp.in);
  put(all, "mlp in_bias", t.mlp.in_bias);
  put(all, "mlp out", t.mlp.out);
  put(all, "mlp out_bias", t.mlp.out_bias);
}

}  // namespace

OperandList operands_read(const AttentionArgs& a) {
  OperandList all;
  put(all, "q", a.q);
  put(all, "k", a.k);
  put(all, "v", a.v);
  put(all, "block_table", a.block_table);
  put(all, "query_positions", a.query_positions);
  put(all, "key_positions", a.key_positions);
  for (const Stage& s : a.prepare) {
    put(all, "a stage's array of q", s.q);
    put(all, "a stage's array of k", s.k);
  }
  put(all, "head_scale", a.head_scale);
  put(all, "query_factor", a.query_factor);
  for (const Term& t : a.terms) put_term(all, t);
  for (const ScoreRegion& r : a.regions) {
    put(all, "q of a region", r.qk.q);
    put(all, "k of a region", r.qk.k);
    put(all, "query_positions of a region", r.query_positions);
    put(all, "key_positions of a region", r.key_positions);
  }
  put_mask(all, a.mask);
  put(all, "sink", a.sink);
  put(all, "mix_before", a.mix_before);
  put(all, "mix_after", a.mix_after);
  return all;
}

OperandList operands_written(const AttentionGradients& g) {
  OperandList all;
  put(all, "gradient of q", g.q);
  put(all, "gradient of k", g.k);
  put(all, "gradient of v", g.v);
  for (const StageGradient& s : g.prepare) {
    put(all, "gradient of a stage's array of q", s.q);
    put(all, "gradient of a stage's array of k", s.k);
  }
  for (const TermGradient& t : g.terms) {
    put(all, "gradient of the table of a term", t.table);
    put(all, "gradient of the query of a term", t.query);
    put(all, "gradient of the key of a term", t.key);
    put(all, "gradient of mlp in", t.mlp.in);
    put(all, "gradient of mlp in_bias", t.mlp.in_bias);
    put(all, "gradient of mlp out", t.mlp.out);
    put(all, "gradient of mlp out_bias", t.mlp.out_bias);
  }
  for (const QK& r : g.regions) {
    put(all, "gradient of q of a region", r.q);
    put(all, "gradient of k of a region", r.k);
  }
  put(all, "gradient of head_scale", g.head_scale);
  put(all, "gradient of query_factor", g.query_factor);
  put(all, "gradient of sink", g.sink);
  put(all, "gradient of bias", g.bias);
  put(all, "gradient of mix_before", g.mix_before);
  put(all, "gradient of mix_after", g.mix_after);
  return all;
}

void check_overlap(const AttentionArgs& a, const AttentionResult& r) {
  OperandList out;
  put(out, "out", r.out);
  put(out, "log_sum_exp", r.log_sum_exp);
  check_outputs(kAttention, out, {}, operands_read(a));
}

void check_overlap(const AttentionArgs& a, const AttentionGradients& g) {
  const OperandList all = operands_written(g), read = operands_read(a);
  for (std::size_t n = 0; n < all.size(); ++n) {
    check_no_self_overlap(kAttention, all[n]);
    for (const Operand& other : std::span<const Operand>(all).subspan(n + 1))
      check_in_place(kAttention, all[n], other);
    for (const Operand& in : read) check_separate(kAttention, in, all[n]);
  }
}

void check_overlap(const ConstAttentionResult& d, const AttentionGradients& g) {
  OperandList read;
  put(read, "the gradient of out", d.out);
  put(read, "the gradient of log_sum_exp", d.log_sum_exp);
  const OperandList all = operands_written(g);
  for (const Operand& out : all)
    for (const Operand& in : read) check_separate(kAttention, in, out);
}

void check_overlap(const AttentionArgs& a, const AttentionResult& r, Workspace w) {
  if (w.empty()) return;
  const Operand workspace{"workspace", memory_of(std::span<const std::byte>(w))};
  for (const Operand& in : operands_read(a)) check_separate(kAttention, in, workspace);
  check_separate(kAttention, {"out", memory_of(r.out)}, workspace);
  check_separate(kAttention, {"log_sum_exp", memory_of(r.log_sum_exp)}, workspace);
}

void check_overlap(const AttentionArgs& a, const ConstAttentionResult& d,
                   const AttentionGradients& g, Workspace w) {
  if (w.empty()) return;
  const Operand workspace{"workspace", memory_of(std::span<const std::byte>(w))};
  for (const Operand& in : operands_read(a)) check_separate(kAttention, in, workspace);
  for (const Operand& out : operands_written(g)) check_separate(kAttention, out, workspace);
  check_separate(kAttention, {"the gradient of out", memory_of(d.out)}, workspace);
  check_separate(kAttention, {"the gradient of log_sum_exp", memory_of(d.log_sum_exp)}, workspace);
}

void check_overlap(const AttentionArgs& a, std::span<const Operand> outputs) {
  check_outputs(kAttention, outputs, {}, operands_read(a));
}

void check_overlap(const ConstTensorView& d_scores, const AttentionGradients& g) {
  const OperandList all = operands_written(g);
  for (const Operand& out : all)
    check_separate(kAttention, {"the gradient of the scores", memory_of(d_scores)}, out);
}

void check_overlap(std::span<const ConstAttentionResult> parts, const AttentionResult& whole) {
  const Operand out{"the whole", memory_of(whole.out)};
  const Operand lse{"log_sum_exp of the whole", memory_of(whole.log_sum_exp)};
  check_outputs(kAttention, std::array{out, lse}, {}, {});
  for (const ConstAttentionResult& p : parts) {
    const Operand part{"a part", memory_of(p.out)};
    const Operand part_lse{"log_sum_exp of a part", memory_of(p.log_sum_exp)};
    check_in_place(kAttention, part, out);
    check_in_place(kAttention, part_lse, lse);
    check_separate(kAttention, part, lse);
    check_separate(kAttention, part_lse, out);
  }
}

void check_overlap(std::span<const ConstAttentionResult> parts, const ConstAttentionResult& whole,
                   const ConstAttentionResult& d_whole, std::span<const AttentionResult> d_parts) {
  OperandList read, out;
  const auto put_result = [](OperandList& all, std::string_view name, std::string_view lse,
                             const ConstAttentionResult& r) {
    put(all, name, r.out);
    put(all, lse, r.log_sum_exp);
  };
  for (const ConstAttentionResult& p : parts)
    put_result(read, "a part", "log_sum_exp of a part", p);
  put_result(read, "the whole", "log_sum_exp of the whole", whole);
  put_result(read, "the gradient of the whole", "the gradient of log_sum_exp of the whole",
             d_whole);
  for (const AttentionResult& d : d_parts)
    put_result(out, "the gradient of a part", "the gradient of log_sum_exp of a part", d);
  check_outputs(kAttention, out, {}, read);
}

}  // namespace posenc::v0::detail
