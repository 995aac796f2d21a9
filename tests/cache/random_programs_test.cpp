// SPDX-License-Identifier: Apache-2.0
// Random programs of 200 operations on caches that share a small pool; in every other one the caches of a second pool
// have the other keeping. After each operation attention equals attention in double over what is stored, and each stored
// key is within its bound of the truth.
#include <gtest/gtest.h>

#include "cache_model.h"
#include "posenc/attention/attend.h"
#include "posenc/scaling/linear.h"
#include "posenc/scaling/ntk.h"
#include "posenc/scaling/yarn.h"
#include "support/sanitized.h"

namespace posenc {
namespace {

using test::CacheModel;
using test::Doubles;
using test::ModelCall;
using test::ModelRotation;

constexpr Index kPage = 16, kKeyHeads = 1, kQueryHeads = 2, kChannels = 32, kValues = 32;

const std::vector<ModelRotation>& program_rotations(KeyType type) {
  static const auto make = [](Index rotary) {
    const Rope rope{
        .head_dim = kChannels, .rotary_dim = rotary, .base = 100, .pairing = Pairing::half_split};
    std::vector<ModelRotation> all;
    all.emplace_back(resolve(rope));
    all.emplace_back(resolve(rope, Linear{.factor = 4}));
    Yarn yarn;
    yarn.factor = 4, yarn.original_context = 256;
    all.emplace_back(resolve(rope, yarn));
    all.emplace_back(resolve(rope, Ntk{.factor = 2, .formula = NtkFormula::alpha}));
    return all;
  };
  static const std::vector<ModelRotation> partial = make(24), whole = make(kChannels);
  return type == KeyType::q8_0 ? whole : partial;
}

struct Program {
  struct Sequence {
    KeyCache cache;
    CacheModel model;
    Index next = 0;  // position of the next token
    std::size_t rotation = 0;
  };
  KeyType type;
  KeyKeeping keeping;
  test::Random r;
  PagePool pool, larger_pages;
  std::vector<Sequence> all{};
  Index attends = 0, refused = 0, appended = 0, between = 0, most_runs = 0;
  double worst = 0, worst_float = 0, worst_key = 0;

  static PoolSizes sizes(KeyType t, Index pages, Index page_size) {
    return {.pages = pages,
            .page_size = page_size,
            .heads = kKeyHeads,
            .head_dim = kChannels,
            .value_dim = kValues,
            .key_type = t,
            .value_type = t,
            .arrays = {{"document", DType::i64}, {"sum", DType::f64, {kQueryHeads}}}};
  }
  Program(KeyType t, KeyKeeping k, std::uint64_t seed)
      : type(t),
        keeping(k),
        r(seed),
        pool(sizes(t, 14, kPage)),
        larger_pages(sizes(t, 6, 2 * kPage + 3)) {
    all.push_back({KeyCache(pool, program_rotations(type)[0].spec, keeping), {}});
    const KeyKeeping second = seed % 2 != 0                     ? keeping
                              : keeping == KeyKeeping::anchored ? KeyKeeping::unrotated
                                                                : KeyKeeping::anchored;
    all.push_back({KeyCache(larger_pages, program_rotations(type)[1].spec, second), {}, 0, 1});
  }

  // All tokens of a sequence, which may be the same one.
  void append(Sequence& s, const Sequence& other) {
    if (s.cache.size() + other.cache.size() > 100) return;
    const Index by = r.coin() ? s.next : r.integer(-50, 50);
    s.cache.append(other.cache, by, {.keys = OtherRotation::move});
    ++appended;
    between += other.cache.size() > 0 && s.cache.keeping() != other.cache.keeping() ? 1 : 0;
    const Index first = s.model.next_order;
    const CacheModel more = other.model;
    for (test::ModelToken t : more.tokens) {
      t.order += first, t.position += by;
      s.model.tokens.push_back(std::move(t));
    }
    s.model.next_order += more.next_order, s.next = other.next + by;
  }

  void append(Sequence& s, Index n) {
    std::vector<float> k = r.normals<float>(static_cast<std::size_t>(n * kKeyHeads * kChannels));
    std::vector<float> v = r.normals<float>(static_cast<std::size_t>(n * kKeyHeads * kValues));
    if (r.coin())  // as the cache stores them
      for (float& x : k) x = f32_from_bf16(bf16_from(x));
    Doubles sum = r.normals(static_cast<std::size_t>(n * kQueryHeads));
    std::vector<Index> at, document;
    CacheModel model = s.model;
    for (Index t = 0; t < n; ++t) {
      at.push_back(s.next + t), document.push_back(r.integer(0, 1));
      const auto part = [&](const auto& x, Index size) {
        return Doubles(x.begin() + t * size, x.begin() + (t + 1) * size);
      };
      model.tokens.push_back({model.next_order++, at.back(), document.back(),
                              part(k, kKeyHeads * kChannels), part(v, kKeyHeads * kValues),
                              part(sum, kQueryHeads)});
    }
    const NamedArray arrays[] = {{"sum", tensor(std::as_const(sum).data(), {n, kQueryHeads})},
                                 {"document", tensor(std::as_const(document).data(), {n})}};
    s.cache.append({.k = heads(std::as_const(k).data(), n, kKeyHeads, kChannels),
                    .v = heads(std::as_const(v).data(), n, kKeyHeads, kValues),
                    .positions = positions(std::span<const Index>(at)),
                    .arrays = arrays});
    s.model = std::move(model), s.next += n;
  }

