// SPDX-License-Identifier: Apache-2.0
#include "attention/exact/regions.h"

#include <algorithm>

#include "attention/exact/rotation.h"

namespace posenc::inline v0::detail {
namespace {

Rotation rotation_of(const CallView& c, std::size_t region, RotateMode mode,
                     const Executor& executor) {
  const ScoreRegion& r = c.args.regions[region];
  return {c, *c.regions[region].rotation, r.query_positions, r.key_positions, mode, executor};
}

}  // namespace

void load_regions(CallView& c, CallArena& arena, const Executor& executor) {
  c.regions = arena.objects<RegionView>(static_cast<Index>(c.args.regions.size()));
  for (std::size_t n = 0; n < c.regions.size(); ++n)
    if (const ScoreRegion& r = c.args.regions[n]; r.rotary == nullptr)
      c.regions[n] = {load_by_heads(r.qk.q, arena, executor),
                      load_by_heads(r.qk.k, arena, executor), r.qk.k.heads};
}

void make_rotated_regions(CallView& c, CallArena& arena, const Executor& executor) {
  const Shapes shapes(c);
  for (std::size_t n = 0; n < c.regions.size(); ++n) {
    const ScoreRegion& r = c.args.regions[n];
    if (r.rotary == nullptr) continue;
    const std::span<double> q = arena.array<double>(static_cast<Index>(c.q.size())),
                            k = arena.array<double>(static_cast<Index>(c.k.size()));
    RegionView& view = c.regions[n];
    view = {q, k, c.G, c.lowered.spec == r.rotary ? c.lowered.of_spec : nullptr};
    if (arena.counts()) continue;
    if (view.rotation == nullptr)
      view.rotation = &c.own_rotations.emplace_back(*r.rotary, DType::f64,
                                                    PlanOptions{.outside = OutsideRange::allow});
    std::copy(c.q.begin(), c.q.end(), q.begin());
    for (Index slab = 0; slab < c.R * c.G; ++slab)
      c.each_seen_run(slab / c.G, [&](Run run) {
        const Index at = (slab * c.Tk + run.begin) * c.D, size = (run.end - run.begin) * c.D;
        std::copy_n(c.k.begin() + at, size, k.begin() + at);
      });
    const Rotation rotation = rotation_of(c, n, RotateMode::forward, executor);
    rotation.queries(q.data(), shapes.q);
    rotation.keys(k.data(), shapes.k, true);
  }
}

void pull_rotated_regions(const CallView& c, const StagePull& d, const Executor& executor) {
  const Shapes shapes(c);
  for (std::size_t n = 0; n < c.regions.size(); ++n) {
    if (c.args.regions[n].rotary == nullptr) continue;
    const Rotation rotation = rotation_of(c, n, RotateMode::gradient, executor);
    const auto add = [](std::span<double> to, std::span<const double> x) {
      for (std::size_t i = 0; i < x.size(); ++i) to[i] += x[i];
    };
    rotation.queries(d.regions[n].q.data(), shapes.q);
    add(d.q, d.regions[n].q);
    rotation.keys(d.regions[n].k.data(), shapes.k, true);
    add(d.k, d.regions[n].k);
  }
}

}  // namespace posenc::v0::detail
