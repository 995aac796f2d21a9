// SPDX-License-Identifier: Apache-2.0
// A scheme with random fields over one row of tokens that see one another, of which any queries
// and keys can be run alone, packed, in pages or moved: what laws of schemes are checked on.
#pragma once
#include <cmath>
#include <deque>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "attention/random_scheme.h"
#include "posenc/attention/plan.h"
#include "posenc/positions/grid.h"
#include "posenc/positions/sequence.h"

namespace posenc {

class SchemeTokens {
 public:
  using Vector = std::vector<double>;
  static constexpr Index T = 9, H = 4, G = 2, D = 4, V = 4;

  // Which of the tokens are queries and keys, and how.
  struct Cut {
    Index q0 = 0, queries = T, k0 = 0, keys = T;
    bool causal = true;
    Index window_right = kUnbounded;
    Index shift = 0;                 // added to all positions
    Index start = 0;                 // the token at position 0
    std::vector<Index> sequences{};  // boundaries of packed ones; positions count inside
    bool pages = false, cap_after_terms = false;
    bool one_order = false;  // orders are those of all tokens, wherever the keys begin
    std::span<const Term> terms{};
    std::span<const TermGradient> term_gradients{};
  };
  struct Result {
    Vector out, lse, d_q, d_k, d_v;  // by token
    Vector d_learned;                // of all parameters
  };

  SchemeTokens(std::size_t which, std::uint64_t seed)
      : random_(seed),
        shape_{.heads = H, .head_dim = D, .value_dim = V, .distance = {{-T, T}, {-T, T}, {-T, T}}},
        made(random_scheme(which, shape_, {.key_heads = G}, random_)),
        plan_({made.scheme}, {.heads = H, .head_dim = D, .key_heads = G, .value_dim = V}) {
    q = random_.normals(T * H * D), k = random_.normals(T * G * D), v = random_.normals(T * G * V);
    for (const Parameter& p : plan_.parameters()) {
      learned.push_back(random_parameter(p, random_));
      shapes_.push_back(p.shape);
      names_.push_back(p.name);
    }
    inputs_ = plan_.inputs();
    for (const Input& i : inputs_) brought.push_back(input(i));
    made.scheme.lower(shape_, learned_views(), lowered_);
    reads_call_ = made.scheme.inputs(shape_).size() > inputs_.size();
  }
  SchemeTokens(const SchemeTokens&) = delete;

 private:
  test::Random random_;
  ScoreShape shape_;

 public:
  RandomScheme made;
  Vector q, k, v;                       // [T, H | G, channels]
  std::deque<Vector> learned, brought;  // brought: of all tokens
  const LoweredTerms& lowered() const { return lowered_; }
  bool reads_keys() const { return reads_call_ && made.scheme.card().name == "cope"; }
  template <class Kind>
  bool has() const {
    return std::any_of(lowered_.terms.begin(), lowered_.terms.end(),
                       [](const Term& t) { return std::holds_alternative<Kind>(t); });
  }
  Normalisation normalisation() const { return lowered_.requests.normalisation; }
  // Changes what belongs to keys: k, v and inputs of tokens from `first` on.
  void change_keys(Index first) {
    for (std::size_t n = static_cast<std::size_t>(first * G * D); n < k.size(); ++n)
      k[n] += 1, v[n] -= 2;
    for (std::size_t n = 0; n < inputs_.size(); ++n) {
      std::vector<Index> size;
      for (const Index s : inputs_[n].shape) size.push_back(extent(s));
      each_place(size, [&](const std::vector<Index>& at, std::size_t place) {
        for (std::size_t a = 0; a < at.size(); ++a)
          if (inputs_[n].shape[a] == kKeys && at[a] >= first)
            brought[n][place] = inputs_[n].integer ? 0 : brought[n][place] - 0.5;
      });
    }
  }

