// SPDX-License-Identifier: Apache-2.0
// Rows of scores, from content to weights, and back. Arrays are by key; only those of visible keys
// hold anything, and where all heads of a row are at hand the others hold 0 (but in raw and d_mixed).
#pragma once
#include "attention/exact/gradient_sums.h"

namespace posenc::inline v0::detail {

struct HeadRow {
  Index b = 0, h = 0, i = 0;
  QueryPlace place{};
  RunList runs;                    // of visible keys
  RunList content_runs;            // of those that no region holds
  BoundedList<Index> ordered;      // visible keys in key order, where something needs them
  std::span<std::int32_t> region;  // by key, where there are regions
  double factor = 1, scale = 1;    // g_i; the scale of the call times a_h
  double log_sum_exp = 0, remainder = 0, d_remainder = 0;

  double *query = nullptr, *d_query = nullptr;  // g_i q_i and its gradient, [D]
  double *out = nullptr, *d_out = nullptr;      // [Dv]
  double* raw = nullptr;  // g q.k; plain itself where nothing asks for it later
  double *content = nullptr, *terms = nullptr;  // scaled and, if so, capped; the sum of terms
  double* plain = nullptr;                      // content, terms, cap and score_mlp together
  double* scores = nullptr;  // with mix_before and mask.bias; plain itself without a mix
  double* p = nullptr;       // probabilities; scores itself where nothing asks for them later
  double* mixed = nullptr;   // after mix_after; p itself without a mix
  // Of softmax without caps and mixes one array.
  double *d_mixed = nullptr, *d_p = nullptr, *d_scores = nullptr, *d_plain = nullptr;
  double *d_content = nullptr, *d_terms = nullptr;
};

// A number for each pair of queries [first, first + queries) that all heads share: [B, queries, Tk].
template <class T>
struct QueryBias {
  T* x = nullptr;
  Index first = 0, queries = 0, keys = 0;
  T* row(Index b, Index i) const noexcept { return x + (b * queries + i - first) * keys; }
};

enum class RowsFor : std::uint8_t { output, scores, gradients };

// All that a thread needs for its rows.
struct RowWork {
  RowWork(const CallView&, RowsFor, CallArena&);

