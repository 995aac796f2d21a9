// SPDX-License-Identifier: Apache-2.0
// Schemes whose score needs the keys in between, from a cache and in a call without one: decoding while the oldest
// tokens leave. Other evictions and a second shift are refused by the name of the scheme.
#include <gtest/gtest.h>

#include "cache_calls.h"
#include "support/refusal.h"

namespace posenc::test::cache_between {
namespace {

using ::testing::HasSubstr;
constexpr Index kTokens = 75, kHeads = 2, kDim = 32, kFirst = 40, kWindow = 30;

struct BetweenCase {
  std::vector<std::string_view> plan;
  std::string name;  // in refusals
  bool hides_own = false;
  bool reads_queries = false;  // by the table, so rotated ones depend on their positions
};
const BetweenCase kCases[] = {
    {{"cope positions=16"}, "cope", false, true},
    {{"cope positions=16 gates=separate"}, "cope", false, true},
    {{"stick_breaking"}, "stick_breaking", true},
    {{"stick_breaking own=true"}, "stick_breaking_own", true},
    {{"alibi", "dape width=4 kernel=3"}, "dape"},
    {{"forgetting"}, "forgetting"},
    {{"forgetting form=bidirectional"}, "forgetting"},
};

struct BetweenWorld {
  AttentionPlan plan;
  bool hides_own;
  std::vector<std::vector<double>> values;
  std::vector<double> k = Random(1).normals(kTokens * kHeads * kDim),
                      v = Random(2).normals(kTokens * kHeads * kDim),
                      q = Random(3).normals(kTokens * kHeads * kDim),
                      gate_key = Random(4).normals(kTokens * kHeads * kDim),
                      log_gate = Random(5).normals(kTokens * 2 * kHeads);
  std::vector<Input> inputs;
  RotarySpec rotary = cache_rope();
  Index columns = kHeads;

  explicit BetweenWorld(const BetweenCase& c)
      : plan(std::span(c.plan), {.heads = kHeads, .head_dim = kDim, .scale = 0.2}),
        hides_own(c.hides_own) {
    inputs = plan.inputs();
    for (double& x : log_gate) x = -std::fabs(x) / 4;
    if (c.plan[0].ends_with("bidirectional")) columns = 2 * kHeads;
    // Without other parameters a network adds 0.
    for (const Parameter& p : plan.parameters()) {
      Index n = 1;
      for (const Index size : p.shape) n *= size;
      values.push_back(Random(10 + values.size()).normals(static_cast<std::size_t>(n)));
      for (double& x : values.back()) x /= 4;
    }
  }
  LoweredAttention lowered() const {
    std::vector<NamedArray> parameters;
    const std::vector<Parameter> needed = plan.parameters();
    for (std::size_t n = 0; n < needed.size(); ++n)
      parameters.push_back({needed[n].name, tensor(static_cast<const void*>(values[n].data()),
                                                   DType::f64, needed[n].shape)});
    const OwnedPositions at = arange(0, kTokens);
    return plan.lower(parameters, distance_ranges(at, at));
  }
  // What tokens bring, as [rows, ...] or, of a call, [1, rows, ...].
  std::vector<NamedArray> arrays(Index first, Index n, bool of_call) const {
    std::vector<NamedArray> all;
    for (const Input& i : inputs) {
      const bool gates = i.name == "log_gate";
      const double* const x =
          gates ? log_gate.data() + first * columns : gate_key.data() + first * kHeads * kDim;
      std::vector<Index> shape =
          gates ? std::vector<Index>{n, columns} : std::vector<Index>{n, kHeads, kDim};
      if (of_call) shape.insert(shape.begin(), 1);
      all.push_back({i.name, tensor(static_cast<const void*>(x), DType::f64, shape)});
    }
    return all;
  }
  PagePool pool() const {
    PoolSizes s = cache_sizes(8);
    s.key_type = s.value_type = KeyType::f64;
    for (const Input& i : inputs)
      s.arrays.push_back(
          {i.name, DType::f64,
           i.name == "log_gate" ? std::vector<Index>{columns} : std::vector<Index>{kHeads, kDim}});
    return PagePool(s);
  }
  void append(KeyCache& cache, Index first, Index n) const {
    const std::vector<NamedArray> with = arrays(first, n, false);
    const OwnedPositions at = arange(first, n);
    cache.append({.k = heads(k.data() + first * kHeads * kDim, n, kHeads, kDim),
                  .v = heads(v.data() + first * kHeads * kDim, n, kHeads, kDim),
                  .positions = at,
                  .arrays = with});
  }
  AttentionArgs call() const {
    AttentionArgs a;
    a.mask.causal = true;
    if (hides_own) a.mask.window_right = -1;
    return a;
  }
  template <class T = double>
  std::vector<double> cached(const KeyCache& cache, Index first, Index n) const {
    const auto begin = q.begin() + first * kHeads * kDim;
    const std::vector<T> x(begin, begin + n * kHeads * kDim);
    std::vector<T> out(x.size());
    AttentionArgs a = call();
    a.q = heads(x.data(), n, kHeads, kDim);
    cache.attend(lowered(), a, {}, {heads(out.data(), n, kHeads, kDim), {}});
    return {out.begin(), out.end()};
  }
  // Queries `first` up to `end` over the tokens from `oldest` on, positions beyond their numbers by `by`.
  std::vector<double> whole(Index oldest, Index first, Index end, Index by = 0) const {
    std::vector<double> x(q.begin() + first * kHeads * kDim, q.begin() + end * kHeads * kDim);
    std::vector<double> keys(k.begin() + oldest * kHeads * kDim, k.begin() + end * kHeads * kDim);
    std::vector<double> out(x.size());
    const OwnedPositions at = arange(oldest + by, end - oldest),
                         from = arange(first + by, end - first);
    const RotaryPlan rotate(rotary, DType::f64);
    rotate.apply(QK{heads(x.data(), end - first, kHeads, kDim), {}}, from);
    rotate.apply(QK{{}, heads(keys.data(), end - oldest, kHeads, kDim)}, at);
    AttentionArgs a = call();
    a.q = heads(std::as_const(x).data(), end - first, kHeads, kDim);
    a.k = heads(std::as_const(keys).data(), end - oldest, kHeads, kDim);
    a.v = heads(v.data() + oldest * kHeads * kDim, end - oldest, kHeads, kDim);
    a.query_positions = from, a.key_positions = at, a.mask.query_offset = first - oldest;
    lowered().forward(a, arrays(oldest, end - oldest, true),
                      {heads(out.data(), end - first, kHeads, kDim), {}});
    return out;
  }
};

TEST(CacheBetween, AsWithoutACache) {
  for (const BetweenCase& c : kCases)
    for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated}) {
      const BetweenWorld w(c);
      KeyCache cache(w.pool(), w.rotary, keeping);
      w.append(cache, 0, kFirst);
      EXPECT_LT(largest_difference(w.cached(cache, 0, kFirst), w.whole(0, 0, kFirst)), 1e-12)
          << c.plan.back();
      Index oldest = 0;
      for (Index n = kFirst; n < kTokens; ++n) {
        w.append(cache, n, 1);
        if (n % 5 == 0) cache.keep(0, kWindow), oldest = n + 1 - kWindow;
        if (n == 60) cache.compact();
        const std::vector<double> want = w.whole(oldest, n, n + 1);
        EXPECT_LT(largest_difference(w.cached(cache, n, 1), want), 1e-12) << c.plan.back();
        EXPECT_LT(largest_difference(w.cached<float>(cache, n, 1), want), 3e-5) << c.plan.back();
      }
      // One shift of all tokens changes nothing, unless the scheme reads rotated queries.
      cache.shift(0, kTokens, 1000);
      const std::vector<double> want = w.whole(oldest, kTokens - 1, kTokens, 1000);
      const auto run = [&] {
        EXPECT_LT(largest_difference(w.cached(cache, kTokens - 1, 1), want), 1e-12);
      };
      if (!c.reads_queries || keeping == KeyKeeping::unrotated)
        run();
      else
        EXPECT_THAT(refusal(run), HasSubstr("cope reads rotated queries or keys, so anchored"));
    }
}

