// SPDX-License-Identifier: Apache-2.0
// Unrotated keys for queries in float: a chunk of pages is rotated into memory that stays in the caches of a core, and
// attended by the fast engine; the results of the chunks are merged. Each thread has chunks of its own.
#include <exception>

#include "attention/fast/key_turns.h"
#include "attention/fast/row_blocks.h"
#include "attention/plan/plan_call.h"
#include "cache/key_run.h"
#include "cache/stored_numbers.h"
#include "core/head_views.h"
#include "core/parallel.h"
#include "posenc/attention/attend.h"

namespace posenc::inline v0::detail {
namespace {

// Many queries share the rotation of a chunk, and each chunk has a result for all of them.
constexpr Index kChunkTokens = 128, kTokensForEachQuery = 16;

}  // namespace

Heads rotate_chunk(const CacheState& s, const std::vector<Index>& pages, Index tokens,
                   const std::vector<Index>& positions, ChunkMemory& memory) {
  const PoolSizes& sizes = s.pool->sizes;
  const Index token = sizes.heads * sizes.head_dim;
  memory.keys.resize(static_cast<std::size_t>(tokens * token));
  for (Index first = 0; first < tokens; first += sizes.page_size) {
    const Index n = std::min(sizes.page_size, tokens - first);
    const Heads from =
        s.pool->key_slots(pages[static_cast<std::size_t>(first / sizes.page_size)], 0, n);
    const Heads to =
        dense_heads(memory.keys.data() + first * token, DType::f32, n, sizes.heads, sizes.head_dim);
    Positions at{positions.data() + first, DType::i64, static_cast<std::int32_t>(sizes.axes), n};
    at.axis_stride = static_cast<Index>(positions.size()) / sizes.axes;
    const bool floats = from.dtype == DType::f32;
    if (!floats) read_stored(from, sizes.key_type, to);
    s.rotation->narrow.apply(ConstQK{{}, floats ? from : to}, QK{{}, to}, at, RotateMode::forward,
                             inline_executor());
  }
  return dense_heads(memory.keys.data(), DType::f32, tokens, sizes.heads, sizes.head_dim);
}

// Pages one behind the other in memory are one tensor.
ConstHeads values_of_chunk(const CacheState& s, const std::vector<Index>& pages, Index tokens,
                           ChunkMemory& memory) {
  const Index size = s.page_size();
  const ConstHeads all = s.pool->readable_values();
  const Index bytes = size_of(all.dtype);
  bool in_row = all.batch_stride == size * all.token_stride;
  for (std::size_t n = 1; n < pages.size(); ++n) in_row = in_row && pages[n] == pages[n - 1] + 1;
  if (in_row) return token_range(all, pages[0], 0, tokens);
  const Index token = all.heads * all.dim;
  memory.values.resize(static_cast<std::size_t>(tokens * token * bytes));
  for (Index first = 0; first < tokens; first += size) {
    const Index n = std::min(size, tokens - first);
    const Index page = pages[static_cast<std::size_t>(first / size)];
    store_numbers(token_range(all, page, 0, n), KeyType::f32,
                  dense_heads(memory.values.data() + first * token * bytes, all.dtype, n, all.heads,
                              all.dim));
  }
  return dense_heads(memory.values.data(), all.dtype, tokens, all.heads, all.dim);
}

// Whether few queries rotate keys while they read them, which needs no chunks.
bool CacheCall::turns_keys() const {
  const Index rows = call.q.heads / s.pool->sizes.heads * call.q.tokens;
  const Index lanes = fast_decode_kernels(active_isa()).lanes;
  return rows <= kFewRows && turns_in_place(s.rotation->spec, s.pool->sizes.head_dim, lanes);
}

void CacheCall::find_chunks() {
  chunked = s.keeping == KeyKeeping::unrotated && s.rotation->rotates && !call.exact &&
            call.q.dtype != DType::f64 && call.mix_after.empty() && s.sequence.tokens > 0 &&
            s.pool->sizes.key_type != KeyType::f64 && sums_between(call, plan).empty();
  chunked = chunked && !turns_keys();
  if (!chunked) return;
  const KeyRun all = std::move(runs[0]);
  runs.clear();
  const Index chunk_tokens = std::max(kChunkTokens, kTokensForEachQuery * call.q.tokens);
  const auto most = static_cast<std::size_t>(std::max(Index{1}, chunk_tokens / s.page_size()));
  for (std::size_t first = 0; first < all.uses.size(); first += most) {
    const auto begin = all.uses.begin() + static_cast<std::ptrdiff_t>(first);
    runs.push_back(
        {all.shift,
         {begin, begin + static_cast<std::ptrdiff_t>(std::min(most, all.uses.size() - first))}});
  }
}

void CacheCall::run_chunks(const AttentionResult& result, std::span<const NamedArray> named,
                           const Executor& executor) const {
  const Index count = static_cast<Index>(runs.size()), rows = call.q.heads * call.q.tokens;
  const Index V = s.pool->sizes.value_dim;
  std::vector<float> q(static_cast<std::size_t>(rows * call.q.dim));
  const Heads floats = dense_heads(q.data(), DType::f32, call.q.tokens, call.q.heads, call.q.dim);
  read_stored(call.q, KeyType::f32, floats);
  Positions at{query_position.data(), DType::i64, static_cast<std::int32_t>(s.axes()),
               call.q.tokens};
  at.axis_stride = call.q.tokens;
  s.rotation->narrow.apply(QK{floats, {}}, at);
  std::vector<float> outs(static_cast<std::size_t>(count * rows * V));
  std::vector<double> sums(static_cast<std::size_t>(count * rows));
  std::vector<ConstAttentionResult> parts(runs.size());
  std::vector<std::exception_ptr> errors(runs.size());
  Executor own = inline_executor();
  own.cancelled = executor.cancelled, own.cancel_context = executor.cancel_context;
  parallel_for(executor, count, count, [&](Index begin, Index end) noexcept {
    ChunkMemory memory;
    for (Index n = begin; n < end; ++n) {
      const auto at = static_cast<std::size_t>(n);
      try {
        const AttentionResult part{
            dense_heads(outs.data() + n * rows * V, DType::f32, call.q.tokens, call.q.heads, V),
            tensor(sums.data() + n * rows, {1, call.q.heads, call.q.tokens})};
        attend_run(runs[at], floats, named, part, own, &memory);
        parts[at] = part;
      } catch (...) {
        errors[at] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& e : errors)
    if (e != nullptr) std::rethrow_exception(e);
  merge(parts, result, call.normalisation);
}

}  // namespace posenc::v0::detail
