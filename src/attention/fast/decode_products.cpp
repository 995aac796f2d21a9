// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/decode_products.h"

#include <algorithm>

namespace posenc::inline v0::detail {
namespace {

// fn(term, tokens) of each product that makes q longer.
template <class F>
void each_product(const DecodeCall& d, const F& fn) {
  for (const WideProduct& w : d.c.wide.terms())
    if (w.channels > 0) fn(w, DecodeTokens(w.y, d.kernels.lanes));
}

}  // namespace

DecodeProductWork::DecodeProductWork(const DecodeCall& d, CallArena& arena) {
  if (d.c.channels == d.c.D) return;
  x = arena.array<float>(kDecodeMostRows * kDecodeKeys);
  sums = arena.array<float>(d.sums_of_rows(kDecodeMostRows));
  tokens = arena.array<const void*>(kDecodeKeys);
  Index width = 0;
  each_product(d, [&](const WideProduct&, const DecodeTokens& t) {
    if (t.copied) width = std::max(width, t.width);
  });
  copies = arena.array<float>(kDecodeKeys * width);
}

DecodeProducts::DecodeProducts(const DecodeCall& d, CallArena& arena) : call_(&d) {
  each_product(d, [&](const WideProduct&, const DecodeTokens& t) { width_ += t.width; });
  q_ = arena.array<float>(static_cast<Index>(d.rows.size()) * width_);
  if (!arena.counts()) std::fill(q_.begin(), q_.end(), 0.0f);
}

void DecodeProducts::take_query(const float* row, Index n) noexcept {
  float* to = q_.data() + n * width_;
  each_product(*call_, [&](const WideProduct& w, const DecodeTokens& t) {
    std::copy_n(row + w.at, w.channels, to);
    std::fill(to + w.channels, to + t.width, 0.0f);
    place_tail(t, call_->kernels.lanes, to);
    to += t.width;
  });
}

void DecodeProducts::add(const DecodeBlock& b, Run keys, std::span<const void* const> k,
                         const std::byte* zeros, float* x, DecodeProductWork& w) const noexcept {
  const DecodeCall& d = *call_;
  Index at = 0;
  each_product(d, [&](const WideProduct& term, const DecodeTokens& t) {
    find_given_tokens(d, t, {b.rows.row, b.rows.head, keys}, k, zeros, w.tokens, w.copies);
    for (Index n = 0; n < keys.end - keys.begin; ++n)
      if (disables_key(*term.term, b.rows.row, keys.begin + n))
        w.tokens[static_cast<std::size_t>(n)] = zeros;
    FastDecodeHead h;
    h.k = w.tokens.data(), h.q = q_.data() + b.first * width_ + at, h.x = w.x.data();
    FastDecodeHeads all = t.of({&h, 1}, b.count, w.sums);
    all.width = width_;
    d.kernels.scores[t.type](all);
    d.c.row_reads.add_slice(x, w.x.data(), b.count * kDecodeKeys);
    at += t.width;
  });
}

}  // namespace posenc::v0::detail