  Result run(const Cut& cut, bool backward = false) {
    Call c(*this, cut);
    std::vector<NamedArray> parameters;
    const std::vector<ConstTensorView> views = learned_views();
    for (std::size_t n = 0; n < views.size(); ++n) parameters.push_back({names_[n], views[n]});
    const LoweredAttention lowered = plan_.lower(parameters, shape_.distance);
    Result r{Vector(static_cast<std::size_t>(cut.queries * H * V)),
             Vector(static_cast<std::size_t>(H * cut.queries)),
             {},
             {},
             {},
             {}};
    const AttentionResult to{heads(r.out.data(), cut.queries, H, V),
                             tensor(r.lse.data(), {1, H, cut.queries})};
    lowered.forward(c.args, c.inputs, to);
    if (backward) pull(lowered, c, cut, to, r);
    return r;
  }
  // The weight of an output or log-sum-exp in what is derived.
  static double weight(Index token, Index place) {
    return std::cos(static_cast<double>(5 * token + 3 * place + 1));
  }
  double loss(const Cut& cut) {
    const Result r = run(cut);
    double sum = 0;
    for (Index i = 0; i < cut.queries; ++i) {
      for (Index c = 0; c < H * V; ++c)
        sum += weight(cut.q0 + i, c) * r.out[static_cast<std::size_t>(i * H * V + c)];
      for (Index h = 0; h < H; ++h)
        if (const double x = r.lse[static_cast<std::size_t>(h * cut.queries + i)]; std::isfinite(x))
          sum += weight(cut.q0 + i, h + 50) * x;
    }
    return sum;
  }

  static Index extent(Index size) {
    return size == kBatch ? 1 : size == kQueries || size == kKeys ? T : size;
  }
  // fn(indices, place) row-major.
  static void each_place(const std::vector<Index>& size,
                         const std::function<void(const std::vector<Index>&, std::size_t)>& fn) {
    std::vector<Index> at(size.size());
    std::size_t count = 1;
    for (const Index s : size) count *= static_cast<std::size_t>(s);
    for (std::size_t place = 0; place < count; ++place) {
      fn(at, place);
      for (std::size_t a = at.size(); a-- > 0 && ++at[a] == size[a];) at[a] = 0;
    }
  }

 private:
  Vector input(const Input& i) {
    std::size_t n = 1;
    for (const Index s : i.shape) n *= static_cast<std::size_t>(extent(s));
    Vector x = random_.normals(n);
    for (double& y : x)
      y = i.integer ? static_cast<double>(random_.integer(0, made.classes - 1)) : 0.5 * y;
    return x;
  }
  std::vector<ConstTensorView> learned_views() const {
    std::vector<ConstTensorView> views;
    for (std::size_t n = 0; n < learned.size(); ++n)
      views.push_back(tensor(static_cast<const void*>(learned[n].data()), DType::f64, shapes_[n]));
    return views;
  }

  struct Call {
    Call(const SchemeTokens& t, const Cut& cut) {
      args.q = heads(t.q.data() + cut.q0 * H * D, cut.queries, H, D);
      args.k = heads(t.k.data() + cut.k0 * G * D, cut.keys, G, D);
      args.v = heads(t.v.data() + cut.k0 * G * V, cut.keys, G, V);
      query_ = places(cut, cut.q0, cut.queries), key_ = places(cut, cut.k0, cut.keys);
      args.query_positions = query_, args.key_positions = key_;
      Mask& m = args.mask;
      m.causal = cut.causal, m.window_right = cut.window_right;
      m.query_offset = cut.sequences.empty() ? cut.q0 - cut.k0 : 0;
      if (!cut.sequences.empty())
        m.query_cu_seqlens = m.key_cu_seqlens =
            tensor(cut.sequences.data(), {static_cast<Index>(cut.sequences.size())});
      if (cut.one_order) {
        query_order_ = orders(cut.q0, cut.queries), key_order_ = orders(cut.k0, cut.keys);
        m.query_offset = 0;
        m.query_order = tensor(std::as_const(query_order_).data(), {1, cut.queries});
        m.key_order = tensor(std::as_const(key_order_).data(), {1, cut.keys});
      }
      if (cut.cap_after_terms) args.softcap = 2, args.softcap_after_terms = true;
      args.terms = cut.terms;
      if (cut.pages) page(t);
      for (std::size_t n = 0; n < t.inputs_.size(); ++n) slice(t.inputs_[n], t.brought[n], cut);
      for (std::size_t n = 0; n < t.inputs_.size(); ++n)
        inputs.push_back({t.inputs_[n].name, views_[n]});
    }
    AttentionArgs args;
    std::vector<NamedArray> inputs;

   private:
    std::vector<Index> query_order_, key_order_;

