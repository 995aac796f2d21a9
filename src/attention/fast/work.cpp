// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/work.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace posenc::inline v0::detail {

const void* adjacent(const ConstHeads& x, Index at, std::byte* memory) noexcept {
  const Index size = size_of(x.dtype);
  const std::byte* from = static_cast<const std::byte*>(x.data) + at * size;
  if (x.dim_stride == 1) return from;
  for (Index d = 0; d < x.dim; ++d)
    std::memcpy(memory + d * size, from + d * x.dim_stride * size, static_cast<std::size_t>(size));
  return memory;
}

namespace {

// Pieces that are worth a cut of heads, and numbers of the sums of all pieces, or a part of the numbers of q.
constexpr Index kWantedParts = 8, kMostKeySums = Index{1} << 23, kPartOfQueries = 4;

// Parts of the heads that share keys, each with gradients of these keys of its own. By the shape alone.
Index backward_head_parts(const ReadyCall& c) noexcept {
  const Index share = c.H / c.G, pieces = std::max<Index>(1, c.B * c.G);
  const Index each = std::max<Index>(1, pieces * c.Tk * (c.D + c.V));
  const Index most = std::max(kMostKeySums, c.B * c.H * c.Tq * c.D / kPartOfQueries) / each;
  return std::clamp<Index>(std::min({share, kWantedParts / pieces, most}), 1, share);
}

// Whether rows of a table are multiplied with k.
bool reads_content(const RowTerms& rows) noexcept {
  const auto all = rows.all();
  return std::any_of(all.begin(), all.end(),
                     [](const RowTerm& t) { return t.of_keys && t.is_content(); });
}

}  // namespace

FastCall::FastCall(const ReadyCall& call, const LoweredCall& lowered, Keep keep, CallArena& arena,
                   const Executor& executor)
    : ReadyCall(call),
      kernels(fast_kernels(active_isa())),
      row_reads(fast_read_kernels(active_isa())),
      starts(*this, lowered, arena),
      wide(*this, kernels, arena, executor),
      channels(wide.channels()),
      head_parts(keep == Keep::inputs ? backward_head_parts(*this) : 1),
      rows(*this, starts, kernels, keep != Keep::inputs && has_few_rows(*this), arena, executor),
      value_rows(*this, kernels,
                 keep == Keep::inputs  ? ValueRows::For::gradients
                 : has_few_rows(*this) ? ValueRows::For::few_queries
                                       : ValueRows::For::strips,
                 arena),
      gates(*this, kernels, arena, executor),
      weights(*this, arena),
      regions(*this, arena),
      words(keep == Keep::inputs || has_few_rows(*this) ? nullptr : words_of(*this)),
      channel_words(words == nullptr ? 0 : whole_vectors((D + 1) / 2, words->whole_words)),
      strips(words == nullptr ? StripShape{kernels.rows, kernels.few_rows, kernels.block_keys}
                              : StripShape{words->rows, words->few_rows, words->block_keys}),
      turns(*this, lowered, keep != Keep::nothing || !gates.none() || reads_content(rows), arena),
      blocks(fast_row_blocks(*this, block_shape(), arena)),
      flags(*this, arena),
      filtered(reads_pairs(*this)),
      ranked(reads_ranks(*this)),
      bias(*this, starts, flags),
      by_head(!args.mask.head_side.empty() || !args.mask.chunk_origin.empty()),
      alike(are_places_alike(*this)),
      panel(2 * kernels.lanes),
      value_vectors((V + kernels.lanes - 1) / kernels.lanes),
      value_panels((value_vectors + 1) / 2),
      gate_kernels(fast_gate_kernels(active_isa())),
      stick_kernels(fast_stick_kernels(active_isa())),
      weight_kernels(fast_weight_kernels(active_isa())),
      cap_kernels(fast_cap_kernels(active_isa())),
      cap{static_cast<float>(args.softcap * kLog2E),
          args.softcap_after_terms && !(starts.adds_nothing() && rows.none())} {
  const PreparedQK prepared =
      prepare_qk(*this, regions, lowered, keep, !turns.none(), arena, executor);
  q = prepared.q, k = prepared.k, seen = prepared.seen, before = prepared.before;
  regions.use(prepared.regions);
  sets = prepared.sets;
  copies_keys = k.data != args.k.data;
  bool strided = args.q.dim_stride != 1 || args.k.dim_stride != 1 || args.v.dim_stride != 1;
  for (const ScoreRegion& r : args.regions) strided = strided || r.qk.k.dim_stride != 1;
  copy_bytes = strided ? static_cast<std::size_t>(std::max(D, V)) * sizeof(float) : 0;
  one_block = words == nullptr && Tk <= kernels.block_keys && regions.none();
  key_lengths = find_key_lengths(*this, arena, executor);
}

