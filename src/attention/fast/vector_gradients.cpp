// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/vector_gradients.h"

#include <algorithm>
#include <array>

#include "core/element.h"
#include "core/parallel.h"

namespace posenc::inline v0::detail {

bool VectorGradient::is_owned(const FastCall& c, const Heads& to) noexcept {
  return c.are_owned(to.batch, to.heads);
}

void VectorGradient::want(const FastCall& c, const Heads& to, Index tokens, Index slices,
                          bool owned, CallArena& arena) {
  to_ = to, tokens_ = tokens, slices_ = slices;
  if (to.data == nullptr) return;
  const Index count = c.B * c.H * to.dim;
  if (to.tokens == 1 && tokens != 1) {
    sums_ = arena.array<double>(count * slices);
    if (!arena.counts()) std::fill(sums_.begin(), sums_.end(), 0.0);
  } else if (!owned) {
    rows_ = arena.array<float>(count * tokens);
    if (!arena.counts()) std::fill(rows_.begin(), rows_.end(), 0.0f);
  }
}

void VectorGradient::add(const FastCall& c, Index b, Index h, Index t, double factor,
                         const float* d, Index slice) noexcept {
  const Index channels = to_.dim, head = b * c.H + h;
  if (!sums_.empty()) {
    double* sum = sums_.data() + (head * slices_ + slice) * channels;
    for (Index n = 0; n < channels; ++n) sum[n] += factor * static_cast<double>(d[n]);
  } else if (!rows_.empty()) {
    std::copy_n(d, channels, rows_.data() + (head * tokens_ + t) * channels);
  } else {
    const Index token = to_.tokens == 1 ? 0 : t;
    add_floats(c.kernels, to_, to_.batch == 1 ? 0 : b, {token, token + 1},
               Grouping{c.H, to_.heads}.of(h), factor, d, channels);
  }
}

// Entries of tokens, each by one thread.
void VectorGradient::finish_rows(const FastCall& c, double factor,
                                 const Executor& executor) noexcept {
  const Index H = c.H, channels = to_.dim;
  constexpr Index kSome = 16;  // channels at a time
  const auto entry = [&](Index batch, Index t, Index group) {
    const Index share = H / to_.heads;
    const Index first = to_.batch == 1 ? 0 : batch, last = to_.batch == 1 ? c.B : batch + 1;
    for (Index begin = 0; begin < channels; begin += kSome) {
      const Index count = std::min(kSome, channels - begin);
      std::array<double, kSome> sum{};
      for (Index b = first; b < last; ++b)
        for (Index h = group * share; h < (group + 1) * share; ++h) {
          const float* row = rows_.data() + ((b * H + h) * tokens_ + t) * channels + begin;
          for (Index n = 0; n < count; ++n)
            sum[static_cast<std::size_t>(n)] += static_cast<double>(row[n]);
        }
      const Index at = batch * to_.batch_stride + t * to_.token_stride + group * to_.head_stride;
      for (Index n = 0; n < count; ++n)
        add_element(to_.data, to_.dtype, at + (begin + n) * to_.dim_stride,
                    factor * sum[static_cast<std::size_t>(n)]);
    }
  };
  parallel_for(executor, to_.batch * tokens_, c.B * H * tokens_ * channels / kValuesPerTask,
               [&](Index begin, Index end) noexcept {
                 for (Index n = begin; n < end; ++n)
                   for (Index group = 0; group < to_.heads; ++group)
                     entry(n / tokens_, n % tokens_, group);
               });
}

void VectorGradient::finish_sums(const FastCall& c) noexcept {
  const Index H = c.H, channels = to_.dim;
  for (Index n = 0; n < c.B * H * slices_; ++n) {
    const Index b = n / slices_ / H, h = n / slices_ % H;
    const Index at = (to_.batch == 1 ? 0 : b) * to_.batch_stride +
                     Grouping{H, to_.heads}.of(h) * to_.head_stride;
    for (Index m = 0; m < channels; ++m)
      add_element(to_.data, to_.dtype, at + m * to_.dim_stride,
                  sums_[static_cast<std::size_t>(n * channels + m)]);
  }
}

void VectorGradient::finish(const FastCall& c, double factor, const Executor& executor) noexcept {
  if (!sums_.empty()) finish_sums(c);
  if (!rows_.empty()) finish_rows(c, factor, executor);
}

}  // namespace posenc::v0::detail
