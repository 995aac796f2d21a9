// SPDX-License-Identifier: Apache-2.0
// Gates between key and query. CoPE: a row counts them from its last key to its first, and reads its levels q.t at the
// count (kernels/attention/fast_gates.h). Once a row has counted up to the last level, all keys before have that one:
// strips of such rows are those of a call without gates. So blocks of keys are passed from the last to the first. Without a
// table (forgetting, a gate for each pair) the sum itself is added, and no row is done before its first key.
#pragma once
#include <span>
#include <string_view>

#include "attention/fast/row_blocks.h"
#include "kernels/attention/fast_gates.h"
#include "kernels/attention/fast_reads.h"
#include "posenc/core/executor.h"

namespace posenc::inline v0::detail {

struct FastCall;
struct FastWork;
struct StripStarts;

// The term of a call, and its table.
class Gates {
 public:
  Gates(const ReadyCall&, const FastKernels&, CallArena&, const Executor&);

  static bool has(const Term&) noexcept;
  // Why the gates of a call are not computed here; empty: they are, or there are none.
  static std::string_view why_not(const ReadyCall&) noexcept;

  bool none() const noexcept { return term_ == nullptr; }
  const GatesTerm& term() const noexcept { return *term_; }
  bool has_levels() const noexcept { return last_ >= 0; }
  Index last() const noexcept { return last_; }  // level; -1: none
  // What a gate adds to a score, times log2(e). Without levels.
  double rise() const noexcept;
  // Of a row of levels, in memory.
  Index level_stride() const noexcept { return level_stride_; }
  // Whether gates have products of their own, other than those of q and k. Of keys: panels of their own.
  bool has_products() const noexcept { return channels_ > 0; }
  bool has_keys() const noexcept { return has_products() && !term_->key.content; }
  // Heads that read one k have keys of gates of their own.
  bool splits_groups() const noexcept { return has_keys() && call_.G % keys_.heads != 0; }
  Index channels() const noexcept { return channels_; }  // 0: those of q.k
  // q.k of the scores times this are products of gates.
  float ratio() const noexcept { return ratio_; }
  const ConstHeads& keys() const noexcept { return keys_; }
  const float* table(Index slab) const noexcept { return table_.data() + slab * slab_size_; }
  bool are_bounded() const noexcept;  // all slabs, and the ratio
  // Whether float holds the vectors of a key that gates have, for all heads. memory: [channels].
  bool is_key_bounded(const FastKernels&, Index row, Index j, float* memory) const noexcept;
  // Of one head.
  bool are_bounded_of(Index b, Index h) const noexcept;

 private:
  void pack_table(const FastKernels&, CallArena&);

  const ReadyCall& call_;
  const GatesTerm* term_ = nullptr;
  Index last_ = -1, level_stride_ = 0, channels_ = 0, slab_size_ = 0;
  float ratio_ = 1;
  ConstHeads keys_{};                      // that gates have; f32, f16 or bf16
  std::span<const float> table_;           // [slab][panels of rows][channels][panel]
  std::span<const std::uint8_t> bounded_;  // [slab]
};

// Of one thread.
struct GateWork {
  GateWork(const FastCall&, Index rows, Index block_keys, CallArena&);

  std::span<float> levels;    // [rows][level_stride]
  std::span<double> count;    // [rows]: gates of the keys behind
  std::span<float> q;         // [rows][channels]: of gates that have products
  std::span<float> keys;      // packed
  std::span<float> products;  // [rows of a strip][keys of a block]
  std::span<float> vectors;   // [rows of a strip][channels of q]
};

// The vector of a query whose products with the table are levels: 0 if there are none. False: float does not hold it.
bool take_level_query(const FastCall&, const FastRow&, float* to) noexcept;
// The vector of a query whose products with those of keys are gates that have products. The same.
bool take_gate_query(const FastCall&, const FastRow&, float* to) noexcept;
// Levels of the rows of a group from these vectors, [rows][level_stride].
void fill_levels(const FastCall&, const RowGroup&, const float* vectors, float* levels) noexcept;
// Keys of a block whose gates do not count, by row. False: all count.
bool find_own_keys(const FastCall&, const RowGroup&, Run keys, Index* own) noexcept;
// Levels and vectors of the rows of a block. Rows that float cannot work with are left.
void take_gates(const FastCall&, FastWork&) noexcept;
// Before the blocks of keys of a group.
void clear_gates(const FastCall&, FastWork&, const RowGroup&) noexcept;
// Whether a row of a group has not counted up to the last level.
bool counts_gates(const FastCall&, const FastWork&, const RowGroup&) noexcept;
// What gates are, for kernels.
void describe_gates(const Gates&, FastGates&) noexcept;
// The vectors of a block of keys that gates have. False: a number of them is none that float can work with.
bool pack_gate_keys(const FastCall&, FastWork&, const FastRowBlock&, Run keys, Run seen) noexcept;
// Adds the last level, or without levels the gates behind, to what a strip is relative to.
void add_gates_behind(const FastCall&, const FastWork&, const RowGroup&, StripStarts&) noexcept;
// Weights and values of a strip. False: it must be done again, carefully.
bool run_gated_strip(const FastCall&, FastWork&, const RowGroup&, Run keys, const FastBlock&,
                     const FastStrip&, bool careful) noexcept;

}  // namespace posenc::v0::detail
