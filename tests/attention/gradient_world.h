// SPDX-License-Identifier: Apache-2.0
// A call with every kind of term, every stage and everything else that has a gradient: made twice,
// of values and of their gradients, so that one can be checked against differences of the other.
#pragma once
#include <cmath>
#include <span>
#include <vector>

#include "attention/term_tools.h"
#include "posenc/positions/sequence.h"
#include "posenc/relative/scheme.h"
#include "posenc/rotary/rope.h"

namespace posenc {

// What differs between the runs.
struct GradientSetting {
  bool cap_after_terms = false, score_mlp = false, stages = false, mixes = false;
  Normalisation normalisation = Normalisation::softmax;
};

class GradientWorld {
 public:
  static constexpr Index B = 2, H = 4, Hkv = 2, Tq = 4, Tk = 5, D = 4, V = 4;
  using Vector = std::vector<double>;
  std::vector<Vector*> learned;  // all that has a gradient
  Vector q, k, v, region_q, region_k, bias, sink, head_scale, factor, mix1, mix2;
  Vector add_q, add_k, rms_q, rms_k;
  Vector slopes, numbers, q_rows, k_rows, times, given_q, given_k, u, v_bias, v_values, decay_q,
      decay_k, column;
  Vector cope, cope_key, pair_q, pair_k, limits, fire1, fire2, fire3, fire4, dape1, dape2, dape3,
      dape4;

  explicit GradientWorld(const GradientSetting& s) : setting_(s) {
    add_call();
    add_products();
    add_functions();
  }

  // fn(args) with everything pointing into the arrays (the values, or their gradients).
  template <class F>
  void with(const F& fn) {
    std::vector<Term> t = products();
    for (const Term& e : functions()) t.push_back(e);
    const std::vector<Stage> prepare = stages();
    ScoreRegion far;
    far.low = 2;
    far.qk = {heads_of(region_q, H, Tq, D), heads_of(region_k, Hkv, Tk, D)};
    AttentionArgs a;
    a.q = heads_of(q, H, Tq, D);
    a.k = heads_of(k, Hkv, Tk, D);
    a.v = heads_of(v, Hkv, Tk, V);
    a.query_positions = query_;
    a.key_positions = key_;
    a.scale = 0.6;
    a.softcap = 3;
    a.softcap_after_terms = setting_.cap_after_terms;
    a.head_scale = view(head_scale, {1, H});
    a.query_factor = view(factor, {B, Tq});
    a.normalisation = setting_.normalisation;
    if (a.normalisation == Normalisation::softmax) a.sink = view(sink, {H});
    a.mask.bias = view(bias, {1, H, Tq, Tk});
    a.mask.query_offset = 1;
    a.mask.causal = true;
    a.mask.window_left = 3;
    if (setting_.mixes) a.mix_before = view(mix1, {H, H}), a.mix_after = view(mix2, {H, H});
    a.prepare = prepare;
    a.terms = t;
    a.regions = std::span(&far, 1);
    fn(a);
  }

  ConstTensorView view(const Vector& x, std::initializer_list<Index> shape) const {
    return tensor(x.data(), shape);
  }
  ConstHeads heads_of(const Vector& x, Index n, Index t, Index d, Index batch = B) const {
    return heads(tensor(x.data(), {batch, n, t, d}), HeadsLayout::bhtd);
  }

 private:
  void add(Vector& x, Index n, double size, double middle = 0) {
    for (Index i = 0; i < n; ++i)
      x.push_back(middle + size * std::sin(static_cast<double>(
                                      37 * learned.size() + static_cast<std::size_t>(i) * 11 + 5)));
    learned.push_back(&x);
  }
  void add_call() {
    add(q, B * H * Tq * D, 1);
    add(k, B * Hkv * Tk * D, 1);
    add(v, B * Hkv * Tk * V, 1);
    add(region_q, B * H * Tq * D, 1);
    add(region_k, B * Hkv * Tk * D, 1);
    add(bias, H * Tq * Tk, 0.5);
    add(sink, H, 1);
    add(head_scale, H, 0.3, 1);
    add(factor, B * Tq, 0.3, 1);
    add(mix1, H * H, 0.6);
    add(mix2, H * H, 0.6);
    add(add_q, H * D, 0.5);
    add(add_k, D, 0.5);
    add(rms_q, D, 0.3, 1);
    add(rms_k, Hkv * D, 0.3, 1);
  }
  void add_products() {
    add(slopes, H * 2, 0.3);
    add(numbers, B * H * 4, 1);
    add(q_rows, Hkv * 4 * D, 0.5);
    add(k_rows, 4 * D, 0.5);
    add(times, H * 4, 0.3);
    add(given_q, B * Tq * H * 2, 0.5);
    add(given_k, B * Tk * 2, 0.5);
    add(u, H * D, 0.5);
    add(v_bias, H * D, 0.5);
    add(v_values, H * 4 * V, 0.5);
  }
  void add_functions() {
    add(decay_q, B * Tq * H, 0.5);
    add(decay_k, B * Tk * H, 0.5);
    add(column, Tk * Hkv, 0.5);
    add(cope, H * 3 * D, 0.5);
    add(cope_key, B * Hkv * Tk * D, 1);
    add(pair_q, B * H * Tq * 3, 1);
    add(pair_k, B * H * Tk * 3, 1);
    add(limits, 2, 0.1, 2.4);
    add(fire1, 3, 1);
    add(fire2, 3, 1);
    add(fire3, H * 3, 0.7);
    add(fire4, H, 0.7);
    add(dape1, 2 * 2 * H * 3, 0.4);
    add(dape2, 2, 0.3);
    add(dape3, H * 2 * 3, 0.4);
    add(dape4, H, 0.3);
  }

