// SPDX-License-Identifier: Apache-2.0
// ALiBi: a bias linear in distance. Press et al., arXiv:2108.12409, section 3:
//   S_ij += -m_h (i - j)   for keys in the past; not multiplied by 1 / sqrt(head_dim)
// Slopes (the authors' code, BLOOM, MPT, ggml): with n the largest power of two <= heads,
//   m_h = 2^(-max_bias (h + 1) / n)                  h < n
//   m_h = 2^(-max_bias / 2 (2 (h - n) + 1) / n)      the others, last
// `literal` is the paper's sentence read for any head count, 2^(-max_bias (h + 1) / heads): another
// function unless heads is a power of two. The distance form is the definition: forms that differ
// by a number for each query (BLOOM's m j) have the same output and another log-sum-exp.
// With own_slopes a key in the future has another learned slope, S_ij += -m'_h (j - i): the authors'
// asymmetric form for encoders (issue 5 of their repository), m = sigmoid(x), x ~ N(-2, 1).
// With height and width the distance is that of two cells of a grid, row on axis 0 and column on
// axis 1 of the positions: sqrt(dy^2 + dx^2), data2vec 2.0's euclidean form.
// With total_heads the heads of the call are a shard of so many, from first_head on: tensor
// parallelism. With sequences a ragged call has learned slopes for each sequence, and its
// query_sequence says which one a query belongs to.
// Implementation: src/relative/alibi.cpp.
#pragma once

#include <array>
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

enum class AlibiSlopes : std::uint8_t { published, literal };
template <>
struct EnumNames<AlibiSlopes> {
  static constexpr std::array<std::string_view, 2> value{"published", "literal"};
};
// The bias of a key in the future, without a causal mask: -m |d| (FlashAttention, x-transformers,
// data2vec) or +m |d|, the signed distance (attention-gym). half_heads: the first half of the heads
// sees no key in the future, the second none in the past, the slopes are those of half as many
// heads, twice (FlashT5's asymmetric mode). own_slopes: -m' |d|, m' a second learned number.
enum class AlibiFuture : std::uint8_t { symmetric, signed_distance, half_heads, own_slopes };
template <>
struct EnumNames<AlibiFuture> {
  static constexpr std::array<std::string_view, 4> value{"symmetric", "signed_distance",
                                                         "half_heads", "own_slopes"};
};
// fixed; or a parameter of one number a head: the slope, its logarithm, or what a sigmoid makes the
// slope of.
enum class AlibiLearned : std::uint8_t { fixed, slopes, log_slopes, logits };
template <>
struct EnumNames<AlibiLearned> {
  static constexpr std::array<std::string_view, 4> value{"fixed", "slopes", "log_slopes", "logits"};
};

// exact: the distance form in double. falcon_bfloat16: what transformers computes for Falcon,
//   S_ij += bf16(bf16(m_h) bf16(j)) bias_scale,   j the position of the key,
// whose bias at token 2047 is off by up to 10 before bias_scale. It goes by keys, so its
// log-sum-exp differs from that of the distance form.
enum class AlibiPrecision : std::uint8_t { exact, falcon_bfloat16 };
template <>
struct EnumNames<AlibiPrecision> {
  static constexpr std::array<std::string_view, 2> value{"exact", "falcon_bfloat16"};
};

struct Alibi {
  static constexpr Card card{"alibi", "attention with linear biases", "arXiv:2108.12409", "sec. 3"};
  AlibiSlopes slopes = AlibiSlopes::published;
  double max_bias = 8;  // MPT's alibi_bias_max
  AlibiFuture future = AlibiFuture::symmetric;
  AlibiLearned learned = AlibiLearned::fixed;
  Index alibi_heads =
      0;  // only the first so many heads have a slope, as if there were no others; 0: all
  double past_offset =
      0;  // times m, on keys strictly in the past (DeepMind's bidirectional form: 1/2)
  double bias_scale = 1;        // Falcon: 1 / sqrt(head_dim)
  Index axis = 0;               // of the positions; manhattan distance is one ALiBi an axis
  Index height = 0, width = 0;  // of a grid: the Euclidean distance of two cells
  Index batch = 1;  // learned ones of each batch entry, [batch, heads]: FlashAttention's slopes
  Index total_heads = 0;  // of all shards; 0: the heads of the call are all
  Index first_head = 0;   // of the call's heads among total_heads
  Index sequences = 0;    // learned ones of each sequence of a ragged call, [sequences, heads]
  AlibiPrecision precision = AlibiPrecision::exact;

  // m of every head of the call.
  POSENC_API std::vector<double> slope(Index heads) const;

  // slopes, log_slopes or logits [heads] (with batch [batch, heads], with sequences
  // [sequences, heads]), with own_slopes also the same with _future. The published slopes; logits
  // N(-2, 1).
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  // With sequences query_sequence, 0 .. sequences - 1.
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;

  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;

  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Alibi&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("slopes", s.slopes, Field{.doc = "rule for head counts that are not a power of two"});
    v("max_bias", s.max_bias, Field{.doc = "exponent of the last slope", .min = 0, .max = 1000});
    v("future", s.future, Field{.doc = "bias of keys in the future"});
    v("learned", s.learned, Field{.doc = "one learned number for each head"});
    v("alibi_heads", s.alibi_heads,
      Field{.doc = "heads with a slope, 0 = all", .min = 0, .max = 65536, .from = "heads"});
    v("past_offset", s.past_offset, Field{.doc = "times the slope, on the strict past"});
    v("bias_scale", s.bias_scale, Field{.doc = "multiplies the bias"});
    v("axis", s.axis, Field{.doc = "axis of the positions", .min = 0, .max = 7});
    v("height", s.height,
      Field{.doc = "rows of a grid of Euclidean distances, 0 = none", .min = 0, .max = 4096});
    v("width", s.width, Field{.doc = "columns of that grid", .min = 0, .max = 4096});
    v("batch", s.batch,
      Field{.doc = "learned numbers for each batch entry, 0 = shared", .min = 1, .max = 1e9});
    v("total_heads", s.total_heads,
      Field{.doc = "heads of all shards of tensor parallelism, 0 = those of the call",
            .min = 0,
            .max = 65536});
    v("first_head", s.first_head,
      Field{.doc = "the call's first head among total_heads", .min = 0, .max = 65535});
    v("sequences", s.sequences,
      Field{.doc = "sequences of a ragged call that have their own learned numbers, 0 = shared",
            .min = 0,
            .max = 1e9});
    v("precision", s.precision, Field{.doc = "exact, or a program's rounding"});
  }

 private:
  void check_fields(const ScoreShape& s) const;
  void check_shard(const ScoreShape& s) const;
  void check_combinations() const;
  // Of all heads together, without regard to shards.
  std::vector<double> slopes_of_all(Index heads) const;
  Index all_heads(Index heads) const { return total_heads > 0 ? total_heads : heads; }
  // The other terms than a linear one.
  void lower_sequences(const ScoreShape& s, LoweredTerms& out) const;
  std::vector<std::vector<double>> pull_sequences(const ScoreShape& s, const CallData& call,
                                                  const LoweredGradient& g) const;
  void slopes_from_sides(std::vector<std::vector<double>>& dm,
                         const std::array<std::vector<double>, 2>& m) const;
  // Of a grid: the distance of each row of the table.
  std::vector<double> far() const;
  void ask_sides(const ScoreShape& s, LoweredTerms& out) const;
  // Of the past and of the future.
  std::array<std::vector<double>, 2> slopes_of(const ScoreShape& s,
                                               std::span<const ConstTensorView> p) const;
};

}  // namespace posenc::v0