BlockShape FastCall::block_shape() const noexcept {
  Index floats = channels * (1 + static_cast<Index>(regions.size())) + V;
  for (const RowTerm& t : rows.all()) floats += t.channels + (t.by_line ? 0 : t.steps());
  return {strips.rows, splits_groups(), rows_of_block(*this, floats)};
}

FastRow FastCall::row(Index b, Index h, Index i) const noexcept {
  FastRow r{b, h, i, place(b, i), {}, 0};
  r.bounds = visible_bounds(*this, b, h, r.place);
  if (ranked) r.orders = rank_runs(*this, b, h, r.place);
  r.entry = entry_of(r);
  if (starts.has_offsets()) r.offset = starts.offset_of(r);
  return r;
}

Index FastCall::entry_of(const FastRow& r) const noexcept {
  if (starts.has_lines() || starts.has_pictures()) return starts.entry_of(r);
  const DistanceCurve* curve = starts.curve();
  return curve != nullptr && curve->is_line() ? curve->entry(r.b, r.i, r.place.row) : 0;
}

bool FastCall::take_query(Index b, Index h, Index i, float* to, Index width) const noexcept {
  const auto scale = static_cast<float>(row_factor(b, h, i) * kLog2E);
  return std::isfinite(scale) && take_vector(kernels, q, b, i, h, scale, to, width) &&
         (wide.none() || wide.add_query(kernels, q, b, h, i, to));
}

const void* FastCall::token(const ConstHeads& x, Index row, Index group, Index j,
                            std::byte* memory) const noexcept {
  const ConstTensorView& pages = args.block_table;
  Index at = group * x.head_stride;
  if (pages.empty() || (copies_keys && x.data == k.data))
    at += row * x.batch_stride + j * x.token_stride;
  else
    at += read_index(pages, row, j / x.tokens) * x.batch_stride + j % x.tokens * x.token_stride;
  return adjacent(x, at, memory);
}

namespace {

// A page of a table, any of those that nobody reads.
Index read_page(const ConstTensorView& pages, Index row, Index n, Index count) noexcept {
  const Index page = read_index(pages, row, n);
  return page >= 0 && page < count ? page : 0;
}

// Whether the copy of k holds the key: some query may see one of its tile.
bool is_prepared(const FastCall& c, Index row, Index j) noexcept {
  if (c.seen.empty()) return true;
  return c.seen[static_cast<std::size_t>(row * (whole_tiles(c.Tk) / kTile) + j / kTile)] != 0;
}

}  // namespace

bool FastCall::is_in_place(int region, Index row, Index j) const noexcept {
  if (sets.empty() || args.regions[static_cast<std::size_t>(region)].rotary == nullptr)
    return false;
  const RegionSet s = sets[static_cast<std::size_t>(row * (whole_tiles(Tk) / kTile) + j / kTile)];
  return is_single(s) || (s & (kNoRegion << (region + 1))) == 0;
}