  std::vector<Term> products() {
    const IndexLine line = store_.line({3, 0, 1, -1, 2}, -1);
    std::vector<Term> t;
    const LinearTerm linear{.scale = 0.7, .table = view(slopes, {1, H, 1, 2})};
    t.push_back(linear);
    t.push_back(numbers_term(view(numbers, {B, H, 4, 1}), line, 1.1));
    t.push_back(query_rows(view(q_rows, {1, Hkv, 4, D}), line, 0.9));
    // By classes of tokens instead of distances.
    ProductTerm keys = key_rows(view(k_rows, {1, 1, 4, D}), {}, 0.4);
    keys.pair = store_.pair({0, 1, -1, 3}, 2, 2);
    keys.pair.query_class = tensor(query_class_, {1, Tq});
    keys.pair.key_class = tensor(key_class_, {B, Tk});
    t.push_back(keys);
    ProductTerm weight = query_rows(view(times, {1, H, 4, 1}), line, 0.9);
    weight.key = kContent;
    t.push_back(weight);
    ProductTerm given;
    given.scale = 0.6;
    given.query.given = heads(view(given_q, {B, Tq, H, 2}), HeadsLayout::bthd);
    given.key.given = heads(view(given_k, {B, Tk, 1, 2}), HeadsLayout::bthd);
    t.push_back(given);
    t.push_back(vector_key(view(u, {H, D}), 0.5));
    t.push_back(vector_rows(view(v_bias, {H, D}), view(q_rows, {1, Hkv, 4, D}), line, 0.8));
    t.push_back(value_rows(view(v_values, {1, H, 4, V}), line));
    return t;
  }
  std::vector<Term> functions() {
    DecayTerm past, future;
    GatesTerm gates, pairs;
    DistanceMlpTerm fire;
    ScoreMlpTerm dape;
    past.scale = 0.8;
    past.side = Side::past;
    past.query.given = heads(view(decay_q, {B, Tq, H, 1}), HeadsLayout::bthd);
    past.key.given = heads(view(decay_k, {B, Tk, H, 1}), HeadsLayout::bthd);
    future.key.given = heads(view(column, {1, Tk, Hkv, 1}), HeadsLayout::bthd);
    gates.scale = 0.6;
    gates.gate_scale = 0.5;
    gates.table = view(cope, {1, H, 3, D});
    gates.query = kContent;
    gates.key.given = heads_of(cope_key, Hkv, Tk, D);
    pairs.scale = 0.5;
    pairs.gate = Gate::log_sigmoid;
    pairs.gate_own = false;
    pairs.query.given = heads_of(pair_q, H, Tq, 3);
    pairs.key.given = heads_of(pair_k, H, Tk, 3);
    fire.scale = 0.7;
    fire.keep_sign = true;
    fire.table = view(limits, {1, 1, 1, 2});
    fire.mlp = {view(fire1, {3, 1, 1}), view(fire2, {3}), view(fire3, {H, 3, 1}), view(fire4, {H}),
                0.1};
    dape.scale = 0.8;
    dape.mlp = {view(dape1, {2, 2 * H, 3}), view(dape2, {2}), view(dape3, {H, 2, 3}),
                view(dape4, {H}), 0.2};
    std::vector<Term> t{past, future, gates, pairs, fire};
    if (setting_.score_mlp) t.push_back(dape);
    return t;
  }
  std::vector<Stage> stages() {
    if (!setting_.stages) return {};
    return {Stage{.kind = StageKind::add, .q = view(add_q, {H, D}), .k = view(add_k, {1, D})},
            Stage{.kind = StageKind::rms,
                  .q = view(rms_q, {1, D}),
                  .k = view(rms_k, {Hkv, D}),
                  .epsilon = 0.1},
            Stage{.kind = StageKind::rotate, .rotary = &rotary_, .value = true},
            Stage{.kind = StageKind::l2, .epsilon = 1e-3}};
  }

  GradientSetting setting_;
  TermStore store_;
  OwnedPositions query_ = arange(1, Tq), key_ = arange(0, Tk);
  RotarySpec rotary_ = resolve(Rope{.head_dim = D, .base = 10, .pairing = Pairing::half_split});
  Index query_class_[Tq] = {0, 1, 1, 0};
  Index key_class_[B * Tk] = {0, 1, 0, 1, 1, 1, 0, 0, 1, 0};
};

// The views of a world that holds gradients are of vectors that may be written.
inline TensorView writable(const ConstTensorView& v) {
  return {const_cast<void*>(v.data), v.dtype, v.device, v.device_id, v.rank, v.shape, v.stride};
}
inline Heads writable(const ConstHeads& h) {
  return {const_cast<void*>(h.data),
          h.batch,
          h.tokens,
          h.heads,
          h.dim,
          h.batch_stride,
          h.token_stride,
          h.head_stride,
          h.dim_stride,
          h.dtype};
}
inline TermGradient writable(const Term& term) {
  const TermArrays t = term_arrays(term);
  return {
      writable(t.table),
      writable(t.query.given),
      writable(t.key.given),
      {writable(t.mlp.in), writable(t.mlp.in_bias), writable(t.mlp.out), writable(t.mlp.out_bias)}};
}

}  // namespace posenc
