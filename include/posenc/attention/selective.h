// SPDX-License-Identifier: Apache-2.0
// Selective attention. Leviathan et al., arXiv:2410.02703, section 3: earlier queries mask keys for
// later ones,
//   S'_ihj = S_ihj - F_ij,  F_ij = sum over i' < i of max(S_i'gj, 0)
// where S is the score of the call and g one head. A key does not mask itself (key query_offset +
// i' of query i'), and the first key is not masked by any (as published and in x-transformers). A
// query masks only keys that it sees. F starts at 0 with the first query of the call, unless `masked`
// has the sums of earlier queries. On the CPU, in double, by blocks of 64 queries. Besides the memory of
// attend: two numbers for each pair of a block; backward, one more for each key head, and one number for
// each key and block.
#pragma once
#include "posenc/attention/attend.h"

namespace posenc::inline v0 {

struct SelectiveOptions {
  Index head = 0;          // g
  bool keep_first = true;  // key 0 is never masked
  // [B, Tk] of f64: F before the first query; when the call is done, F behind the last one. Empty: 0. Not for
  // gradients.
  TensorView masked{};
};

// `call` holds q, k, v, scale and a mask without axes of heads. Throws [selective]: terms, regions,
// stages, caps, factors, sinks, mixes, mask.bias, packed sequences, pages, orders, sides of heads.
POSENC_API void attend_selective(const AttentionArgs& call, const AttentionResult&,
                                 const SelectiveOptions& = {},
                                 const Executor& = default_executor());
// As attend_backward; of the gradients q, k and v.
POSENC_API void attend_selective_backward(const AttentionArgs& call,
                                          const ConstAttentionResult& result,
                                          const ConstAttentionResult& d_result,
                                          const AttentionGradients&, const SelectiveOptions& = {},
                                          const Executor& = default_executor());

}  // namespace posenc::v0
