// SPDX-License-Identifier: Apache-2.0
// One call of attention with position terms, as data: the input of an engine, on a CPU or a GPU.
//
//   S_ij = cap(scale a_h g_i q_i.k_j) + sum of terms(i, j) + bias_ij
//   P_i  = softmax over visible keys (and the sink),  o_i = sum_j P_ij v_j + value terms
//
// q and k are those after `prepare`: biases, norms, rotation. Letters of shapes: term.h.
#pragma once
#include <array>
#include <optional>
#include <span>

#include "posenc/attention/term.h"
#include "posenc/core/heads.h"
#include "posenc/positions/view.h"

namespace posenc::inline v0 {

struct RotarySpec;  // rotary/spec.h

// add: x + bias. l2: x / max(|x|, epsilon). rms: weight x / sqrt(mean of x^2 + epsilon). rotate: by
// the positions of the call.
enum class StageKind : std::uint8_t { add, l2, rms, rotate };
template <>
struct EnumNames<StageKind> {
  static constexpr std::array<std::string_view, 4> value{"add", "l2", "rms", "rotate"};
};

// Steps that are applied to q and k before q.k, in this order, in O(tokens), with gradients. Qwen
// 3: rms, rotate. Llama 4: rotate, rms. Swin V2: l2. Rotation after biases of q and k: add, rotate.
struct Stage {
  StageKind kind = StageKind::add;
  // add: bias, rms: weight. f64 or f32, [G, D] (of k: G divides the heads of k). Empty: none.
  ConstTensorView q{}, k{};
  double epsilon = 0;                  // l2, rms
  const RotarySpec* rotary = nullptr;  // rotate; kept alive by the caller
  bool value = false;                  // rotate: v too, by the key positions (RoFormer)
};
struct StageGradient {
  TensorView q{}, k{};  // of the shapes of the stage's arrays
};

// Which keys a query sees, by order: a key is visible only if every mask that is set allows it. Query i
// has order query_offset + i, key j order j, unless orders are set (shards, caches that drop keys). Integer views are i64 or i32, flags
// u8 (0: no).
struct Mask {
  bool causal = false;     // key order <= query order
  Index query_offset = 0;  // Tk - Tq puts queries at the end of the keys
  // [B|1], of packed queries [sequences]: added to query_offset. Batch entries of a cache that hold
  // different numbers of tokens. Excludes orders.
  ConstTensorView query_offsets{};
  Index window_left = kUnbounded;   // keys before the query's own
  Index window_right = kUnbounded;  // keys after the query's own; -1 also hides that one
  // [H] u8 of Side: past sees keys up to the query's own, future from it on.
  ConstTensorView head_side{};
  ConstTensorView prefix{};  // [B|1]: keys of order < prefix are seen whatever `causal` says
  // Keys of order 0 .. sink_tokens - 1 are seen whatever window_left says, and nothing else.
  Index sink_tokens = 0;
  Index chunk = 0;  // 0 none; else only keys of the same floor((order - origin) / chunk)
  ConstTensorView chunk_origin{};  // [B|1, G]; left padding, LongLoRA's shifted heads. Empty: 0
  // [B|1, T]. Of packed queries: [1, Tq], counted in each sequence, and [1, Tk], or of pages [1 or sequences, Tk].
  ConstTensorView query_order{}, key_order{};
  ConstTensorView query_document{}, key_document{};  // [B|1, T]: equal documents only
  ConstTensorView key_length{};                      // [B]: keys from there on are padding
  ConstTensorView key_visible{};                     // [B|1, Tk] u8
  // [B|1, G, Tq, Tk] or [Tq, Tk] u8: trees, permutations, anything. Rank 3 is rejected as ambiguous: some
  // programs mean [B, Tq, Tk], ONNX means [H, Tq, Tk].
  ConstTensorView visible{};
  // The same shapes of f64 or f32, added to the score; -inf hides, -3.4e38 does not.
  ConstTensorView bias{};
  // Ragged batch in one batch entry (B = 1): [sequences + 1], from 0 to the number of tokens. Sequence s of
  // the queries sees sequence s of the keys; order is counted inside, and query_offset is added to
  // (keys - queries) of the sequence, unless orders are set. Excludes documents. With block_table there is no
  // key_cu_seqlens: row s of block_table and entry s of key_length are sequence s.
  ConstTensorView query_cu_seqlens{}, key_cu_seqlens{};
};

// For pairs with floor(pq / chunk) - floor(pk / chunk) in [low, high] on `axis`, the score uses another q
// and k: Self-Extend, ReRoPE, dual chunk (positions/distance_map.h). The first region that contains a pair
// applies. Terms use the q and k of the call. Either
//   qk: as prepared, of the shapes of the call's; k with any G heads, without pages, or
//   rotary: the call's own q and k, pages and blocks too, rotated by these positions. They go through
//     `prepare` before, whose rotation, if there is one, must be the last stage and is left out. Gradients
//     come back to q and k of the call.
struct ScoreRegion {
  ConstQK qk{};
  Index chunk = 1, low = -kUnbounded, high = kUnbounded;
  std::int32_t axis = 0;
  // Kept alive by the caller. In a call of a plan the plan's own rotation if both qk and rotary are absent.
  const RotarySpec* rotary = nullptr;
  Positions query_positions{}, key_positions{};  // of rotary; one row or one for each of q and of k
};

// stick_breaking: P_ij = sigma(S_ij) times the product of (1 - sigma(S_it)) over the visible keys t
// after j in order. The remainder is dropped, or (_own) goes to the value of the key of the query's
// own order. log_sum_exp is then the logarithm of the remainder.
enum class Normalisation : std::uint8_t { softmax, stick_breaking, stick_breaking_own };
template <>
struct EnumNames<Normalisation> {
  static constexpr std::array<std::string_view, 3> value{"softmax", "stick_breaking",
                                                         "stick_breaking_own"};
};

struct AttentionArgs {
  // Any float types: those of k and v may differ from that of q and from each other (a cache in 16 bits). k and v may
  // also be q8_0 blocks (key_blocks), which have no gradients; D is then a multiple of 32.
  ConstHeads q{};  // [B, Tq, H, D]
  ConstHeads k{};  // [B, Tk, G, D]
  ConstHeads v{};  // [B, Tk, G, Dv]
  // Paged keys and values, [sequences, pages of each] of i64 or i32: k and v are [pages, page size, G, D],
  // and key j of sequence b is slot j % page size of page block_table[b, j / page size]. key_length says
  // how many there are; pages beyond it are not read. Tk = pages of a sequence * page size. A row for each
  // batch entry, or for each sequence of query_cu_seqlens: then what is by key (positions,
  // key_visible, classes, factors) has an entry for each sequence too. Empty: not paged.
  ConstTensorView block_table{};
  // Needed by lines, linear, distance_mlp, regions and rotation.
  Positions query_positions{}, key_positions{};
  std::span<const Stage> prepare{};
  // Multiplies q.k; with 0 the score consists of the terms only. Required by attend, optional in a call
  // of a plan.
  std::optional<double> scale{};
  ConstTensorView head_scale{};    // [B|1, H]: a_h. Swin V2's logit scale. Empty: 1
  ConstTensorView query_factor{};  // [B|1, Tq]: g_i, on q wherever q is. Llama 4's, log-n. Empty: 1
  double softcap = 0;              // 0 none; cap(x) = softcap tanh(x / softcap), of the content q.k
  // The sum of content and terms is capped instead; mask.bias and score_mlp stay outside.
  bool softcap_after_terms = false;
  std::span<const Term> terms{};
  std::span<const ScoreRegion> regions{};
  Mask mask{};
  Normalisation normalisation = Normalisation::softmax;
  // [H]: one more logit in the softmax, without a value (gpt-oss). Not with stick-breaking.
  ConstTensorView sink{};
  // Talking heads, [H, H]: S'_h = sum_g mix_before[h, g] S_g before mask.bias is added, and
  // P'_h = sum_g mix_after[h, g] P_g.
  ConstTensorView mix_before{}, mix_after{};
  double dropout = 0;  // of probabilities; must be 0
  // Run the call in the exact engine, even if a faster one supports it.
  bool exact = false;
};

// Queries without a visible key: zero output and gradients, log-sum-exp -inf (with a sink its logit, with
// stick-breaking 0, because no probability mass was assigned). A key that no query may see may contain
// anything, also NaN.
struct AttentionResult {
  Heads out{};  // [B, Tq, H, Dv], in the dtype of q
  // [B, H, Tq], f64 or f32; natural logarithm, of the distance form, with the sink. Empty: not computed.
  TensorView log_sum_exp{};
};

// f64 or f32, of the shapes of the arguments, ACCUMULATED, except for q, k and v with `overwrite`; empty or null: not
// computed. A span has one entry for each argument, or none at all.
struct AttentionGradients {
  Heads q{}, k{}, v{};  // of the call's arrays, before `prepare`; paged: shaped like the pages
  std::span<const StageGradient> prepare{};
  std::span<const TermGradient> terms{};
  std::span<const QK> regions{};  // of qk
  TensorView head_scale{}, query_factor{}, sink{};
  TensorView bias{};  // broadcast axes are summed
  TensorView mix_before{}, mix_after{};
  // q, k and v need not be initialised: their gradients are written. Of views that are the same, the sum is.
  bool overwrite = false;
};

// Everything that must agree before any kernel runs, in O(terms): shapes, dtypes, head counts,
// what is missing or excludes each other. No number inside an array is read; those of tables were
// checked when they were lowered (check_rows). Throws std::invalid_argument("[attention] rule, got
// value").
POSENC_API void check_attention(const AttentionArgs&, const AttentionResult&);
// The gradients against the call they belong to.
POSENC_API void check_attention(const AttentionArgs&, const AttentionGradients&);
// The numbers inside integer arrays of the call, in O(tokens): cu_seqlens, classes, block tables,
// lengths, sides. In the CPU's memory. Throws [attention].
POSENC_API void check_attention_indices(const AttentionArgs&);

}  // namespace posenc::v0