TEST(CacheBetween, RefusedByName) {
  for (const BetweenCase& c : kCases) {
    const BetweenWorld w(c);
    KeyCache gap(w.pool(), w.rotary), two_shifts(w.pool(), w.rotary);
    for (KeyCache* cache : {&gap, &two_shifts}) w.append(*cache, 0, kFirst);
    gap.evict(7, 9), two_shifts.shift(0, 20, -1);
    EXPECT_THAT(refusal([&] { w.cached(gap, kFirst - 1, 1); }),
                HasSubstr(c.name + " sums over the keys in between, so only the oldest tokens may "
                                   "be evicted; missing, got 2"));
    EXPECT_THAT(refusal([&] { w.cached(two_shifts, kFirst - 1, 1); }),
                HasSubstr(c.name + " sums over the keys in between, so all tokens must have one "
                                   "shift, distinct shifts, got 2"));
    // Unrotated keys have one run, whatever the shifts are.
    KeyCache unrotated(w.pool(), w.rotary, KeyKeeping::unrotated);
    w.append(unrotated, 0, kFirst), unrotated.shift(0, 20, -1);
    EXPECT_EQ(refusal([&] { w.cached(unrotated, kFirst - 1, 1); }), "accepted");
  }
  for (const char* gates : {"cope positions=16 gates=values", "cope positions=16 gates=mixed"}) {
    BetweenWorld w({{gates}, "cope"});
    PoolSizes s = cache_sizes();
    KeyCache cache(PagePool(s), w.rotary);
    append_random(cache, 0, 20);
    EXPECT_THAT(refusal([&] { w.cached(cache, 19, 1); }),
                HasSubstr("a scheme that reads keys or values needs them without pages"));
  }
}

// A term of the call that reads q: its table row is multiplied with the query as it was rotated.
TEST(CacheBetween, TermsThatReadRotatedQueries) {
  const std::vector<double> table = Random(6).normals(2 * kDim);
  ProductTerm term;
  term.query = kContent, term.table = tensor(table.data(), {1, 2, 1, kDim});
  const Term terms[] = {term};
  AttentionArgs with;
  with.terms = terms;
  for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated}) {
    KeyCache cache(PagePool(cache_sizes()), cache_rope(), keeping);
    KeyCache moved(PagePool(cache_sizes()), cache_rope(), keeping);
    append_random(cache, 0, 20), append_random(moved, 100, 20);
    EXPECT_NO_THROW(attend_ones(cache, 20, 2, with));
    cache.shift(0, 20, 100);
    if (keeping == KeyKeeping::anchored)
      EXPECT_THAT(refusal([&] { attend_ones(cache, 120, 2, with); }),
                  HasSubstr("product reads rotated queries or keys"));
    else
      EXPECT_LT(
          largest_difference(attend_ones(cache, 120, 2, with), attend_ones(moved, 120, 2, with)),
          1e-12);
  }
}

}  // namespace
}  // namespace posenc::test::cache_between
