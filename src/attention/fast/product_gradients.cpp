// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/product_gradients.h"

#include <algorithm>

namespace posenc::inline v0::detail {

ProductGradients::ProductGradients(const FastCall& c, const AttentionGradients& g, Index slices,
                                   CallArena& arena)
    : call_(c) {
  const std::span<const WideProduct> terms = c.wide.terms();
  wanted_ = arena.objects<Wanted>(static_cast<Index>(terms.size()));
  for (std::size_t n = 0; n < terms.size(); ++n) {
    const ProductTerm& t = *terms[n].term;
    adds_to_q_ = adds_to_q_ || (t.query.content && !t.key.content);
    if (terms[n].number >= g.terms.size()) continue;
    const TermGradient& to = g.terms[terms[n].number];
    if (!t.query.content)
      wanted_[n].x.want(c, to.query, c.Tq, 1, slices > 1 || VectorGradient::is_owned(c, to.query),
                        arena);
    if (!t.key.content)
      wanted_[n].y.want(c, to.key, c.Tk, slices, VectorGradient::is_owned(c, to.key), arena);
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
    if (!wanted_[n].x.is_wanted() || disables_query(*w.term, b, i)) continue;
    wanted_[n].x.add(call_, b, h, i, w.term->scale, w.term->key.content ? d_q : d_q + w.at);
  }
}

void ProductGradients::add_keys(Index b, Index h, Index slice, Run keys, float* d_k,
                                Index width) noexcept {
  for (std::size_t n = 0; n < wanted_.size(); ++n) {
    const WideProduct& w = call_.wide.terms()[n];
    if (w.channels == 0) continue;
    for (Index j = keys.begin; j < keys.end; ++j) {
      float* d = d_k + (j - keys.begin) * width + w.at;
      if (wanted_[n].y.is_wanted() && !disables_key(*w.term, b, j))
        wanted_[n].y.add(call_, b, h, j, kLn2, d, slice);
      std::fill_n(d, w.channels, 0.0f);
    }
  }
}

void ProductGradients::finish(const Executor& executor) noexcept {
  for (std::size_t n = 0; n < wanted_.size(); ++n) {
    wanted_[n].x.finish(call_, call_.wide.terms()[n].term->scale, executor);
    wanted_[n].y.finish(call_, kLn2, executor);
  }
}

}  // namespace posenc::v0::detail
