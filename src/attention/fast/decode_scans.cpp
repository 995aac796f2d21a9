// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/decode_scans.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace posenc::inline v0::detail {
namespace {

bool has_products(const FastCall& c) noexcept {
  return !c.gates.none() && c.gates.has_products();
}
DecodeTokens gate_tokens(const DecodeCall& d) noexcept {
  return d.c.gates.has_keys() ? DecodeTokens(d.c.gates.keys(), d.kernels.lanes) : d.k;
}

}  // namespace

DecodeScanWork::DecodeScanWork(const DecodeCall& d, CallArena& arena) {
  if (breaks_sticks(d.c.args)) {
    own = arena.array<float>(whole_vectors(d.c.V, d.kernels.lanes));
    copy = arena.array<std::byte>(static_cast<Index>(d.c.copy_bytes));
  }
  if (!has_products(d.c)) return;
  products = arena.array<float>(kDecodeMostRows * kDecodeKeys);
  sums = arena.array<float>(d.sums_of_rows(kDecodeMostRows));
  tokens = arena.array<const void*>(kDecodeKeys);
  const DecodeTokens keys = gate_tokens(d);
  copies = arena.array<float>(keys.copied ? kDecodeKeys * keys.width : 0);
}

DecodeScans::DecodeScans(const DecodeCall& d, CallArena& arena) : call_(&d) {
  const FastCall& c = d.c;
  if (!c.passes_back()) return;
  state_ = arena.array<double>(d.slices * static_cast<Index>(d.rows.size()));
  if (c.gates.none()) return;
  const Index rows = static_cast<Index>(d.rows.size()), strip = c.kernels.few_rows;
  levels_ = arena.array<float>((rows + strip) * c.gates.level_stride());
  vectors_ = arena.array<float>(strip * c.D);
  if (!c.gates.has_products()) return;
  width_ = gate_tokens(d).width;
  q_ = arena.array<float>(rows * width_);
}

void DecodeScans::take_block(const DecodeBlock& b) noexcept {
  const FastCall& c = call_->c;
  const Gates& gates = c.gates;
  const DecodeTokens keys = gate_tokens(*call_);
  for (const RowGroup& group : b.groups)
    for (Index first = 0; first < group.count; first += c.kernels.few_rows) {
      RowGroup strip = group;
      strip.kind = 1, strip.rows = c.kernels.few_rows, strip.row = group.row + first;
      strip.count = std::min(strip.rows, group.count - first);
      const Index row = b.first + group.first + first;
      std::fill(vectors_.begin(), vectors_.end(), 0.0f);
      for (Index n = 0; n < strip.count; ++n) {
        const FastRow& r = strip.row[n];
        float* x = vectors_.data() + n * c.D;
        bool bounded = gates.are_bounded_of(r.b, r.h);
        if (!take_level_query(c, r, x)) bounded = false, std::fill_n(x, c.D, 0.0f);
        if (width_ > 0) {
          float* q = q_.data() + (row + n) * width_;
          std::fill_n(q, width_, 0.0f);
          if (!take_gate_query(c, r, q)) bounded = false, std::fill_n(q, width_, 0.0f);
          place_tail(keys, call_->kernels.lanes, q);
        }
        if (!bounded) call_->left[call_->at(0, row + n)] = 1;
      }
      fill_levels(c, strip, vectors_.data(), levels_.data() + row * gates.level_stride());
    }
}

void DecodeScans::begin(bool wants_rest) noexcept {
  wants_rest_ = wants_rest;
  std::fill(q_.begin(), q_.end(), 0.0f);
  if (!call_->c.gates.none())
    for (const DecodeBlock& b : call_->blocks) take_block(b);
}

