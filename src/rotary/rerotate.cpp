// SPDX-License-Identifier: Apache-2.0
// k = g R(p) x is known, k' = g' R'(p') x is wanted:   k' = (g' / g) R'(p') R(p)^-1 k
// The angle of each pair, p' f' - p f, is the difference of two exact turns. Su et al.,
// arXiv:2104.09864v5, eq. 34; xPos (arXiv:2212.10554, eq. 19) adds 2^(-d (p' - p) / scale).
#include "posenc/rotary/rerotate.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/element.h"
#include "core/parallel.h"
#include "core/shape.h"
#include "phase/rows.h"
#include "posenc/core/error.h"
#include "positions/memory.h"
#include "positions/shared_row.h"
#include "rotary/compat.h"
#include "rotary/plan_state.h"
#include "rotary/rows.h"

namespace posenc::inline v0 {
namespace {

using detail::kRowChunk;
using detail::kRowPadding;
using detail::real_element;
using Verdict = Rerotation::Verdict;

constexpr Index kTokens = 64;  // whose rows are made at once

Rerotation impossible(std::string reason) {
  return {Verdict::impossible, std::move(reason)};
}

Rerotation compare_blocks(const RotaryBlock& a, const RotaryBlock& b, Index index) {
  const std::string block = "block " + std::to_string(index) + ": ";
  const auto differ = [&](const char* what, Index from, Index to) {
    return impossible(block + what + " " + std::to_string(from) + " is not " + std::to_string(to));
  };
  if (a.offset != b.offset) return differ("offset", a.offset, b.offset);
  if (a.pairs() != b.pairs()) return differ("width", a.width(), b.width());
  if (a.pairing != b.pairing)
    return impossible(block + "pairing " + std::string(enum_text(a.pairing)) + " is not " +
                      std::string(enum_text(b.pairing)) + ": other channels rotate together");
  if (a.output_order != b.output_order)
    return impossible(block + "the rotated channels have another order");
  if (a.log2_decay != b.log2_decay || (!a.log2_decay.empty() && a.decay_scale != b.decay_scale))
    return impossible(block + "the decays (xPos) differ");
  if (!a.log2_decay.empty() && a.decay_center != b.decay_center)
    return impossible(block + "decay centre " + number_text(a.decay_center) + " is not " +
                      number_text(b.decay_center) +
                      ": queries of the new centre do not fit keys of the old");
  if (a.spectrum.heads != b.spectrum.heads)
    return differ("heads", a.spectrum.heads, b.spectrum.heads);
  return {Verdict::exact, ""};
}

// A block's turns, in the form that phases are made from. Moving keeps the vectors' memory.
struct BlockTurns {
  std::vector<std::uint64_t> hi, lo;
  std::vector<double> per_unit;
  detail::PhaseTurns view;

  explicit BlockTurns(const Spectrum& s) {
    for (const Turns& t : exact_turns(s))
      hi.push_back(t.hi), lo.push_back(t.lo), per_unit.push_back(t.per_unit);
    view = {hi.data(), lo.data(), per_unit.data(), s.heads, s.axes, s.pairs(), s.gain};
  }
};

// p' - p without loss for integers.
double moved_by(const Positions& from, Index i, const Positions& to, Index k) noexcept {
  if (from.type == DType::i64 && to.type == DType::i64)
    return static_cast<double>(
        static_cast<std::int64_t>(static_cast<const std::uint64_t*>(to.data)[k] -
                                  static_cast<const std::uint64_t*>(from.data)[i]));
  return real_element(to.data, to.type, k) - real_element(from.data, from.type, i);
}

struct CacheSide {
  const RotarySpec& spec;
  Positions positions;
  std::vector<BlockTurns> turns;

  Index at(Index batch, Index token) const noexcept {
    return batch * positions.batch_stride + token * positions.token_stride;
  }
  // cos and sin of the peer's own arithmetic, as doubles, gain in.
  void peer(std::size_t block, Index batch, Index token, Index head, Index first, Index n, float* c,
            float* s) const noexcept {
    double p[detail::kMaxCompatAxes];
    const Spectrum& spectrum = spec.blocks[block].spectrum;
    for (Index a = 0; a < spectrum.axes; ++a)
      p[a] = detail::real_position(positions, a, batch, token);
    detail::compat_phase(spectrum, spec.precision, head, p, first, first + n, c, s);
  }
};

struct Move {
  const CacheSide &from, &to;
  const detail::RowKernels& kernels;

  alignas(64) std::uint64_t old_phase[kRowChunk + kRowPadding], phase[kRowChunk + kRowPadding];
  alignas(64) double c[kRowChunk + kRowPadding], s[kRowChunk + kRowPadding];

  Move(const CacheSide& f, const CacheSide& t, const detail::RowKernels& k)
      : from(f), to(t), kernels(k) {}

