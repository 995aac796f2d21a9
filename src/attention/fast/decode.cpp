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
constexpr std::size_t kSlots = 3;   // units whose tokens are known: the one at work and two more

// A block of rows against a block of keys; `seen`: some row sees keys of these, and none others.
struct Unit {
  const DecodeBlock* block = nullptr;  // null: there is none
  Run keys{0, 0}, seen{0, 0};
};

// The units of a piece in their order: keys outside, blocks of rows inside. Keys from the last to the first where something
// is summed over them.
class Units {
 public:
  Units(const DecodeCall& d, const DecodeScans& scans, Index set, Index slice,
        bool low_only) noexcept
      : d_(d),
        scans_(scans),
        first_(d.blocks.data() + set * d.together),
        slice_(slice),
        low_only_(low_only),
        block_(first_),
        begin_(slice * kSliceKeys),
        end_(std::min(d.c.Tk, (slice + 1) * kSliceKeys)),
        count_(block_count(end_ - begin_, kDecodeKeys)) {}
  Unit next() noexcept {
    for (; at_ < count_; ++at_, block_ = first_)
      while (block_ < first_ + d_.together) {
        const Unit u = unit_of(*block_++);
        if (u.block != nullptr) return u;
      }
    return {};
  }

 private:
  Unit unit_of(const DecodeBlock& b) const noexcept {
    if (low_only_ && !b.low) return {};
    const Index key = begin_ + (scans_.none() ? at_ : count_ - 1 - at_) * kDecodeKeys;
    const Run keys{key, std::min(end_, key + kDecodeKeys)}, seen = d_.c.seen_by(b.groups, keys);
    if (seen.begin >= seen.end || scans_.is_done(b, slice_)) return {};
    return {&b, keys, seen};
  }

  const DecodeCall& d_;
  const DecodeScans& scans_;
  const DecodeBlock* first_;
  Index slice_;
  bool low_only_;
  const DecodeBlock* block_;
  Index begin_, end_, count_, at_ = 0;
};

// A unit and where its tokens lie. Of k those of the first of its regions.
struct Slot {
  Unit unit;
  RegionSet regions = kNoRegion;
  int region = -1;
  std::span<const void*> k, v;
  std::span<float> k_copies, v_copies;
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
        row_products(d, arena),
        row_values(d, arena),
        products(d, arena),
        scan(d, arena) {
    x = arena.array<float>(kDecodeMostRows * kDecodeKeys);
    all_starts = arena.array<float>(kDecodeMostRows * kStartsOfRow);
    zeros = arena.array<std::byte>(static_cast<Index>(sizeof(float)) * widest_token(d));
    hidden = arena.array<float>(kDecodeKeys);
    const bool has_regions = !d.c.regions.none();
    region_k = arena.array<const void*>(has_regions ? kDecodeKeys : 0);
    region_copies = arena.array<float>(has_regions ? kDecodeKeys * d.k.width : 0);
    for (Slot& s : slots) {
      s.k = arena.array<const void*>(kDecodeKeys), s.v = arena.array<const void*>(kDecodeKeys);
      s.k_copies = arena.array<float>(d.k.copied || has_regions ? kDecodeKeys * d.k.width : 0);
      s.v_copies = arena.array<float>(d.v.copied ? kDecodeKeys * d.v.width : 0);
    }
    if (arena.counts()) return;
    std::fill(zeros.begin(), zeros.end(), std::byte{0});
  }
  std::span<float> x;           // [rows][kDecodeKeys]: scores, then weights
  std::span<float> all_starts;  // [rows][kStartsOfRow]
  std::span<std::byte> zeros;   // a token that no row sees
  std::span<float> hidden;      // start values of a row whose numbers are under the cap
  std::array<Slot, kSlots> slots;
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

void fill_slot(const DecodeCall& d, Units& units, Slot& s, DecodeWork& w) noexcept {
  s.unit = units.next();
  if (s.unit.block == nullptr) return;
  if (!d.c.regions.none()) {
    s.regions = 0;
    for (const RowGroup& g : s.unit.block->groups) s.regions |= d.c.regions.of(g, s.unit.keys);
    s.region = std::countr_zero(s.regions) - 1;
  }
  find_tokens(d, d.tokens_of(s.region), s.region, s.unit, w, s.k, s.k_copies);
  find_tokens(d, d.v, -1, s.unit, w, s.v, s.v_copies);
}

// Start values of the rows of a unit.
struct RowStarts {
  const float* at[kDecodeMostRows];  // null: 0
  double base[kDecodeMostRows];
  Index keys[kDecodeMostRows];
  Index most = 0;  // keys that some row reads
};
void find_starts(const DecodeCall& d, const Slot& slot, DecodeWork& w, RowStarts& s) noexcept {
  const Unit& u = slot.unit;
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
            *u.block, row, {{u.keys.begin, u.keys.begin + t.keys}, slot.k, w.zeros.data()},
            whole_vectors(t.keys, d.kernels.lanes), s.at[row], s.base[row]);
    }
    s.most = std::max(s.most, t.keys);
  }
}

// Keys that masks by pair hide from all rows may hold anything.
void hide_keys(const Unit& u, const RowStarts& s, DecodeWork& w, Slot& slot) noexcept {
  for (Index j = 0; j < u.keys.end - u.keys.begin; ++j) {
    bool seen = false;
    for (Index row = 0; row < u.block->count; ++row)
      seen = seen || (j < s.keys[row] && (s.at[row] == nullptr || s.at[row][j] != -HUGE_VALF));
    if (!seen)
      slot.k[static_cast<std::size_t>(j)] = slot.v[static_cast<std::size_t>(j)] = w.zeros.data();
  }
}

