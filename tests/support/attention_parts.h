// SPDX-License-Identifier: Apache-2.0
// Parts of the attention reference: elements, one call made ready, terms, weights.
#pragma once
#include <initializer_list>
#include <vector>

#include "posenc/attention/attention.h"

namespace posenc::support {

using Numbers = std::vector<double>;

// Axes of size 1 are broadcast. Null data: `none`; nothing is added.
double get(const ConstHeads&, Index b, Index t, Index h, Index d);
void put(const Heads&, Index b, Index t, Index h, Index d, double x);
void add(const Heads&, Index b, Index t, Index h, Index d, double x);
double get(const ConstTensorView&, std::initializer_list<Index> at, double none = 0);
Index get_integer(const ConstTensorView&, std::initializer_list<Index> at);  // all 64 bits
void put(const TensorView&, std::initializer_list<Index> at, double x);
void add(const TensorView&, std::initializer_list<Index> at, double x);
// [B|1, G, Tq, Tk] or [Tq, Tk] at head h of `heads`.
double get_pair(const ConstTensorView&, Index heads, Index b, Index h, Index i, Index j,
                double none);
void add_pair(const TensorView&, Index heads, Index b, Index h, Index i, Index j, double x);
// The entry of an axis of `groups` that serves head h.
inline Index group(Index h, Index heads, Index groups) {
  return h / (heads / groups);
}

// A call with q, k and v prepared and everybody's keys known. Rows of keys: one for each batch
// entry, or for each sequence of a packed batch that reads pages.
struct Pulled;

class Call {
 public:
  explicit Call(const AttentionArgs&);

  const AttentionArgs& args;
  Index B, R, H, G, Tq, Tk, D, V;  // R: rows of keys
  // [B, Tq, H, D] without the query factor, [R, Tk, G, D], [R, Tk, G, V]
  Numbers q, k, v;
  std::vector<Numbers> region_q, region_k;  // of regions with a rotation: q and k with it
  std::vector<Numbers> q_before, k_before;  // of each stage
  std::vector<char> visible;                // [B, H, Tq, Tk]

  std::size_t pair(Index b, Index h, Index i, Index j) const {
    return static_cast<std::size_t>(((b * H + h) * Tq + i) * Tk + j);
  }
  std::size_t pairs() const { return static_cast<std::size_t>(B * H * Tq * Tk); }
  std::size_t row(Index b, Index h, Index i) const {
    return static_cast<std::size_t>((b * H + h) * Tq + i);
  }
  std::size_t at_q(Index b, Index i, Index h, Index c) const {
    return static_cast<std::size_t>(((b * Tq + i) * H + h) * D + c);
  }
  // Of k and v: the entry that serves query head h.
  std::size_t at_k(Index r, Index j, Index h, Index c) const {
    return static_cast<std::size_t>(((r * Tk + j) * G + group(h, H, G)) * D + c);
  }
  std::size_t at_v(Index r, Index j, Index h, Index c) const {
    return static_cast<std::size_t>(((r * Tk + j) * G + group(h, H, G)) * V + c);
  }
  std::size_t at_out(Index b, Index i, Index h, Index c) const {
    return static_cast<std::size_t>(((b * Tq + i) * H + h) * V + c);
  }
  template <class F>
  void each_row(const F& fn) const {
    for (Index b = 0; b < B; ++b)
      for (Index h = 0; h < H; ++h)
        for (Index i = 0; i < Tq; ++i) fn(b, h, i);
  }
  template <class F>
  void each_visible(const F& fn) const {
    each_row([&](Index b, Index h, Index i) {
      for (Index j = 0; j < Tk; ++j)
        if (visible[pair(b, h, i, j)]) fn(b, h, i, j);
    });
  }

