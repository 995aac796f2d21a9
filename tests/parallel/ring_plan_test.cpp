// SPDX-License-Identifier: Apache-2.0
// Every scheme of the registry over several ranks, by its plan: rows, and gradients of parameters and inputs, are those
// of one process. What does not merge, or by heads what mixes them, is rejected on every rank with the same words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "attention/random_scheme.h"
#include "parallel/shard_call.h"
#include "posenc/parallel/ulysses.h"
#include "posenc/positions/shard.h"
#include "posenc/rotary/rope.h"

namespace posenc {
namespace {

constexpr Index kTokens = 16, kHeads = 4, kKeyHeads = 2, kDim = 4;
using Vector = std::vector<double>;

// Which entries of an array of all tokens are those of some tokens: along its axes by query or by key.
std::vector<std::size_t> entries(const std::vector<Index>& axes, const TokenList& tokens) {
  std::vector<std::size_t> at{0};
  for (const Index axis : axes) {
    const bool by_token = axis == kQueries || axis == kKeys;
    const Index size = by_token ? kTokens : axis == kBatch ? 1 : axis;
    std::vector<std::size_t> next;
    for (const std::size_t a : at)
      for (Index n = 0; n < (by_token ? static_cast<Index>(tokens.size()) : size); ++n)
        next.push_back(
            a * static_cast<std::size_t>(size) +
            static_cast<std::size_t>(by_token ? tokens[static_cast<std::size_t>(n)] : n));
    at = std::move(next);
  }
  return at;
}
template <class T>
std::vector<T> taken(const std::vector<T>& x, const std::vector<std::size_t>& at) {
  std::vector<T> y;
  for (const std::size_t n : at) y.push_back(x[n]);
  y.reserve(1);
  return y;
}

class PlanWorld {
 public:
  PlanWorld(std::size_t which, std::uint64_t seed)
      : random_(seed),
        shape_{.heads = kHeads,
               .head_dim = kDim,
               .value_dim = kDim,
               .distance = {{-kTokens, kTokens}, {-kTokens, kTokens}, {-kTokens, kTokens}}},
        made_(random_scheme(which, shape_, {.key_heads = kKeyHeads}, random_)),
        rotary_(resolve(Rope{.head_dim = kDim, .base = 10, .pairing = Pairing::half_split})),
        plan_({made_.scheme},
              {.heads = kHeads, .head_dim = kDim, .key_heads = kKeyHeads, .value_dim = kDim},
              seed % 2 == 0 ? &rotary_ : nullptr),
        causal_(random_.uniform() < 0.5) {
    q = normals(kHeads * kDim), k = normals(kKeyHeads * kDim), v = normals(kKeyHeads * kDim),
    d_out = normals(kHeads * kDim);
    parameters_ = plan_.parameters(), inputs_ = plan_.inputs();
    for (const Parameter& p : parameters_) {
      learned_.push_back(random_parameter(p, random_));
      arrays_.push_back(
          {p.name, tensor(std::as_const(learned_.back()).data(), DType::f64, p.shape)});
    }
    for (const Input& i : inputs_) {
      std::size_t count = 1;
      for (const Index s : i.shape)
        count *= static_cast<std::size_t>(s == kBatch                   ? 1
                                          : s == kQueries || s == kKeys ? kTokens
                                                                        : s);
      brought_.push_back(random_.normals(count));
      classes_.emplace_back();
      for (std::size_t n = 0; n < count; ++n)
        classes_.back().push_back(random_.integer(0, std::max<Index>(made_.classes - 1, 0)));
    }
  }
  PlanWorld(const PlanWorld&) = delete;

  std::string name() const { return std::string(made_.scheme.card().name); }
  const std::string& text() const { return made_.text; }

  // Output, then gradients of q, k, v, parameters and inputs, of some tokens. Null: one process.
  std::vector<Vector> run(const TokenList& tokens, const Communicator* c, Spread) const;
  // What of run() of all tokens belongs to some.
  std::vector<Vector> shard(std::vector<Vector> all, const TokenList& tokens) const {
    for (std::size_t n = 0; n < 4; ++n)
      all[n] =
          taken(all[n], entries({kQueries, static_cast<Index>(all[n].size()) / kTokens}, tokens));
    std::size_t n = 4 + learned_.size();
    for (const Input& i : inputs_)
      if (!i.integer) all[n] = taken(all[n], entries(i.shape, tokens)), ++n;
    return all;
  }

