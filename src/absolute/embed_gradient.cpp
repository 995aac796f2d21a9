// SPDX-License-Identifier: Apache-2.0
// The gradient of embed, some tokens at a time: back through the norm token by token, then, channels
// shared out over the threads, token after token added to the rows that it read.
#include <algorithm>
#include <memory>
#include <string>

#include "absolute/embed_call.h"
#include "absolute/names.h"
#include "core/overlap.h"
#include "core/parallel.h"
#include "core/shape.h"
#include "kernels/embed_back.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

using detail::EmbedCall;
using detail::LineDoubles;
constexpr Index kBlock = 64;     // tokens of a partial sum of gamma and beta, whatever the threads
constexpr Index kChannels = 16;  // whole vectors, so that no channel changes its place in one
constexpr Index kLineDoubles = 8;  // of a line of the cache

void check_gradient(const ConstTensorView& g, const char* what) {
  if (g.device != Device::cpu) refuse_field(kEmbed, what, "must be in the CPU's memory");
  if (g.dtype != DType::f64 && g.dtype != DType::f32)
    refuse_field(kEmbed, what, "must be f64 or f32", dtype_name(g.dtype));
  detail::check_no_self_overlap(kEmbed, {what, detail::memory_of(g)});  // threads add to its rows
}

// n numbers, `stride` elements apart from `at` on.
template <class T>
void add_row(T* to, Index stride, const double* v, Index n) {
  const auto add = [&](Index at, double x) {
    to[at] = static_cast<T>(static_cast<double>(to[at]) + x);
  };
  if (stride == 1)
    for (Index i = 0; i < n; ++i) add(i, v[i]);
  else
    for (Index i = 0; i < n; ++i) add(i * stride, v[i]);
}
void add_row(const TensorView& to, Index at, Index stride, const double* v, Index n) {
  if (to.dtype == DType::f64)
    add_row(static_cast<double*>(to.data) + at, stride, v, n);
  else
    add_row(static_cast<float*>(to.data) + at, stride, v, n);
}

// What a token adds to a part's gradient: to the tensor's row at `element` at once where no other
// token reads that row, else in double to the accumulator `slot`, which is written to the row
// after the last.
struct Addition {
  Index element, slot;
  bool first, last;
};
constexpr Index kNoSlot = -1, kFrozen = -2;  // kFrozen: adds nothing

// Of one part, for every token.
struct PartGradient {
  std::size_t part;
  std::vector<Addition> of;
  TensorView to;
  double scale;
  Index channel_stride;

  bool direct() const { return channel_stride == 1; }
};

// Where the row that a token reads lies in the gradient `to`, in elements, and its number.
struct RowPlace {
  Index number, element;
};
RowPlace place_of(const EmbedCall& c, std::size_t part, const TensorView& to, Index i) {
  if (!c.row[part].empty()) {
    const Index r = c.row[part][static_cast<std::size_t>(i)];
    return {r, r * to.stride[0]};
  }
  const bool one = to.rank == 2 || to.shape[0] == 1;
  const Index b = one ? 0 : i / c.tokens, t = i % c.tokens;
  return {b * c.tokens + t,
          (one ? 0 : b * to.stride[0]) + t * to.stride[static_cast<std::size_t>(to.rank - 2)]};
}

// slots: as many as there are accumulators in use at once, of all parts so far.
PartGradient plan_part(const EmbedCall& c, std::size_t part, const TensorView& to, Index& slots) {
  PartGradient g{part, {}, to, c.scale[part], to.stride[static_cast<std::size_t>(to.rank - 1)]};
  if (c.width == 1) g.channel_stride = 1;
  const Index rows = c.row[part].empty() ? c.count() : c.parts[part].table.shape[0];
  std::vector<Index> left(static_cast<std::size_t>(rows), 0);  // readers to come
  std::vector<RowPlace> place;
  place.reserve(static_cast<std::size_t>(c.count()));
  for (Index i = 0; i < c.count(); ++i) {
    place.push_back(place_of(c, part, to, c.token(i)));
    ++left[static_cast<std::size_t>(place.back().number)];
  }
  std::vector<Index> slot_of(static_cast<std::size_t>(rows), kNoSlot), free;
  g.of.reserve(place.size());
  for (const RowPlace& p : place) {
    const auto n = static_cast<std::size_t>(p.number);
    const bool last = --left[n] == 0, first = slot_of[n] == kNoSlot;
    if (!c.row[part].empty() && c.parts[part].frozen == p.number) {
      g.of.push_back({p.element, kFrozen, false, false});
    } else if (first && last && g.direct()) {
      g.of.push_back({p.element, kNoSlot, true, true});
    } else {
      if (first && free.empty()) free.push_back(slots++);
      if (first) slot_of[n] = free.back(), free.pop_back();
      g.of.push_back({p.element, slot_of[n], first, last});
      if (last) free.push_back(slot_of[n]);
    }
  }
  return g;
}

