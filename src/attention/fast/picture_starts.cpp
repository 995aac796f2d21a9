// SPDX-License-Identifier: Apache-2.0
// Start values of the pairs of a picture.
#include <algorithm>
#include <cstring>

#include "attention/fast/starts.h"

namespace posenc::inline v0::detail {

void Starts::make_picture(CallArena& arena) {
  picture_ = PictureLines(
      call_, [&](const Term& t) { return is_added(t); }, arena);
  if (picture_.none()) return;
  line_batches_ = 1, line_size_ = picture_.entries() + 2 * kLineMargin;
  for (const Term& t : call_.args.terms)
    if (is_added(t)) line_batches_ = std::max(line_batches_, term_arrays(t).table.shape[0]);
  make_room(arena);
  const std::span<std::int32_t> rows = arena.array<std::int32_t>(picture_.entries());
  if (arena.counts()) return;
  for (const Term& t : call_.args.terms) {
    if (!is_added(t)) continue;
    const double scale = std::visit([](const auto& kind) { return kind.scale; }, t);
    if (std::holds_alternative<ProductTerm>(t)) picture_.find_rows(t, rows.data());
    for (Index n = 0; n < line_batches_ * call_.H; ++n)
      picture_.add(t, rows.data(), slab_of(term_arrays(t).table, n / call_.H, n % call_.H, call_.H),
                   kLog2E * scale, wide_lines_.data() + n * line_size_ + kLineMargin);
  }
  finish_lines();
}

void Starts::copy_picture(const FastRow& r, std::span<const FastRun> runs, Run keys,
                          float* to) const noexcept {
  constexpr Index kSome = 8;
  for (const FastRun& run : runs) {
    const Index first = std::max(run.at, keys.begin), end = std::min(run.at + run.count, keys.end);
    if (first >= end) continue;
    const float* from = lines_.data() + r.entry + run.first + (first - run.at) +
                        picture_.entry_of_variant(r.b, r.i, r.place.row, first);
    float* x = to + (first - keys.begin);
    Index count = end - first;
    for (; count >= kSome; count -= kSome, from += kSome, x += kSome)
      std::memcpy(x, from, kSome * sizeof(float));
    for (Index n = 0; n < count; ++n) x[n] = from[n];
  }
}

}  // namespace posenc::v0::detail