FastPrefetch prefetch_of(const DecodeTokens& t, const Slot& s, std::span<const void*> tokens) {
  if (s.unit.block == nullptr || t.copied) return {};
  return {tokens.data(), t.bytes};
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

void find_weights(const DecodeCall& d, DecodeScans& scans, const Unit& u, Index slice, bool careful,
                  const RowStarts& s, DecodeWork& w) noexcept {
  const DecodeBlock& b = *u.block;
  for (Index n = 0; n < b.padded; ++n) {
    float* x = w.x.data() + n * kDecodeKeys;
    if (n >= b.count || s.keys[n] == 0) {
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
std::span<const void*> open_region(const DecodeCall& d, const Slot& slot, int region, RowStarts& s,
                                   DecodeWork& w) noexcept {
  const Unit& u = slot.unit;
  for (Index n = 0; n < u.block->count; ++n) {
    if (s.keys[n] == 0) continue;
    float* to = w.region_starts.data() + n * kDecodeKeys;
    d.c.regions.hide_others(region, d.rows[static_cast<std::size_t>(u.block->first + n)],
                            {u.keys.begin, u.keys.begin + s.keys[n]}, s.at[n],
                            whole_vectors(s.keys[n], d.kernels.lanes), to);
    s.at[n] = to;
  }
  if (region == slot.region) return slot.k;
  find_tokens(d, d.tokens_of(region), region, u, w, w.region_k, w.region_copies);
  for (std::size_t n = 0; n < w.region_k.size(); ++n)
    if (slot.k[n] == w.zeros.data()) w.region_k[n] = w.zeros.data();
  return w.region_k;
}

// One unit; `next` and `after` follow it.
void run_unit(const DecodeCall& d, DecodeScans& scans, Slot& slot, const Slot& next,
              const Slot& after, Index slice, bool careful, DecodeWork& w) noexcept {
  const Unit& u = slot.unit;
  const DecodeBlock& b = *u.block;
  w.left = d.left.subspan(d.at(slice, b.first), static_cast<std::size_t>(b.count));
  RowStarts s;
  find_starts(d, slot, w, s);
  if (s.most == 0) return;
  if (d.c.filtered) hide_keys(u, s, w, slot);
  FastPrefetch values = prefetch_of(d.v, next, next.v),
               keys = prefetch_of(d.tokens_of(after.region), after, after.k);
  const auto run = [&](int region, std::span<const void* const> k, const RowStarts& starts) {
    const DecodeTokens& t = d.tokens_of(region);
    each_decode_kernel(b.padded, [&](Index row, std::size_t kind) {
      d.kernels.scores[kind][t.type](w.x.data() + row * kDecodeKeys,
                                     d.query_of(region, b.first + row), d.k.width, k.data(),
                                     t.channels, values);
      values = {};
    });
    if (!d.products->none()) d.products->add(b, u.keys, k, w.zeros.data(), w.x.data(), w.products);
    scans.multiply_gates(b, u.keys, k, w.zeros.data(), w.scan);
    find_weights(d, scans, u, slice, careful, starts, w);
    each_decode_kernel(b.padded, [&](Index row, std::size_t kind) {
      d.kernels.values[kind][d.v.type](d.out_of(slice, b.first + row), d.v.width,
                                       w.x.data() + row * kDecodeKeys, slot.v.data(), s.most,
                                       d.v.channels, keys);
      keys = {};
    });
  };
  if (is_single(slot.regions)) return run(slot.region, slot.k, s);
  Regions::each(slot.regions, [&](int region) {
    RowStarts part = s;
    const std::span<const void*> k = open_region(d, slot, region, part, w);
    run(region, k, part);
  });
}

// A piece: some blocks of rows against a slice of the keys; `careful`: those that are low again, relative to their
// largest scores.
void run_piece(const DecodeCall& d, DecodeScans& scans, Index set, Index slice, bool careful,
               DecodeWork& w) noexcept {
  for (Index m = 0; m < d.together; ++m) {
    const DecodeBlock& b = d.blocks[static_cast<std::size_t>(set * d.together + m)];
    if (careful && !b.low) continue;
    std::fill_n(d.out_of(slice, b.first), b.padded * d.v.width, 0.0f);
    std::fill_n(d.sums_of(slice, b.first), b.padded * d.kernels.lanes, 0.0f);
    std::fill_n(d.reference.data() + d.at(slice, b.first), b.padded, 0.0);
    for (const RowGroup& g : b.groups)
      begin_references(d.c, g, d.tops.subspan(static_cast<std::size_t>(b.first)),
                       d.reference.data() + d.at(slice, b.first + g.first));
  }
  const std::span<const DecodeBlock> blocks(d.blocks.data() + set * d.together,
                                            static_cast<std::size_t>(d.together));
  if (!d.c.rows.none()) w.row_products.begin(blocks, slice);
  if (!d.c.value_rows.none()) w.row_values.begin(blocks, slice);
  Units units(d, scans, set, slice, careful);
  std::size_t at = 0;
  for (Slot& s : w.slots) fill_slot(d, units, s, w);
  while (w.slots[at].unit.block != nullptr) {
    Slot &slot = w.slots[at], &next = w.slots[(at + 1) % kSlots];
    run_unit(d, scans, slot, next, w.slots[(at + 2) % kSlots], slice, careful, w);
    fill_slot(d, units, slot, w);
    at = (at + 1) % kSlots;
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
