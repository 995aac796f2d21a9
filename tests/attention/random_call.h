// SPDX-License-Identifier: Apache-2.0
// Calls of attention at random: shapes, strides, types, masks and terms. `args` is what an engine
// is handed, `plain` the same call with q, k and v as doubles.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <vector>

#include "attention/random_tensors.h"
#include "posenc/attention/attention.h"
#include "posenc/rotary/rope.h"

namespace posenc {

class RandomCall : protected RandomTensors {
 public:
  AttentionArgs args, plain;
  Index B, H, G, Tq, Tk, D, V;

  // For a scheme: distances that tables can be made for, and room for its terms.
  struct Wanted {
    bool for_scheme = false;
    Index queries = -1, keys = -1, heads = -1;  // -1: at random
    // For the fast engine: q in f32, f16 or bf16, and many a bias in rows of f32.
    bool in_float = false;
    bool regions = false;  // in each call
  };
  explicit RandomCall(std::uint64_t seed) : RandomCall(seed, Wanted{}) {}
  RandomCall(std::uint64_t seed, const Wanted& wanted)
      : RandomTensors(seed), for_scheme_(wanted.for_scheme), in_float_(wanted.in_float) {
    const bool for_scheme = wanted.for_scheme;
    sizes();
    if (wanted.queries >= 0) Tq = wanted.queries, Tk = wanted.keys, H = G;
    if (wanted.heads >= 0) H = wanted.heads, G = one_of({1, 2, H});
    tensors();
    positions();
    if (chance(0.7)) mask();
    if (chance(0.15)) pages();
    numbers();
    stages();
    if (wanted.regions || chance(0.15)) regions();
    for (Index n = r_.integer(0, for_scheme ? 1 : 3); n > 0; --n) add_term();
    if (!for_scheme && chance(0.1)) add_score_mlp();
    args.terms = plain.terms = terms_;
    args.prepare = plain.prepare = stages_;
    args.regions = regions_, plain.regions = plain_regions_;
  }
  RandomCall(const RandomCall&) = delete;

 protected:
  Index batch() { return chance(0.5) ? 1 : B; }

 private:
  Index divisor() { return one_of({1, G, H}); }  // of the heads
  Index key_batch() { return chance(0.5) ? 1 : key_rows_; }

  void sizes() {
    B = one_of({1, 1, 2});
    G = one_of({1, 2});
    H = G * one_of({1, 2});
    const double length = r_.uniform();
    Tq = one_of({0, 1, 2, 3, 3, 5});
    Tk = one_of({0, 1, 2, 3, 4, 5, 6, 7});
    if (length < 0.06) Tq = one_of({17, 33}), Tk = one_of({17, 33, 34});
    if (length < 0.01) long_tokens();
    D = one_of({2, 4, 6});
    V = one_of({1, 3, 4, D});
    if (chance(0.05)) D = 38, V = 37;                  // several vectors at once, and a rest
    if (!for_scheme_ && chance(0.05)) D = 32, V = 64;  // of q8_0 blocks
    if (chance(0.15)) {
      B = 1;
      sequences_ = r_.integer(1, 3);
    }
    key_rows_ = B;
  }

  // Lengths around those of tiles; one side alone is 300.
  void long_tokens() {
    B = key_rows_ = 1, H = G;
    Tq = one_of({1, 63, 64, 65, 300}), Tk = one_of({63, 64, 65, 300});
    if (Tq == 300) Tk = one_of({1, 2, 3});
    if (Tk == 300) Tq = one_of({1, 2, 3});
  }

  void tensors() {
    if (in_float_ || chance(0.3))
      type_ = std::array{DType::f32, DType::bf16,
                         DType::f16}[static_cast<std::size_t>(r_.integer(0, 2))];
    const DType of_queries = type_;
    const auto q = both(B, Tq, H, D, type_);
    const bool mixed = chance(0.15);
    if (mixed) type_ = any_type();
    k_type_ = type_;
    if (mixed) type_ = any_type();
    v_type_ = type_, type_ = of_queries;
    if (D == 32 && chance(0.7)) k_type_ = DType::u8;
    if (V == 64 && chance(0.7)) v_type_ = DType::u8;
    const auto k = both(B, Tk, G, D, k_type_), v = both(B, Tk, G, V, v_type_);
    args.q = q[0], args.k = k[0], args.v = v[0];
    plain.q = q[1], plain.k = k[1], plain.v = v[1];
  }