  std::vector<Index> some_tokens(const Sequence& s) {
    std::vector<Index> list;
    for (int n = 0; n < 3 && !s.model.tokens.empty(); ++n) {
      const Index order =
          s.model.tokens[static_cast<std::size_t>(r.integer(0, s.cache.size() - 1))].order;
      if (std::find(list.begin(), list.end(), order) == list.end()) list.push_back(order);
    }
    return list;
  }

  void step(Sequence& s, Index what) {
    const Index a = r.integer(0, s.model.next_order), b = r.integer(0, s.model.next_order);
    if (what < 8) return append(s, what == 0 ? r.integer(1, 2 * kPage) : r.integer(1, 3));
    if (what == 8) {
      const std::vector<Index> list = some_tokens(s);
      s.cache.evict(list), s.model.erase(list);
    } else if (what == 9) {
      s.cache.evict(std::min(a, b), std::min(std::max(a, b), std::min(a, b) + 5));
      s.model.erase(std::min(a, b), std::min(std::max(a, b), std::min(a, b) + 5));
    } else if (what == 10) {
      const Index sinks = r.integer(0, 4), window = r.integer(8, 40);
      const Index left = s.cache.keep(sinks, window), n = s.cache.size() + left;
      EXPECT_EQ(left, std::max<Index>(0, n - sinks - window));
      s.model.tokens.erase(s.model.tokens.begin() + sinks * (left > 0 ? 1 : 0),
                           s.model.tokens.begin() + sinks * (left > 0 ? 1 : 0) + left);
    } else if (what < 14) {
      const Index by = what == 11 ? r.integer(-40, 10) : -r.integer(0, 2);
      s.cache.shift(std::min(a, b), std::max(a, b), by);
      for (test::ModelToken& t : s.model.tokens)
        if (t.order >= std::min(a, b) && t.order < std::max(a, b)) t.position += by;
      if (std::max(a, b) == s.model.next_order) s.next += by;
    } else if (what == 14) {
      const auto to = static_cast<std::size_t>(r.integer(0, 3));
      s.cache.rescale(program_rotations(type)[to].spec, {.keys = OtherRotation::move});
      s.rotation = to;
    } else if (what == 15) {
      const Index order = std::max<Index>(0, s.model.next_order - r.integer(0, 4));
      s.cache.rewind(order), s.model.erase(order, kUnbounded);
      s.model.next_order = order;
    } else if (what == 16) {
      s.cache.compact();
      EXPECT_LE(s.cache.pages(), (s.cache.size() + kPage - 1) / kPage);
    } else if (what == 17 && r.integer(0, 5) == 0) {
      s.cache.clear(), s.model = {}, s.next = r.integer(-20, 20);
    } else if (what == 17) {
      append(s, any());
    }
  }

  void check(const Sequence& s) {
    ASSERT_EQ(s.cache.size(), static_cast<Index>(s.model.tokens.size()));
    ASSERT_EQ(s.cache.next_order(), s.model.next_order);
    const ModelRotation& rotation = program_rotations(type)[s.rotation];
    const test::StoredNumbers stored = test::stored_numbers(s.cache, s.model, rotation);
    for (int n = 0; n < 4; ++n) check_call(s, stored, rotation);
  }

  void check_call(const Sequence& s, const test::StoredNumbers& stored,
                  const ModelRotation& rotation) {
    ModelCall c;
    const Index n = r.integer(1, 3);
    for (Index i = 0; i < n; ++i)
      c.order.push_back(s.model.next_order - n + i + r.integer(0, 2)),
          c.position.push_back(s.next - n + i);
    c.q = r.normals(static_cast<std::size_t>(n * kQueryHeads * kChannels));
    c.scale = 0.2;
    const Index kind = r.integer(0, 7);
    if (kind == 1) c.slope = 0.25;
    if (kind == 2) c.window = r.integer(0, 20), c.sinks = r.integer(0, 4);
    if (kind == 3) c.document = r.integer(0, 1);
    if (kind == 4) c.sink = r.normals(kQueryHeads);
    if (kind == 5) c.query_sum = r.normals(static_cast<std::size_t>(n * kQueryHeads));
    if (kind == 6) c.softcap = 2;
    if (kind == 7) c.causal = false;
    const Doubles want =
        test::plain_attention(pool.sizes(), s.model, stored, rotation, c, kQueryHeads);
    const Doubles got = attend(s.cache, c, n);
    for (std::size_t i = 0; i < want.size(); ++i)
      worst = std::max(worst, std::fabs(want[i] - got[i]));
    ++attends;
    if (r.integer(0, 3) != 0) return;
    const Doubles narrow = attend<float>(s.cache, c, n);
    for (std::size_t i = 0; i < want.size(); ++i)
      worst_float = std::max(worst_float, std::fabs(want[i] - narrow[i]));
  }