void FastCall::fill_tokens(const ConstHeads& x, Index row, Index group, Run keys, Run some,
                           std::byte* copies, const void** to) const noexcept {
  const ConstTensorView &visible = args.mask.key_visible, &pages = args.block_table;
  if (x.dim_stride == 1 && seen.empty() && visible.empty()) {
    const Index step = x.token_stride * size_of(x.dtype);
    // Tokens side by side: all keys, or those of a page.
    for (Index j = keys.begin; j < keys.end;) {
      const Index first = pages.empty() ? 0 : j - j % x.tokens;
      const Index end = pages.empty() ? keys.end : std::min(keys.end, first + x.tokens);
      const auto* const from =
          static_cast<const std::byte*>(x.data) +
          ((pages.empty() ? row : read_page(pages, row, first / x.tokens, x.batch)) *
               x.batch_stride +
           group * x.head_stride) *
              size_of(x.dtype);
      for (; j < end; ++j)
        *to++ = j >= some.begin && j < some.end ? from + (j - first) * step : nullptr;
    }
    return;
  }
  const auto bytes = static_cast<Index>(copy_bytes);
  for (Index j = keys.begin; j < keys.end; ++j) {
    const bool hidden = j < some.begin || j >= some.end || !is_prepared(*this, row, j) ||
                        (!visible.empty() && read_index(visible, row, j) == 0);
    *to++ = hidden ? nullptr : token(x, row, group, j, copies + (j - keys.begin) * bytes);
  }
}

void FastCall::fill_region_tokens(int number, Index row, Index head, Run keys, Run some,
                                  std::byte* copies, const void** to) const noexcept {
  fill_tokens(k, row, group(head), keys, some, copies, to);
  if (number < 0) return;
  const ConstHeads& x = regions.qk(number).k;
  const Index first = row * x.batch_stride + Grouping{H, x.heads}.of(head) * x.head_stride;
  for (Index j = std::max(keys.begin, some.begin); j < std::min(keys.end, some.end); ++j) {
    const void*& token = to[j - keys.begin];
    if (token != nullptr && !is_in_place(number, row, j))
      token = adjacent(x, first + j * x.token_stride,
                       copies + (j - keys.begin) * static_cast<Index>(copy_bytes));
  }
}

FastRowWork::FastRowWork(const FastCall& c, Index count, Index keys, CallArena& arena)
    : block_keys(keys) {
  rows = BoundedList(arena.array<FastRow>(count));
  groups = BoundedList(arena.array<RowGroup>(count));
  left = arena.array<std::uint8_t>(count);
  tops = arena.array<double>(c.starts.adds_nothing() ? 0 : count);
  // Runs of keys write a vector behind the last one.
  starts = arena.array<float>(c.strips.rows * keys + kMostLanes);
  start = arena.array<double>(keys);
  runs = RunList(arena.array<Run>(keys / 2 + 2));
  const std::span<const RowTerm> terms = c.rows.all();
  row_terms = arena.made<RowTermWork>(static_cast<Index>(terms.size()), [&](Index n) {
    return RowTermWork(terms[static_cast<std::size_t>(n)], c.kernels, count, keys, arena);
  });
  row_starts = arena.array<float>(c.rows.none() ? 0 : c.kernels.rows * keys + kMostLanes);
  key_runs = arena.array<FastRun>(c.rows.none() ? 0 : keys);
  picks = arena.array<std::int32_t>(c.rows.none() && c.starts.adds_nothing() ? 0 : keys);
  pictures = PictureWork(c.starts.has_pictures(), keys, arena);
  const Index strip_rows = std::max(c.kernels.rows, kFewRows);
  classes = ClassWork(c.starts.classes(), std::max(c.strips.rows, kFewRows), keys, arena);
  region_starts = arena.array<float>(c.regions.none() ? 0 : strip_rows * keys);
  pieces = arena.array<Index>(c.starts.curve() == nullptr ? 0 : count);
  if (!arena.counts()) std::fill(pieces.begin(), pieces.end(), Index{0});
  copies = arena.array<std::byte>(keys * static_cast<Index>(c.copy_bytes));
}

namespace {

// Rows of the same queries of other heads, or of other entries of the batch, differ in little.
void move_rows(const FastCall& c, const FastRowBlock& block, FastRowWork& w) noexcept {
  const Index by = block.head - w.found.head;
  for (FastRow& r : w.rows) r.h += by, r.entry += by * c.starts.line_size();
  if (block.b != w.found.b)
    for (FastRow& r : w.rows) {
      r.b = block.b, r.place.row = block.row;
      r.entry = c.entry_of(r);
    }
  for (FastRow& r : w.rows)
    if (c.starts.has_offsets()) r.offset = c.starts.offset_of(r);
  w.found = block;
}

}  // namespace

