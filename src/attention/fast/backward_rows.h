// SPDX-License-Identifier: Apache-2.0
// Rows of one head and keys of a tile as tiles read them, and their gradients back to the caller's arrays.
#pragma once
#include "attention/fast/backward_call.h"

namespace posenc::inline v0::detail {

// q, the gradient of the output and the reference of each row. The reference is a whole number, which start values lose
// nothing to; what it leaves of the sum of weights is a factor of the gradient. Rows that see no key have the factor 0.
void take_head(const BackwardCall&, const ConstAttentionResult& d, Index b, Index h,
               BackwardWork&) noexcept;
// Keys and values of a tile: both packed, and keys once more as rows. Tokens that no query sees are 0.
void take_keys(const BackwardCall&, Index b, Index h, Run keys, BackwardWork&) noexcept;
// The same of other keys, of which the heads may be other ones.
void take_key_rows(const BackwardCall&, const ConstHeads&, Index b, Index h, Run keys,
                   float* packed, float* rows, BackwardWork&) noexcept;
// q.dq, which the gradients of the factors of head and query are made of.
double along_query(const BackwardCall&, const ConstHeads& q, Index b, Index h, Index i,
                   const float* dq, BackwardWork&) noexcept;
// Of the products of rows with k, `dq` from the first of them on: gradients of q, and of the factors of head and query.
void put_queries(const BackwardCall&, Index b, Index h, Run rows, const float* dq,
                 BackwardWork&) noexcept;
// Gradients of k and v, from the first of the keys on.
void put_keys(const BackwardCall&, Index b, Index group, Run keys, const float* dk,
              const float* dv) noexcept;

}  // namespace posenc::v0::detail