  template <class T = double>
  static Doubles attend(const KeyCache& cache, const ModelCall& c, Index n) {
    AttentionArgs a;
    const std::vector<T> q(c.q.begin(), c.q.end());
    a.q = heads(q.data(), n, kQueryHeads, kChannels);
    a.query_positions = positions(std::span<const Index>(c.position));
    a.scale = c.scale, a.softcap = c.softcap;
    a.mask.causal = c.causal;
    a.mask.query_order = tensor(c.order.data(), {1, n});
    a.mask.window_left = c.window, a.mask.sink_tokens = c.sinks;
    const std::vector<Index> document(static_cast<std::size_t>(n), c.document);
    if (c.document >= 0) a.mask.query_document = tensor(document.data(), {1, n});
    if (!c.sink.empty()) a.sink = tensor(c.sink.data(), {kQueryHeads});
    Doubles slopes;
    for (Index h = 0; h < kQueryHeads; ++h)
      slopes.push_back(-c.slope * std::exp2(-double(h))), slopes.push_back(slopes.back());
    LinearTerm linear;
    linear.table = tensor(std::as_const(slopes).data(), {1, kQueryHeads, 1, 2});
    DecayTerm decay;
    if (!c.query_sum.empty())
      decay.query.given =
          heads(tensor(c.query_sum.data(), {1, n, kQueryHeads, 1}), HeadsLayout::bthd);
    const std::vector<Term> terms = c.slope > 0            ? std::vector<Term>{linear}
                                    : !c.query_sum.empty() ? std::vector<Term>{decay}
                                                           : std::vector<Term>{};
    a.terms = terms;
    const KeyInput sum[] = {{0, "sum"}};
    std::vector<T> out(static_cast<std::size_t>(n * kQueryHeads * kValues));
    cache.attend(a, c.query_sum.empty() ? std::span<const KeyInput>() : sum,
                 {heads(out.data(), n, kQueryHeads, kValues), {}}, inline_executor());
    return {out.begin(), out.end()};
  }

  Sequence& any() {
    return all[static_cast<std::size_t>(r.integer(0, static_cast<Index>(all.size()) - 1))];
  }

  void run(int steps) {
    for (int n = 0; n < steps; ++n) {
      Sequence& s = any();
      const Index what = r.integer(0, 19);
      try {
        if (what >= 18 && all.size() < 4)
          all.push_back({s.cache.fork(), s.model, s.next, s.rotation});
        else if (what >= 18 && all.size() == 4)
          all.erase(all.begin() + r.integer(2, 3));  // one of each pool stays
        else
          step(s, what);
      } catch (const OutOfPages&) {
        ++refused;
      }
      for (const Sequence& each : all) {
        check(each);
        most_runs = std::max(most_runs, each.cache.runs());
        if (::testing::Test::HasFatalFailure()) return;
      }
      const Sequence& one = all[static_cast<std::size_t>(n) % all.size()];
      worst_key = std::max(
          worst_key, test::worst_key(one.cache, one.model, program_rotations(type)[one.rotation]));
    }
    all.clear();
    EXPECT_EQ(pool.free_pages(), 14);
    EXPECT_EQ(larger_pages.free_pages(), 6);
  }
};

class RandomPrograms : public ::testing::TestWithParam<std::tuple<KeyType, KeyKeeping>> {};

TEST_P(RandomPrograms, AttendAsInDouble) {
  const auto [type, keeping] = GetParam();
  Index attends = 0, refused = 0, appended = 0, between = 0, runs = 0;
  double worst = 0, narrow = 0, key = 0;
  for (std::uint64_t seed = 0; seed < (test::kSanitized ? 1 : 5); ++seed) {
    Program p(type, keeping, seed);
    p.run(200);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    attends += p.attends, refused += p.refused, appended += p.appended, between += p.between;
    runs = std::max(runs, p.most_runs);
    narrow = std::max(narrow, p.worst_float), worst = std::max(worst, p.worst);
    key = std::max(key, p.worst_key);
  }
  EXPECT_LT(worst, 1e-12);
  EXPECT_LT(narrow, 1e-5) << "queries in float";
  EXPECT_LT(key, 1);
  EXPECT_GT(refused, test::kSanitized ? -1 : 0) << "no program ran out of pages";
  EXPECT_GT(appended, test::kSanitized ? 2 : 15);
  EXPECT_GT(between, test::kSanitized ? -1 : 0)
      << "no cache was appended to one of the other keeping";
  EXPECT_GT(runs, 2);
  EXPECT_GT(attends, test::kSanitized ? 1000 : 10000);
}

INSTANTIATE_TEST_SUITE_P(
    Types, RandomPrograms,
    ::testing::Combine(::testing::Values(KeyType::f32, KeyType::f16, KeyType::bf16, KeyType::q8_0),
                       ::testing::Values(KeyKeeping::anchored, KeyKeeping::unrotated)),
    [](const auto& i) {
      return std::string(enum_text(std::get<0>(i.param))) + "_" +
             std::string(enum_text(std::get<1>(i.param)));
    });

}  // namespace
}  // namespace posenc
