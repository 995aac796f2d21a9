// SPDX-License-Identifier: Apache-2.0
// A call made ready for the exact engine: everything in double, by heads, prepared.
#pragma once
#include <span>
#include <vector>

#include "attention/call/ready_call.h"
#include "attention/call/visible_runs.h"
#include "attention/exact/load_vectors.h"
#include "attention/lowered/lowered_call.h"
#include "kernels/attention/exact_rows.h"
#include "posenc/attention/attention.h"
#include "posenc/core/executor.h"

namespace posenc::inline v0::detail {

// [batch|1, groups, rows, channels], dense. No rows: not given.
struct DenseSlabs {
  Index batch = 1, groups = 1;
  // What serves head h of `heads`.
  Index slab(Index b, Index h, Index heads) const noexcept {
    return (batch == 1 ? 0 : b) * groups + Grouping{heads, groups}.of(h);
  }
};
struct DenseTable : DenseSlabs {
  std::span<const double> x;
  Index rows = 0, channels = 0;
  bool given() const noexcept { return rows > 0; }
  Index at(Index b, Index h, Index heads) const noexcept {
    return slab(b, h, heads) * rows * channels;
  }
};

// A given factor, [batch|1, groups, tokens|1, channels]; tiles where dots with all tokens are made.
struct DenseFactor : DenseSlabs {
  std::span<const double> x, tiles;
  bool content = false;  // the call's own q or k instead of x
  Index tokens = 0, channels = 0;
  bool given() const noexcept { return channels > 0; }
  Index at(Index b, Index h, Index heads) const noexcept {
    return slab(b, h, heads) * tokens * channels;
  }
  Index step() const noexcept { return tokens == 1 ? 0 : channels; }
};

struct DenseMlp {
  std::span<const double> in, in_bias, out, out_bias;
  Index units = 0, channels = 0, kernel = 1, out_groups = 1, bias_groups = 1;
  double slope = 0;
  double act(double y) const noexcept { return y < 0 ? slope * y : y; }
  double act_slope(double y) const noexcept { return y < 0 ? slope : 1; }
};

struct TermView {
  const Term* term = nullptr;
  double scale = 1;
  DenseTable table;
  DenseFactor query, key;
  DenseMlp mlp;
  // Over consecutive keys what goes by distance is a band: that of (i, j) is at j + band_at. Null: none.
  const Band* band = nullptr;
  bool adds_band = false;  // the term adds the band's values and nothing else
  std::int32_t band_axis = 0;
};

struct RegionView {
  std::span<const double> q, k;  // [B, H, Tq, D], [R, groups, Tk, D]
  Index groups = 1;
  const RotaryPlan* rotation = nullptr;  // of the call's own q and k
};

struct CallView : ReadyCall {
  // `lowered` and the arena must outlive the view. With a counting arena no element is read.
  CallView(const ReadyCall&, const LoweredCall& lowered, bool backward, CallArena&,
           const Executor&);

  LoweredCall lowered;

  const ExactRowKernels& lanes = exact_row_kernels(active_isa());
  // Of q, k and v as prepared. Keys that no query may see are not written.
  std::span<double> q, k, v;           // [B, H, Tq, D], [R, G, Tk, D], [.., V]
  std::span<double> k_tiles, v_tiles;  // v_tiles: backward
  // Of each stage but rotations: backward.
  std::span<std::span<double>> q_before, k_before;
  // Of each stage that rotates: of the plan, or made for the call.
  std::span<const RotaryPlan*> rotations;
  std::vector<RotaryPlan> own_rotations;
  // Where `streams`, k, v and their tiles are empty: rows of scores read the sources.
  VectorSource key_source, value_source;
  bool streams = false;
  std::span<const std::uint8_t> seen;  // [R, tiles]: some query may see a key of the tile
  std::span<const TermView> terms;
  std::span<RegionView> regions;
  std::span<const double> mix_before, mix_after;  // [H, H]

  bool is_seen(Index r, Index tile) const noexcept {
    return seen[static_cast<std::size_t>(r * (whole_tiles(Tk) / kTile) + tile)] != 0;
  }
  // fn(run) for the keys of the tiles of a row that some query may see.
  template <class F>
  void each_seen_run(Index r, const F& fn) const {
    const Index tiles = whole_tiles(Tk) / kTile, last = key_end(r);
    for (Index t = 0; t < tiles; ++t) {
      if (!is_seen(r, t)) continue;
      const Index first = t;
      while (t + 1 < tiles && is_seen(r, t + 1)) ++t;
      if (const Run run{first * kTile, std::min(last, (t + 1) * kTile)}; run.begin < run.end)
        fn(run);
    }
  }
  // Keys of a row that are in memory: pages beyond key_length are not.
  Index key_end(Index r) const noexcept {
    return args.block_table.empty() ? Tk : read_index(args.mask.key_length, r);
  }
  const double* query_row(Index b, Index h, Index i) const noexcept {
    return q.data() + ((b * H + h) * Tq + i) * D;
  }
};

// call_load.cpp: dense copies.
TermView view_of(const CallView&, std::size_t term, bool backward, CallArena&);
// stages.cpp: q, k and v through `prepare`, and gradients of them back into the caller's.
void run_stages(CallView&, bool backward, CallArena&, const Executor&);
// Keys of one group through the stages, [tokens, D], where the call streams them.
void run_key_stages(const CallView&, Index r, Index g, Run some, double* k) noexcept;
// Gradients of q, k and v as prepared. array_sums: for the largest array of a stage.
// And of regions whose q and k are those of the call, rotated.
struct RegionPull {
  std::span<double> q, k;
};
struct StagePull {
  std::span<double> q, k, v, array_sums;
  std::span<const RegionPull> regions;
};
void pull_stages(const CallView&, const StagePull&, const AttentionGradients&, const Executor&);

}  // namespace posenc::v0::detail
