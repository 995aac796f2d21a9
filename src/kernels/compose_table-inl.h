// SPDX-License-Identifier: Apache-2.0
// One table row that is added: several tokens alternately or one after the other, straight
// from the table.
#include <cstdint>

#include "kernels/compose_window-inl.h"

#if defined(POSENC_KERNELS_COMPOSE_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_COMPOSE_TABLE_INL_H_
#undef POSENC_KERNELS_COMPOSE_TABLE_INL_H_
#else
#define POSENC_KERNELS_COMPOSE_TABLE_INL_H_
#endif
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// interleave_pages: some lines of each of several tokens at a time. sequential: a token is done
// whole, and batch by batch.
inline constexpr Index kTableTokens = 8;
inline constexpr Index kTableBytes = 512;

// A token and the row of the table that it gets; null: none.
template <class T>
struct Gathered {
  Token<T> at;
  const T* row;
};

// The n-th token. interleave_pages: tokens of all batches side by side, so that a row that several
// of them read is read from memory once.
HWY_INLINE Item TableItem(const ComposeCall& call, Index n) {
  const bool pages = call.access == AccessPattern::interleave_pages;
  const Index batch = pages ? n % call.batch : n / call.tokens;
  return {pages ? n / call.batch : n % call.tokens, batch, batch + 1};
}
template <class T>
HWY_INLINE Gathered<T> Gather(const ComposeCall& call, const ComposeSource& s, Index n) {
  const Item item = TableItem(call, n);
  const Index row = table_row(s, *call.positions, item.first, item.token);
  return {TokenAt<T>(call, item.first, item.token),
          row < 0 ? nullptr : static_cast<const T*>(s.table) + row * s.width};
}

// y = a x + gain row over n channels; x null: zeros.
template <class T, bool kStream>
HWY_INLINE void AddTableRow(const T* x, T* y, const T* row, const T* ahead, Index n, Compute<T> a,
                            Compute<T> gain) {
  const hn::ScalableTag<Compute<T>> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto va = hn::Set(d, a), vg = hn::Set(d, gain);
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto v = hn::Mul(ReadVector(d, row + i), vg);
    if (x != nullptr) {
      if (ahead != nullptr) hwy::Prefetch(ahead + i);
      v = hn::MulAdd(ReadVector(d, x + i), va, v);
    }
    WriteVector<kStream>(v, d, y + i);
  }
  for (; i < n; ++i) y[i] = Narrow<T>((x != nullptr ? Widen(x[i]) * a : 0) + Widen(row[i]) * gain);
}

template <class T>
HWY_INLINE void AddTableWindow(const ComposeCall& call, const ComposeSource& s,
                               const Gathered<T>& token, const T* ahead, Index c, Index n) {
  const auto a = static_cast<Compute<T>>(call.input_gain), gain = static_cast<Compute<T>>(s.gain);
  T* y = token.at.y + s.first + c;
  const T* x = token.at.x == nullptr ? nullptr : token.at.x + s.first + c;
  if (Streams(call, y, n))
    AddTableRow<T, true>(x, y, token.row + c, ahead, n, a, gain);
  else
    AddTableRow<T, false>(x, y, token.row + c, ahead, n, a, gain);
}

// Items [begin, end).
template <class T>
void AddTables(const ComposeCall& call, const ComposeSource& s, Index begin, Index end) {
  if (call.shared) begin *= call.batch, end *= call.batch;
  const bool pages = call.access == AccessPattern::interleave_pages;
  const Index most = pages ? kTableTokens : 1;
  const Index window = pages ? kTableBytes / static_cast<Index>(sizeof(T)) : s.width;
  Gathered<T> token[2 * kTableTokens];  // those at hand, and the next
  Index have = HWY_MIN(most, end - begin);
  for (Index k = 0; k < have; ++k) token[k] = Gather<T>(call, s, begin + k);
  while (have > 0) {
    const Index next = HWY_MIN(most, end - begin - have);
    Gathered<T>* following = token + kTableTokens;
    for (Index k = 0; k < next; ++k) following[k] = Gather<T>(call, s, begin + have + k);
    for (Index c = 0; c < s.width; c += window) {
      const Index n = HWY_MIN(window, s.width - c);
      for (Index k = 0; k < have; ++k) {
        if (token[k].row == nullptr) continue;
        const bool last = c + window >= s.width && k < next;
        const T* ahead = last ? following[k].at.x + s.first : token[k].at.x + s.first + c + window;
        if (!pages) ahead = nullptr;
        AddTableWindow<T>(call, s, token[k], ahead, c, n);
      }
    }
    for (Index k = 0; k < have; ++k) {
      const Item item = TableItem(call, begin + k);
      const Index used = token[k].row == nullptr ? 0 : s.width;
      AddNothing<T>(call, item, 0, used == 0 ? call.y_width : s.first);
      if (used != 0) AddNothing<T>(call, item, s.first + s.width, call.y_width);
    }
    begin += have, have = next;
    for (Index k = 0; k < next; ++k) token[k] = following[k];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