  Positions some_positions(Index rows, Index tokens, Index offset) {
    const Index b = chance(0.6) ? 1 : rows;
    Positions p;
    if (reals_) {
      doubles_.emplace_back();
      for (Index n = 0; n < kAxes * b * tokens + 1; ++n)
        doubles_.back().push_back(6 * r_.uniform());
      p.data = doubles_.back().data();
      p.type = DType::f64;
    } else {
      wide_.emplace_back();
      for (Index n = 0; n < kAxes * b * tokens + 1; ++n)
        wide_.back().push_back(offset +
                               (counted_ ? n % std::max<Index>(1, tokens) : r_.integer(0, 9)));
      p.data = wide_.back().data();
    }
    p.axes = kAxes, p.count = tokens, p.batch = b;
    p.batch_stride = tokens, p.axis_stride = b * tokens;
    return p;
  }
  void positions() {
    reals_ = chance(0.2);
    counted_ = chance(0.6);
    const Index far = chance(0.1) ? Index{1} << 33 : 0;
    args.query_positions = some_positions(B, Tq, far + r_.integer(0, 3));
    apart_ = far != 0 && !for_scheme_ && chance(0.1);
    args.key_positions = some_positions(B, Tk, apart_ ? 0 : far);
  }

  void mask() {
    Mask& m = args.mask;
    m.causal = chance(0.4);
    m.query_offset = r_.integer(-2, 4);
    if (chance(0.2)) m.window_left = r_.integer(0, 4);
    if (chance(0.2)) m.window_right = r_.integer(-1, 3);
    if (chance(0.15)) m.head_side = integers_u8();
    if (m.causal && chance(0.2))
      m.prefix = integers({batch()}, [&](Index) { return r_.integer(0, 3); });
    if (chance(0.2)) m.sink_tokens = r_.integer(0, 2);
    if (chance(0.15)) m.chunk = r_.integer(1, 4);
    if (m.chunk > 0 && chance(0.5))
      m.chunk_origin = integers({batch(), divisor()}, [&](Index) { return r_.integer(-2, 2); });
    if (sequences_ > 0) pack();
    if (chance(0.2)) orders();
    if (sequences_ == 0 && chance(0.15)) documents();
    if (chance(0.2)) m.key_length = integers({B}, [&](Index) { return r_.integer(0, Tk); });
    if (chance(0.15)) m.key_visible = flags({batch(), Tk}, 0.7);
    if (chance(0.2))
      m.visible = chance(0.5) ? flags({Tq, Tk}, 0.7) : flags({batch(), divisor(), Tq, Tk}, 0.7);
    if (chance(0.2)) bias();
    plain.mask = m;
  }
  ConstTensorView integers_u8() {
    const ConstTensorView v = flags({H}, 0.5);
    for (std::uint8_t& x : flags_.back()) x = static_cast<std::uint8_t>(r_.integer(0, 2));
    return v;
  }
  ConstTensorView some_bias() {
    if (!in_float_ || chance(0.5))
      return chance(0.5) ? real({Tq, Tk}) : real({batch(), divisor(), Tq, Tk});
    floats_.push_back(r_.normals<float>(count_of({Tq, Tk}) + 1));
    return tensor(static_cast<const void*>(floats_.back().data()), DType::f32, {Tq, Tk});
  }
  void bias() {
    args.mask.bias = some_bias();
    const bool narrow = args.mask.bias.dtype == DType::f32;
    if (narrow)
      for (float& x : floats_.back()) x = chance(0.2) ? -HUGE_VALF : x;
    else
      for (double& x : doubles_.back()) x = chance(0.2) ? -HUGE_VAL : x;
  }
  void orders() {
    args.mask.query_offset = 0;
    args.mask.query_order = integers({batch(), Tq}, [&](Index) { return r_.integer(0, 6); });
    // Of keys in any order, or ascending with ties and gaps.
    const bool ascends = chance(0.5);
    Index order = 0;
    args.mask.key_order = integers({batch(), Tk}, [&](Index n) {
      if (!ascends) return r_.integer(0, 6);
      order = n % std::max<Index>(1, Tk) == 0 ? r_.integer(-1, 1)
                                              : order + r_.integer(0, 2) / (Tk > 10 ? 2 : 1);
      return order;
    });
  }
  void documents() {
    args.mask.query_document = integers({batch(), Tq}, [&](Index) { return r_.integer(0, 1); });
    args.mask.key_document = integers({batch(), Tk}, [&](Index) { return r_.integer(0, 1); });
  }
  ConstTensorView boundaries(Index tokens) {
    std::vector<Index> cu{0, tokens};
    for (Index n = 1; n < sequences_; ++n) cu.push_back(r_.integer(0, tokens));
    std::sort(cu.begin(), cu.end());
    return integers({sequences_ + 1},
                    [&](Index i) { return cu[static_cast<std::size_t>(std::min(i, sequences_))]; });
  }
  void pack() {
    args.mask.query_cu_seqlens = boundaries(Tq);
    args.mask.key_cu_seqlens = boundaries(Tk);
  }
  // The keys of each row or sequence again as pages of two, in any order.
  void pages() {
    Mask& m = args.mask;
    if (Tk == 0 || Tk % 2 != 0) return;
    if (!m.query_cu_seqlens.empty()) key_rows_ = sequences_;
    const Index each = Tk / 2, count = key_rows_ * each + 1;
    const auto k = both(count, 2, G, D, k_type_), v = both(count, 2, G, V, v_type_);
    args.k = k[0], args.v = v[0], plain.k = k[1], plain.v = v[1];
    args.block_table = plain.block_table =
        integers({key_rows_, each}, [&](Index n) { return count - 1 - n; });
    m.key_cu_seqlens = {};
    m.key_length = integers({key_rows_}, [&](Index) { return r_.integer(0, Tk); });
    plain.mask = m;
  }

