// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/decode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "attention/call/pieces.h"
#include "attention/fast/decode_products.h"
#include "attention/fast/decode_rows.h"
#include "attention/fast/decode_scans.h"
#include "attention/fast/decode_values.h"
#include "core/parallel.h"

namespace posenc::inline v0::detail {
namespace {

constexpr Index kStartsOfRow = 64;  // start values of one row and its neighbours on a line

// A block of rows against a block of keys, and where the tokens of these lie. Of k those of the first of its regions.
struct Unit {
  const DecodeBlock* block = nullptr;
  Run keys{0, 0}, seen{0, 0};  // `seen`: some row sees keys of these, and none others
  RegionSet regions = kNoRegion;
  int region = -1;
  std::span<const void*> k, v;
  std::span<float> k_copies, v_copies;
  std::span<float> x;  // [rows][kDecodeKeys]: scores, then weights
};

// Channels of a token in whole vectors, at most.
Index widest_token(const DecodeCall& d) noexcept {
  Index most = std::max(d.k.width, d.v.width);
  for (const WideProduct& w : d.c.wide.terms()) most = std::max(most, w.channels);
  for (const RowTerm& t : d.c.rows.all()) most = std::max(most, t.channels);
  return whole_vectors(std::max(most, d.c.gates.channels()), d.kernels.lanes);
}

// Memory of one thread.
struct DecodeWork : FastRowWork {
  DecodeWork(const DecodeCall& d, CallArena& arena)
      : FastRowWork(d.c, kDecodeMostRows, kDecodeKeys, arena),
        units(arena.objects<Unit>(d.together)),
        row_products(d, arena),
        row_values(d, arena),
        products(d, arena),
        scan(d, arena) {
    all_starts = arena.array<float>(kDecodeMostRows * kStartsOfRow);
    classes.other_heads = true;
    zeros = arena.array<std::byte>(static_cast<Index>(sizeof(float)) * widest_token(d));
    hidden = arena.array<float>(kDecodeKeys);
    heads = arena.array<FastDecodeHead>(d.together);
    sums = arena.array<float>(d.sums_of_rows(d.together * kDecodeMostRows));
    turn_rows = arena.array<float>(d.c.turns.size());
    const bool has_regions = !d.c.regions.none();
    region_k = arena.array<const void*>(has_regions ? kDecodeKeys : 0);
    region_copies = arena.array<float>(has_regions ? kDecodeKeys * d.k.width : 0);
    for (Index n = 0; n < d.together; ++n) {
      Unit u;
      u.k = arena.array<const void*>(kDecodeKeys), u.v = arena.array<const void*>(kDecodeKeys);
      u.k_copies = arena.array<float>(d.k.copied || has_regions ? kDecodeKeys * d.k.width : 0);
      u.v_copies = arena.array<float>(d.v.copied ? kDecodeKeys * d.v.width : 0);
      u.x = arena.array<float>(kDecodeMostRows * kDecodeKeys);
      if (!arena.counts()) units[static_cast<std::size_t>(n)] = u;
    }
    if (!arena.counts()) std::fill(zeros.begin(), zeros.end(), std::byte{0});
  }
  std::span<Unit> units;  // of a block of keys
  std::span<FastDecodeHead> heads;
  std::span<float> sums;            // FastDecodeHeads::sums
  std::span<float> turn_rows;       // KeyTurns of a block of keys
  std::span<float> all_starts;      // [rows][kStartsOfRow]
  std::span<std::byte> zeros;       // a token that no row sees
  std::span<float> hidden;          // start values of a row whose numbers are under the cap
  std::span<const void*> region_k;  // tokens of another region
  std::span<float> region_copies;
  DecodeRows row_products;
  DecodeValues row_values;
  DecodeProductWork products;
  DecodeScanWork scan;
};

// Of a tensor that has the heads of k; `region` not negative: of the k of a region.
void find_tokens(const DecodeCall& d, const DecodeTokens& t, int region, const Unit& u,
                 DecodeWork& w, std::span<const void*> to, std::span<float> copies) noexcept {
  const FastRowBlock& rows = u.block->rows;
  if (region < 0)
    d.c.fill_tokens(*t.x, rows.row, d.c.group(rows.head), u.keys, u.seen, w.copies.data(),
                    to.data());
  else
    d.c.fill_region_tokens(region, rows.row, rows.head, u.keys, u.seen, w.copies.data(), to.data());
  const Index count = u.keys.end - u.keys.begin;
  for (Index n = 0; n < kDecodeKeys; ++n) {
    const void*& token = to[static_cast<std::size_t>(n)];
    if (n >= count || token == nullptr) {
      token = w.zeros.data();
    } else if (t.copied) {
      token = copy_token(d, t, token, copies.data() + n * t.width);
    }
  }
}

// The same where they are found for another head: `heads` further in memory.
void take_tokens(const DecodeTokens& t, Index heads, const DecodeWork& w,
                 std::span<const void*> from, std::span<const void*> to) noexcept {
  const Index bytes = heads * t.x->head_stride * size_of(t.x->dtype);
  for (std::size_t n = 0; n < to.size(); ++n)
    to[n] = from[n] == w.zeros.data() ? from[n] : static_cast<const std::byte*>(from[n]) + bytes;
}
// Whether tokens of two units differ in nothing but the head: the same keys of the same row, none of them copied.
bool lie_alike(const DecodeCall& d, const Unit& a, const Unit& b) noexcept {
  const bool copied = d.k.copied || d.v.copied || d.c.copy_bytes != 0;
  return !copied && d.c.regions.none() && a.block->rows.row == b.block->rows.row &&
         a.seen.begin == b.seen.begin && a.seen.end == b.seen.end;
}

// Of the blocks of a piece those that see some of the keys, in w.units. Returns how many.
std::size_t find_units(const DecodeCall& d, const DecodeScans& scans,
                       std::span<const DecodeBlock> blocks, Index slice, Run keys, bool low_only,
                       DecodeWork& w) noexcept {
  std::size_t count = 0;
  for (const DecodeBlock& b : blocks) {
    if (low_only && !b.low) continue;
    const Run seen = d.c.seen_by(b.groups, keys);
    if (seen.begin >= seen.end || scans.is_done(b, slice)) continue;
    Unit& u = w.units[count++];
    u.block = &b, u.keys = keys, u.seen = seen;
    if (!d.c.regions.none()) {
      u.regions = 0;
      for (const RowGroup& g : b.groups) u.regions |= d.c.regions.of(g, keys);
      u.region = std::countr_zero(u.regions) - 1;
    }
    if (const Unit& first = w.units[0]; count > 1 && lie_alike(d, first, u)) {
      const Index heads = d.c.group(b.rows.head) - d.c.group(first.block->rows.head);
      take_tokens(d.k, heads, w, first.k, u.k), take_tokens(d.v, heads, w, first.v, u.v);
    } else {
      find_tokens(d, d.tokens_of(u.region), u.region, u, w, u.k, u.k_copies);
      find_tokens(d, d.v, -1, u, w, u.v, u.v_copies);
    }
  }
  return count;
}

// Start values of the rows of a unit.
struct RowStarts {
  const float* at[kDecodeMostRows];  // null: 0
  double base[kDecodeMostRows];
  Index keys[kDecodeMostRows];
  Index most = 0;  // keys that some row reads
};
void find_starts(const DecodeCall& d, const Unit& u, Index slice, DecodeWork& w,
                 RowStarts& s) noexcept {
  w.left = d.left.subspan(d.at(slice, u.block->first), static_cast<std::size_t>(u.block->count));
  for (const RowGroup& g : u.block->groups) {
    StripStarts t;
    bool given = false;
    if (d.c.reads(g, u.keys)) {
      w.starts = w.all_starts.subspan(static_cast<std::size_t>(g.first * kStartsOfRow),
                                      static_cast<std::size_t>(g.count * kStartsOfRow));
      given = fill_numbers(d.c, w, g, u.keys, t) != Given::nothing;
    }
    for (Index n = 0; n < g.count; ++n) {
      const Index row = g.first + n;
      s.at[row] = given ? t.at[n] : nullptr;
      s.base[row] = t.keys > 0 ? t.base[n] : 0;
      s.keys[row] = t.keys;
      if (t.keys > 0 && !d.c.rows.none())
        s.at[row] = w.row_products.add(
            *u.block, row, {{u.keys.begin, u.keys.begin + t.keys}, u.k, w.zeros.data()},
            whole_vectors(t.keys, d.kernels.lanes), s.at[row], s.base[row]);
    }
    s.most = std::max(s.most, t.keys);
  }
}

// Keys that masks by pair hide from all rows may hold anything.
void hide_keys(const RowStarts& s, DecodeWork& w, Unit& u) noexcept {
  for (Index j = 0; j < u.keys.end - u.keys.begin; ++j) {
    bool seen = false;
    for (Index row = 0; row < u.block->count; ++row)
      seen = seen || (j < s.keys[row] && (s.at[row] == nullptr || s.at[row][j] != -HUGE_VALF));
    if (!seen) u.k[static_cast<std::size_t>(j)] = u.v[static_cast<std::size_t>(j)] = w.zeros.data();
  }
}

// Weights of row n of a block from its products. False: float cannot work with them.
bool find_row_weights(const DecodeCall& d, DecodeScans& scans, const Unit& u, Index slice,
                      bool careful, Index n, FastDecodeRow& r, DecodeWork& w) noexcept {
  const DecodeBlock& b = *u.block;
  const Index row = b.first + n;
  if (!d.c.weights.none()) {
    const FastRow& of = d.rows[static_cast<std::size_t>(row)];
    if (!d.c.weights.is_bounded(of.b, of.h)) return false;
    d.c.weight_kernels.multiply(r.x, d.c.weights.of(of) + u.keys.begin, r.keys);
  }
  if (breaks_sticks(d.c.args)) return scans.break_stick(row, slice, r);
  if (!scans.none()) {
    const RowGroup* group = b.groups.data();
    while (n >= group->first + group->count) ++group;
    if (!scans.add_levels(b, *group, n, slice, u.keys, r, w.scan)) return false;
  }
  if (d.c.is_capped() && !d.c.cap_kernels.decoded(r, w.hidden.data(), d.c.cap)) return false;
  if (!careful && d.kernels.weights(r)) return true;
  return d.kernels.rescale(r, d.out_of(slice, row), d.v.width / d.kernels.lanes);
}

// Of all rows, from the products of q with tokens `k`.
void find_weights(const DecodeCall& d, DecodeScans& scans, const Unit& u,
                  std::span<const void* const> k, Index slice, bool careful, const RowStarts& s,
                  DecodeWork& w) noexcept {
  const DecodeBlock& b = *u.block;
  if (!d.products->none()) d.products->add(b, u.keys, k, w.zeros.data(), u.x.data(), w.products);
  scans.multiply_gates(b, u.keys, k, w.zeros.data(), w.scan);
  for (Index n = 0; n < b.count; ++n) {
    float* x = u.x.data() + n * kDecodeKeys;
    if (s.keys[n] == 0) {
      std::fill_n(x, kDecodeKeys, 0.0f);
      continue;
    }
    const Index row = b.first + n;
    FastDecodeRow r;
    r.x = x, r.start = s.at[n], r.base = s.base[n], r.keys = s.keys[n];
    r.reference = d.reference.data() + d.at(slice, row);
    r.sums = d.sums_of(slice, row);
    const double before = *r.reference;
    if (find_row_weights(d, scans, u, slice, careful, n, r, w)) {
      w.row_values.add(b, n, u.keys, x, r.keys, *r.reference - before);
      continue;
    }
    w.left[static_cast<std::size_t>(n)] = 1;
    std::fill_n(x, kDecodeKeys, 0.0f);
  }
}

// The pairs of one region, of a unit that has several: its tokens of k, and start values that hide the others.
std::span<const void*> open_region(const DecodeCall& d, const Unit& u, int region, RowStarts& s,
                                   DecodeWork& w) noexcept {
  for (Index n = 0; n < u.block->count; ++n) {
    if (s.keys[n] == 0) continue;
    float* to = w.region_starts.data() + n * kDecodeKeys;
    d.c.regions.hide_others(region, d.rows[static_cast<std::size_t>(u.block->first + n)],
                            {u.keys.begin, u.keys.begin + s.keys[n]}, s.at[n],
                            whole_vectors(s.keys[n], d.kernels.lanes), to);
    s.at[n] = to;
  }
  if (region == u.region) return u.k;
  find_tokens(d, d.tokens_of(region), region, u, w, w.region_k, w.region_copies);
  for (std::size_t n = 0; n < w.region_k.size(); ++n)
    if (u.k[n] == w.zeros.data()) w.region_k[n] = w.zeros.data();
  return w.region_k;
}

FastDecodeHead head_of(const DecodeCall& d, const Unit& u, Index slice) noexcept {
  FastDecodeHead h;
  h.k = u.k.data(), h.v = u.v.data(), h.x = u.x.data();
  h.q = d.query_of(u.region, u.block->first), h.out = d.out_of(slice, u.block->first);
  return h;
}

void find_scores(const DecodeCall& d, const DecodeTokens& t, std::span<const FastDecodeHead> heads,
                 Index rows, DecodeWork& w) noexcept {
  FastDecodeHeads all = t.of(heads, rows, w.sums);
  if (!d.c.turns.none()) all.turns = d.c.turns.of(w.turn_rows.data());
  d.kernels.scores[t.type](all);
}

// Units of one block of keys, whose heads are read together.
void run_together(const DecodeCall& d, DecodeScans& scans, std::span<Unit> units, Index slice,
                  bool careful, DecodeWork& w) noexcept {
  const Index rows = units.front().block->count;
  RowStarts s;  // there is room for those of one unit
  for (Unit& u : units.first(d.c.filtered ? units.size() : 0)) {
    const bool differs = d.c.by_head || !d.c.starts.adds_nothing();  // from head to head
    if (differs || &u == units.data()) s = {}, find_starts(d, u, slice, w, s);
    hide_keys(s, w, u);
  }
  const std::span<FastDecodeHead> heads = w.heads.first(units.size());
  for (std::size_t n = 0; n < units.size(); ++n) heads[n] = head_of(d, units[n], slice);
  find_scores(d, d.k, heads, rows, w);
  for (std::size_t n = 0; n < units.size(); ++n) {
    const Unit& u = units[n];
    s = {}, find_starts(d, u, slice, w, s);
    heads[n].keys = s.most;
    if (s.most > 0) find_weights(d, scans, u, u.k, slice, careful, s, w);
  }
  d.kernels.values[d.v.type](d.v.of(heads, rows));
}

// A unit with keys that a mask hides pair by pair, or with regions.
void run_alone(const DecodeCall& d, DecodeScans& scans, Unit& u, Index slice, bool careful,
               DecodeWork& w) noexcept {
  RowStarts s;
  find_starts(d, u, slice, w, s);
  if (s.most == 0) return;
  if (d.c.filtered) hide_keys(s, w, u);
  const bool single = is_single(u.regions);
  Regions::each(u.regions, [&](int region) {
    RowStarts part = s;
    FastDecodeHead h = head_of(d, u, slice);
    const std::span<const void*> k = single ? u.k : open_region(d, u, region, part, w);
    h.k = k.data(), h.q = d.query_of(region, u.block->first), h.keys = s.most;
    find_scores(d, d.tokens_of(region), {&h, 1}, u.block->count, w);
    find_weights(d, scans, u, k, slice, careful, part, w);
    d.kernels.values[d.v.type](d.v.of({&h, 1}, u.block->count));
  });
}

// A piece: some blocks of rows against a slice of the keys; `careful`: those that are low again, relative to their
// largest scores.
void run_piece(const DecodeCall& d, DecodeScans& scans, Index set, Index slice, bool careful,
               DecodeWork& w) noexcept {
  for (Index m = 0; m < d.together; ++m) {
    const DecodeBlock& b = d.blocks[static_cast<std::size_t>(set * d.together + m)];
    if (careful && !b.low) continue;
    std::fill_n(d.out_of(slice, b.first), b.count * d.v.width, 0.0f);
    std::fill_n(d.sums_of(slice, b.first), b.count * d.kernels.lanes, 0.0f);
    std::fill_n(d.reference.data() + d.at(slice, b.first), b.count, 0.0);
    for (const RowGroup& g : b.groups)
      begin_references(d.c, g, d.tops.subspan(static_cast<std::size_t>(b.first)),
                       d.reference.data() + d.at(slice, b.first + g.first));
  }
  const std::span<const DecodeBlock> blocks(d.blocks.data() + set * d.together,
                                            static_cast<std::size_t>(d.together));
  if (!d.c.rows.none()) w.row_products.begin(blocks, slice);
  if (!d.c.value_rows.none()) w.row_values.begin(blocks, slice);
  const Run all{slice * kSliceKeys, std::min(d.c.Tk, (slice + 1) * kSliceKeys)};
  const Index count = block_count(all.end - all.begin, kDecodeKeys);
  const bool pairs = d.c.filtered && !(d.c.ranked && d.c.rows.none());  // read key by key
  const bool alone = pairs || !d.c.regions.none();
  for (Index n = 0; n < count; ++n) {
    // From the last to the first where something is summed over keys.
    const Index key = all.begin + (scans.none() ? n : count - 1 - n) * kDecodeKeys;
    const Run keys{key, std::min(all.end, key + kDecodeKeys)};
    const std::span<Unit> units =
        w.units.first(find_units(d, scans, blocks, slice, keys, careful, w));
    if (units.empty()) continue;
    if (!d.c.turns.none()) d.c.turns.fill(blocks[0].rows.row, keys, w.turn_rows.data());
    if (!alone) run_together(d, scans, units, slice, careful, w);
    for (Unit& u : units.first(alone ? units.size() : 0)) run_alone(d, scans, u, slice, careful, w);
  }
  if (!d.c.value_rows.none()) w.row_values.end(blocks, slice, careful);
}

// Blocks with a row whose weights are too small; true: there are some.
bool find_low_blocks(const DecodeCall& d) noexcept {
  bool any = false;
  for (DecodeBlock& b : d.blocks) {
    for (Index n = b.first; n < b.first + b.count; ++n) {
      const FastRow& r = d.rows[static_cast<std::size_t>(n)];
      b.low = b.low || (sum_of_slices(d, n).sum < static_cast<double>(kSmallestSum) &&
                        sees_any(d.c, r.b, r.h, r.i, r.place));
    }
    any = any || b.low;
  }
  return any;
}

}  // namespace

void decode_rows(const FastCall& c, const AttentionResult& result, std::uint8_t* left,
                 CallArena& arena, const Executor& executor) {
  DecodeCall d(c, arena);
  DecodeScans scans(d, arena);
  DecodeProducts products(d, arena);
  d.products = &products;
  const Index most = most_tasks(c);
  const Index tasks = task_count(executor, c.B * c.G * c.Tq * d.slices, most);
  const std::span<DecodeWork> works =
      arena.made<DecodeWork>(tasks, [&](Index) { return DecodeWork(d, arena); });
  if (arena.counts()) return;
  d.take_queries(products);
  scans.begin(!result.log_sum_exp.empty());
  const Index sets = static_cast<Index>(d.blocks.size()) / d.together;
  for (const bool careful : {false, true}) {
    if (careful && (breaks_sticks(c.args) || !find_low_blocks(d))) break;
    const auto run = [&](Index first, Index slices) {
      each_piece(executor, sets * slices, tasks, [&](Index n, Index task) noexcept {
        run_piece(d, scans, n / slices, first + n % slices, careful,
                  works[static_cast<std::size_t>(task)]);
      });
    };
    Index rest = d.slices;
    for (bool counts = !scans.none(); counts && rest > 0;) {
      scans.begin_slice(--rest);
      run(rest, 1);
      counts = scans.counts(rest, careful);
    }
    if (!scans.none()) scans.begin_rest(rest);
    if (rest > 0) run(0, rest);
  }
  parallel_for(executor, static_cast<Index>(d.blocks.size()), tasks,
               [&](Index begin, Index end, Index task) noexcept {
                 for (Index n = begin; n < end; ++n)
                   put_decoded(d, scans, d.blocks[static_cast<std::size_t>(n)], result, left,
                               works[static_cast<std::size_t>(task)].scan);
               });
}

}  // namespace posenc::v0::detail