void find_rows(const FastCall& c, const FastRowBlock& block, FastRowWork& w) noexcept {
  const FastRowBlock& last = w.found;
  if (!c.by_head && (last.b == block.b || (c.alike && last.b >= 0)) && last.begin == block.begin &&
      last.end == block.end && last.head_end - last.head == block.head_end - block.head) {
    move_rows(c, block, w);
    return find_tops(c, {w.groups.begin(), w.groups.end()}, w.tops.data());
  }
  w.rows.clear(), w.groups.clear(), w.found = block;
  const Index most = c.strips.rows, few = c.strips.few_rows;
  // Rows of a causal mask see different keys, so a small group computes less that is hidden. Groups of four, where there
  // are 16 registers, take longer than they save.
  const bool stepped = c.args.mask.causal && few >= 8 && most < 2 * few;
  for (Index h = block.head; h < block.head_end; ++h)
    for (Index i = block.begin; i < block.end;) {
      const Index rest = block.end - i;
      // 16 rows are 8 + 8, not 12 and 4 of 12.
      const bool by_few = rest <= few || (rest > most && (stepped || rest <= 2 * few));
      RowGroup g;
      g.kind = by_few ? 1 : 0, g.rows = by_few ? few : most;
      g.first = static_cast<Index>(w.rows.size()), g.count = std::min(rest, g.rows);
      for (Index n = 0; n < g.count; ++n) w.rows.push_back(c.row(block.b, h, i + n));
      for (Index n = g.count; n < g.rows; ++n) w.rows.push_back(w.rows.back());
      w.groups.push_back(g);
      i += g.count;
    }
  for (RowGroup& g : w.groups) {
    g.row = w.rows.data() + g.first, g.slot = c.one_block ? 0 : g.first;
    find_bounds(g);
  }
  find_tops(c, {w.groups.begin(), w.groups.end()}, w.tops.data());
}

void fill_zeros(const FastCall& c, const RowGroup& g, StripStarts& s) noexcept {
  std::fill_n(s.at, g.rows, c.weights.zeros());
}

void fill_weights(const FastCall& c, const RowGroup& g, Index key, const float** weight) noexcept {
  for (Index n = 0; n < g.rows; ++n) weight[n] = c.weights.of(g.row[n]) + key;
}

FastWork::FastWork(const FastCall& c, CallArena& arena)
    : FastRowWork(c, most_rows_of_block(c, c.block_shape()), c.strips.block_keys, arena),
      gates(c, static_cast<Index>(left.size()), c.strips.block_keys, arena),
      sticks(c, static_cast<Index>(left.size()), arena),
      words(c, static_cast<Index>(left.size()), arena) {
  const FastKernels& k = c.kernels;
  const Index count = static_cast<Index>(left.size()), width = c.value_panels * c.panel;
  reference = arena.array<double>(count);
  skips = arena.array<std::uint8_t>(count);
  query_copies = arena.array<std::byte>(c.strips.rows * static_cast<Index>(c.copy_bytes));
  const Index slots = c.one_block ? c.strips.rows : count;
  q = arena.array<float>(slots * c.channels);
  out = arena.array<float>(slots * width);
  sums = arena.array<float>(slots * k.lanes);
  totals = arena.array<float>(count);
  const Index block = c.words == nullptr ? k.block_keys : 0;
  keys = arena.array<float>(block * c.channels);
  values = arena.array<float>(block * width);
  weights = arena.array<float>(c.strips.rows * c.strips.block_keys);
  const auto sets = static_cast<Index>(c.regions.size());
  regions.q = arena.array<float>(sets * count * c.channels);
  regions.keys = arena.array<float>(sets * k.block_keys * c.channels);
  const std::span<const ValueRowTerm> terms = c.value_rows.all();
  value_rows = arena.made<ValueRowWork>(static_cast<Index>(terms.size()), [&](Index n) {
    return ValueRowWork(terms[static_cast<std::size_t>(n)], k, count, arena);
  });
  tokens = arena.array<const void*>(c.strips.block_keys);
}

}  // namespace posenc::v0::detail
