// SPDX-License-Identifier: Apache-2.0
// What the fast engine reads of a call, and the memory of one thread.
#pragma once
#include "attention/fast/bias_starts.h"
#include "attention/fast/content_weights.h"
#include "attention/fast/far_keys.h"
#include "attention/fast/gates.h"
#include "attention/fast/key_flags.h"
#include "attention/fast/key_turns.h"
#include "attention/fast/prepare.h"
#include "attention/fast/regions.h"
#include "attention/fast/row_blocks.h"
#include "attention/fast/row_starts.h"
#include "attention/fast/sticks.h"
#include "attention/fast/value_rows.h"
#include "attention/fast/wide_products.h"
#include "attention/fast/word_strips.h"
#include "kernels/attention/fast_capped.h"
#include "posenc/attention/attend.h"

namespace posenc::inline v0::detail {

// lanes: a power of 2. A division would take as long as a row of a short sequence.
inline Index whole_vectors(Index count, Index lanes) noexcept {
  return (count + lanes - 1) & -lanes;
}
inline bool is_whole_vectors(Index count, Index lanes) noexcept {
  return (count & (lanes - 1)) == 0;
}

// Element `at` of a tensor and the channels after it; copied to `memory` where they are not adjacent.
const void* adjacent(const ConstHeads&, Index at, std::byte* memory) noexcept;

struct FastCall : ReadyCall {
  FastCall(const ReadyCall&, const LoweredCall&, Keep, CallArena&, const Executor&);

  const FastKernels& kernels;
  const FastReadKernels& row_reads;
  ConstHeads q, k;                     // as prepared
  bool copies_keys = false;            // k is a copy, without pages
  std::span<const RegionSet> sets;     // PreparedQK::sets
  std::span<const std::uint8_t> seen;  // PreparedQK::seen
  std::span<const StageInput> before;  // PreparedQK::before
  Starts starts;
  WideProducts wide;
  Index channels;    // of q.k: D and those of wide products
  Index head_parts;  // of the heads that share keys, backward: a part is a piece of work
  // Whether no two pieces add to the same number of a gradient with so many batch entries and heads.
  bool are_owned(Index batches, Index heads) const noexcept {
    const Index share = H / G;
    return (B == 1 || batches == B) && (head_parts == 1           ? heads % G == 0
                                        : share % head_parts == 0 ? heads % (G * head_parts) == 0
                                                                  : heads == H);
  }
  RowTerms rows;
  ValueRows value_rows;
  Gates gates;
  ContentWeights weights;
  Regions regions;
  const WordKernels* words;  // null: q, k, weights and v are multiplied in float
  Index channel_words;
  StripShape strips;
  KeyTurns turns;  // not none: k is that of the call
  BlockShape block_shape() const noexcept;
  std::span<const FastRowBlock> blocks;
  KeyFlags flags;
  bool filtered;  // some mask is read for each pair
  bool ranked;    // reads_ranks
  BiasStarts bias;
  bool by_head;  // some mask differs from head to head
  bool alike;    // are_places_alike
  Index panel, value_vectors, value_panels;
  std::span<const float> key_lengths;  // find_key_lengths
  // All keys are one block: a strip is done before the next one begins, and both use one place for q and sums.
  bool one_block = false;

  // Whether some row of a group may see a key of these.
  bool reads(const RowGroup& g, Run keys) const noexcept {
    return sees(g, keys) && !flags.hides_all(g.row->place.row, keys);
  }

  // Something is summed over the keys from the last one on.
  bool passes_back() const noexcept { return !gates.none() || breaks_sticks(args); }
  // Heads that read one k read other numbers of keys.
  bool splits_groups() const noexcept {
    return wide.splits_groups() || gates.splits_groups() || regions.splits_groups();
  }

  // From the first to the last of some keys that a row of these groups may see; the end lies before the begin where none
  // may.
  template <class Groups>
  Run seen_by(const Groups& groups, Run keys) const noexcept {
    Run all{keys.end, keys.begin};
    for (const RowGroup& g : groups)
      if (reads(g, keys))
        all = {std::min(all.begin, std::max(keys.begin, g.seen.begin)),
               std::max(all.end, std::min(keys.end, g.seen.end))};
    return all;
  }

