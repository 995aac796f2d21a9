// SPDX-License-Identifier: Apache-2.0
// Start values of the pairs of pictures.
#include <algorithm>
#include <cstring>

#include "attention/fast/starts.h"

namespace posenc::inline v0::detail {

void Starts::make_pictures(bool one, CallArena& arena) {
  const std::span<const Term> terms = call_.args.terms;
  const std::span<std::size_t> numbers =
      arena.objects<std::size_t>(static_cast<Index>(terms.size()));
  std::size_t count = 0;
  for (std::size_t n = 0; n < terms.size(); ++n)
    if (is_added(terms[n])) numbers[count++] = n;
  pictures_ = Pictures(call_, numbers.first(count), one, arena);
  if (pictures_.none()) return;
  line_batches_ = 1, line_size_ = pictures_.entries() + 2 * kLineMargin;
  for (const std::size_t n : numbers.first(count))
    line_batches_ = std::max(line_batches_, term_arrays(terms[n]).table.shape[0]);
  make_room(true, arena);
  for (const std::size_t n : numbers.first(count)) {
    const Term& t = terms[n];
    const double scale = std::visit([](const auto& kind) { return kind.scale; }, t);
    pictures_.add_numbers(t, arena, [&](const auto& add) {
      for (Index slab = 0; slab < line_batches_ * call_.H; ++slab)
        add(slab_of(term_arrays(t).table, slab / call_.H, slab % call_.H, call_.H), kLog2E * scale,
            wide_lines_.data() + slab * line_size_ + kLineMargin);
    });
  }
  if (arena.counts()) return;
  finish_lines();
  for (Index slab = 0; slab < line_batches_ * call_.H; ++slab)
    wide_ = wide_ || !(pictures_.largest(wide_lines_.data() + slab * line_size_ + kLineMargin) <=
                       kLineRange);
}

namespace {

void copy_some(float* to, const float* from, Index count) noexcept {
  constexpr Index kSome = 8;
  for (; count >= kSome; count -= kSome, from += kSome, to += kSome)
    std::memcpy(to, from, kSome * sizeof(float));
  for (Index n = 0; n < count; ++n) to[n] = from[n];
}

}  // namespace

void Starts::write_pictures(const FastReadKernels& reads, const FastRow& r, Run block, Run keys,
                            PictureWork& w, float* to) const noexcept {
  if (!pictures_.has_runs())
    return pictures_.write(call_, reads, r, keys, lines_.data() + r.entry, w.rows.data(), to);
  each_run(r, block, keys, w, [&](Index first, Index end, Index at) {
    copy_some(to + (first - keys.begin), lines_.data() + at + first, end - first);
  });
}

}  // namespace posenc::v0::detail
