// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/product_gradients.h"

#include <algorithm>
#include <array>

#include "core/element.h"
#include "core/parallel.h"

namespace posenc::inline v0::detail {

ProductGradients::ProductGradients(const FastCall& c, const AttentionGradients& g, Index slices,
                                   CallArena& arena)
    : call_(c), slices_(slices) {
  const std::span<const WideProduct> terms = c.wide.terms();
  wanted_ = arena.objects<Wanted>(static_cast<Index>(terms.size()));
  for (std::size_t n = 0; n < terms.size(); ++n) {
    const ProductTerm& t = *terms[n].term;
    adds_to_q_ = adds_to_q_ || (t.query.content && !t.key.content);
    if (terms[n].number >= g.terms.size()) continue;
    const TermGradient& to = g.terms[terms[n].number];
    // Entries that only one piece of work adds to.
    const auto owned = [&](const Heads& x) {
      return (c.B == 1 || x.batch == c.B) && x.heads % c.G == 0;
    };
    if (!t.query.content)
      want(wanted_[n].x, to.query, c.Tq, 1, slices > 1 || owned(to.query), arena);
    if (!t.key.content) want(wanted_[n].y, to.key, c.Tk, slices, owned(to.key), arena);
  }
}

void ProductGradients::want(Side& s, const Heads& to, Index tokens, Index slices, bool owned,
                            CallArena& arena) {
  s.to = to;
  if (to.data == nullptr) return;
  const Index count = call_.B * call_.H * to.dim;
  if (to.tokens == 1 && tokens != 1) {
    s.sums = arena.array<double>(count * slices);
    if (!arena.counts()) std::fill(s.sums.begin(), s.sums.end(), 0.0);
  } else if (!owned) {
    s.rows = arena.array<float>(count * tokens);
    if (!arena.counts()) std::fill(s.rows.begin(), s.rows.end(), 0.0f);
  }
}

void ProductGradients::add_row(Side& s, Index b, Index h, Index t, Index tokens, double factor,
                               const float* d, Index slice, Index slices) noexcept {
  const Index channels = s.to.dim, head = b * call_.H + h;
  if (!s.sums.empty()) {
    double* sum = s.sums.data() + (head * slices + slice) * channels;
    for (Index c = 0; c < channels; ++c) sum[c] += factor * static_cast<double>(d[c]);
  } else if (!s.rows.empty()) {
    // Of one head: nothing else adds to it.
    std::copy_n(d, channels, s.rows.data() + (head * tokens + t) * channels);
  } else {
    add_floats(call_.kernels, s.to, s.to.batch == 1 ? 0 : b, s.to.tokens == 1 ? 0 : t,
               Grouping{call_.H, s.to.heads}.of(h), factor, d);
  }
}

void ProductGradients::add_content(Index b, Index i, const float* d_q, double* to) const noexcept {
  for (const WideProduct& w : call_.wide.terms()) {
    const ProductTerm& t = *w.term;
    if (!t.query.content || t.key.content || disables_query(t, b, i)) continue;
    for (Index c = 0; c < w.channels; ++c) to[c] += t.scale * static_cast<double>(d_q[w.at + c]);
  }
}

void ProductGradients::add_query(Index b, Index h, Index i, const float* d_q) noexcept {
  for (std::size_t n = 0; n < wanted_.size(); ++n) {
    const WideProduct& w = call_.wide.terms()[n];
    if (wanted_[n].x.to.data == nullptr || disables_query(*w.term, b, i)) continue;
    add_row(wanted_[n].x, b, h, i, call_.Tq, w.term->scale, w.term->key.content ? d_q : d_q + w.at,
            0, 1);
  }
}

void ProductGradients::add_keys(Index b, Index h, Index slice, Run keys, float* d_k,
                                Index width) noexcept {
  for (std::size_t n = 0; n < wanted_.size(); ++n) {
    const WideProduct& w = call_.wide.terms()[n];
    if (w.channels == 0) continue;
    for (Index j = keys.begin; j < keys.end; ++j) {
      float* d = d_k + (j - keys.begin) * width + w.at;
      if (wanted_[n].y.to.data != nullptr && !disables_key(*w.term, b, j))
        add_row(wanted_[n].y, b, h, j, call_.Tk, kLn2, d, slice, slices_);
      std::fill_n(d, w.channels, 0.0f);
    }
  }
}

// Entries of tokens, each by one thread.
void ProductGradients::finish_rows(const Side& s, Index tokens, double factor,
                                   const Executor& executor) noexcept {
  const Index B = call_.B, H = call_.H, channels = s.to.dim;
  constexpr Index kSome = 16;  // channels at a time
  const auto entry = [&](Index batch, Index t, Index group) {
    const Index share = H / s.to.heads;
    const Index first = s.to.batch == 1 ? 0 : batch, last = s.to.batch == 1 ? B : batch + 1;
    for (Index begin = 0; begin < channels; begin += kSome) {
      const Index count = std::min(kSome, channels - begin);
      std::array<double, kSome> sum{};
      for (Index b = first; b < last; ++b)
        for (Index h = group * share; h < (group + 1) * share; ++h) {
          const float* row = s.rows.data() + ((b * H + h) * tokens + t) * channels + begin;
          for (Index c = 0; c < count; ++c)
            sum[static_cast<std::size_t>(c)] += static_cast<double>(row[c]);
        }
      const Index at = batch * s.to.batch_stride + t * s.to.token_stride + group * s.to.head_stride;
      for (Index c = 0; c < count; ++c)
        add_element(s.to.data, s.to.dtype, at + (begin + c) * s.to.dim_stride,
                    factor * sum[static_cast<std::size_t>(c)]);
    }
  };
  const Index values = B * H * tokens * channels;
  parallel_for(executor, s.to.batch * tokens, values / kValuesPerTask,
               [&](Index begin, Index end) noexcept {
                 for (Index n = begin; n < end; ++n)
                   for (Index group = 0; group < s.to.heads; ++group)
                     entry(n / tokens, n % tokens, group);
               });
}

void ProductGradients::finish_sums(const Side& s, Index slices) noexcept {
  const Index H = call_.H, channels = s.to.dim;
  for (Index n = 0; n < call_.B * H * slices; ++n) {
    const Index b = n / slices / H, h = n / slices % H;
    const Index at = (s.to.batch == 1 ? 0 : b) * s.to.batch_stride +
                     Grouping{H, s.to.heads}.of(h) * s.to.head_stride;
    for (Index c = 0; c < channels; ++c)
      add_element(s.to.data, s.to.dtype, at + c * s.to.dim_stride,
                  s.sums[static_cast<std::size_t>(n * channels + c)]);
  }
}

void ProductGradients::finish(const Executor& executor) noexcept {
  for (std::size_t n = 0; n < wanted_.size(); ++n) {
    const Wanted& w = wanted_[n];
    const double scale = call_.wide.terms()[n].term->scale;
    if (!w.x.sums.empty()) finish_sums(w.x, 1);
    if (!w.y.sums.empty()) finish_sums(w.y, slices_);
    if (!w.x.rows.empty()) finish_rows(w.x, call_.Tq, scale, executor);
    if (!w.y.rows.empty()) finish_rows(w.y, call_.Tk, kLn2, executor);
  }
}

}  // namespace posenc::v0::detail
