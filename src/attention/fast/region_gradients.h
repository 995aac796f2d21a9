// SPDX-License-Identifier: Apache-2.0
// Gradients of the q and k of regions. A tile is computed once for each region that some pair of it lies in.
#pragma once
#include <span>

#include "attention/fast/vector_gradients.h"
#include "kernels/attention/fast_tiles.h"

namespace posenc::inline v0::detail {

struct BackwardCall;
struct BackwardWork;

// Of one thread, [regions] of what BackwardWork has of q and k.
struct RegionGradientsWork {
  std::span<float> q, dq, dk, keys, key_rows;
  RegionSet taken = 0;  // regions whose keys of the tile are taken
};
// q, keys and their gradients of a tile in one region.
struct TileRegion {
  int number;  // negative: those of the call
  const float *q, *keys, *key_rows;
  float *dq, *dk;
};

class RegionGradients {
 public:
  RegionGradients(const FastCall&, const AttentionGradients&, CallArena&);
  // rows and keys: of one head, and more for the last group.
  RegionGradientsWork work(const BackwardCall&, Index rows, Index keys, CallArena&) const;

  // The region of a tile whose keys of the call are taken.
  TileRegion open(const BackwardCall&, Index b, Index h, Run keys, int number, float* dq,
                  BackwardWork&) const noexcept;
  void begin_head(BackwardWork&) const noexcept;
  // Gradients of one head, after put_queries.
  void end_head(const BackwardCall&, Index b, Index h, BackwardWork&) noexcept;
  void finish(const FastCall&, const Executor&) noexcept;
  // Then: those of regions that rotate the call's q and k, back to it: added to gradients of q and k before their
  // rotation.
  void pull_back(const FastCall&, const LoweredCall&, const StageCopy& q, const StageCopy& k,
                 const Executor&) const;

 private:
  std::span<QK>
      to_;  // the caller's; of regions that rotate the call's q and k memory of the engine
  std::span<VectorGradient> keys_;
};

}  // namespace posenc::v0::detail
