// SPDX-License-Identifier: Apache-2.0
// Longer contexts by changed distances: the score is divided into regions, and each region rotates
// queries and keys by its own positions, so that distances stay in the trained range. These functions
// only compute positions; ScoreRegion (attention/attention.h) passes them to a call.
#pragma once
#include <span>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/positions/view.h"

namespace posenc::inline v0 {

// The pairs with floor(pq / chunk) - floor(pk / chunk) in [low, high]; with chunk 1 a range of distances.
// There q has position query[i] and k has key[j].
struct DistanceRegion {
  Index chunk = 1, low = -kUnbounded, high = kUnbounded;
  OwnedPositions query, key;
  bool contains(Index pq, Index pk) const noexcept;
};
// The regions of a map cover every pair once.
using DistanceMap = std::vector<DistanceRegion>;

// Distance of the pair (i, j): query[i] - key[j] of the region that contains it. For checks and
// pictures; kernels use the regions. Throws [distance_map] if no region contains the pair.
POSENC_API double mapped_distance(const DistanceMap&, std::span<const Index> query_positions,
                                  std::span<const Index> key_positions, Index i, Index j);

// Self-Extend (arXiv:2401.01325, eq. 4): m - n while m - n < window, else
//   floor(m / group) + window - r - floor(n / group)
// with r = floor(window / group) (the paper) or window / group as a real number (the published
// code). Throws [self_extend]: window or group not positive.
enum class SelfExtendRatio : std::uint8_t { floored, real };
template <>
struct EnumNames<SelfExtendRatio> {
  static constexpr std::array<std::string_view, 2> value{"floored", "real"};
};
POSENC_API DistanceMap self_extend(std::span<const Index> query_positions,
                                   std::span<const Index> key_positions, Index window, Index group,
                                   SelfExtendRatio);

// ReRoPE (kexue.fm/archives/9708): min(m - n, window). Throws [rerope]: window not positive.
POSENC_API DistanceMap rerope(std::span<const Index> query_positions,
                              std::span<const Index> key_positions, Index window);
// Leaky ReRoPE: m - n below the window, else window + (m - n - window) / factor.
// Throws [leaky_rerope]: window not positive, factor below 1 or not finite.
POSENC_API DistanceMap leaky_rerope(std::span<const Index> query_positions,
                                    std::span<const Index> key_positions, Index window,
                                    double factor);

// Dual chunk attention (arXiv:2402.17463, section 3). With c = chunk_size - local_size, keys
// are at p mod c, and queries, by how many chunks they are after the key, at
//   intra       0    p mod c
//   successive  1    min(p mod c + c, chunk_size)
//   inter       2+   min(2 c - 1, chunk_size)
// The critical forms are not clamped (vLLM's sparse search of important keys):
//   successive_critical  p mod c + c             inter_critical  p mod c + chunk_size
// Throws [dual_chunk]: local_size negative or not below chunk_size, negative positions.
struct DualChunk {
  Index chunk_size = 0, local_size = 0;
  bool operator==(const DualChunk&) const = default;
};
POSENC_API DistanceMap dual_chunk(std::span<const Index> query_positions,
                                  std::span<const Index> key_positions, const DualChunk&);
// The lists themselves, in the order that engines keep their rotated copies of q.
struct DualChunkPositions {
  OwnedPositions key, intra, successive, inter, successive_critical, inter_critical;
};
POSENC_API DualChunkPositions dual_chunk_positions(std::span<const Index> positions,
                                                   const DualChunk&);

}  // namespace posenc::v0