// Everything that the tokens go through.
struct Back {
  const EmbedCall& call;
  const detail::EmbedBackKernels& kernels;
  std::vector<PartGradient> parts;
  const PartGradient* unread;  // that of the words: its rows are not in the cache
  Index pitch;                 // of the rows below
  LineDoubles d;               // d s of some tokens behind a norm or in 16 bits; empty: d_y itself
  LineDoubles sums;            // accumulators
  LineDoubles s;               // two rows for each thread
  std::vector<const void*> rows;    // twice part_count() for each thread
  std::vector<double> gamma, beta;  // [blocks, width], where wanted

  bool through() const { return !d.empty(); }
  bool is_f32() const { return !through() && call.dtype == DType::f32; }
  const std::byte* up(Index i) const {
    const Index token = call.token(i);
    return call.y.at(token / call.tokens, token % call.tokens);
  }
  const std::byte* row_of(const PartGradient& g, const Addition& a) const {
    return static_cast<const std::byte*>(g.to.data) + a.element * size_of(g.to.dtype);
  }
};

// d s of tokens [begin, end), at their places behind that of `from`.
void back_tokens(Back& b, Isa isa, Index from, Index begin, Index end, Index task) noexcept {
  const EmbedCall& c = b.call;
  const Index parts = c.part_count();
  const void **rows = b.rows.data() + 2 * task * parts, **kept = rows + parts;
  double *s = b.s.data() + 2 * task * b.pitch, *base = s + b.pitch;
  const double one = 1;
  const auto sum = detail::weighted_sum_kernels(isa).into_f64(c.dtype);
  const auto back = b.kernels.back(c.dtype);
  for (Index i = begin; i < end; ++i) {
    const void* up = b.up(i);
    double* d = b.d.data() + (i - from) * b.pitch;
    if (!c.has_norm) {
      sum({&up, &one, 1, c.width, d});
      continue;
    }
    c.rows_of(c.token(std::min(i + 2, c.count() - 1)), rows);
    const void* ahead = rows[0];
    c.rows_of(c.token(i), rows);
    if (parts > 1 && (i == begin || !std::equal(rows + 1, rows + parts, kept + 1))) {
      sum({rows + 1, c.weight.data() + 1, parts - 1, c.width, base});
      std::copy(rows, rows + parts, kept);
    }
    const PartGradient* g = b.unread;
    const Addition* a = g == nullptr ? nullptr : &g->of[static_cast<std::size_t>(i)];
    const bool target = a != nullptr && a->slot == kNoSlot;
    const Index at = i / kBlock * c.width;
    back({rows[0], c.weight[0], parts > 1 ? base : nullptr, ahead,
          target ? b.row_of(*g, *a) : b.up(i), target ? size_of(g->to.dtype) : 0, c.width,
          c.epsilon, c.gamma.empty() ? nullptr : c.gamma.data(), up, s, d,
          b.gamma.empty() ? nullptr : b.gamma.data() + at,
          b.gamma.empty() ? nullptr : b.beta.data() + at});
  }
}

// One part's addition of token i in channels [begin, end).
void add_token(Back& b, const PartGradient& g, Index from, Index i, Index begin,
               Index end) noexcept {
  const Addition& a = g.of[static_cast<std::size_t>(i)];
  if (a.slot == kFrozen) return;
  const bool f32_row = b.is_f32(), f32_to = g.to.dtype == DType::f32;
  const Index size = f32_row ? sizeof(float) : sizeof(double), n = end - begin;
  const std::byte* row =
      b.through() ? reinterpret_cast<const std::byte*>(b.d.data() + (i - from) * b.pitch) : b.up(i);
  const void* d = row + begin * size;
  void* to =
      const_cast<std::byte*>(b.row_of(g, a)) + begin * g.channel_stride * size_of(g.to.dtype);
  if (a.slot == kNoSlot) return b.kernels.add(f32_row, f32_to)({d, g.scale, n, to});
  double* sum = b.sums.data() + a.slot * b.pitch + begin;
  (f32_row ? b.kernels.accumulate_f32 : b.kernels.accumulate_f64)({d, g.scale, n, sum, a.first});
  if (!a.last) return;
  if (g.direct()) return b.kernels.add(false, f32_to)({sum, 1, n, to});
  add_row(g.to, a.element + begin * g.channel_stride, g.channel_stride, sum, n);
}

// All tokens, in order; tasks: threads that share them.
void all_tokens(Back& b, Isa isa, Index tokens, Index tasks, const Executor& executor) {
  const EmbedCall& c = b.call;
  const Index blocks = detail::block_count(c.width, kChannels);
  for (Index from = 0; from < c.count(); from += tokens) {
    const Index end = std::min(from + tokens, c.count());
    if (b.through())
      detail::parallel_blocks(executor, end - from, kBlock, tasks,
                              [&](Index, Index begin, Index stop, Index task) noexcept {
                                back_tokens(b, isa, from, from + begin, from + stop, task);
                              });
    detail::parallel_for(executor, blocks, tasks, [&](Index begin, Index stop) noexcept {
      const Index channel = begin * kChannels, last = std::min(stop * kChannels, c.width);
      for (Index i = from; i < end; ++i)
        for (const PartGradient& g : b.parts) add_token(b, g, from, i, channel, last);
    });
  }
}

