// SPDX-License-Identifier: Apache-2.0
// Blocks of rows, forward. For each block of keys that some row sees, they are packed once, and strips of rows pass
// over them. Blocks that a strip does not see are left out; those that all of its rows see need no mask.
#include <algorithm>
#include <cmath>

#include "attention/call/pieces.h"
#include "attention/fast/decode.h"
#include "attention/fast/engine.h"
#include "attention/fast/prefetch.h"
#include "attention/fast/work.h"
#include "core/element.h"
#include "core/parallel.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {
namespace {

// Products of so many channels of kLargestValue are finite.
constexpr Index kMostChannels = 1024;
constexpr double kSmallestCap = 0x1p-40, kLargestCap = 0x1p40;

// q with the channels of products, row by row.
void take_wide_queries(const FastCall& c, FastWork& w) noexcept {
  for (const RowGroup& g : w.groups)
    for (Index n = 0; n < g.rows; ++n) {
      const FastRow& r = g.row[n];
      float* to = w.q.data() + (g.first + n) * c.channels;
      const bool bounded = c.take_query(r.b, r.h, r.i, to, c.D);
      w.left[static_cast<std::size_t>(g.first + n)] = bounded ? 0 : 1;
      if (!bounded) std::fill_n(to, c.channels, 0.0f);
    }
}

void take_queries(const FastCall& c, FastWork& w) noexcept {
  if (!c.wide.none()) return take_wide_queries(c, w);
  const std::size_t type = fast_type(c.q.dtype);
  const ConstHeads& q = c.q;
  const bool same = c.args.query_factor.empty();  // of all rows
  for (const RowGroup& g : w.groups) {
    const void* from[kMostStripRows];
    float factors[kMostStripRows];
    const FastRow& r = *g.row;  // the others follow it
    const Index at = r.b * q.batch_stride + r.i * q.token_stride + r.h * q.head_stride;
    const auto factor_of = [&](const FastRow& row) {
      return static_cast<float>(c.row_factor(row.b, row.h, row.i) * kLog2E);
    };
    std::fill_n(factors, g.rows, factor_of(r));
    for (Index n = 0; n < g.rows; ++n) {
      from[n] = adjacent(q, at + std::min(n, g.count - 1) * q.token_stride,
                         w.copies.data() + n * static_cast<Index>(c.copy_bytes));
      if (!same) factors[n] = factor_of(g.row[n]);
    }
    float* to = w.q.data() + g.first * c.D;
    const bool finite =
        std::all_of(factors, factors + g.rows, [](float x) { return std::isfinite(x); });
    std::fill_n(w.left.data() + g.first, g.rows, std::uint8_t{0});
    if (c.kernels.take_rows[type](to, c.D, from, g.rows, c.D, factors) && finite) continue;
    for (Index n = 0; n < g.rows; ++n, to += c.D) {
      if (std::isfinite(factors[n]) && c.kernels.take_row[type](to, from[n], c.D, factors[n]))
        continue;
      w.left[static_cast<std::size_t>(g.first + n)] = 1;
      std::fill_n(to, c.D, 0.0f);
    }
  }
}

// Another engine computes these rows.
void leave(FastWork& w, const RowGroup& g) noexcept {
  std::fill_n(w.left.data() + g.first, g.rows, std::uint8_t{1});
}

// Rows whose numbers that multiply q.k float does not hold are left.
void leave_weights(const FastCall& c, FastWork& w) noexcept {
  for (const RowGroup& g : w.groups)
    if (!c.weights.none() && !c.weights.is_bounded(g.row->b, g.row->h)) leave(w, g);
}

void clear_rows(const FastCall& c, FastWork& w, RowGroup& g) noexcept {
  g.begun = false;  // the first block of keys writes `out`
  std::fill_n(w.sums.data() + g.first * c.kernels.lanes, g.rows * c.kernels.lanes, 0.0f);
  begin_references(c, g, w.tops, w.reference.data() + g.first);
}

// The keys of a block that some group sees, packed. False: a number of them is none that float can work with.
bool pack(const FastCall& c, const FastRowBlock& block, Run keys, FastWork& w) noexcept {
  if (c.words != nullptr) return pack_words(c, block, keys, w);
  const Index count = keys.end - keys.begin;
  const Run seen = c.seen_by(w.groups, keys);
  const auto fill = [&](const ConstHeads& x) {
    c.fill_tokens(x, block.row, c.group(block.head), keys, seen, w.copies.data(), w.tokens.data());
  };
  bool k = true;
  for (const WideProduct& t : c.wide.terms()) {
    if (t.channels == 0) continue;
    // Of a key that no row sees nothing is read.
    fill(c.k);
    for (Index n = 0; n < count; ++n)
      if (const void*& from = w.tokens[static_cast<std::size_t>(n)]; from != nullptr)
        from = c.wide.key(t, block.row, block.head, keys.begin + n);
    k = c.kernels.pack_keys[fast_type(t.y.dtype)](w.keys.data() + t.at * c.panel, w.tokens.data(),
                                                  count, t.channels, c.channels) &&
        k;
  }
  // Terms that read rows find in the tokens which keys are hidden.
  fill(c.k);
  w.regions.packed = w.regions.unbounded = 0;
  if (c.regions.none())
    k = c.kernels.pack_keys[fast_type(c.k.dtype)](w.keys.data(), w.tokens.data(), count, c.D,
                                                  c.channels) &&
        k;
  take_row_keys(c, w, {w.keys.data(), w.tokens, block.row, keys});
  k = pack_gate_keys(c, w, block, keys, seen) && k;
  if (c.value_vectors == 0) return k;
  fill(c.given_v);
  return c.kernels.pack_values[fast_type(c.given_v.dtype)](w.values.data(), w.tokens.data(), count,
                                                           c.V) &&
         k;
}

void fill_shifts(const FastWork& w, const RowGroup& g, StripStarts& s) noexcept {
  for (Index n = 0; n < g.rows; ++n)
    s.shift[n] = static_cast<float>(s.base[n] - w.reference[static_cast<std::size_t>(g.first + n)]);
}

// With the q and packed keys of one region, from a panel of keys on.
struct StripQK {
  const float *q, *keys, *values;
};
void run_part(const FastCall& c, FastWork& w, RowGroup& g, Run keys, const StripQK& qk,
              StripStarts& s, bool given, bool careful) noexcept {
  const bool gated = !c.gates.none() && counts_gates(c, w, g);
  if (!c.gates.none() && !(gated && c.gates.has_levels())) add_gates_behind(c, w, g, s);
  fill_shifts(w, g, s);
  const FastBlock block{qk.keys, qk.values, c.channels, c.value_vectors};
  FastStrip strip;
  strip.q = qk.q + g.first * c.channels;
  strip.out = w.out.data() + g.first * c.value_panels * c.panel;
  strip.sums = w.sums.data() + g.first * c.kernels.lanes;
  strip.reference = w.reference.data() + g.first;
  strip.base = s.base, strip.shift = s.shift, strip.start = given ? s.at : nullptr;
  strip.weights = w.weights.data(), strip.keys = s.keys;
  strip.first = !g.begun, g.begun = true;
  if (breaks_sticks(c.args)) {
    // Sums of weights are not kept.
    if (run_stick_strip(c, w, g, block, strip)) add_value_rows(c, w, g, keys, s.keys, true);
    return;
  }
  if (c.words != nullptr) {
    if (!run_words(c, w, g, strip, given, careful)) leave(w, g);
    return;
  }
  const std::size_t start = given ? 1 : 0;
  const float* weight[kMostStripRows];
  if (!c.weights.none()) {
    if (!given) fill_zeros(c, g, s);
    strip.start = s.at;
    fill_weights(c, g, keys.begin, weight);
  }
  const auto run = [&](bool carefully) {
    if (!c.weights.none())
      return (carefully ? c.weight_kernels.rescale : c.weight_kernels.strip)[g.kind](block, strip,
                                                                                     weight);
    if (gated) return run_gated_strip(c, w, g, keys, block, strip, carefully);
    if (carefully)
      return c.is_capped() ? c.cap_kernels.rescale[g.kind](block, strip, c.cap)
                           : c.kernels.rescale[g.kind][start](block, strip);
    return c.is_capped() ? c.cap_kernels.strip[g.kind](block, strip, c.cap)
                         : c.kernels.strip[g.kind][start](block, strip);
  };
  if (!careful) {
    begin_value_rows(c, w, g, keys, s.keys);
    if (run(false)) return add_value_rows(c, w, g, keys, s.keys, false);
  }
  put_value_rows(c, w, g);  // relative to the references that rows have now
  if (!run(true)) leave(w, g);
  add_value_rows(c, w, g, keys, s.keys, true);
}

void run_strip(const FastCall& c, const FastRowBlock& block, FastWork& w, RowGroup& g, Run keys,
               bool careful) noexcept {
  StripStarts s;
  const bool given = fill_starts(c, w, g, keys, s);
  if (s.keys == 0) return;
  if (c.regions.none())
    return run_part(c, w, g, keys, {w.q.data(), w.keys.data(), w.values.data()}, s, given, careful);
  const RegionSet found = c.regions.of(g, keys);
  Regions::each(found, [&](int number) {
    const float* packed = pack_region(c, block, number, keys, w);
    if (packed == nullptr) return leave(w, g);
    const StripQK qk{w.region_q(number), packed, w.values.data()};
    if (is_single(found)) return run_part(c, w, g, keys, qk, s, given, careful);
    StripStarts part = s;
    const Run some = hide_other_regions(c, w, g, number, keys, given, part);
    if (some.begin >= some.end) return;
    // Panels before those of the region are left out.
    const Index skips = (some.begin - keys.begin) / c.panel * c.panel;
    for (Index n = 0; n < g.rows; ++n) part.at[n] += skips;
    part.keys -= skips;
    run_part(c, w, g, {keys.begin + skips, keys.end},
             {qk.q, qk.keys + skips * c.channels, qk.values + skips * c.panel}, part, true,
             careful);
  });
}

// All blocks of keys, for all groups or for those that are low.
void pass(const FastCall& c, const FastRowBlock& block, FastWork& w, bool careful) noexcept {
  Index begin = c.Tk, end = 0;
  for (RowGroup& g : w.groups)
    if (!careful || g.low) {
      clear_rows(c, w, g);
      clear_value_rows(c, w, g);
      clear_gates(c, w, g);
      clear_sticks(c, w, g);
      g.weighs = g.seen;
      // What is far behind the other keys counts where those have no weight in the end.
      if (!careful)
        find_weighing_keys(c, g, w.q.data() + g.first * c.channels, c.channels,
                           w.reference.data() + g.first);
      if (g.weighs.begin < g.weighs.end)
        begin = std::min(begin, g.weighs.begin), end = std::max(end, g.weighs.end);
    }
  const Index size = c.strips.block_keys, from = begin / size;
  const Index blocks = end > begin ? block_count(end, size) - from : 0;
  for (Index n = 0; n < blocks; ++n) {
    const Index first = (from + (c.passes_back() ? blocks - 1 - n : n)) * size;
    const Run keys{first, std::min(c.Tk, first + size)};
    bool packed = false, bounded = true;
    for (RowGroup& g : w.groups) {
      if ((careful && !g.low) || !weighs(g, keys) || !c.reads(g, keys)) continue;
      if (breaks_sticks(c.args) && !w.sticks.wants_rest && are_broken(w, g)) continue;
      if (!packed) bounded = pack(c, block, keys, w), packed = true;
      if (bounded)
        run_strip(c, block, w, g, keys, careful);
      else
        leave(w, g);
    }
  }
  const Index width = c.value_panels * c.panel;
  for (const RowGroup& g : w.groups) {
    if (careful && !g.low) continue;
    put_value_rows(c, w, g);
    if (!g.begun) std::fill_n(w.out.data() + g.first * width, g.rows * width, 0.0f);
  }
  c.kernels.add_lanes(w.totals.data(), w.sums.data(), static_cast<Index>(w.rows.size()));
}

// Groups with a row whose weights are too small; true: there are some.
bool find_low(const FastCall& c, FastWork& w) noexcept {
  bool any = false;
  if (std::all_of(w.totals.begin(), w.totals.begin() + static_cast<Index>(w.rows.size()),
                  [](float x) { return x >= kSmallestSum; }))
    return any;
  for (RowGroup& g : w.groups) {
    g.low = false;
    for (Index n = 0; n < g.count && g.seen.begin < g.seen.end; ++n)
      g.low = g.low || (w.left[static_cast<std::size_t>(g.first + n)] == 0 &&
                        w.totals[static_cast<std::size_t>(g.first + n)] < kSmallestSum &&
                        sees_any(c, g.row[n].b, g.row[n].h, g.row[n].i, g.row[n].place));
    any = any || g.low;
  }
  return any;
}

// Of rows that left out keys below kFar, those whose other scores are not far above.
void leave_far_rows(FastWork& w) noexcept {
  for (const RowGroup& g : w.groups)
    for (Index n = g.first; !w.skips.empty() && n < g.first + g.count; ++n) {
      const auto row = static_cast<std::size_t>(n);
      const double sum = static_cast<double>(w.totals[row]);
      if (w.skips[row] != 0 && !(std::log2(sum) + w.reference[row] > kFar / 2)) w.left[row] = 1;
    }
}

}  // namespace

