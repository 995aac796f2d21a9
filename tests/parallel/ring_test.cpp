// SPDX-License-Identifier: Apache-2.0
// A ring of threads in float: every layout, packed documents, the memory of a rank, calls that cannot be made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/counted_memory.h"
#include "parallel/ring_world.h"
#include "posenc/attention/explain_plan.h"

namespace posenc {
namespace {

using ::testing::HasSubstr;
constexpr Index kRanks[] = {1, 2, 4};

std::vector<TokenList> tokens_of(const RingWorld& w, Index ranks, ShardLayout layout) {
  std::vector<TokenList> all;
  for (Index r = 0; r < ranks; ++r)
    all.push_back(w.cu.empty() ? shard_tokens(w.narrow.q.tokens, ranks, r, layout)
                               : shard_tokens(w.cu, ranks, r, layout));
  return all;
}

// Rows within 1e-6, gradients within 3e-6 of the largest number of theirs: one process in float is off by up to 1.5e-6.
std::string wrong(const CallResult& got, const CallResult& want) {
  std::string text;
  const auto check = [&](const std::string& what, const std::vector<double>& x,
                         const std::vector<double>& y, double bound) {
    double most = 1;
    for (const double n : y) most = std::max(most, std::fabs(n));
    for (std::size_t n = 0; n < y.size(); ++n)
      if (!(std::fabs(x[n] - y[n]) <= bound * most))
        return void(text += what + " by " + std::to_string(1e6 * std::fabs(x[n] - y[n])) + "e-6; ");
  };
  check("out", got.out, want.out, 1e-6);
  check("log_sum_exp", got.log_sum_exp, want.log_sum_exp, 1e-6);
  for (std::size_t n = 0; n < got.gradients.size(); ++n)
    check("d " + got.names[n], got.gradients[n], want.gradients[n], 3e-6);
  return text;
}

void expect_whole(const RingWorld& w, const CallResult& want, Index ranks,
                  const std::vector<TokenList>& tokens) {
  std::vector<CallResult> got(static_cast<std::size_t>(ranks));
  for (const std::string& s : on_ranks(ranks, [&](const Communicator&c, Index r) {
         got[static_cast<std::size_t>(r)] =
             run_shard(w.narrow, tokens[static_cast<std::size_t>(r)], c);
       }))
    EXPECT_EQ(s, "");
  for (std::size_t r = 0; r < got.size() && !got[r].out.empty(); ++r)
    EXPECT_EQ(wrong(got[r], shard_of(want, w.plain, tokens[r], tokens[r])), "") << "rank " << r;
}

TEST(Ring, EveryLayoutInFloat) {
  RingWorld w(128);
  for (AttentionArgs* a : {&w.narrow, &w.plain}) a->mask.window_left = 90;
  EXPECT_EQ(explain_plan(w.narrow).backward_engine, "fast");
  const CallResult want = of_reference(w.plain);
  for (const Index ranks : kRanks)
    for (const ShardLayout layout :
         {ShardLayout::contiguous, ShardLayout::zigzag, ShardLayout::striped})
      expect_whole(w, want, ranks, tokens_of(w, ranks, layout));
}

TEST(Ring, PackedDocuments) {
  const RingWorld w(96, {0, 8, 8, 56, 96});
  const CallResult want = of_reference(w.plain);
  for (const ShardLayout layout :
       {ShardLayout::contiguous, ShardLayout::zigzag, ShardLayout::striped})
    expect_whole(w, want, 4, tokens_of(w, 4, layout));
  // Cut regardless of their borders (packed_run).
  const RingWorld cut(96, {0, 8, 8, 57, 96}, true);
  expect_whole(cut, of_reference(cut.plain), 4,
               tokens_of(RingWorld(96), 4, ShardLayout::contiguous));
}

TEST(Ring, StickBreakingOfContiguousTokens) {
  RingWorld w(64);
  for (AttentionArgs* a : {&w.narrow, &w.plain})
    a->normalisation = Normalisation::stick_breaking, a->sink = {};
  const CallResult want = of_reference(w.plain);
  for (const Index ranks : kRanks)
    expect_whole(w, want, ranks, tokens_of(w, ranks, ShardLayout::contiguous));
  // The ranks the other way round.
  std::vector<TokenList> turned = tokens_of(w, 2, ShardLayout::contiguous);
  std::swap(turned[0], turned[1]);
  for (const std::string& s : on_ranks(2, [&](const Communicator&c, Index r) {
         run_shard(w.narrow, turned[static_cast<std::size_t>(r)], c);
       }))
    EXPECT_THAT(s, HasSubstr("must follow those of the rank before"));
}

TEST(Ring, KeysOfSixteenBits) {
  RingWorld w(64);
  std::vector<std::uint16_t> k, v;
  for (std::size_t n = 0; n < w.k.size(); ++n) {
    k.push_back(f16_from(w.k[n])), v.push_back(f16_from(w.v[n]));
    w.wide_k[n] = f32_from_f16(k[n]), w.wide_v[n] = f32_from_f16(v[n]);
  }
  w.narrow.k.data = k.data(), w.narrow.v.data = v.data(),
  w.narrow.k.dtype = w.narrow.v.dtype = DType::f16;
  w.narrow.prepare = w.plain.prepare = {};  // rotated keys are rounded
  expect_whole(w, of_reference(w.plain), 2, tokens_of(w, 2, ShardLayout::zigzag));
}

// Values with room behind each token travel as those without.
TEST(Ring, ValuesWithGaps) {
  const RingWorld w(32);
  const std::vector<TokenList> tokens = tokens_of(w, 2, ShardLayout::zigzag);
  for (const std::string& s : on_ranks(2, [&](const Communicator&c, Index r) {
         const TokenList& own = tokens[static_cast<std::size_t>(r)];
         ShardCall shard(w.narrow, own, own);
         ResultArrays dense(shard.args, DType::f32), gaps(shard.args, DType::f32);
         ring_attend(shard.args, dense.r, c, {}, inline_executor());
         ConstHeads& v = shard.args.v;
         const auto size = static_cast<std::size_t>(v.heads * v.dim), room = size + 3;
         std::vector<float> apart(static_cast<std::size_t>(v.batch * v.tokens) * room, 1e30f);
         for (std::size_t t = 0; t * room < apart.size(); ++t)
           std::copy_n(static_cast<const float*>(v.data) + t * size, size, &apart[t * room]);
         v.data = apart.data(), v.token_stride = static_cast<Index>(room);
         v.batch_stride = v.tokens * v.token_stride;
         ring_attend(shard.args, gaps.r, c, {}, inline_executor());
         EXPECT_EQ(gaps.out, dense.out);
       }))
    EXPECT_EQ(s, "");
}

// The bytes that a rank of 32 tokens holds do not grow with the ranks; two need no memory for keys that go on.
TEST(Ring, ARankHoldsWhatItsTokensNeed) {
  std::vector<std::size_t> most;
  for (const Index ranks : {2, 4, 8}) {
    RingWorld w(32 * ranks);
    for (AttentionArgs* a : {&w.narrow, &w.plain})
      a->terms = {};  // slopes have a number a distance
    std::vector<std::size_t> bytes(static_cast<std::size_t>(ranks));
    on_ranks(ranks, [&](const Communicator& c, Index r) {
      const TokenList tokens = shard_tokens(32 * ranks, ranks, r, ShardLayout::zigzag);
      const ShardCall shard(w.narrow, tokens, tokens);
      ResultArrays to(shard.args, DType::f32);
      GradientArrays g(shard.args);
      const std::vector<float> d(to.r.out.tokens * RingWorld::kHeads * RingWorld::kDim, 1.0f);
      test::begin_counting();
      ring_attend(shard.args, to.r, c, {.seconds = 60}, inline_executor());
      ring_attend_backward(shard.args, to.r,
                           {heads(d.data(), 32, RingWorld::kHeads, RingWorld::kDim), {}}, g.g, c,
                           {.seconds = 60}, inline_executor());
      bytes[static_cast<std::size_t>(r)] = test::most_bytes();
    });
    most.push_back(*std::max_element(bytes.begin(), bytes.end()));
  }
  EXPECT_GT(most[0], 32 * RingWorld::kHeads * RingWorld::kDim * sizeof(float));
  EXPECT_LT(most[0], most[1]);
  EXPECT_LT(most[2], most[1] + 8 * 1200) << most[1];  // what the ranks agree on
}

// What every rank says where change(args, rank) was made before.
template <class F>
std::string all_say(Index ranks, const F& change) {
  const RingWorld w(32);
  const std::vector<std::string> says = on_ranks(ranks, [&](const Communicator& c, Index r) {
    const TokenList tokens = shard_tokens(32, ranks, r, ShardLayout::zigzag);
    ShardCall shard(w.narrow, tokens, tokens);
    change(shard.args, r);
    ResultArrays to(shard.args, shard.args.q.dtype);
    ring_attend(shard.args, to.r, c, {.seconds = 20}, inline_executor());
  });
  for (const std::string& s : says) EXPECT_EQ(s, says[0]);
  return says[0];
}

TEST(Ring, RefusesOnEveryRankAlike) {
  const std::vector<std::uint8_t> flags(64 * 64, 1);
  const std::vector<double> mix(16, 0.25);
  const std::vector<std::int64_t> pages(8, 0);
  const auto everywhere = [](const auto& change) {
    return all_say(2, [&](AttentionArgs& a, Index) { change(a); });
  };
  EXPECT_EQ(everywhere([&](AttentionArgs& a) {
              a.mask.visible = tensor(flags.data(), {16, 16});
            }),
            "[ring] mask.visible must be empty: it holds every pair of tokens");
  EXPECT_EQ(everywhere([&](AttentionArgs& a) {
              a.mix_after = tensor(mix.data(), {4, 4});
            }),
            "[ring] results over parts of the keys do not merge in calls with mix_after");
  EXPECT_EQ(everywhere([](AttentionArgs& a) {
              a.normalisation = Normalisation::stick_breaking, a.sink = {};
            }),
            "[ring] rank 0 cannot make the call: [ring] stick-breaking merges from the last keys: "
            "the tokens of a rank must be neighbours (contiguous)");
  const Term gates = GatesTerm{.query = kContent, .key = kContent};
  EXPECT_EQ(everywhere([&](AttentionArgs& a) { a.terms = std::span(&gates, 1); }),
            "[ring] results over parts of the keys do not merge in calls with gates");
  EXPECT_EQ(everywhere([&](AttentionArgs& a) {
              a.block_table = tensor(pages.data(), {1, 8});
            }),
            "[ring] block_table must be empty: pages do not go round");
  EXPECT_EQ(everywhere([](AttentionArgs& a) { a.mask.key_order = {}; }),
            "[ring] mask.key_order must state where the tokens of the rank stand in the sequence");
  EXPECT_EQ(everywhere([](AttentionArgs& a) { a.scale = std::nullopt; }),
            "[attention] scale must be given: attend has no default");
  EXPECT_EQ(all_say(16, [](AttentionArgs& a, Index) { a.q.tokens = a.k.tokens = a.v.tokens = 1; }),
            "[ring] q must have at least two tokens on each rank, and k too, got 1");
  EXPECT_EQ(
      all_say(4,
              [](AttentionArgs& a, Index r) {
                if (r == 2) a.scale = std::nullopt;
              }),
      "[ring] rank 2 cannot make the call: [attention] scale must be given: attend has no default");
}

// Calls that attention computes, but a ring does not.
TEST(Ring, RefusesBlocksAndRegionsThatRotate) {
  const BlockKeys blocks(16);
  EXPECT_EQ(all_say(2, [&](AttentionArgs& a, Index) { blocks.put(a, true, false); }),
            "[ring] k must be of a float type: blocks do not travel");
  EXPECT_EQ(all_say(2, [&](AttentionArgs& a, Index) { blocks.put(a, false, true); }),
            "[ring] v must be of a float type: blocks do not travel");
  const RotarySpec spec =
      resolve(Rope{.head_dim = 16, .base = 500, .pairing = Pairing::half_split});
  const std::string says =
      "[ring] regions must have q and k of their own: those of the call are rotated";
  std::array<ScoreRegion, 2> of_rank;
  EXPECT_EQ(all_say(2,
                    [&](AttentionArgs& a, Index r) {
                      ScoreRegion& region = of_rank[static_cast<std::size_t>(r)];
                      region.low = 2, region.rotary = &spec;
                      region.query_positions = a.query_positions;
                      region.key_positions = a.key_positions;
                      a.regions = std::span(&region, 1);
                    }),
            says);
  const ScoreRegion bare;  // of a plan's rotation
  EXPECT_EQ(all_say(2, [&](AttentionArgs& a, Index) { a.regions = std::span(&bare, 1); }), says);
}

TEST(Ring, RefusesRanksThatDisagree) {
  const std::string says = "[ring] all ranks must make the same call; rank 0 and rank 1 differ in ";
  const auto one = [](const auto& change) {
    return all_say(2, [&](AttentionArgs& a, Index r) {
      if (r == 1) change(a);
    });
  };
  EXPECT_EQ(one([](AttentionArgs& a) { a.mask.window_left = 5; }), says + "the mask");
  EXPECT_EQ(one([](AttentionArgs& a) { a.scale = 0.5; }), says + "arrays that all tokens share");
  EXPECT_EQ(one([](AttentionArgs& a) { a.terms = a.terms.first(1); }), says + "terms or stages");
  EXPECT_EQ(one([](AttentionArgs& a) { a.exact = true; }), says + "the pass");
  std::vector<double> other(8, 0.5);
  LinearTerm linear;
  linear.table = tensor(std::as_const(other).data(), {1, 4, 1, 2});
  const RingWorld w(32);
  std::vector<Term> terms{linear, w.terms[1]};
  EXPECT_EQ(one([&](AttentionArgs& a) { a.terms = terms; }), says + "arrays that all tokens share");
  const RotarySpec spec =
      resolve(Rope{.head_dim = 16, .base = 500, .pairing = Pairing::half_split});
  const Stage stage{.kind = StageKind::rotate, .rotary = &spec};
  EXPECT_EQ(one([&](AttentionArgs& a) { a.prepare = std::span(&stage, 1); }),
            says + "arrays that all tokens share");
}

// Each field of a term that no array shows: where one rank has another, no rank computes.
TEST(Ring, RefusesTermsThatDisagree) {
  const RingWorld w(32);
  const auto differ = [](const Term& one, const Term& other) {
    const std::string s = all_say(
        2, [&](AttentionArgs& a, Index r) { a.terms = std::span(r == 0 ? &one : &other, 1); });
    const std::string says =
        "[ring] all ranks must make the same call; rank 0 and rank 1 differ in ";
    return s.starts_with(says) ? s.substr(says.size()) : s;
  };
  const std::string terms = "terms or stages", shared = "arrays that all tokens share";
  std::vector<double> vector{0.5, 1}, other_vector{0.5, 2};
  const auto of_one_token = [](const std::vector<double>& x) {
    ProductTerm t;
    t.query.given = t.key.given = heads(tensor(x.data(), {1, 1, 1, 2}), HeadsLayout::bthd);
    return t;
  };
  const ProductTerm bias = of_one_token(vector);
  EXPECT_EQ(differ(bias, of_one_token(vector)), "");
  EXPECT_EQ(differ(bias, of_one_token(other_vector)), shared);
  DecayTerm past, future;
  past.query.given = past.key.given = heads(tensor(vector.data(), {1, 1, 1, 1}), HeadsLayout::bthd);
  future = past, future.side = Side::future;
  EXPECT_EQ(differ(past, future), terms);
  const std::vector<double> edges{2.5}, other_edges{3.5};
  const std::vector<std::int32_t> rows{0, 1}, other_rows{1, 0};
  ProductTerm line;
  line.table = tensor(std::as_const(w.table).data(), {1, 4, 32, 1});
  line.lines[0] = {rows.data(), 2, 0, edges.data()};
  ProductTerm moved = line;
  moved.lines[0].edges = other_edges.data();
  EXPECT_EQ(differ(line, moved), shared);
  const std::vector<Index> classes(16, 0);
  ProductTerm pair;
  pair.table = line.table;
  pair.pair = {rows.data(), 1, 2, tensor(classes.data(), {1, 16}), tensor(classes.data(), {1, 16})};
  ProductTerm turned = pair;
  turned.pair.row = other_rows.data();
  EXPECT_EQ(differ(pair, pair), "");
  EXPECT_EQ(differ(pair, turned), shared);
}

// A rank that rotates values too.
TEST(Ring, RefusesStagesThatDisagree) {
  const RingWorld w(32);
  Stage stage = w.stage;
  stage.value = true;
  EXPECT_EQ(all_say(2,
                    [&](AttentionArgs& a, Index r) {
                      if (r == 1) a.prepare = std::span(&stage, 1);
                    }),
            "[ring] all ranks must make the same call; rank 0 and rank 1 differ in terms or "
            "stages");
}

// One rank goes forward, the other backward.
TEST(Ring, RefusesAnotherPass) {
  const RingWorld w(32);
  for (const std::string& s : on_ranks(2, [&](const Communicator&c, Index r) {
         const TokenList tokens = shard_tokens(32, 2, r, ShardLayout::zigzag);
         const ShardCall shard(w.narrow, tokens, tokens);
         ResultArrays to(shard.args, DType::f32);
         GradientArrays g(shard.args);
         if (r == 0) return ring_attend(shard.args, to.r, c);
         const ShardUpstream up(w.narrow, tokens);
         ring_attend_backward(shard.args, to.r, {up.d_out, up.d_lse}, g.g, c);
       }))
    EXPECT_EQ(s, "[ring] all ranks must make the same call; rank 0 and rank 1 differ in the pass");
}

TEST(Ring, RefusesCallersThatDisagree) {
  const RingWorld w(32);
  for (const std::string& s : on_ranks(2, [&](const Communicator&c, Index r) {
         run_shard(w.narrow, shard_tokens(32, 2, r, ShardLayout::zigzag), c,
                   {.seconds = 20, .agreement = r});
       }))
    EXPECT_EQ(s,
              "[ring] all ranks must make the same call; rank 0 and rank 1 differ in what their "
              "callers agree on");
}

// Frequencies that hold for some lengths: that of the sequence counts, not that of a rank's tokens.
TEST(Ring, LengthsAreThoseOfTheSequence) {
  RingWorld w(32);
  w.spec.blocks[0].spectrum.valid_from = 20;
  EXPECT_EQ(all_say(1, [](AttentionArgs&, Index) {}), "");
  w.spec.blocks[0].spectrum.valid_to = 31;
  const auto say = [&] {
    return on_ranks(2, [&](const Communicator& c, Index r) {
      run_shard(w.narrow, shard_tokens(32, 2, r, ShardLayout::contiguous), c);
    });
  };
  for (const std::string& s : say()) EXPECT_THAT(s, HasSubstr("[rotary]"));
  w.spec.blocks[0].spectrum.valid_to = 32;
  for (const std::string& s : say()) EXPECT_EQ(s, "");
}

// Where a norm stands before the rotation, which then runs in each step.
TEST(Ring, LengthsAreThoseOfTheSequenceAfterANorm) {
  RingWorld w(32);
  const Stage stages[] = {{.kind = StageKind::l2, .epsilon = 1e-3}, w.stage};
  w.narrow.prepare = w.plain.prepare = stages;
  w.spec.blocks[0].spectrum.valid_from = 20;
  expect_whole(w, of_reference(w.plain), 2, tokens_of(w, 2, ShardLayout::contiguous));
  w.spec.blocks[0].spectrum.valid_to = 31;
  for (const std::string& s : on_ranks(2, [&](const Communicator&c, Index r) {
         run_shard(w.narrow, shard_tokens(32, 2, r, ShardLayout::contiguous), c);
       }))
    EXPECT_THAT(s, HasSubstr("[rotary] length"));
}

TEST(Ring, RefusesACommunicatorWithoutItsCalls) {
  const RingWorld w(32);
  ResultArrays to(w.narrow, DType::f32);
  const auto say = [&](const Communicator& c, double seconds = 1) {
    try {
      ring_attend(w.narrow, to.r, c, {.seconds = seconds});
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const ThreadGroup group(1);
  Communicator c = group.communicator(0);
  EXPECT_EQ(say(c, 0), "[ring] seconds must be positive, got 0");
  EXPECT_EQ(say({}), "[ring] communicator must have all five calls");
  c.size = [](void*) -> Index { return 0; };
  EXPECT_EQ(say(c), "[ring] communicator must have a rank below its size, 0, got 0");
  EXPECT_THAT([&] { group.communicator(1); },
              ::testing::ThrowsMessage<std::invalid_argument>(
                  "[thread_group] rank must be below the ranks, 1, got 1"));
  for (const Index wrong : {Index{0}, Index{65537}})
    EXPECT_THAT(
        [&] { ThreadGroup none(wrong); },
        ::testing::ThrowsMessage<std::invalid_argument>(
            "[thread_group] ranks must lie between 1 and 65536, got " + std::to_string(wrong)));
}

}  // namespace
}  // namespace posenc