void DecodeScans::begin_slice(Index slice) noexcept {
  const auto rows = static_cast<Index>(call_->rows.size());
  for (Index row = 0; row < rows; ++row)
    state(slice, row) = slice + 1 < call_->slices ? state(slice + 1, row) : 0;
}
void DecodeScans::begin_rest(Index slices) noexcept {
  const double begin = call_->c.gates.none() ? 0 : static_cast<double>(call_->c.gates.last());
  std::fill_n(state_.begin(), slices * static_cast<Index>(call_->rows.size()), begin);
}

bool DecodeScans::counts(Index slice, bool careful) const noexcept {
  if (call_->c.gates.none()) return false;
  if (!call_->c.gates.has_levels()) return true;
  const auto last = static_cast<double>(call_->c.gates.last());
  for (const DecodeBlock& b : call_->blocks)
    for (Index n = 0; (!careful || b.low) && n < b.count; ++n)
      if (state(slice, b.first + n) < last) return true;
  return false;
}

bool DecodeScans::is_done(const DecodeBlock& b, Index slice) const noexcept {
  if (!breaks_sticks(call_->c.args) || wants_rest_) return false;
  for (Index n = b.first; n < b.first + b.count; ++n) {
    const double behind = slice + 1 < call_->slices ? state(call_->slices - 1, n) : 0;
    if (behind + state(slice, n) >= static_cast<double>(kSmallestExponent)) return false;
  }
  return true;
}

void DecodeScans::multiply_gates(const DecodeBlock& b, Run keys, std::span<const void* const> k,
                                 const std::byte* zeros, DecodeScanWork& w) noexcept {
  if (width_ == 0) return;
  const DecodeCall& d = *call_;
  const DecodeTokens t = gate_tokens(d);
  const void* const* tokens = k.data();
  if (d.c.gates.has_keys()) {
    find_given_tokens(d, t, {b.rows.row, b.rows.head, keys}, k, zeros, w.tokens, w.copies);
    tokens = w.tokens.data();
  }
  FastDecodeHead h;
  h.k = tokens, h.q = q_.data() + b.first * width_, h.x = w.products.data();
  d.kernels.scores[t.type](t.of({&h, 1}, b.count, w.sums));
}

bool DecodeScans::add_levels(const DecodeBlock& b, const RowGroup& group, Index n, Index slice,
                             Run keys, FastDecodeRow& r, DecodeScanWork& w) noexcept {
  const FastCall& c = call_->c;
  const Gates& gates = c.gates;
  const Index row = b.first + n;
  double& count = state(slice, row);
  FastGates g;
  describe_gates(gates, g);
  if (gates.has_levels()) g.levels = levels_.data() + row * gates.level_stride();
  if (!gates.has_levels()) {
    r.base += gates.rise() * count;
  } else if (count >= static_cast<double>(gates.last())) {
    r.base += static_cast<double>(g.levels[gates.last()]);
    return true;
  }
  double next = count;
  g.count = &count, g.next = &next;
  if (width_ > 0) {
    g.q = q_.data(), g.channels = gates.channels();
    g.products = w.products.data() + n * kDecodeKeys;
  }
  std::array<Index, kDecodeMostRows> own;
  if (find_own_keys(c, group, keys, own.data())) g.own = own.data() + (n - group.first);
  if (!c.gate_kernels.decoded(r.x, whole_vectors(r.keys, c.kernels.lanes), r.start, g))
    return false;
  count = next;
  return true;
}

bool DecodeScans::break_stick(Index row, Index slice, const FastDecodeRow& r) noexcept {
  return call_->c.stick_kernels.decoded(r, state(slice, row));
}

RowTotal DecodeScans::join_sticks(DecodeCall& d, Index row) const noexcept {
  double left = 0;
  for (Index slice = d.slices - 1; slice >= 0; --slice) {
    d.reference[d.at(slice, row)] =
        left < static_cast<double>(kSmallestExponent) ? -HUGE_VAL : left;
    left += state(slice, row);
  }
  return {1, left * kLn2};
}

}  // namespace posenc::v0::detail