  Index key_row(Index b, Index i) const;      // the row of keys that query i sees
  Index query_order(Index b, Index i) const;  // attention_mask.cpp
  Index key_order(Index r, Index j) const;
  Index own_key(Index b, Index i) const;  // the key of the query's order, -1: none
  std::vector<Index> keys_in_order(Index r) const;
  std::vector<Index> own_sequence(Index b, Index i) const;  // the same, of the query's sequence
  double query_position(std::int32_t axis, Index b, Index i) const;
  double key_position(std::int32_t axis, Index r, Index j) const;
  double delta(std::int32_t axis, Index b, Index i, Index j) const {
    return query_position(axis, b, i) - key_position(axis, key_row(b, i), j);
  }
  // The region that holds the pair, -1: none.
  int region(Index b, Index i, Index j) const;
  double factor(Index b, Index i) const { return get(args.query_factor, {b, i}, 1); }
  double scale(Index b, Index h) const { return *args.scale * get(args.head_scale, {b, h}, 1); }
  // q with its factor and k, as the content or a term reads them.
  double query(Index b, Index i, Index h, Index c) const {
    return factor(b, i) * q[at_q(b, i, h, c)];
  }
  double key(Index b, Index i, Index j, Index h, Index c) const {
    return k[at_k(key_row(b, i), j, h, c)];
  }

  // Gradients of the prepared tensors -> those of the call's, through the stages.
  void pull_prepared(Pulled, const AttentionGradients&) const;

 private:
  void gather();
  void prepare();
  bool is_visible(Index b, Index h, Index i, Index j) const;
  // fn(row, key, entry of k and v, token of it, key head) of every key there is.
  template <class F>
  void each_key(const F& fn) const;
};

// Gradients on the way: of g_i q_i, k and v as prepared.
struct Pulled {
  explicit Pulled(const Call& c)
      : q(c.q.size(), 0.0),
        k(c.k.size(), 0.0),
        v(c.v.size(), 0.0),
        region_q(c.region_q.size(), q),
        region_k(c.region_k.size(), k) {}
  Numbers q, k, v;
  std::vector<Numbers> region_q, region_k;
};

// Row of a term's table for the pair; -1: the term is disabled.
Index table_row(const Call&, const PickedRows&, Index b, Index i, Index j);
double table_value(const Call&, const ConstTensorView& table, Index b, Index h, Index r, Index c);
void add_table(const Call&, const ConstTensorView& table, const TermGradient&, Index b, Index h,
               Index r, Index c, double x);
// The factors of a term, 1 where absent, and what comes back to them.
double query_value(const Call&, const Factor&, Index b, Index i, Index h, Index c);
double key_value(const Call&, const Factor&, Index b, Index i, Index j, Index h, Index c);
void pull_query(const Call&, const Factor&, const TermGradient&, Pulled&, Index b, Index i, Index h,
                Index c, double d);
void pull_key(const Call&, const Factor&, const TermGradient&, Pulled&, Index b, Index i, Index j,
              Index h, Index c, double d);

// linear, product, decay, distance_mlp of one pair, without the term's scale; d: of that value.
double pair_value(const Call&, const Term&, Index b, Index h, Index i, Index j);
void pull_pair(const Call&, const Term&, const TermGradient&, Pulled&, Index b, Index h, Index i,
               Index j, double d);
// gates of a row: added to terms [B, H, Tq, Tk], the scale included; d_terms likewise.
void add_gates(const Call&, const GatesTerm&, Index b, Index h, Index i, Numbers& terms);
void pull_gates(const Call&, const GatesTerm&, const TermGradient&, Pulled&, Index b, Index h,
                Index i, const Numbers& d_terms);
// score_mlp of all heads of row (b, i): added to `net`; back into d_content and d_terms.
void add_score_mlp(const Call&, const ScoreMlpTerm&, Index b, Index i, const Numbers& content,
                   const Numbers& terms, Numbers& net);
void pull_score_mlp(const Call&, const ScoreMlpTerm&, const TermGradient&, Index b, Index i,
                    const Numbers& content, const Numbers& terms, const Numbers& d_net,
                    Numbers& d_content, Numbers& d_terms);

// v_j of head h and the value rows of the pair.
double value_of(const Call&, Index b, Index h, Index i, Index j, Index c);

// Probabilities [B, H, Tq, Tk]; per row the log-sum-exp and, of stick-breaking, the remainder.
struct Weights {
  Numbers p, log_sum_exp, remainder;
};
Weights weigh(const Call&, const Numbers& scores);
// d_p, d log_sum_exp and d remainder (per row) -> the gradient of the scores; the sink gets its own.
Numbers pull_weights(const Call&, const Numbers& scores, const Weights&, const Numbers& d_p,
                     const Numbers& d_lse, const Numbers& d_remainder, const TensorView& d_sink);

}  // namespace posenc::support