  const FastGateKernels& gate_kernels;
  const FastStickKernels& stick_kernels;
  const FastWeightKernels& weight_kernels;
  const FastCapKernels& cap_kernels;
  FastCap cap;  // of scores; 0: none
  bool is_capped() const noexcept { return cap.cap != 0; }

  std::size_t copy_bytes = 0;  // of a token whose channels are not adjacent

  // One row of queries, and which keys it may see.
  FastRow row(Index b, Index h, Index i) const noexcept;
  Index entry_of(const FastRow&) const noexcept;

  // The factor of q.k.
  double row_factor(Index b, Index h, Index i) const noexcept {
    return *args.scale * head_scale(b, h) * factor(b, i) + wide.content_scale() * factor(b, i);
  }
  // A row of q times its factor and log2(e), with the channels of wide products; the rest of `width` is 0. False: float
  // cannot work with it.
  bool take_query(Index b, Index h, Index i, float* to, Index width) const noexcept;

  // Token j of a row of keys or values; its channels are adjacent, or copied to `memory`.
  const void* token(const ConstHeads&, Index row, Index group, Index j,
                    std::byte* memory) const noexcept;
  // Where tokens of some keys lie; null: those that no row of `seen` reads. `copies` has copy_bytes for each.
  void fill_tokens(const ConstHeads&, Index row, Index group, Run keys, Run seen, std::byte* copies,
                   const void** to) const noexcept;
  // Whether the copy of k holds the key as a region has it, or no pair of its tile lies in that.
  bool is_in_place(int region, Index row, Index j) const noexcept;
  // The same of the k of a region, which has no pages.
  void fill_region_tokens(int number, Index row, Index head, Run keys, Run seen, std::byte* copies,
                          const void** to) const noexcept;
};

// Rows that one thread works on, and the start values of a group of them.
struct FastRowWork {
  FastRowWork(const FastCall&, Index rows, Index block_keys, CallArena&);

  Index block_keys;           // of a block of keys, at most
  BoundedList<FastRow> rows;  // of the block, groups one after the other
  BoundedList<RowGroup> groups;
  FastRowBlock found{-1, 0, 0, 0, 0, 0};  // whose rows these are
  std::span<double> tops;                 // by row: find_tops; empty: no line is steep
  std::span<std::uint8_t> left;           // by row: another engine must compute it
  // By row: all start values of a block of keys were below kFar, and it was left out. Empty: such rows are left.
  std::span<std::uint8_t> skips;
  std::span<float> starts;  // [rows of a group][keys of a block]
  std::span<double> start;  // of one row and a block of keys
  RunList runs;
  std::span<Index> pieces;  // by row: DistanceCurve::write
  std::span<RowTermWork> row_terms;
  std::span<float> row_starts;     // like `starts`, where those belong to others
  std::span<float> region_starts;  // the same, of one region
  std::span<FastRun> key_runs;     // RowClasses::clip
  std::span<std::int32_t> picks;   // rows of a table, of one row and a block of keys
  ClassWork classes;
  PictureWork pictures;
  PackedKeys packed_keys{nullptr, {}, 0, {0, 0}};
  std::span<std::byte> copies;  // of tokens whose channels are not adjacent
};
// Rows of a block, head by head, in groups; the rest of a head in smaller ones.
void find_rows(const FastCall&, const FastRowBlock&, FastRowWork&) noexcept;

// Of regions. `packed`, `unbounded`: regions whose keys of the block are, and those of which float does not hold a number.
struct RegionWork {
  std::span<float> q, keys;  // [regions] of FastWork::q and keys
  RegionSet packed = 0, unbounded = 0;
};

// Memory of one thread: rows of a block, a block of keys and values, one strip.
struct FastWork : FastRowWork {
  FastWork(const FastCall&, CallArena&);

