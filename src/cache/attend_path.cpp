// SPDX-License-Identifier: Apache-2.0
// PaTH over cached tokens: keys, values and what each token reflects by (attention/path.h).
#include "posenc/attention/path.h"

#include "cache/dense_tokens.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

void check_path_call(const CacheState& s, const PathArgs& a) {
  const std::pair<const ConstHeads&, const char*> of_cache[] = {
      {a.k, "k"}, {a.v, "v"}, {a.w, "w"}, {a.beta, "beta"}, {a.log_gate, "log_gate"}};
  for (const auto& [array, name] : of_cache)
    if (array.data != nullptr || array.dim != 0)
      refuse_field(kCache, name, "must be absent: the cache has the keys and their token arrays");
  if (a.query_offset != 0)
    refuse_field(kCache, "query_offset", "must be 0: the queries are the last tokens",
                 a.query_offset);
  if (s.rotation->rotates)
    refuse_field(kCache, "attend_path",
                 "needs a cache that does not rotate, because PaTH's reflections do");
  if (s.pool->sizes.value_dim == 0)
    refuse_field(kCache, "attend_path", "needs values, but the pool has keys only");
  if (a.q.batch != 1) refuse_field(kCache, "q", "must have one sequence, batch", a.q.batch);
  if (a.q.tokens > s.sequence.tokens)
    refuse_field(kCache, "q",
                 "must be tokens of the cache, which are " + std::to_string(s.sequence.tokens),
                 a.q.tokens);
  check_in_a_row(s, "PaTH");
}

// A token array of `axes` axes as heads, the last of one number if it has one axis.
ConstHeads token_heads(const CacheState& s, DenseTokens& dense, const char* name,
                       std::size_t axes) {
  const std::vector<TokenArray>& all = s.pool->sizes.arrays;
  const std::size_t index = token_array_index(s, name);
  if (index == all.size())
    refuse_field(kCache, name, "must be a token array of the pool, because PaTH reads it");
  const TokenArray& a = all[index];
  if (a.shape.size() != axes || !is_float(a.dtype))
    refuse_field(kCache, name,
                 axes == 2
                     ? "must be a token array [W, head_dim] of f64 or f32, axes"
                     : "must be a token array with a number for each head, of f64 or f32, axes",
                 static_cast<Index>(a.shape.size()));
  const ConstTensorView v = dense.array(index);
  const Index dim = axes == 2 ? a.shape[1] : 1;
  return heads(tensor(v.data, v.dtype, {1, s.sequence.tokens, a.shape[0], dim}), HeadsLayout::bthd);
}

}  // namespace
}  // namespace detail

void KeyCache::attend_path(const PathArgs& call, const AttentionResult& result,
                           const Executor& executor) const {
  using namespace detail;
  const CacheState& s = *state_;
  check_path_call(s, call);
  DenseTokens dense(s, false);
  PathArgs a = call;
  a.k = dense.stored_keys(), a.v = dense.values();
  a.w = token_heads(s, dense, "w", 2), a.beta = token_heads(s, dense, "beta", 1);
  if (token_array_index(s, "log_gate") != s.pool->sizes.arrays.size())
    a.log_gate = token_heads(s, dense, "log_gate", 1);
  a.query_offset = s.sequence.tokens - call.q.tokens;
  posenc::attend_path(a, result, executor);
}

}  // namespace posenc::v0