  void numbers() {
    args.scale = 0.6;
    if (chance(0.2)) args.head_scale = real({batch(), H}, 0.2, 1);
    if (chance(0.2)) args.query_factor = real({batch(), Tq}, 0.2, 1);
    if (chance(0.25)) args.softcap = 2, args.softcap_after_terms = chance(0.5);
    if (chance(0.2))
      args.normalisation =
          chance(0.5) ? Normalisation::stick_breaking : Normalisation::stick_breaking_own;
    if (args.normalisation == Normalisation::softmax && chance(0.2)) args.sink = real({H});
    if (chance(0.1)) args.mix_before = real({H, H});
    if (chance(0.1)) args.mix_after = real({H, H});
    AttentionArgs p = args;
    p.q = plain.q, p.k = plain.k, p.v = plain.v;
    plain = p;
  }
  void stages() {
    if (chance(0.6)) return;
    if (chance(0.4))
      stages_.push_back(
          {.kind = StageKind::add, .q = real({one_of({1, H}), D}), .k = real({G, D})});
    if (chance(0.3))
      stages_.push_back({.kind = StageKind::rms, .q = real({1, D}, 0.2, 1), .epsilon = 0.1});
    if (D % 2 == 0 && chance(0.5)) {
      rotary_ = resolve(Rope{.head_dim = D, .base = 10, .pairing = Pairing::half_split});
      stages_.push_back(
          {.kind = StageKind::rotate, .rotary = &rotary_, .value = V == D && chance(0.5)});
    }
    if (chance(0.3)) stages_.push_back({.kind = StageKind::l2, .epsilon = 1e-2});
  }
  void regions() {
    ScoreRegion far;
    far.low = r_.integer(0, 3);
    if (chance(0.5)) far.high = far.low + 2;
    far.chunk = r_.integer(1, 2);
    const bool last = stages_.empty() || stages_.back().kind == StageKind::rotate ||
                      std::none_of(stages_.begin(), stages_.end(),
                                   [](const Stage& s) { return s.kind == StageKind::rotate; });
    if (!for_scheme_ && D % 2 == 0 && last && chance(0.6)) {
      region_rotary_ = resolve(Rope{.head_dim = D, .base = 20, .pairing = Pairing::interleaved});
      far.rotary = &region_rotary_;
      far.query_positions = some_positions(B, Tq, r_.integer(0, 3));
      far.key_positions = some_positions(key_rows_, Tk, 0);
      regions_.push_back(far), plain_regions_.push_back(far);
      return;
    }
    const auto q = both(B, Tq, H, D, type_), k = both(key_rows_, Tk, divisor(), D, type_);
    far.qk = {q[0], k[0]};
    regions_.push_back(far);
    far.qk = {q[1], k[1]};
    plain_regions_.push_back(far);
  }