    static std::vector<Index> orders(Index first, Index n) {
      std::vector<Index> all(static_cast<std::size_t>(n));
      std::iota(all.begin(), all.end(), first);
      return all;
    }
    static OwnedPositions places(const Cut& cut, Index first, Index n) {
      std::vector<Index> p;
      for (std::int32_t axis = 0; axis < 3; ++axis)
        for (Index t = first; t < first + n; ++t) {
          Index start = cut.start;
          for (const Index s : cut.sequences)
            if (s <= t) start = s;
          const Index at = t - start;
          p.push_back(cut.shift + (axis == 0 ? at : axis == 1 ? at / 2 : at % 3));
        }
      return explicit_positions(p, 1, 3);
    }
    // Pages of three, from the last to the first.
    void page(const SchemeTokens& t) {
      static_assert(T == 9);
      for (auto* x : {&k_, &v_}) {
        const Vector& from = x == &k_ ? t.k : t.v;
        for (const Index page : {2, 1, 0})
          x->insert(x->end(), from.begin() + page * 3 * G * D,
                    from.begin() + (page + 1) * 3 * G * D);
      }
      args.k = heads(tensor(std::as_const(k_).data(), {3, 3, G, D}), HeadsLayout::bthd);
      args.v = heads(tensor(std::as_const(v_).data(), {3, 3, G, V}), HeadsLayout::bthd);
      args.block_table = tensor(table_, {1, 3});
      args.mask.key_length = tensor(length_, {1});
    }
    void slice(const Input& i, const Vector& whole, const Cut& cut) {
      std::vector<Index> size, shape;
      for (const Index s : i.shape) {
        size.push_back(extent(s));
        shape.push_back(s == kQueries ? cut.queries : s == kKeys ? cut.keys : extent(s));
      }
      Vector part;
      each_place(size, [&](const std::vector<Index>& at, std::size_t place) {
        for (std::size_t a = 0; a < at.size(); ++a) {
          const Index first = i.shape[a] == kQueries ? cut.q0 : i.shape[a] == kKeys ? cut.k0 : 0;
          if (at[a] < first || at[a] >= first + shape[a]) return;
        }
        part.push_back(whole[place]);
      });
      part.reserve(1);
      if (i.integer) {
        whole_.emplace_back(part.begin(), part.end());
        whole_.back().reserve(1);
        views_.push_back(tensor(static_cast<const void*>(whole_.back().data()), DType::i64, shape));
      } else {
        real_.push_back(std::move(part));
        views_.push_back(tensor(static_cast<const void*>(real_.back().data()), DType::f64, shape));
      }
    }
    OwnedPositions query_, key_;
    Vector k_, v_;
    const Index table_[3] = {2, 1, 0}, length_[1] = {T};
    std::deque<std::vector<Index>> whole_;
    std::deque<Vector> real_;
    std::vector<ConstTensorView> views_;
  };

  void pull(const LoweredAttention& lowered, const Call& c, const Cut& cut,
            const AttentionResult& to, Result& r) const {
    Vector d_out(r.out.size()), d_lse(r.lse.size());
    for (Index i = 0; i < cut.queries; ++i) {
      for (Index x = 0; x < H * V; ++x)
        d_out[static_cast<std::size_t>(i * H * V + x)] = weight(cut.q0 + i, x);
      for (Index h = 0; h < H; ++h)
        d_lse[static_cast<std::size_t>(h * cut.queries + i)] =
            cut.terms.empty() ? weight(cut.q0 + i, h + 50) : 0;
    }
    ConstAttentionResult d(to);
    d.out.data = d_out.data(), d.log_sum_exp.data = d_lse.data();
    r.d_q.resize(static_cast<std::size_t>(cut.queries * H * D));
    r.d_k.resize(static_cast<std::size_t>(cut.keys * G * D));
    r.d_v.resize(static_cast<std::size_t>(cut.keys * G * V));
    AttentionGradients g;
    g.q = heads(r.d_q.data(), cut.queries, H, D);
    if (!cut.pages) {
      g.k = heads(r.d_k.data(), cut.keys, G, D);
      g.v = heads(r.d_v.data(), cut.keys, G, V);
    }
    g.terms = cut.term_gradients;
    std::size_t n = 0;
    for (const Vector& x : learned) n += x.size();
    r.d_learned.resize(n + 1);
    std::vector<NamedGradient> named;
    std::size_t at = 0;
    for (std::size_t p = 0; p < learned.size(); at += learned[p++].size())
      named.push_back(
          {names_[p], tensor(static_cast<void*>(r.d_learned.data() + at), DType::f64, shapes_[p])});
    lowered.backward(c.args, c.inputs, to, d, g, named);
  }

  AttentionPlan plan_;
  std::vector<std::vector<Index>> shapes_;
  std::vector<std::string> names_;
  std::vector<Input> inputs_;
  LoweredTerms lowered_;
  bool reads_call_ = false;
};

}  // namespace posenc