void run_rows(const FastCall& c, const FastRowBlock& block, FastWork& w) noexcept {
  std::fill(w.skips.begin(), w.skips.end(), std::uint8_t{0});
  find_rows(c, block, w);
  if (c.words == nullptr || !c.key_lengths.empty())
    take_queries(c, w);
  else
    std::fill(w.left.begin(), w.left.end(), std::uint8_t{0});
  if (c.words != nullptr) take_word_queries(c, w), c.words->begin();
  take_region_queries(c, w);
  take_row_terms(c, w);
  take_gates(c, w);
  leave_weights(c, w);
  pass(c, block, w, false);
  if (!breaks_sticks(c.args) && find_low(c, w)) pass(c, block, w, true);
  leave_far_rows(w);
  if (c.words != nullptr) finish_words(c, w), c.words->end();
}

namespace {

void run_block(const FastCall& c, const FastRowBlock& block, FastWork& w,
               const AttentionResult& result, std::uint8_t* left) noexcept {
  w.sticks.wants_rest = !result.log_sum_exp.empty();
  run_rows(c, block, w);
  put_block(c, w, result, left);
}

void run_blocks(const FastCall& c, const AttentionResult& result, std::uint8_t* left,
                CallArena& arena, const Executor& executor) {
  const Index most = most_tasks(c), count = static_cast<Index>(c.blocks.size());
  const Index tasks = task_count(executor, c.B * c.H * c.Tq, most);
  const std::span<FastWork> works =
      arena.made<FastWork>(tasks, [&](Index) { return FastWork(c, arena); });
  if (arena.counts()) return;
  each_piece(executor, count, tasks, [&](Index n, Index task) noexcept {
    // Later rows of a causal mask are longer: the last block first.
    const FastRowBlock& block = c.blocks[static_cast<std::size_t>(count - 1 - n)];
    prefetch_blocks(c, block, n + tasks < count ? &block - tasks : nullptr, result.out);
    run_block(c, block, works[static_cast<std::size_t>(task)], result, left);
  });
}

}  // namespace

