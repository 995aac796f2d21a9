// SPDX-License-Identifier: Apache-2.0
#include "attention/exact/load_keys.h"

#include <algorithm>
#include <limits>

#include "attention/call/check_parts.h"
#include "core/extent.h"
#include "core/memory_limit.h"

namespace posenc::inline v0::detail {
namespace {

Index keys_size(const CallView& c, Index channels) {
  return c.R * c.G * c.Tk * channels;
}
Index keys_tiles_size(const CallView& c, Index channels) {
  return c.R * c.G * tiles_size(c.Tk, channels);
}

// Keys are read as rows beside their products with q.
bool reads_key_rows(const AttentionArgs& a, bool backward) {
  return backward || rotates_regions(a) ||
         std::any_of(a.terms.begin(), a.terms.end(),
                     [](const Term& t) { return term_arrays(t).key.content; });
}
// Values are read as they are given, and by their weights alone.
bool streams_values(const AttentionArgs& a) {
  return a.normalisation != Normalisation::stick_breaking_own &&
         std::none_of(a.prepare.begin(), a.prepare.end(), [](const Stage& s) { return s.value; });
}

}  // namespace

CallCopies call_copies(const AttentionArgs& a, bool backward) {
  const CallSizes s(a);
  CallCopies copies;
  const bool key_rows = reads_key_rows(a, backward);
  // One block of rows reads all of its keys: nobody else needs a copy.
  copies.streams =
      !key_rows && streams_values(a) && s.heads / s.key_heads * s.queries <= kBlockRows;
  copies.key_rows = !copies.streams && (key_rows || !a.prepare.empty());
  const Index key_bytes = copies.streams ? 0 : copies.key_rows ? 16 : 8;
  const Index value_bytes = copies.streams ? 0 : backward ? 16 : 8;
  for (const Index n :
       {saturated_product({s.batch, s.heads, s.queries, s.dim, 8}),
        saturated_product({s.key_rows, s.key_heads, s.keys, s.dim, key_bytes}),
        saturated_product({s.key_rows, s.key_heads, s.keys, s.value_dim, value_bytes})})
    if (__builtin_add_overflow(copies.bytes, n, &copies.bytes))
      copies.bytes = std::numeric_limits<Index>::max();
  return copies;
}

void load_keys(CallView& c, bool backward, CallArena& arena, const Executor& executor) {
  const AttentionArgs& a = c.args;
  c.key_source = VectorSource(c.given_k, a.block_table);
  c.value_source = VectorSource(c.given_v, a.block_table);
  const CallCopies copies = call_copies(a, backward);
  const bool rows = copies.key_rows, own = a.normalisation == Normalisation::stick_breaking_own;
  if (!arena.counts())
    check_memory("attention", "q, k and v in double", static_cast<std::size_t>(copies.bytes));
  c.streams = copies.streams;
  if (c.streams) return;
  c.seen = tiles_seen(c, own, arena);
  c.v = arena.array<double>(keys_size(c, c.V));
  (rows ? c.k : c.k_tiles) =
      arena.array<double>(rows ? keys_size(c, c.D) : keys_tiles_size(c, c.D));
  if (arena.counts()) return;
  each_seen_keys(c, c.D + c.V, executor, [&](Index r, Index g, Run some) noexcept {
    const Index slab = r * c.G + g, first = slab * c.Tk + some.begin;
    c.value_source.load_rows(r, g, some, c.v.data() + first * c.V);
    if (rows)
      c.key_source.load_rows(r, g, some, c.k.data() + first * c.D);
    else
      c.key_source.load_tiles(r, g, some,
                              c.k_tiles.data() + slab * tiles_size(c.Tk, c.D) + some.begin * c.D);
  });
}

void stream_key_tiles(const CallView& c, Index r, Index g, Run some, double* to) noexcept {
  if (c.args.prepare.empty()) return c.key_source.load_tiles(r, g, some, to);
  double* rows = to + streamed_keys(c.D) * c.D;
  c.key_source.load_rows(r, g, some, rows);
  run_key_stages(c, r, g, some, rows);
  const Index count = some.end - some.begin;
  VectorSource(ConstHeads{rows, 1, count, 1, c.D, 0, c.D, 0, 1, DType::f64})
      .load_tiles(0, 0, {0, count}, to);
}

void make_key_tiles(CallView& c, bool backward, CallArena& arena, const Executor& executor) {
  const auto make = [&](std::span<const double> rows, Index channels) {
    const std::span<double> tiles = arena.array<double>(keys_tiles_size(c, channels));
    if (arena.counts()) return tiles;
    const VectorSource source(ConstHeads{rows.data(), c.R, c.Tk, c.G, channels,
                                         c.G * c.Tk * channels, channels, c.Tk * channels, 1,
                                         DType::f64});
    each_seen_keys(c, channels, executor, [&](Index r, Index g, Run some) noexcept {
      source.load_tiles(
          r, g, some,
          tiles.data() + (r * c.G + g) * tiles_size(c.Tk, channels) + some.begin * channels);
    });
    return tiles;
  };
  if (!c.k.empty() && c.k_tiles.empty()) c.k_tiles = make(c.k, c.D);
  if (backward) c.v_tiles = make(c.v, c.V);
}

}  // namespace posenc::v0::detail