  // cos and sin, gain in, of one side alone; exact or its peer's.
  void one_side(const CacheSide& side, std::size_t b, Index batch, Index token, Index head,
                Index first, Index n, double* cosine, double* sine) noexcept {
    if (side.spec.precision == Precision::exact) {
      std::memset(phase, 0, sizeof phase);
      detail::add_phases(kernels, side.turns[b].view, side.positions, side.at(batch, token), head,
                         first, n, detail::kNear64, phase);
      kernels.sincos(phase, n, side.spec.blocks[b].spectrum.gain, cosine, sine);
      return;
    }
    float cf[kRowChunk], sf[kRowChunk];
    side.peer(b, batch, token, head, first, n, cf, sf);
    std::copy_n(cf, n, cosine), std::copy_n(sf, n, sine);
  }

  // z' / z with z = g e^(i direction phi)
  void by_division(std::size_t b, Index batch, Index token, Index head, Index first,
                   Index n) noexcept {
    double old_c[kRowChunk + kRowPadding], old_s[kRowChunk + kRowPadding];
    one_side(from, b, batch, token, head, first, n, old_c, old_s);
    one_side(to, b, batch, token, head, first, n, c, s);
    const double d = from.spec.blocks[b].direction, e = to.spec.blocks[b].direction;
    for (Index i = 0; i < n; ++i) {
      const double norm = old_c[i] * old_c[i] + old_s[i] * old_s[i];
      const double x = c[i], y = e * s[i], u = old_c[i], v = d * old_s[i];
      c[i] = (x * u + y * v) / norm;
      s[i] = (y * u - x * v) / norm;
    }
  }

  void by_difference(std::size_t b, Index batch, Index token, Index head, Index first,
                     Index n) noexcept {
    std::memset(phase, 0, sizeof phase);
    std::memset(old_phase, 0, sizeof old_phase);
    detail::add_phases(kernels, to.turns[b].view, to.positions, to.at(batch, token), head, first, n,
                       detail::kNear64, phase);
    detail::add_phases(kernels, from.turns[b].view, from.positions, from.at(batch, token), head,
                       first, n, detail::kNear64, old_phase);
    const bool back = to.spec.blocks[b].direction < 0, old_back = from.spec.blocks[b].direction < 0;
    for (Index i = 0; i < n; ++i)
      phase[i] = (back ? 0 - phase[i] : phase[i]) - (old_back ? 0 - old_phase[i] : old_phase[i]);
    kernels.sincos(phase, n, to.spec.blocks[b].spectrum.gain / from.spec.blocks[b].spectrum.gain, c,
                   s);
  }