namespace {

// Why scores with a soft cap are not computed here.
std::string_view cap_why_not(const AttentionArgs& a) {
  if (a.softcap == 0) return {};
  if (!(a.softcap > kSmallestCap && a.softcap < kLargestCap))
    return "float cannot represent the soft cap";
  const bool wide = std::any_of(a.terms.begin(), a.terms.end(), WideProducts::takes);
  const bool starts = std::any_of(a.terms.begin(), a.terms.end(), [](const Term& t) {
    return Starts::adds(t) || RowTerms::has(t);
  });
  if (wide && !a.softcap_after_terms)
    return "terms with products of vectors are added after the soft cap";
  if (starts && a.softcap_after_terms && !a.mask.bias.empty())
    return "a bias is added after a soft cap of scores and terms";
  return {};
}

}  // namespace

std::string_view fast_why_not(const ReadyCall& call, const LoweredCall&) {
  const AttentionArgs& a = call.args;
  if (a.exact) return "the call requires the exact engine";
  if (a.q.dtype == DType::f64 || a.k.dtype == DType::f64 || a.v.dtype == DType::f64)
    return "q, k or v is f64";
  if (const std::string_view why = sticks_why_not(call); !why.empty()) return why;
  if (const std::string_view why = stages_why_not(a); !why.empty()) return why;
  if (const std::string_view why = Regions::why_not(a); !why.empty()) return why;
  if (const std::string_view why = cap_why_not(a); !why.empty()) return why;
  if (const std::string_view why = Gates::why_not(call); !why.empty()) return why;
  if (const std::string_view why = ContentWeights::why_not(call); !why.empty()) return why;
  if (!a.mix_before.empty() || !a.mix_after.empty()) return "the call mixes heads";
  if (WideProducts::channels_of(a) > kMostChannels)
    return "a head has more than 1024 channels, products of terms included";
  for (const Term& t : a.terms) {
    if (!Starts::takes(t) && !WideProducts::takes(t) && !RowTerms::has(t) && !ValueRows::has(t) &&
        !Gates::has(t) && !ContentWeights::has(t))
      return term_class(t) == TermClass::all_heads
                 ? "a term needs the scores of all heads"
                 : "a term multiplies a product of vectors by a number of each pair";
    const std::string_view why = RowTerms::has(t)    ? RowTerms::why_not(call, t)
                                 : ValueRows::has(t) ? ValueRows::why_not(call, t)
                                                     : std::string_view();
    if (!why.empty()) return why;
  }
  return {};
}

std::span<const Index> fast_forward(const ReadyCall& call, const LoweredCall& lowered,
                                    const AttentionResult& result, CallArena& arena,
                                    const Executor& executor) {
  const FastCall c(call, lowered, Keep::nothing, arena, executor);
  const std::span<std::uint8_t> left = arena.array<std::uint8_t>(c.B * c.H * c.Tq);
  const std::span<Index> rows = arena.array<Index>(c.B * c.H * c.Tq);
  if (has_few_rows(c)) {
    decode_rows(c, result, left.data(), arena, executor);
  } else {
    run_blocks(c, result, left.data(), arena, executor);
  }
  if (arena.counts()) return {};
  BoundedList<Index> list(rows);
  for (auto row = std::find(left.begin(), left.end(), 1); row != left.end();
       row = std::find(row + 1, left.end(), 1))
    list.push_back(row - left.begin());
  return {list.data(), list.size()};
}

}  // namespace posenc::v0::detail
