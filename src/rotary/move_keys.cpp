// SPDX-License-Identifier: Apache-2.0
// Moves keys a chunk of tokens at a time: by one row of cosine and sine if all move by one distance, by
// the phase of the distances or of old and new positions, or by a row for each token.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "core/head_views.h"
#include "core/parallel.h"
#include "rotary/rerotation_state.h"

namespace posenc::inline v0::detail {
namespace {

constexpr Index kRowBytes = 32 << 10, kFloatBytes = 64 << 10;  // on the stack of a task
constexpr Index kFloatsAtOnce = 16 << 10;  // bytes: they stay in the first cache

Index rows_bytes(const RerotationState& s) noexcept {
  const RotaryPlanState& plan = StateAccess::of(s.stored);
  return plan.row_columns * (s.type == KeyType::f64 ? 8 : 4);
}
Index floats_bytes(const RerotationState& s, const Heads& h) noexcept {
  return s.q8 == nullptr ? 0 : h.heads * s.head_size() * 4;
}

void copy_keys(const Heads& in, const Heads& out) noexcept {
  const Index size = size_of(in.dtype);
  for (Index t = 0; t < in.tokens; ++t)
    for (Index h = 0; h < in.heads; ++h) {
      const std::byte* x = static_cast<const std::byte*>(in.data) +
                           (t * in.token_stride + h * in.head_stride) * size;
      std::byte* y =
          static_cast<std::byte*>(out.data) + (t * out.token_stride + h * out.head_stride) * size;
      if (in.dim_stride == 1 && out.dim_stride == 1) {
        std::memcpy(y, x, static_cast<std::size_t>(in.dim * size));
        continue;
      }
      for (Index i = 0; i < in.dim; ++i)
        std::memcpy(y + i * out.dim_stride * size, x + i * in.dim_stride * size,
                    static_cast<std::size_t>(size));
    }
}

// What a task works with.
struct MoveTask {
  const KeyCall& call;
  std::byte* row_memory;
  Index rows_at_once;
  bool large, stream;
  KeyRows rows;
  KeyChunk chunk;
  bool has_row = false;  // of `last_distance`, at the beginning of row_memory
  std::int64_t last_distance[kMaxAxes];

  MoveTask(const KeyCall& c, std::byte* memory, Index bytes, bool is_large, bool streams)
      : call(c),
        row_memory(memory),
        rows_at_once(
            std::clamp<Index>(bytes / std::max<Index>(rows_bytes(c.state), 1), 1, kKeyTokens)),
        large(is_large),
        stream(streams),
        rows(c.state.from, c.state.to, *c.state.rows) {}

  void make_rows(Index first, Index n) noexcept {
    rows.old_positions = chunk.from, rows.new_positions = chunk.to;
    const Index bytes = rows_bytes(call.state);
    for (Index t = 0; t < n; ++t) {
      std::byte* to = row_memory + t * bytes;
      if (call.state.type == KeyType::f64)
        rows.row(first + t, reinterpret_cast<double*>(to));
      else
        rows.row(first + t, reinterpret_cast<float*>(to));
    }
  }
  void run(const RotaryPlan& plan, const Heads& in, const Heads& out, const Positions* positions,
           const RowSource* source) const noexcept {
    const RotaryPlanState& s = StateAccess::of(plan);
    const QK x{{}, in}, y{{}, out};
    RotateCall r;
    r.in = &x, r.out = in.data == out.data ? &x : &y;
    r.blocks = s.tables.data(), r.block_count = s.block_count;
    r.gaps = s.gaps.data(), r.gap_count = s.gap_count;
    r.positions = positions;
    if (source != nullptr) r.rows = source;
    r.access = s.access, r.large = large, r.stream = stream;
    s.kernels.rotate(r, 0, in.tokens);
  }
  RowSource source(Index token_stride) const noexcept {
    const RotaryPlanState& s = StateAccess::of(call.state.stored);
    RowSource r;
    r.kind = RowSource::Kind::plan;
    r.block_column = s.block_column.data();
    r.cos.data = row_memory;
    r.cos.dtype = s.dtype == DType::f64 ? DType::f64 : DType::f32;
    r.cos.token_stride = token_stride;
    return r;
  }
  bool same_distance() const noexcept {
    if (!has_row) return false;
    for (Index a = 0; a < chunk.distance.axes; ++a)
      if (chunk.moved[a][0] != last_distance[a]) return false;
    return true;
  }
  void by_one_row(const Heads& in, const Heads& out) noexcept {
    if (!same_distance()) {
      make_rows(0, 1);
      for (Index a = 0; a < chunk.distance.axes; ++a) last_distance[a] = chunk.moved[a][0];
      has_row = true;
    }
    const RowSource r = source(0);
    run(call.state.stored, in, out, nullptr, &r);
  }
  void by_rows(const Heads& in, const Heads& out, Index token) noexcept {
    has_row = false;
    const RowSource r = source(StateAccess::of(call.state.stored).row_columns);
    for (Index t = 0; t < in.tokens; t += rows_at_once) {
      const Index n = std::min(rows_at_once, in.tokens - t);
      make_rows(token + t, n);
      run(call.state.stored, token_range(in, 0, t, n), token_range(out, 0, t, n), nullptr, &r);
    }
  }

