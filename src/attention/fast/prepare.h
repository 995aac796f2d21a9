// SPDX-License-Identifier: Apache-2.0
// q and k through the stages of a call, in float: copies of both, [B, T, heads, D]. Their gradients back through the
// same stages.
#pragma once
#include <algorithm>
#include <span>
#include <string_view>

#include "attention/call/ready_call.h"
#include "attention/fast/regions.h"
#include "attention/lowered/lowered_call.h"
#include "core/parallel.h"
#include "kernels/attention/args.h"
#include "posenc/core/rotation.h"

namespace posenc::inline v0::detail {

// One tensor on its way: float, [B, T, heads, D].
struct StageCopy {
  float* x = nullptr;
  Index batch = 0, tokens = 0, heads = 0, dim = 0;
  // Of k: one flag a tile, [rows of keys, tiles]. Tiles that no query may see hold anything. Empty: all are.
  std::span<const std::uint8_t> seen{};
  std::span<const Index> ends{};  // of k in pages: tokens of each row that are there

  Index end(Index b) const noexcept {
    return ends.empty() ? tokens : ends[static_cast<std::size_t>(b)];
  }

  Index size() const noexcept { return batch * tokens * heads * dim; }
  Heads some(Index b, Run t) const noexcept {
    float* first = x + (b * tokens + t.begin) * heads * dim;
    return {first, 1, t.end - t.begin, heads, dim, tokens * heads * dim, heads * dim,
            dim,   1, DType::f32};
  }
  ConstHeads view() const noexcept {
    return {x, batch, tokens, heads, dim, tokens * heads * dim, heads * dim, dim, 1, DType::f32};
  }
  // fn(b, tokens) for tokens that are wanted.
  template <class F>
  void each_run(const F& fn) const {
    const Index tiles = whole_tiles(tokens) / kTile;
    for (Index b = 0; b < batch; ++b)
      for (Index t = 0; t < tiles; ++t) {
        const auto wanted = [&](Index n) {
          return seen.empty() || seen[static_cast<std::size_t>(b * tiles + n)] != 0;
        };
        if (!wanted(t)) continue;
        const Index first = t;
        while (t + 1 < tiles && wanted(t + 1)) ++t;
        if (const Run run{first * kTile, std::min(end(b), (t + 1) * kTile)}; run.begin < run.end)
          fn(b, run);
      }
  }
  // fn(vector) for each vector of them, by all threads.
  template <class F>
  void each_vector(const Executor& executor, const F& fn) const {
    each_run([&](Index b, Run run) {
      const Index first = (b * tokens + run.begin) * heads, count = (run.end - run.begin) * heads;
      parallel_for(executor, count, count * dim / kValuesPerTask,
                   [&](Index begin, Index end) noexcept {
                     for (Index n = first + begin; n < first + end; ++n) fn(n);
                   });
    });
  }
};

// q and k before a stage that normalises them.
struct StageInput {
  const float *q = nullptr, *k = nullptr;
};
struct PreparedQK {
  ConstHeads q{}, k{};                 // the call's own where there are no stages
  std::span<const ConstQK> regions{};  // with those that are q and k of the call, rotated
  // Of all queries with each tile of keys. Not empty: the copy of k holds the keys of a tile as its only region has them,
  // or as the call has; k of a rotated region holds those of tiles with several regions.
  std::span<const RegionSet> sets{};
  std::span<const std::uint8_t> seen{};
  std::span<StageInput> before{};  // [stages], where gradients come back
};
enum class Keep : std::uint8_t { nothing, inputs };
// A counting arena counts, and nothing is read. turns: keys are rotated while they are read (key_turns.h), and stay.
PreparedQK prepare_qk(const ReadyCall&, const Regions&, const LoweredCall&, Keep, bool turns,
                      CallArena&, const Executor&);
// The rotation of stage n, or of region n.
void rotate_stage(const ReadyCall&, const LoweredCall&, std::size_t n, const StageCopy& q,
                  const StageCopy& k, RotateMode, const Executor&);
void rotate_region(const ReadyCall&, const LoweredCall&, std::size_t n, const StageCopy& q,
                   const StageCopy& k, RotateMode, const Executor&);
// Why the stages of a call are not computed here; empty: they are.
std::string_view stages_why_not(const AttentionArgs&) noexcept;

}  // namespace posenc::v0::detail
