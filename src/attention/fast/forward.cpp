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
  g.begun = g.done = false;
  begin_references(c, g, w.tops, w.reference.data() + g.first);
}

// Before the first block of keys, which writes `out`.
void begin_group(const FastCall& c, FastWork& w, const RowGroup& g) noexcept {
  std::fill_n(w.sums.data() + g.slot * c.kernels.lanes, g.rows * c.kernels.lanes, 0.0f);
  if (c.words == nullptr && c.key_lengths.empty()) take_queries(c, w, g);
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

// With the q and packed keys of one region, from a panel of keys on. By reference: what is written in halves and read
// whole waits until all stores before it have reached the cache.
struct StripQK {
  const float* q;
  FastBlock block;
};
void run_part(const FastCall& c, FastWork& w, RowGroup& g, Run keys, const StripQK& qk,
              StripStarts& s, bool given, bool careful) noexcept {
  const bool gated = !c.gates.none() && counts_gates(c, w, g);
  if (!c.gates.none() && !(gated && c.gates.has_levels())) add_gates_behind(c, w, g, s);
  fill_shifts(w, g, s);
  const FastBlock& block = qk.block;
  FastStrip strip;
  strip.q = qk.q + g.slot * c.channels;
  strip.out = w.out.data() + g.slot * c.value_panels * c.panel;
  strip.sums = w.sums.data() + g.slot * c.kernels.lanes;
  strip.reference = w.reference.data() + g.first;
  strip.base = s.base, strip.shift = s.shift, strip.start = given ? s.at : nullptr;
  strip.weights = w.weights.data(), strip.keys = s.keys;
  strip.first = !g.begun;
  if (strip.first) begin_group(c, w, g), g.begun = true;
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
  StripQK qk{w.q.data(), {w.keys.data(), w.values.data(), c.channels, c.value_vectors}};
  if (c.regions.none()) return run_part(c, w, g, keys, qk, s, given, careful);
  const RegionSet found = c.regions.of(g, keys);
  Regions::each(found, [&](int number) {
    const float* packed = pack_region(c, block, number, keys, w);
    if (packed == nullptr) return leave(w, g);
    qk.q = w.region_q(number), qk.block.k = packed, qk.block.v = w.values.data();
    if (is_single(found)) return run_part(c, w, g, keys, qk, s, given, careful);
    StripStarts part = s;
    const Run some = hide_other_regions(c, w, g, number, keys, given, part);
    if (some.begin >= some.end) return;
    // Panels before those of the region are left out.
    const Index skips = (some.begin - keys.begin) / c.panel * c.panel;
    for (Index n = 0; n < g.rows; ++n) part.at[n] += skips;
    part.keys -= skips;
    qk.block.k += skips * c.channels, qk.block.v += skips * c.panel;
    run_part(c, w, g, {keys.begin + skips, keys.end}, qk, part, true, careful);
  });
}

// Whether a row's weights are too small.
bool is_low(const FastCall& c, const FastWork& w, const RowGroup& g) noexcept {
  const float* totals = w.totals.data() + g.first;
  if (std::all_of(totals, totals + g.rows, [](float x) { return x >= kSmallestSum; })) return false;
  for (Index n = 0; n < g.count && g.seen.begin < g.seen.end; ++n)
    if (w.left[static_cast<std::size_t>(g.first + n)] == 0 && totals[n] < kSmallestSum &&
        sees_any(c, g.row[n].b, g.row[n].h, g.row[n].i, g.row[n].place))
      return true;
  return false;
}

// Of rows that left out keys below kFar, those whose other scores are not far above.
void leave_far_rows(FastWork& w, const RowGroup& g) noexcept {
  for (Index n = g.first; !w.skips.empty() && n < g.first + g.count; ++n) {
    const auto row = static_cast<std::size_t>(n);
    const double sum = static_cast<double>(w.totals[row]);
    if (w.skips[row] != 0 && !(std::log2(sum) + w.reference[row] > kFar / 2)) w.left[row] = 1;
  }
}

// All keys of a group are added. Groups with small weights are not written, but done again.
void finish_group(const FastCall& c, FastWork& w, RowGroup& g, bool careful,
                  const RowOutput* to) noexcept {
  g.done = true;
  put_value_rows(c, w, g);
  if (!g.begun) {
    const Index width = c.value_panels * c.panel;
    std::fill_n(w.out.data() + g.slot * width, g.rows * width, 0.0f);
    std::fill_n(w.sums.data() + g.slot * c.kernels.lanes, g.rows * c.kernels.lanes, 0.0f);
  }
  c.kernels.add_lanes(w.totals.data() + g.first, w.sums.data() + g.slot * c.kernels.lanes, g.rows);
  g.low = !careful && !breaks_sticks(c.args) && is_low(c, w, g);
  if (g.low) return;
  leave_far_rows(w, g);
  if (c.words != nullptr) finish_words(c, w, g);
  if (to != nullptr) put_group(c, w, g, *to);
}

// The keys that a group may weigh, as a pass begins.
void begin_pass(const FastCall& c, FastWork& w, RowGroup& g, bool careful) noexcept {
  clear_rows(c, w, g);
  clear_value_rows(c, w, g);
  clear_gates(c, w, g);
  clear_sticks(c, w, g);
  g.weighs = g.seen;
  // What is far behind the other keys counts where those have no weight in the end.
  if (!careful && !c.key_lengths.empty()) {
    take_queries(c, w, g);
    find_weighing_keys(c, g, w.q.data() + g.slot * c.channels, c.channels,
                       w.reference.data() + g.first);
  }
}

// All blocks of keys, for all groups or for those that are low.
void pass(const FastCall& c, const FastRowBlock& block, const FastRowBlock* next, FastWork& w,
          bool careful, const RowOutput* to) noexcept {
  Index begin = c.Tk, end = 0;
  for (RowGroup& g : w.groups)
    if (!careful || g.low) {
      begin_pass(c, w, g, careful);
      if (g.weighs.begin < g.weighs.end)
        begin = std::min(begin, g.weighs.begin), end = std::max(end, g.weighs.end);
    }
  const Index size = c.strips.block_keys, from = begin / size;
  const Index blocks = end > begin ? block_count(end, size) - from : 0;
  const auto keys_at = [&](Index n) {
    const Index first = (from + (c.passes_back() ? blocks - 1 - n : n)) * size;
    return Run{first, std::min(c.Tk, first + size)};
  };
  ReadAhead ahead(c, block, next, {w.groups.begin(), w.groups.end()});
  for (Index n = 0; n < blocks; ++n) {
    const Run keys = keys_at(n);
    ahead.begin_keys(n + 1 < blocks ? keys_at(n + 1) : Run{0, 0}, keys_at(0));
    bool packed = false, bounded = true;
    for (RowGroup& g : w.groups) {
      if (careful && !g.low) continue;
      const bool last = c.passes_back() ? g.weighs.begin >= keys.begin : g.weighs.end <= keys.end;
      if (weighs(g, keys) && c.reads(g, keys) &&
          !(breaks_sticks(c.args) && !w.sticks.wants_rest && are_broken(w, g))) {
        if (!packed) bounded = pack(c, block, keys, w), packed = true;
        ahead.begin_strip(g, last && to != nullptr ? &to->result.out : nullptr);
        if (bounded)
          run_strip(c, block, w, g, keys, careful);
        else
          leave(w, g);
      }
      if (last && !g.done) finish_group(c, w, g, careful, to);
    }
  }
  for (RowGroup& g : w.groups)
    if ((!careful || g.low) && !g.done) finish_group(c, w, g, careful, to);
}

}  // namespace