  std::span<std::byte> query_copies;  // of rows of q whose channels are not adjacent
  std::span<float> q;                 // [slots][channels], times scale and log2(e)
  std::span<float> out;               // [groups][value panels][rows of the strip][panel], by slot
  std::span<float> sums;              // [slots][lanes]
  std::span<float> totals;            // [rows]: of the lanes
  std::span<double> reference;        // [rows]
  std::span<float> keys, values;      // packed
  std::span<float> weights;           // [rows of a strip][keys of a block]
  std::span<ValueRowWork> value_rows;
  RegionWork regions;
  GateWork gates;
  StickWork sticks;
  WordWork words;
  std::span<const void*> tokens;

  const float* region_q(int number) const noexcept {
    return number < 0 ? q.data() : regions.q.data() + static_cast<std::size_t>(number) * q.size();
  }
};

// q of a group. Rows that float cannot work with are left.
void take_queries(const FastCall&, FastWork&, const RowGroup&) noexcept;
// The same of all rows in the regions.
void take_region_queries(const FastCall&, FastWork&) noexcept;
// Packed keys of a region; null: float cannot work with one of them.
const float* pack_region(const FastCall&, const FastRowBlock&, int number, Run keys,
                         FastWork&) noexcept;
// Where a call writes its rows. left, by row of the call: another engine must compute it.
struct RowOutput {
  const AttentionResult& result;
  std::uint8_t* left;
};
// Scores, weights and, unless value_vectors is 0, values of all rows of the block. Groups are written one by one, as soon
// as all of their keys are added; to null: `totals` and `left` of the work are all that is wanted. next: the block after
// this one, if it is known.
void run_rows(const FastCall&, const FastRowBlock&, const FastRowBlock* next, FastWork&,
              const RowOutput* to) noexcept;
// The sum of weights with the sink, relative to the reference of the row, and the log-sum-exp where it is wanted.
struct RowTotal {
  double sum, log_sum_exp;
  bool leaves = false;  // another engine must compute the row
};
RowTotal total_of(const FastCall&, double sum, double reference, Index head, bool wanted) noexcept;
inline RowTotal total_of(const FastCall& c, const FastWork& w, Index head, Index row,
                         bool wanted) noexcept {
  const auto n = static_cast<std::size_t>(row);
  return total_of(c, static_cast<double>(w.totals[n]), w.reference[n], head, wanted);
}
// Writes rows, but those that leave: `from`, as FastStrip::out holds a strip of so many, over the sums of their weights.
void put_rows(const FastCall&, const FastRow*, const RowTotal*, Index count, const float* from,
              Index strip_rows, const AttentionResult&) noexcept;
// Writes the rows of a group.
void put_group(const FastCall&, FastWork&, const RowGroup&, const RowOutput&) noexcept;
// Below this sum of weights a row is computed again, relative to its largest score: floats lose what is smaller.
inline constexpr float kSmallestSum = 0x1p-20f;

// Start values of the rows of a strip, and what is added to them.
struct StripStarts {
  const float* at[kMostStripRows];
  double base[kMostStripRows];
  float shift[kMostStripRows];
  Index keys = 0;  // that some row sees, from the first on
};
// Of a block of keys that some row sees; -inf where a row does not see a key. False: all of them are 0, and none is
// written. Rows whose values float cannot work with are left.
bool fill_starts(const FastCall&, FastRowWork&, const RowGroup&, Run keys, StripStarts&) noexcept;
// Hides the pairs of other regions: writes the start values of all rows, which others may read too. given: as fill_starts
// returned. Returns a run that contains the keys of the region; `keys` of the starts end with it.
Run hide_other_regions(const FastCall&, const FastRowWork&, const RowGroup&, int number, Run keys,
                       bool given, StripStarts&) noexcept;
// Where they are 0, pointers to zeros; and the numbers that multiply q.k of a strip, of each row from a key on.
void fill_zeros(const FastCall&, const RowGroup&, StripStarts&) noexcept;
void fill_weights(const FastCall&, const RowGroup&, Index key, const float** weight) noexcept;
// Adds the numbers of classes to the start values of a strip.
Given add_class_numbers(const FastCall&, FastRowWork&, const RowGroup&, Run keys, Given,
                        StripStarts&) noexcept;
// The same without terms that read rows.
Given fill_numbers(const FastCall&, FastRowWork&, const RowGroup&, const Run& keys,
                   StripStarts&) noexcept;

}  // namespace posenc::v0::detail
