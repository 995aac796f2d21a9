// SPDX-License-Identifier: Apache-2.0
// One call of attention with position terms, as data: what an engine is handed, on a CPU or a GPU.
//
//   S_ij = cap(scale a_h g_i q_i.k_j m_ij) + terms(i, j) + bias_ij
//   P_i  = softmax over visible keys (and the sink),  o_i = sum_j P_ij v_j + value terms
//
// Positions make distances; ORDER (where a token stands in storage) makes masks. Rows without a
// visible key: zero output, log-sum-exp -inf (of the sink alone, if there is one), zero gradients.
#pragma once
#include <span>

#include "posenc/core/heads.h"
#include "posenc/positions/view.h"
#include "posenc/relative/term.h"

namespace posenc::inline v0 {

// Who sees whom; everything given must agree. By order: M-RoPE positions repeat, Self-Extend's go
// back. Query i has order query_offset + i, key j order j, unless orders are given (shards,
// evicting caches). Integer views are i64 or i32, flags u8.
struct Mask {
  bool causal = false;     // key order <= query order
  Index query_offset = 0;  // Tk - Tq puts queries at the end of the keys
  Index window_left = kUnbounded, window_right = kUnbounded;  // visible keys beside one's own
  Index prefix = 0;       // keys of order < prefix are seen whatever `causal` says
  Index sink_tokens = 0;  // keys of order < sink_tokens are seen whatever the window says
  Index chunk = 0;        // 0 none; else only keys of the same floor((order - origin) / chunk)
  ConstTensorView chunk_origin;  // [B|1, H|1]; left padding, LongLoRA's shifted heads. Empty: 0
  ConstTensorView query_order, key_order;        // [B|1, T]
  ConstTensorView query_document, key_document;  // [B|1, T]: equal documents only
  ConstTensorView key_length;                    // [B]: keys from there on are padding
  ConstTensorView key_visible;                   // [B|1, Tk] u8
  ConstTensorView visible;  // [B|1, H|1, Tq, Tk] u8, rank 2 to 4: trees, permutations, anything
  ConstTensorView bias;     // the same, f64 or f32, added to the score; -inf hides
  // Ragged batch in one row (B = 1): boundaries of queries and keys. Sequence s of the queries sees
  // sequence s of the keys only, order counted inside, query_offset added to (keys - queries) of
  // the sequence. Excludes orders and documents.
  ConstTensorView query_cu_seqlens, key_cu_seqlens;
};

// Where floor(pq / chunk) - floor(pk / chunk) lies in [low, high] on `axis`, the score takes these
// rotated q and k instead: Self-Extend, ReRoPE, dual chunk (positions/distance_map.h). The first
// region that holds a pair counts; pairs in none take the q and k of the call.
struct ScoreRegion {
  ConstQK qk;
  Index chunk = 1, low = -kUnbounded, high = kUnbounded;
  std::int32_t axis = 0;
};

struct AttentionArgs {
  // q [B, Tq, H, D], k [B, Tk, Hkv, D]; H a multiple of Hkv: query head h reads key head
  // h / (H / Hkv)
  ConstQK qk;
  ConstHeads v;  // [B, Tk, Hkv, Dv]
  Heads out;     // [B, Tq, H, Dv]
  // [B, H, Tq]; of the distance form, natural, with the sink. Empty: not wanted
  TensorView log_sum_exp;
  Positions query_positions, key_positions;  // needed by terms and regions that ask for distances
  double scale = 0;                          // on q.k. Must be set: there is no default
  ConstTensorView head_scale;                // [H]: a_h. Swin V2's logit scale. Empty: 1
  // [B|1, Tq]: g_i, on q wherever q stands. Llama-4's temperature, log-n. Empty: 1
  ConstTensorView query_factor;
  double softcap = 0;                // 0 none; cap(x) = softcap tanh(x / softcap)
  bool softcap_after_terms = false;  // the sum with the terms is capped instead of the content
  ConstTensorView sink;              // [H]: one more logit in the softmax, without a value. gpt-oss
  double dropout = 0;                // of probabilities
  Mask mask;
  std::span<const Term> terms;
  std::span<const ScoreRegion> regions;
};

// ACCUMULATED, in the dtype given (f64 or f32); empty or null: not wanted.
struct AttentionGradients {
  QK qk;
  Heads v;
  std::span<const QK> regions;          // one each, or none
  std::span<const TermGradient> terms;  // one each, or none
  TensorView sink, head_scale, query_factor;
  TensorView bias;  // of the shape of mask.bias; broadcast axes are summed
};

// Everything that must agree before any kernel runs. Throws std::invalid_argument("[attention]
// rule, got value"): shapes, dtypes, head counts, scale not set or not finite, dropout (refused),
// terms whose tables, rows or positions do not fit, masks that exclude each other, rows outside a
// table.
POSENC_API void check_attention(const AttentionArgs&);
// The gradients against the call they belong to.
POSENC_API void check_attention(const AttentionArgs&, const AttentionGradients&);

}  // namespace posenc::v0