  IndexLine line() {
    rows_.emplace_back();
    const Index n = r_.integer(1, 5);
    for (Index i = 0; i < n; ++i)
      rows_.back().push_back(static_cast<std::int32_t>(r_.integer(-1, 1)));
    IndexLine l{rows_.back().data(), n, r_.integer(-3, 1), nullptr,
                static_cast<std::int32_t>(r_.integer(0, 1))};
    if (!chance(0.2)) return l;
    doubles_.emplace_back();
    for (Index i = 0; i < n; ++i) doubles_.back().push_back(static_cast<double>(i) - 1.5);
    l.edges = doubles_.back().data();
    return l;
  }
  void pick(PickedRows& t) {  // sums of rows below 4
    if (chance(0.7)) t.lines[0] = line();
    if (chance(0.2)) t.lines[2] = line();
    if (!chance(0.2)) return;
    rows_.emplace_back();
    for (Index i = 0; i < 4; ++i)
      rows_.back().push_back(static_cast<std::int32_t>(r_.integer(-1, 1)));
    t.pair = {rows_.back().data(), 2, 2,
              integers({batch(), Tq}, [&](Index) { return r_.integer(0, 1); }),
              integers({key_batch(), Tk}, [&](Index) { return r_.integer(0, 1); })};
  }
  ConstHeads factor(Index rows, Index tokens, Index channels) {
    return heads(real({rows, chance(0.2) ? 1 : tokens, divisor(), channels}), HeadsLayout::bthd);
  }
  ConstHeads query_factor(Index channels) { return factor(batch(), Tq, channels); }
  ConstHeads key_factor(Index channels) { return factor(key_batch(), Tk, channels); }
  Mlp mlp(Index units, Index channels, Index kernel) {
    return {real({units, channels, kernel}), real({units}), real({divisor(), units, kernel}),
            real({divisor()}), 0.2};
  }

  ProductTerm product() {
    ProductTerm t;
    const bool x = chance(0.5), y = chance(0.5);
    Index channels = r_.integer(1, 3);
    if (x && chance(0.5)) t.query.content = true;
    if (y && chance(0.5)) t.key.content = true;
    if (t.query.content || t.key.content) channels = D;
    if (x && !t.query.content) t.query.given = query_factor(channels);
    if (y && !t.key.content) t.key.given = key_factor(channels);
    if (!(x && y) || chance(0.5)) t.table = real({batch(), divisor(), 4, x != y ? channels : 1});
    pick(t);
    if (!t.table.empty() && t.pair.row == nullptr && t.lines[0].row == nullptr &&
        t.lines[2].row == nullptr)
      t.lines[1] = line();
    return t;
  }
  GatesTerm gates() {
    GatesTerm t;
    const bool content = chance(0.4);
    const Index channels = content ? D : r_.integer(1, 3);
    t.query.content = content;
    if (!content) t.query.given = query_factor(channels);
    t.key.content = content && chance(0.5);
    if (!t.key.content) t.key.given = key_factor(channels);
    t.gate_own = chance(0.5);
    t.gate_scale = 0.5;
    if (chance(0.5)) {
      t.table = real({batch(), divisor(), 3, D});
      if (chance(0.3)) t.spread = 0.4;
    } else if (chance(0.5)) {
      t.gate = Gate::log_sigmoid;
    }
    return t;
  }
  LinearTerm linear() {
    LinearTerm t;
    // Scores stay small: the rounding of one of 10^8 is seen in every weight.
    t.table = real({batch(), divisor(), 1, 2}, apart_ ? 1e-10 : 0.1);
    t.axis = 1;
    return t;
  }
  DecayTerm decay() {
    DecayTerm t;
    t.side = static_cast<Side>(r_.integer(0, 2));
    if (chance(0.6)) t.query.given = query_factor(1);
    if (t.query.given.data == nullptr || chance(0.6)) t.key.given = key_factor(1);
    return t;
  }
  DistanceMlpTerm distance_mlp() {
    DistanceMlpTerm t;
    t.table = real({batch(), divisor(), 1, 2}, 0.3, 2);
    t.mlp = mlp(3, 1, 1);
    t.keep_sign = chance(0.5);
    return t;
  }
  ValueRowsTerm value_rows() {
    ValueRowsTerm t;
    t.table = real({batch(), divisor(), 4, V});
    t.lines[0] = line();
    return t;
  }
  Term random_term() {
    const Index kind = r_.integer(0, 8);
    if (kind == 0) return linear();
    if (kind == 1) return decay();
    if (kind == 2) return gates();
    if (kind == 3) return distance_mlp();
    if (kind == 4) return value_rows();
    return product();
  }
  void add_term() {
    terms_.push_back(random_term());
    std::visit([](auto& t) { t.scale = 0.7; }, terms_.back());
  }
  void add_score_mlp() {
    terms_.push_back(
        ScoreMlpTerm{.scale = 0.8, .mlp = mlp(2, chance(0.5) ? H : 2 * H, one_of({1, 3}))});
  }

  static constexpr std::int32_t kAxes = 3;
  bool for_scheme_, in_float_;
  DType k_type_ = DType::f64, v_type_ = DType::f64;
  Index sequences_ = 0, key_rows_ = 1;
  bool reals_ = false, counted_ = false, apart_ = false;
  RotarySpec rotary_, region_rotary_;
  std::vector<Term> terms_;
  std::vector<Stage> stages_;
  std::vector<ScoreRegion> regions_, plain_regions_;
};

}  // namespace posenc