  std::span<HeadRow> heads;  // a block of rows, or all heads of one
  Index count = 0;           // of them in use
  RunList read_runs;         // keys that any head of the row sees
  std::span<std::int32_t> rows;
  std::span<double> levels;  // [2 Tk]
  std::span<double> gate, gate_slope, gate_sum;
  std::span<double> gate_level, d_gate_level;  // by row of a table that is read with a spread
  std::span<double> hidden, d_hidden;          // [units, Tk] of score_mlp
  std::span<std::uint8_t> flags;
  QueryBias<const double> bias{};  // added to scores as mask.bias is
  // Keys or values of a few tokens, where the call streams them.
  std::span<double> streamed;
};

// Runs fn(row) for each row in use.
template <class F>
void each_head(RowWork& w, const F& fn) {
  for (Index n = 0; n < w.count; ++n) fn(w.heads[static_cast<std::size_t>(n)]);
}

// Rows of a call, one after the other: by batch entry, head and query. All heads of a row are one
// where they are needed at once.
inline Index row_count(const ReadyCall& c) {
  return c.B * (c.all_heads ? 1 : c.H) * c.Tq;
}
// Eight, and more where channels are many: then keys and values are read from far for each block.
// Streamed keys are converted once for all rows that share them.
inline Index rows_at_once(const ReadyCall& c, bool streams) {
  if (c.all_heads) return 1;
  if (streams) return std::max<Index>(1, c.H / c.G * c.Tq);
  return std::max(c.D, c.V) > 64 ? kBlockRows : kBlockRows / 2;
}
inline Index rows_at_once(const CallView& c) {
  return rows_at_once(c, c.streams);
}
// Scores of rows [first, first + count), at most rows_at_once: row_scores.cpp.
void fill_scores(const CallView&, Index first, Index count, RowWork&) noexcept;
// p, log_sum_exp and remainder out of scores; the gradient of scores out of d_p: weights.cpp. along: the output times its
// gradient, of a row that has a part of the keys.
void fill_weights(const CallView&, HeadRow&) noexcept;
void pull_weights(const CallView&, HeadRow&, double d_log_sum_exp, double d_remainder,
                  double* d_sink, const double* along) noexcept;
// Keys whose values head `r` reads.
inline Runs value_runs(const CallView& c, const RowWork& w, const HeadRow& r) {
  return c.mix_after.empty() ? Runs(r.runs) : Runs(w.read_runs);
}

double soft_cap(const AttentionArgs&, double x) noexcept;
double soft_cap_slope(const AttentionArgs&, double x) noexcept;

// Where the band of a term has the keys of a row: key j at + j.
Index band_at(const CallView&, const TermView&, const HeadRow&) noexcept;
// The scaled values of a term that are a band, by key. Null: there is none.
const double* band_values(const CallView&, const TermView&, const HeadRow&) noexcept;
// The row of the table of each visible key, by key; negative: void. Null: row 0 for all.
const std::int32_t* pick_rows(const CallView&, const TermView&, const HeadRow&, Runs,
                              std::span<std::int32_t> memory) noexcept;

// The factors of a term for a row, null where absent. Keys: at data + j step.
struct KeySide {
  const double* data = nullptr;
  Index step = 0, channels = 0;
  const double* tiles = nullptr;
  const ExactRowKernels* lanes = nullptr;
};
const double* query_side(const CallView&, const TermView&, const HeadRow&) noexcept;
KeySide key_side(const CallView&, const TermView&, const HeadRow&) noexcept;
// Where their gradients go, null where there is no factor or none is wanted. Keys: j * step.
double* query_pull(const CallView&, const TermView&, HeadRow&, const TermPull&) noexcept;
double* key_pull(const CallView&, const TermView&, const HeadRow&, const TermPull&, Pull&) noexcept;
// put(j, x . y_j) of visible keys.
template <class F>
void each_product(const double* x, const KeySide& y, Runs runs, const F& put) {
  if (runs.empty()) return;
  if (y.tiles != nullptr) return each_dot(*y.lanes, x, y.tiles, y.channels, runs, put);
  const double all = dot(x, y.data, y.channels);  // one vector for all keys
  each_key(runs, [&](Index j) { put(j, all); });
}

// The scaled values of a term that does not need other heads, added to `out`: terms_pairs.cpp.
void add_term(const CallView&, const TermView&, const HeadRow&, RowWork&, double* out) noexcept;
// d_terms of the row -> the gradients of the term.
void pull_term(const CallView&, const TermView&, HeadRow&, RowWork&, const TermPull&,
               Pull&) noexcept;
// terms_product.cpp, terms_distance.cpp, terms_gates.cpp: the kinds of these.
void add_product(const CallView&, const TermView&, const HeadRow&, RowWork&, double*) noexcept;
void pull_product(const CallView&, const TermView&, HeadRow&, RowWork&, const TermPull&,
                  Pull&) noexcept;
void add_distance_mlp(const CallView&, const TermView&, const DistanceMlpTerm&, const HeadRow&,
                      double*) noexcept;
void pull_distance_mlp(const CallView&, const TermView&, const DistanceMlpTerm&, const HeadRow&,
                       const TermPull&) noexcept;
void add_gates(const CallView&, const TermView&, const GatesTerm&, const HeadRow&, RowWork&,
               double*) noexcept;
void pull_gates(const CallView&, const TermView&, const GatesTerm&, HeadRow&, RowWork&,
                const TermPull&, Pull&) noexcept;
// A network over all heads is the last term.
inline bool has_score_mlp(const CallView& c) {
  return !c.terms.empty() && std::holds_alternative<ScoreMlpTerm>(*c.terms.back().term);
}
// All heads at once, terms_score_mlp.cpp: into `plain`; out of d_plain into d_content and d_terms.
void add_score_mlp(const CallView&, const TermView&, RowWork&) noexcept;
void pull_score_mlp(const CallView&, const TermView&, RowWork&, const TermPull&) noexcept;
// value_rows: of the output, and back. terms_values.cpp.
void add_value_rows(const CallView&, const TermView&, const HeadRow&, RowWork&,
                    double* out) noexcept;
void pull_value_rows(const CallView&, const TermView&, HeadRow&, RowWork&,
                     const TermPull&) noexcept;

}  // namespace posenc::v0::detail
