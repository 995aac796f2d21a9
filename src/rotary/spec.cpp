// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/spec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "core/known_enum.h"
#include "core/shape.h"
#include "kernels/token.h"
#include "posenc/core/error.h"
#include "rotary/compat.h"

namespace posenc::inline v0 {
namespace {

void check_block(const RotarySpec& spec, const RotaryBlock& b) {
  check_spectrum(b.spectrum);
  detail::check_known("rotary", "pairing", b.pairing);
  detail::check_known("rotary", "output_order", b.output_order);
  if (b.pairing == Pairing::unset)
    refuse_field("rotary", "pairing", "must be half_split or interleaved", enum_text(b.pairing));
  if (b.direction != 1 && b.direction != -1)
    refuse_field("rotary", "direction", "must be 1 or -1", Index{b.direction});
  if (b.pairs() == 0) refuse("rotary", "a block must have pairs", b.pairs());
  if (b.offset < 0 || b.pairs() > spec.head_dim || b.offset > spec.head_dim - b.width())
    detail::refuse_shape(
        "rotary",
        "a block must lie inside the " + std::to_string(spec.head_dim) + " channels of a head",
        std::to_string(b.width()) + " from channel " + std::to_string(b.offset) + " on");
  if (b.output_order == OutputOrder::even_then_odd && b.pairing != Pairing::interleaved)
    refuse_field("rotary", "output_order", "even_then_odd needs interleaved pairs",
                 enum_text(b.pairing));
  if (b.spectrum.axes > detail::kMaxAxes)
    refuse_field("rotary", "axes", "must be at most " + std::to_string(detail::kMaxAxes),
                 b.spectrum.axes);
  if (b.spectrum.gain == 0)
    refuse_field("rotary", "gain", "must not be 0: it cannot be undone", b.spectrum.gain);
  if (b.log2_decay.empty()) return;
  if (static_cast<Index>(b.log2_decay.size()) != b.pairs())
    refuse_field("rotary", "log2_decay", "must have one value a pair",
                 static_cast<Index>(b.log2_decay.size()));
  for (const double x : b.log2_decay)
    if (!std::isfinite(x)) refuse_field("rotary", "log2_decay", "must be finite", x);
  if (!std::isfinite(b.decay_center))
    refuse_field("rotary", "decay_center", "must be finite", b.decay_center);
  if (!std::isfinite(b.decay_scale) || b.decay_scale == 0)
    refuse_field("rotary", "decay_scale", "must be finite and not 0", b.decay_scale);
  if (b.spectrum.axes != 1)
    refuse("rotary", "decay (xPos) goes by one axis of positions", b.spectrum.axes);
}

void check_precision(const RotarySpec& spec) {
  detail::check_known("rotary", "precision", spec.precision);
  if (spec.precision == Precision::exact) return;
  for (const RotaryBlock& b : spec.blocks) {
    if (!b.log2_decay.empty())
      refuse("rotary", "decay (xPos) has no compatibility precision", enum_text(spec.precision));
    detail::check_compat(b.spectrum, spec.precision);
  }
}

void check_overlap(const RotarySpec& spec) {
  for (std::size_t i = 0; i < spec.blocks.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const RotaryBlock &a = spec.blocks[i], &b = spec.blocks[j];
      if (a.offset < b.offset + b.width() && b.offset < a.offset + a.width())
        refuse_field("rotary", "blocks", "must not overlap, two do at channel",
                     std::max(a.offset, b.offset));
    }
}

// FNV-1a over 64-bit words: stable between runs and machines of one byte order.
struct Hash {
  std::uint64_t state = 0xcbf29ce484222325u;
  void word(std::uint64_t x) {
    for (int i = 0; i < 8; ++i) {
      state ^= (x >> (8 * i)) & 0xffu;
      state *= 0x100000001b3u;
    }
  }
  void number(double x) { word(std::bit_cast<std::uint64_t>(x == 0 ? 0.0 : x)); }
  void number(Index x) { word(static_cast<std::uint64_t>(x)); }
  template <class T>
  void list(const std::vector<T>& v) {
    number(static_cast<Index>(v.size()));
    for (const T x : v) number(x);
  }
  void spectrum(const Spectrum& s) {
    list(s.frequency);
    number(s.heads), number(s.axes), number(s.gain), number(s.logit_factor);
    number(s.valid_from), number(s.valid_to);
    number(Index{s.geometric.has_value()});
    if (s.geometric) number(s.geometric->base), number(s.geometric->width);
    number(Index{s.ggml.has_value()});
    if (!s.ggml) return;
    const GgmlForm& g = *s.ggml;
    for (const double x :
         {g.base, g.freq_scale, g.ext_factor, g.attn_factor, g.beta_fast, g.beta_slow})
      number(x);
    number(g.n_dims), number(g.original_context);
    list(g.factors), list(g.restart);
  }
};

}  // namespace

void check_rotary(const RotarySpec& spec) {
  if (spec.head_dim < 1 || spec.head_dim > 65536 || spec.head_dim % 2 != 0)
    refuse_field("rotary", "head_dim", "must be positive, even and at most 65536", spec.head_dim);
  if (static_cast<Index>(spec.blocks.size()) > spec.head_dim)
    refuse_field("rotary", "blocks", "must not overlap, number of them",
                 static_cast<Index>(spec.blocks.size()));
  for (const RotaryBlock& b : spec.blocks) check_block(spec, b);
  check_overlap(spec);
  check_precision(spec);
}

double RotarySpec::logit_factor() const {
  if (blocks.empty()) return 1;
  const double f = blocks.front().spectrum.logit_factor;
  for (const RotaryBlock& b : blocks)
    if (b.spectrum.logit_factor != f)
      refuse_field("rotary", "blocks", "must agree on the logit factor", b.spectrum.logit_factor);
  return f;
}

Index RotarySpec::axes() const noexcept {
  Index n = 1;
  for (const RotaryBlock& b : blocks) n = std::max(n, b.spectrum.axes);
  return n;
}

Index RotarySpec::valid_from() const noexcept {
  Index n = 0;
  for (const RotaryBlock& b : blocks) n = std::max(n, b.spectrum.valid_from);
  return n;
}

Index RotarySpec::valid_to() const noexcept {
  Index n = kUnbounded;
  for (const RotaryBlock& b : blocks) n = std::min(n, b.spectrum.valid_to);
  return n;
}

std::uint64_t RotarySpec::hash() const {
  Hash h;
  h.number(head_dim);
  h.number(static_cast<Index>(precision)), h.number(Index{bfloat16_rounds_once});
  for (const RotaryBlock& b : blocks) {
    h.number(b.offset), h.number(static_cast<Index>(b.pairing)), h.number(Index{b.direction});
    h.number(static_cast<Index>(b.output_order));
    h.spectrum(b.spectrum);
    h.list(b.log2_decay);
    h.number(b.decay_center), h.number(b.decay_scale);
  }
  return h.state;
}

}  // namespace posenc::v0
