// SPDX-License-Identifier: Apache-2.0
// Positions of text: plain, padded, packed, decoded; and what is made of positions. All exact in
// int64; a result beyond int64 is rejected.
#pragma once
#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include "posenc/positions/view.h"

namespace posenc::inline v0 {

// first, first + step, ... (count of them). Throws [arange]: count < 0, beyond int64; OutOfMemory.
POSENC_API OwnedPositions arange(Index first, Index count, Index step = 1);

// Any list, dense [axes][batch][tokens]. Throws [explicit]: a size that batch and axes do not
// divide; NaN or infinity.
POSENC_API OwnedPositions explicit_positions(std::vector<Index>, Index batch = 1,
                                             std::int32_t axes = 1);
POSENC_API OwnedPositions explicit_positions(std::vector<double>, Index batch = 1,
                                             std::int32_t axes = 1);
// The same of a list in braces: {1, 2} are whole numbers, {0.5, 2.0} real ones; a list of both is
// neither and does not compile.
template <class T>
requires(std::is_floating_point_v<T> ||
         (std::is_integral_v<T> &&
          (std::is_signed_v<T> || sizeof(T) < sizeof(Index)))) OwnedPositions
    explicit_positions(std::initializer_list<T> list, Index batch = 1, std::int32_t axes = 1) {
  using Value = std::conditional_t<std::is_integral_v<T>, Index, double>;
  return explicit_positions(std::vector<Value>(list.begin(), list.end()), batch, axes);
}

// Running count of the real tokens of each batch entry: first + cumsum(mask) - 1 where mask is 1, `padded`
// where it is 0. mask [t] or [b, t] of u8, i32 or i64 holds 0 and 1, in any pattern.
//   transformers 5: padded 0; 4: padded 1; OPT's rows: first 2, padded 1.
// Throws [from_mask]: dtype, rank, a value that is not 0 or 1.
POSENC_API OwnedPositions from_mask(const ConstTensorView& mask, Index padded, Index first = 0);
// The same, but rejects a sequence whose real tokens are not all on the right ([left_padded]) or on the left
// ([right_padded]).
POSENC_API OwnedPositions left_padded(const ConstTensorView& mask, Index padded);
POSENC_API OwnedPositions right_padded(const ConstTensorView& mask, Index padded);
// The same of sequences whose first lengths[b] tokens are real (fairseq2: padded -1). A mask
// that is passed too must agree. Throws [from_lengths]: a length that is negative or above
// tokens; a mask that contradicts them.
POSENC_API OwnedPositions from_lengths(std::span<const Index> lengths, Index tokens, Index padded,
                                       Index first = 0, const ConstTensorView& mask = {});
// fairseq, RoBERTa: real tokens count from padding_idx + 1 (+ past), the padding token itself has
// padding_idx. ids [t] or [b, t] of u8, i32 or i64.
POSENC_API OwnedPositions from_tokens(const ConstTensorView& ids, Index padding_idx,
                                      Index past = 0);

// Sequences whose text begins at token starts[b] (padding on the left): max(0, first + t - starts[b]).
// x-transformers. Throws [from_starts]: count, beyond int64.
POSENC_API OwnedPositions from_starts(std::span<const Index> starts, Index count, Index first = 0);
// Tokens counted within their cell of a table, from its first token of the row on, at most limit:
// min(t - first t' with the same column and row, limit). TAPAS (limit = rows of the table - 1; text
// and padding are cell (0, 0)). column, row [t] or [b, t] of i32 or i64. Throws [cell_positions].
POSENC_API OwnedPositions cell_positions(const ConstTensorView& column, const ConstTensorView& row,
                                         Index limit);
// The largest position of the batch entry minus each, an axis at a time: Segatron-XL's rows of keys.
POSENC_API OwnedPositions distance_to_largest(const Positions&);

// Documents packed in one sequence: positions restart at `first` at every boundary. cu_seqlens is 0, end
// of the first document, ..., number of tokens. Throws [packed]: fewer than one entry, not starting
// at 0, decreasing.
POSENC_API OwnedPositions packed(std::span<const Index> cu_seqlens, Index first = 0);
// Which document each token belongs to (0-based): for masks.
POSENC_API std::vector<Index> document_index(std::span<const Index> cu_seqlens);
// The inverse, from the positions of one sequence of packed documents: a document starts wherever the position
// does not increase by exactly 1.
POSENC_API std::vector<Index> document_index_of_positions(std::span<const Index> positions);
POSENC_API std::vector<Index> cu_seqlens_of_positions(std::span<const Index> positions);

// Decode: batch entry b has lengths[b], lengths[b] + 1, ... (count of them), the positions of the tokens after
// the cached ones. Throws [decode_positions]: negative length or count.
POSENC_API OwnedPositions decode_positions(std::span<const Index> lengths, Index count = 1);

// Every position plus delta. Throws [shifted]: beyond int64; not finite.
POSENC_API OwnedPositions shifted(const Positions&, Index delta);
POSENC_API OwnedPositions shifted(const Positions&, double delta);  // returns doubles
// Batch entry b plus deltas[b]: M-RoPE's decode step, K-shift of a batch. A batch of 1 is repeated.
POSENC_API OwnedPositions shifted(const Positions&, std::span<const Index> deltas);

// Every sequence reversed: token t has the position of token count - 1 - t (as in the authors' Transformer of
// complex word order).
POSENC_API OwnedPositions reversed(const Positions&);

// Concatenates batches: equal axes and tokens; doubles if any argument has doubles. Throws [batched].
POSENC_API OwnedPositions batched(std::span<const OwnedPositions> rows);
// Concatenates axes (t, h, w ...): equal batches and tokens. Throws [stacked].
POSENC_API OwnedPositions stacked(std::span<const OwnedPositions> axes);
// One axis repeated on `axes` streams, as for text in M-RoPE.
POSENC_API OwnedPositions repeated_axes(const Positions&, std::int32_t axes);
// Concatenates tokens: equal axes and batches. Throws [join_positions].
POSENC_API OwnedPositions join_positions(std::span<const OwnedPositions> parts);
// `before` and `after` more tokens at `value` on all axes: class and register tokens, which are
// not rotated at 0.
POSENC_API OwnedPositions with_special_tokens(const Positions&, Index before, Index after,
                                              Index value = 0);

// A dense copy; i32 becomes i64. Throws [positions].
POSENC_API OwnedPositions owned(const Positions&);
// One number, widened: axis, batch entry, token. No checks.
POSENC_API double position_at(const Positions&, std::int32_t axis, Index row, Index token) noexcept;
POSENC_API Index integer_position_at(const Positions&, std::int32_t axis, Index row,
                                     Index token) noexcept;

}  // namespace posenc::v0