  // Tokens of the chunk from `token` on; in and out are of the arithmetic's dtype.
  void rotate(const Heads& in, const Heads& out, Index token) noexcept {
    const RerotationState& s = call.state;
    if (s.turns && chunk.uniform) return by_one_row(in, out);
    const bool by_phase = !s.by_rows && !chunk.far;
    const bool by_distance = by_phase && chunk.whole_distance && s.shift.has_value();
    if (!by_distance && (!by_phase || chunk.mixed || !s.difference.has_value()))
      return by_rows(in, out, token);
    Positions p = by_distance ? chunk.distance : chunk.both;
    p.data = static_cast<const std::int64_t*>(p.data) + token;  // or double: 8 bytes
    p.count = in.tokens;
    run(by_distance ? *s.shift : *s.difference, in, out, &p, nullptr);
  }
};

// The blocks of q8_0 that rotate, token after token, by way of f32.
struct BlockMove {
  MoveTask& task;
  float* numbers;
  Index at_once;

  template <class F>
  void each_block(const Heads& h, const F& f) const noexcept {
    const std::vector<Index>& list = task.call.state.blocks;
    const Index dim = task.call.state.head_size();
    const auto rotated = static_cast<Index>(list.size());
    if (rotated * kQ8Numbers == dim && h.head_stride == h.dim &&
        (h.tokens == 1 || h.token_stride == h.heads * h.dim))
      return f(static_cast<std::byte*>(h.data), h.tokens * h.heads * rotated, numbers);
    for (Index t = 0; t < h.tokens; ++t)
      for (Index i = 0; i < h.heads; ++i) {
        std::byte* bytes = static_cast<std::byte*>(h.data) + t * h.token_stride + i * h.head_stride;
        float* x = numbers + (t * h.heads + i) * dim;
        for (std::size_t b = 0; b < list.size();) {
          std::size_t end = b + 1;
          while (end < list.size() && list[end] == list[end - 1] + 1) ++end;
          f(bytes + list[b] * kQ8Bytes, static_cast<Index>(end - b), x + list[b] * kQ8Numbers);
          b = end;
        }
      }
  }
  void run(const Heads& all) const noexcept {
    const RerotationState& s = task.call.state;
    for (Index t = 0; t < all.tokens; t += at_once) {
      const Heads keys = token_range(all, 0, t, std::min(at_once, all.tokens - t));
      const Heads x = dense_heads(numbers, DType::f32, keys.tokens, keys.heads, s.head_size());
      each_block(keys,
                 [&](const std::byte* b, Index n, float* to) noexcept { s.q8->read(b, n, to); });
      task.rotate(x, x, t);
      each_block(keys, [&](std::byte* b, Index n, const float* from) noexcept {
        s.q8->write(from, n, b);
      });
    }
  }
};

// Returns whether a key moves.
bool move_chunk(MoveTask& task, float* numbers, Index group, Index first, Index n) noexcept {
  const KeyCall& call = task.call;
  KeyChunk& chunk = task.chunk;
  chunk.read(call, group, first, n);
  const Index from = call.in_pages != nullptr ? call.in_pages[group] : group;
  const Index to = call.out_pages != nullptr ? call.out_pages[group] : group;
  const Heads in = token_range(call.in, from, first, n), out = token_range(call.out, to, first, n);
  if (call.state.keeps(chunk)) {
    if (in.data != out.data) copy_keys(in, out);
    return false;
  }
  if (call.state.q8 == nullptr) {
    task.rotate(in, out, 0);
    return true;
  }
  const Index at_once =
      std::clamp<Index>(kFloatsAtOnce / floats_bytes(call.state, in), 1, kKeyTokens);
  if (in.data != out.data) copy_keys(in, out);
  BlockMove{task, numbers, at_once}.run(out);
  return true;
}

Index bytes_of(const KeyCall& c, Index tokens) noexcept {
  return tokens * c.in.heads * c.in.dim * size_of(c.in.dtype);
}

// Chunks of all groups, in order; those of a group of `tokens` are `each`.
struct Chunks {
  const KeyCall& call;
  Index each, size;
  explicit Chunks(const KeyCall& c)
      : call(c), each(block_count(c.in.tokens, kKeyTokens)), size(kKeyTokens) {}
  Index count() const noexcept { return call.groups * each; }
};

void move_chunks(MoveTask& task, float* numbers, const Chunks& chunks, Index begin, Index end,
                 std::atomic<bool>& moved) noexcept {
  bool any = false;
  for (Index i = begin; i < end; ++i) {
    const Index group = i / chunks.each, first = i % chunks.each * chunks.size;
    const Index n = std::min(chunks.size, task.call.tokens(group) - first);
    if (n > 0) any |= move_chunk(task, numbers, group, first, n);
  }
  if (any) moved.store(true, std::memory_order_relaxed);
}

// One distance of all tokens of a tensor, which is then rotated as a whole.
bool one_distance(const KeyCall& c, KeyChunk& chunk) noexcept {
  std::int64_t distance[kMaxAxes];
  for (Index g = 0; g < c.groups; ++g)
    for (Index t = 0; t < c.in.tokens; t += kKeyTokens) {
      chunk.read(c, g, t, std::min(kKeyTokens, c.in.tokens - t));
      if (!chunk.uniform) return false;
      for (Index a = 0; a < chunk.distance.axes; ++a) {
        if (g == 0 && t == 0) distance[a] = chunk.moved[a][0];
        if (chunk.moved[a][0] != distance[a]) return false;
      }
    }
  return true;
}

[[gnu::noinline]] MoveVerdict move_whole(const KeyCall& call, const Executor& executor,
                                         std::byte* memory, Index bytes) {
  MoveTask task(call, memory, bytes, false, false);
  task.chunk.read(call, 0, 0, std::min(kKeyTokens, call.in.tokens));
  if (call.state.keeps(task.chunk)) {
    for (Index g = 0; g < call.groups && !call.in_place; ++g)
      copy_keys(token_range(call.in, g, 0, call.in.tokens),
                token_range(call.out, g, 0, call.in.tokens));
    return MoveVerdict::kept;
  }
  task.make_rows(0, 1);
  RowSource source = task.source(0);
  const QK x{{}, call.in}, y{{}, call.out};
  RotateCall r;
  r.in = &x, r.out = call.in_place ? &x : &y;
  r.rows = &source;
  run_rotation(StateAccess::of(call.state.stored), r, call.groups * call.in.tokens, executor);
  return MoveVerdict::moved;
}

}  // namespace

MoveVerdict move_keys(const KeyCall& call, const Executor& executor) {
  const RerotationState& s = call.state;
  if (s.decays) check_range(call);
  const Index row = rows_bytes(s), number = floats_bytes(s, call.in);
  if (call.in_pages == nullptr && s.turns && s.q8 == nullptr && row <= kRowBytes) {
    KeyChunk chunk;
    alignas(64) std::byte memory[kRowBytes];
    if (one_distance(call, chunk)) return move_whole(call, executor, memory, kRowBytes);
  }
  const Chunks chunks(call);
  const Index bytes = bytes_of(call, call.groups * call.in.tokens);
  const Index tasks = task_count(executor, chunks.count(), bytes / kBytesPerTask);
  // More than the stack is for: see the header.
  const Index own = (row > kRowBytes ? row : 0) + (number > kFloatBytes ? number : 0);
  std::unique_ptr<std::byte[]> heap;
  if (own > 0) heap = std::make_unique<std::byte[]>(static_cast<std::size_t>(tasks * own));
  std::atomic<bool> moved{false};
  const bool large = s.q8 == nullptr && bytes > kLargeBytes;
  const bool stream = large && bytes > kStreamBytes && !call.in_place;
  parallel_for(executor, chunks.count(), bytes / kBytesPerTask,
               [&](Index begin, Index end, Index i) noexcept {
                 alignas(64) std::byte stack[kRowBytes];
                 std::byte* mine = heap.get() + i * own;
                 std::byte* rows = row > kRowBytes ? mine : stack;
                 MoveTask task(call, rows, std::max(row, kRowBytes), large, stream);
                 if (s.q8 == nullptr) return move_chunks(task, nullptr, chunks, begin, end, moved);
                 alignas(64) float small[kFloatBytes / 4];
                 float* numbers = number > kFloatBytes
                                      ? reinterpret_cast<float*>(mine + (row > kRowBytes ? row : 0))
                                      : small;
                 move_chunks(task, numbers, chunks, begin, end, moved);
               });
  return moved.load() ? MoveVerdict::moved : MoveVerdict::kept;
}

}  // namespace posenc::v0::detail