void run_rows(const FastCall& c, const FastRowBlock& block, const FastRowBlock* next, FastWork& w,
              const RowOutput* to) noexcept {
  std::fill(w.skips.begin(), w.skips.end(), std::uint8_t{0});
  find_rows(c, block, w);
  std::fill_n(w.left.begin(), w.rows.size(), std::uint8_t{0});
  if (c.words != nullptr) take_word_queries(c, w), c.words->begin();
  take_region_queries(c, w);
  take_row_terms(c, w);
  take_gates(c, w);
  leave_weights(c, w);
  pass(c, block, next, w, false, to);
  if (std::any_of(w.groups.begin(), w.groups.end(), [](const RowGroup& g) { return g.low; }))
    pass(c, block, nullptr, w, true, to);
  if (c.words != nullptr) c.words->end();
}

namespace {

void run_blocks(const FastCall& c, const AttentionResult& result, std::uint8_t* left,
                CallArena& arena, const Executor& executor) {
  const Index most = most_tasks(c), count = static_cast<Index>(c.blocks.size());
  const Index tasks = task_count(executor, c.B * c.H * c.Tq, most);
  const std::span<FastWork> works =
      arena.made<FastWork>(tasks, [&](Index) { return FastWork(c, arena); });
  if (arena.counts()) return;
  const RowOutput to{result, left};
  each_piece(executor, count, tasks, [&](Index n, Index task) noexcept {
    // Later rows of a causal mask are longer: the last block first.
    const FastRowBlock& block = c.blocks[static_cast<std::size_t>(count - 1 - n)];
    FastWork& w = works[static_cast<std::size_t>(task)];
    w.sticks.wants_rest = !result.log_sum_exp.empty();
    run_rows(c, block, n + tasks < count ? &block - tasks : nullptr, w, &to);
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