  template <class T>
  void row(Index batch, Index token, T* out) noexcept {
    for (std::size_t b = 0; b < to.spec.blocks.size(); ++b) {
      const RotaryBlock& block = to.spec.blocks[b];
      const Index heads = block.spectrum.heads, pairs = block.pairs();
      const double moved =
          block.log2_decay.empty()
              ? 0
              : moved_by(from.positions, from.at(batch, token), to.positions, to.at(batch, token)) /
                    block.decay_scale;
      for (Index h = 0; h < heads; ++h)
        for (Index first = 0; first < pairs; first += kRowChunk) {
          const Index n = std::min(kRowChunk, pairs - first);
          if (from.spec.precision == Precision::exact && to.spec.precision == Precision::exact) {
            by_difference(b, batch, token, h, first, n);
          } else {
            by_division(b, batch, token, h, first, n);
          }
          for (Index i = 0; i < n; ++i) {
            const double decay =
                block.log2_decay.empty()
                    ? 1
                    : std::exp2(-block.log2_decay[static_cast<std::size_t>(first + i)] * moved);
            out[h * pairs + first + i] = static_cast<T>(c[i] * decay);
            out[(heads + h) * pairs + first + i] = static_cast<T>(s[i] * decay);
          }
        }
      out += 2 * heads * pairs;
    }
  }
};

// Where the rotated channels stand in the keys, without a phase of its own.
RotarySpec stored(const RotarySpec& spec) {
  RotarySpec r = spec;
  r.precision = Precision::exact;
  for (RotaryBlock& b : r.blocks) {
    if (b.output_order == OutputOrder::even_then_odd) b.pairing = Pairing::half_split;
    b.output_order = OutputOrder::in_place;
    b.direction = 1;
    b.log2_decay.clear();
  }
  return r;
}

void check_side(const CacheSide& side, const ConstHeads& keys, const char* which) {
  const Positions& p = side.positions;
  const std::string name(which);
  detail::check_positions(p, "rerotate");
  if (p.axes != side.spec.axes())
    refuse_field("rerotate", name + " positions",
                 "must have " + detail::axes_text(side.spec.axes()), Index{p.axes});
  if (p.count != keys.tokens)
    refuse_field("rerotate", name + " positions", "must be " + std::to_string(keys.tokens),
                 p.count);
  if (p.batch != keys.batch && p.batch != 1)
    refuse_field("rerotate", name + " positions",
                 "must have one row, or one for each of the batch of " + std::to_string(keys.batch),
                 p.batch);
  const Index most = side.spec.valid_to();
  if (most == kUnbounded) return;
  for (Index b = 0; b < p.batch; ++b)
    for (Index t = 0; t < p.count; ++t)
      if (const double x = detail::real_position(p, 0, b, t); x >= static_cast<double>(most))
        refuse_field("rerotate", name + " positions",
                     "must be below " + std::to_string(most) +
                         ", the length up to which these frequencies hold",
                     x);
}

struct RerotateCall {
  const CacheSide &from, &to;
  const detail::RotaryPlanState& plan;
  const Heads& keys;
  const detail::RowKernels& kernels;
  Index columns;
};

template <class T>
void move_chunk(const RerotateCall& c, Index chunk, T* rows) {
  const Index per_row = detail::block_count(c.keys.tokens, kTokens);
  const Index batch = chunk / per_row, begin = chunk % per_row * kTokens;
  const Index n = std::min(kTokens, c.keys.tokens - begin);
  Move move(c.from, c.to, c.kernels);
  for (Index t = 0; t < n; ++t) move.row(batch, begin + t, rows + t * c.columns);
  Heads k = c.keys;
  k.batch = 1, k.tokens = n;
  k.data = static_cast<std::byte*>(k.data) +
           (batch * k.batch_stride + begin * k.token_stride) * size_of(k.dtype);
  detail::RowSource source;
  source.cos.data = rows;
  source.cos.dtype = sizeof(T) == 8 ? DType::f64 : DType::f32;
  source.cos.token_stride = c.columns;
  QK qk;
  qk.k = k;
  detail::apply_lookup(c.plan, qk, qk, source, RotateMode::forward, inline_executor());
}

}  // namespace

Rerotation can_rerotate(const RotarySpec& from, const RotarySpec& to) {
  check_rotary(from);
  check_rotary(to);
  if (from.head_dim != to.head_dim)
    return impossible("head_dim " + std::to_string(from.head_dim) + " is not " +
                      std::to_string(to.head_dim));
  if (from.blocks.size() != to.blocks.size())
    return impossible(std::to_string(from.blocks.size()) + " blocks are not " +
                      std::to_string(to.blocks.size()));
  for (std::size_t i = 0; i < from.blocks.size(); ++i) {
    Rerotation r = compare_blocks(from.blocks[i], to.blocks[i], static_cast<Index>(i));
    if (r.verdict != Verdict::exact) return r;
  }
  if (from.valid_from() > 1)
    return {Verdict::approximate, "the old frequencies hold from length " +
                                      std::to_string(from.valid_from()) +
                                      " on: keys cached while the sequence was shorter were "
                                      "rotated with different frequencies"};
  return {Verdict::exact, "each pair rotates by p' f' - p f"};
}

void rerotate(const Heads& keys, const RotarySpec& from, const Positions& old_positions,
              const RotarySpec& to, const Positions& new_positions, const Executor& executor) {
  const Rerotation r = can_rerotate(from, to);
  if (r.verdict != Verdict::exact) refuse("rerotate", r.reason);
  for (const RotarySpec* spec : {&from, &to})
    for (const RotaryBlock& b : spec->blocks) {
      detail::check_compat(b.spectrum, spec->precision);
      if (spec->precision != Precision::exact && b.spectrum.axes > detail::kMaxCompatAxes)
        refuse("rerotate", "compatibility precisions support at most 16 axes", b.spectrum.axes);
    }
  CacheSide old_side{from, detail::shared_row(old_positions), {}};
  CacheSide new_side{to, detail::shared_row(new_positions), {}};
  for (const RotaryBlock& b : from.blocks) old_side.turns.emplace_back(b.spectrum);
  for (const RotaryBlock& b : to.blocks) new_side.turns.emplace_back(b.spectrum);
  const RotaryPlan plan(stored(to), keys.dtype);
  QK qk;
  qk.k = keys;
  const detail::RotaryPlanState& state = detail::StateAccess::of(plan);
  if (detail::check_tensors(state, qk, qk) == 0 || to.blocks.empty()) return;
  check_side(old_side, keys, "old");
  check_side(new_side, keys, "new");
  for (const CacheSide* side : {&old_side, &new_side})
    detail::check_positions_apart("rerotate", side->positions, {{"keys", detail::memory_of(keys)}});
  const RerotateCall call{
      old_side, new_side, state, keys, detail::row_kernels(active_isa()), plan.row_columns()};
  const Index chunks = keys.batch * detail::block_count(keys.tokens, kTokens);
  const Index row_bytes = kTokens * call.columns * 8;  // of a task
  std::vector<std::byte> rows(
      static_cast<std::size_t>(detail::task_count(executor, chunks, chunks) * row_bytes));
  detail::parallel_for(executor, chunks, chunks, [&](Index begin, Index end, Index task) noexcept {
    std::byte* own = rows.data() + task * row_bytes;
    for (Index i = begin; i < end; ++i) {
      if (keys.dtype == DType::f64) {
        move_chunk(call, i, reinterpret_cast<double*>(own));
      } else {
        move_chunk(call, i, reinterpret_cast<float*>(own));
      }
    }
  });
}

}  // namespace posenc::v0