// Whether gradients of two parts are the same memory: then one thread adds to both.
bool share_memory(std::span<const TensorView> parts) {
  for (std::size_t a = 0; a < parts.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (!parts[a].empty() && !parts[b].empty() &&
          detail::overlaps(detail::memory_of(parts[a]), detail::memory_of(parts[b])))
        return true;
  return false;
}

void check_parts(const EmbedCall& c, std::span<const EmbedPart> parts, const EmbedGradients& g) {
  if (!g.parts.empty() && g.parts.size() != parts.size())
    refuse(kEmbed, "there must be a gradient for each part, or none",
           static_cast<Index>(g.parts.size()));
  for (std::size_t n = 0; n < g.parts.size(); ++n) {
    const TensorView& d = g.parts[n];
    if (d.empty()) continue;
    check_gradient(d, "a gradient");
    const ConstTensorView& of = detail::is_given(parts[n].rows) ? parts[n].rows : parts[n].table;
    bool same = d.rank == of.rank;
    for (std::int32_t i = 0; same && i < d.rank; ++i)
      same = d.shape[static_cast<std::size_t>(i)] == of.shape[static_cast<std::size_t>(i)];
    if (!same) detail::refuse_shape(kEmbed, "a gradient must have the shape of its part", d);
  }
  for (const TensorView* v : {&g.gamma, &g.beta}) {
    if (v->empty()) continue;
    check_gradient(*v, "a gradient of the norm");
    if (!c.has_norm || v->rank != 1 || v->shape[0] != c.width)
      detail::refuse_shape(
          kEmbed,
          "a gradient of the norm must be [" + std::to_string(c.width) + "] and the norm be there",
          *v);
  }
}

}  // namespace

void embed_gradient(std::span<const EmbedPart> parts, const std::optional<EmbedNorm>& norm,
                    const ConstTensorView& d_y, const EmbedGradients& g, const Executor& executor) {
  const EmbedCall c = detail::check_embed(parts, norm, d_y, "d_y");
  check_parts(c, parts, g);
  if (c.count() == 0) return;
  const detail::Operand up{"d_y", detail::memory_of(d_y)};
  for (const TensorView& d : g.parts)
    detail::check_separate(kEmbed, up, {"a gradient", detail::memory_of(d)});
  const Isa isa = active_isa();
  const Index pitch =
      detail::block_count(c.width + detail::kRowPadding, kLineDoubles) * kLineDoubles;
  Back back{c, detail::embed_back_kernels(isa), {}, nullptr, pitch, {}, {}, {}, {}, {}, {}};
  Index slots = 0;
  for (std::size_t n = 0; n < g.parts.size(); ++n)
    if (!g.parts[n].empty()) back.parts.push_back(plan_part(c, n, g.parts[n], slots));
  if (!g.parts.empty() && !g.parts[c.order[0]].empty())
    for (const PartGradient& p : back.parts)
      if (p.part == c.order[0]) back.unread = &p;
  const bool parameters = c.has_norm && !(g.gamma.empty() && g.beta.empty());
  if (back.parts.empty() && !parameters) return;
  const Index most = c.count() * c.width / detail::kValuesPerTask;
  const Index tasks = share_memory(g.parts) ? 1 : detail::task_count(executor, c.count(), most);
  // One thread finds what it wrote in its cache; several meet not too often.
  const Index tokens = std::min(c.count(), tasks == 1 ? 2 * kLineDoubles : 4 * kBlock * tasks);
  const Index blocks = detail::block_count(c.count(), kBlock);
  if (c.has_norm || size_of(c.dtype) == 2) back.d = LineDoubles(tokens * pitch);
  back.sums = LineDoubles(slots * pitch);
  back.s = LineDoubles(2 * tasks * pitch);
  back.rows.resize(static_cast<std::size_t>(2 * tasks * c.part_count()));
  if (parameters) {
    back.gamma.resize(static_cast<std::size_t>(blocks * c.width));
    back.beta.resize(back.gamma.size());
  }
  all_tokens(back, isa, tokens, tasks, executor);
  const auto add_blocks = [&](const TensorView& to, const std::vector<double>& from) {
    if (to.empty()) return;
    std::vector<double> sum(static_cast<std::size_t>(c.width));
    for (Index b = 0; b < blocks; ++b) add_row(sum.data(), 1, from.data() + b * c.width, c.width);
    add_row(to, 0, to.stride[0], sum.data(), c.width);
  };
  add_blocks(g.gamma, back.gamma);
  add_blocks(g.beta, back.beta);
}

}  // namespace posenc::v0