 private:
  Vector normals(Index row) { return random_.normals(static_cast<std::size_t>(kTokens * row)); }
  test::Random random_;
  ScoreShape shape_;
  RandomScheme made_;
  RotarySpec rotary_;
  AttentionPlan plan_;
  bool causal_;
  std::vector<Parameter> parameters_;
  std::vector<Input> inputs_;
  Vector q, k, v, d_out;
  std::deque<Vector> learned_, brought_;
  std::deque<std::vector<Index>> classes_;
  std::vector<NamedArray> arrays_;
};

std::vector<Vector> PlanWorld::run(const TokenList& tokens, const Communicator* c,
                                   Spread by) const {
  const auto n = static_cast<Index>(tokens.size());
  const auto rows = [&](const Vector& x) {
    return taken(x, entries({kQueries, static_cast<Index>(x.size()) / kTokens}, tokens));
  };
  const Vector own_q = rows(q), own_k = rows(k), own_v = rows(v), own_d = rows(d_out);
  std::vector<Index> at(tokens.begin(), tokens.end());
  AttentionArgs a;
  a.q = heads(own_q.data(), n, kHeads, kDim), a.k = heads(own_k.data(), n, kKeyHeads, kDim),
  a.v = heads(own_v.data(), n, kKeyHeads, kDim);
  std::vector<Index> three;  // the same on three axes
  for (int axis = 0; axis < 3; ++axis) three.insert(three.end(), at.begin(), at.end());
  a.query_positions = a.key_positions = Positions{three.data(), DType::i64, 3, n, 1, 1, 0, n};
  a.mask.causal = causal_;
  a.mask.query_order = a.mask.key_order = tensor(std::as_const(at).data(), {1, n});
  a.exact = true;
  std::deque<Vector> brought, sums;
  std::deque<std::vector<Index>> classes;
  std::vector<NamedArray> inputs;
  std::vector<NamedGradient> named;
  const auto gradient = [&](std::string_view name, const std::vector<Index>& shape,
                            std::size_t size) {
    sums.emplace_back(size, 0.5).reserve(1);
    named.push_back({name, tensor(static_cast<void*>(sums.back().data()), DType::f64, shape)});
  };
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    gradient(parameters_[p].name, parameters_[p].shape, learned_[p].size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const std::vector<std::size_t> own = entries(inputs_[i].shape, tokens);
    std::vector<Index> shape = inputs_[i].shape;
    for (Index& s : shape) s = s == kBatch ? 1 : s == kQueries || s == kKeys ? n : s;
    if (inputs_[i].integer)
      inputs.push_back(
          {inputs_[i].name,
           tensor(static_cast<const void*>(classes.emplace_back(taken(classes_[i], own)).data()),
                  DType::i64, shape)});
    else
      inputs.push_back(
          {inputs_[i].name,
           tensor(static_cast<const void*>(brought.emplace_back(taken(brought_[i], own)).data()),
                  DType::f64, shape)}),
          gradient(inputs_[i].name, shape, own.size());
  }
  std::vector<Vector> r{Vector(own_q.size()), Vector(own_q.size(), 0.5), Vector(own_k.size(), 0.5),
                        Vector(own_v.size(), 0.5)};
  Vector lse(static_cast<std::size_t>(n * kHeads));
  const AttentionResult to{heads(r[0].data(), n, kHeads, kDim), tensor(lse.data(), {1, kHeads, n})};
  AttentionGradients g;
  g.q = heads(r[1].data(), n, kHeads, kDim), g.k = heads(r[2].data(), n, kKeyHeads, kDim),
  g.v = heads(r[3].data(), n, kKeyHeads, kDim);
  const ConstAttentionResult up(heads(own_d.data(), n, kHeads, kDim), {});
  const LoweredAttention lowered = plan_.lower(arrays_, shape_.distance);
  if (c == nullptr) {
    lowered.forward(a, inputs, to, inline_executor());
    lowered.backward(a, inputs, to, up, g, named, inline_executor());
  } else if (by == Spread::heads) {
    ulysses_attend(lowered, a, inputs, to, *c, {.seconds = 20}, inline_executor());
    ulysses_attend_backward(lowered, a, inputs, to, up, g, named, *c, {.seconds = 20},
                            inline_executor());
  } else {
    ring_attend(lowered, a, inputs, to, *c, {.seconds = 20}, inline_executor());
    ring_attend_backward(lowered, a, inputs, to, up, g, named, *c, {.seconds = 20},
                         inline_executor());
  }
  r.insert(r.end(), sums.begin(), sums.end());
  return r;
}

// What every rank says; empty where all rows and gradients are those of one process.
std::string of_scheme(const PlanWorld& world, Index ranks, ShardLayout layout, Spread by) {
  TokenList all(kTokens);
  std::iota(all.begin(), all.end(), Index{0});
  std::vector<Vector> whole;
  try {
    whole = world.run(all, nullptr, by);
  } catch (const std::invalid_argument& e) {
    return std::string("alone: ") + e.what();
  }
  std::vector<std::vector<Vector>> got(static_cast<std::size_t>(ranks));
  const std::vector<std::string> says = on_ranks(ranks, [&](const Communicator& c, Index rank) {
    got[static_cast<std::size_t>(rank)] =
        world.run(shard_tokens(kTokens, ranks, rank, layout), &c, by);
  });
  for (const std::string& s : says)
    if (s != says[0]) return "ranks say \"" + says[0] + "\" and \"" + s + "\"";
  if (!says[0].empty()) return says[0];
  std::string text;
  for (Index rank = 0; rank < ranks; ++rank) {
    const std::vector<Vector> want = world.shard(whole, shard_tokens(kTokens, ranks, rank, layout));
    for (std::size_t n = 0; n < want.size(); ++n)
      if (const double d = difference(got[static_cast<std::size_t>(rank)][n], want[n]);
          !(d <= 1e-11))
        text += std::to_string(rank) + ": array " + std::to_string(n) + " by " + std::to_string(d) +
                "; ";
  }
  return text;
}

// The schemes that ran in some form, and those of which a form was refused, all by `who`.
struct SchemesRun {
  std::set<std::string> ran, refused;
};
SchemesRun every_scheme(Spread by, std::string_view who) {
  SchemesRun r;
  for (std::size_t which = 0; which < scheme_count(); ++which)
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const PlanWorld world(which, 100 * which + seed);
      const Index ranks = seed % 3 == 0 ? 2 : 4;
      const auto layout = static_cast<ShardLayout>(seed % 3);
      const std::string text = of_scheme(world, ranks, layout, by);
      if (!text.empty() && !text.starts_with(who)) ADD_FAILURE() << world.text() << ": " << text;
      (text.empty() ? r.ran : r.refused).insert(world.name());
    }
  return r;
}

// Sums over the keys in between, kernels over them, and an index of every pair.
TEST(RingPlan, EverySchemeThatMerges) {
  const SchemesRun r = every_scheme(Spread::keys, "[ring]");
  EXPECT_THAT(r.refused,
              ::testing::ElementsAre("cope", "dape", "forgetting", "indexed", "stick_breaking"));
  EXPECT_EQ(r.ran.size(), scheme_count() - 2);  // some forms of the others run
}

// Networks over the scores of all heads, an index of every pair.
TEST(UlyssesPlan, EverySchemeThatKeepsHeadsApart) {
  const SchemesRun r = every_scheme(Spread::heads, "[ulysses]");
  EXPECT_THAT(r.refused, ::testing::ElementsAre("dape", "indexed"));
  EXPECT_EQ(r.ran.size(), scheme_count() - 2);
}

// A plan that was lowered for the distances inside one rank.
TEST(RingPlan, RefusesDistancesToOtherRanks) {
  const AttentionPlan plan("t5 bidirectional=false",
                           {.heads = kHeads, .head_dim = kDim, .key_heads = kKeyHeads});
  const Vector table(32 * kHeads, 0.5);
  const NamedArray parameters[] = {{"table", tensor(table.data(), {32, kHeads})}};
  const DistanceRange own[] = {{-7, 7}};
  const LoweredAttention lowered = plan.lower(parameters, own);
  const Vector q(8 * kHeads * kDim, 0.1), k(8 * kKeyHeads * kDim, 0.1);
  const std::vector<std::string> says = on_ranks(2, [&](const Communicator& c, Index rank) {
    const std::vector<Index> at = shard_tokens(16, 2, rank, ShardLayout::contiguous);
    AttentionArgs a;
    a.q = heads(q.data(), 8, kHeads, kDim);
    a.k = a.v = heads(k.data(), 8, kKeyHeads, kDim);
    a.query_positions = a.key_positions = positions(std::span<const Index>(at));
    a.mask.causal = true;
    a.mask.query_order = a.mask.key_order = tensor(at.data(), {1, 8});
    ResultArrays to(a, DType::f64);
    ring_attend(lowered, a, {}, to.r, c, {.seconds = 20}, inline_executor());
  });
  for (const std::string& s : says)
    EXPECT_THAT(s, ::testing::HasSubstr("must lie in those that were lowered, -7 to 7, got 15"));
}

}  // namespace
}  // namespace posenc
