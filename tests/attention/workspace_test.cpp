// SPDX-License-Identifier: Apache-2.0
// Calls in the caller's workspace: the size that is asked for is the size that is used, results are
// the same bits, and a smaller one is rejected before anything is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "attention/call/call_arena.h"
#include "attention/engine_compare.h"
#include "attention/random_call.h"
#include "posenc/attention/explain_plan.h"
#include "posenc/attention/plan.h"
#include "posenc/positions/sequence.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using ::testing::HasSubstr;

// Bytes at an address that is no multiple of 64, with others behind them that nothing may write.
struct WorkspaceMemory {
  static constexpr std::size_t kOffset = 8, kBehind = 128;
  explicit WorkspaceMemory(std::size_t size)
      : memory(kOffset + size + kBehind, std::byte{0x5a}), bytes(size) {}
  Workspace span() { return {memory.data() + kOffset, bytes}; }
  bool is_whole() const {
    return std::all_of(memory.end() - kBehind, memory.end(),
                       [](std::byte b) { return b == std::byte{0x5a}; });
  }
  std::vector<std::byte> memory;
  std::size_t bytes;
};

bool same_bits(const std::vector<double>& x, const std::vector<double>& y) {
  return x.size() == y.size() &&
         (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0);
}

TEST(Workspace, RandomCallsHaveTheSameBits) {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(seed);
    RandomCall call(seed);
    AttentionArgs& a = call.args;
    a.exact = true;
    const CallResult want = of_engine(a);
    const EngineUpstream up(a);
    ResultArrays to(a, a.q.dtype);
    GradientArrays g(a);
    WorkspaceMemory forward(workspace_bytes(a)), backward(workspace_bytes(a, g.g));
    attend(a, to.r, default_executor(), forward.span());
    attend_backward(a, to.r, {up.d_out, up.d_lse}, g.g, default_executor(), backward.span());
    ASSERT_TRUE(forward.is_whole() && backward.is_whole());
    ASSERT_TRUE(same_bits(widened(to.r.out), want.out));
    ASSERT_TRUE(same_bits(to.lse, want.log_sum_exp));
    for (std::size_t n = 0; n < want.gradients.size(); ++n)
      ASSERT_TRUE(same_bits(g.value[n], want.gradients[n])) << want.names[n];
    // The engine that runs without a wish.
    a.exact = false;
    ResultArrays own(a, a.q.dtype);
    attend(a, own.r);
    WorkspaceMemory best(workspace_bytes(a));
    attend(a, to.r, default_executor(), best.span());
    ASSERT_TRUE(best.is_whole());
    ASSERT_TRUE(same_bits(widened(to.r.out), widened(own.r.out)));
    ASSERT_TRUE(same_bits(to.lse, own.lse));
  }
}

// One byte less, at whatever address.
TEST(Workspace, ASmallerOneIsRejectedAndNothingIsWritten) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const RandomCall call(seed);
    const AttentionArgs& a = call.args;
    const EngineUpstream up(a);
    ResultArrays to(a, a.q.dtype);
    GradientArrays g(a);
    const ResultArrays to_before = to;
    const std::deque<std::vector<double>> g_before = g.value;
    const std::size_t forward = workspace_bytes(a, inline_executor());
    const std::size_t backward = workspace_bytes(a, g.g);
    for (std::size_t offset = 0; offset < 64; offset += 21) {
      std::vector<std::byte> memory(std::max(forward, backward) + 64);
      const auto part = [&](std::size_t size) { return Workspace(memory.data() + offset, size); };
      EXPECT_EQ(test::refusal([&] { attend(a, to.r, inline_executor(), part(forward - 1)); }),
                "[attention] workspace must have the bytes that workspace_bytes gives, " +
                    std::to_string(forward) + ", got " + std::to_string(forward - 1))
          << offset;
      EXPECT_THAT(test::refusal([&] {
                    attend_backward(a, to.r, {up.d_out, up.d_lse}, g.g, default_executor(),
                                    part(backward - 1));
                  }),
                  HasSubstr(std::to_string(backward) + ", got " + std::to_string(backward - 1)));
    }
    EXPECT_TRUE(to.out == to_before.out && same_bits(to.lse, to_before.lse));
    for (std::size_t n = 0; n < g_before.size(); ++n)
      EXPECT_TRUE(same_bits(g.value[n], g_before[n])) << g.name[n];
  }
}

struct WorkspaceCall {
  std::vector<double> q = std::vector<double>(6 * 2 * 4, 0.5), out = q, d_q = q;
  AttentionArgs a;
  WorkspaceCall() {
    a.q = a.k = a.v = heads(std::as_const(q).data(), 6, 2, 4);
    a.scale = 0.5;
  }
  AttentionResult result() { return {heads(out.data(), 6, 2, 4), {}}; }
};

TEST(Workspace, LiesApartFromTheTensors) {
  WorkspaceCall c;
  std::vector<double> memory(1 << 16);
  const auto bytes = [](std::vector<double>& x) { return std::as_writable_bytes(std::span(x)); };
  EXPECT_THAT(test::refusal([&] { attend(c.a, c.result(), inline_executor(), bytes(c.q)); }),
              HasSubstr("workspace"));
  EXPECT_THAT(test::refusal([&] { attend(c.a, c.result(), inline_executor(), bytes(c.out)); }),
              HasSubstr("workspace"));
  AttentionGradients g;
  g.q = heads(c.d_q.data(), 6, 2, 4);
  const AttentionResult r = c.result();
  for (std::vector<double>* x : {&c.q, &c.out, &c.d_q})
    EXPECT_THAT(test::refusal([&] { attend_backward(c.a, r, r, g, inline_executor(), bytes(*x)); }),
                HasSubstr("workspace"));
  EXPECT_EQ(test::refusal([&] { attend(c.a, r, inline_executor(), bytes(memory)); }), "accepted");
}

// The terms of the schemes and the gradients of their parameters are in it. A byte less is rejected,
// and one over an input or a named gradient.
TEST(Workspace, CallsOfPlansHaveTheSameBits) {
  constexpr Index kTokens = 20;
  test::Random random(3);
  const std::vector<double> x = random.normals(kTokens * 2 * 4), logs(kTokens * 2, -0.25);
  const OwnedPositions at = arange(0, kTokens);
  const AttentionPlan plan({"rope head_dim=4 pairing=half_split",
                            "t5 bidirectional=false num_buckets=8", "forgetting gates=log_gate"},
                           {.heads = 2, .head_dim = 4});
  const std::vector<double> table = random.normals(2 * 8);
  const std::vector<Parameter> needed = plan.parameters();
  ASSERT_EQ(needed.size(), 1u);
  const NamedArray parameters[] = {{needed[0].name, tensor(static_cast<const void*>(table.data()),
                                                           DType::f64, needed[0].shape)}};
  const LoweredAttention lowered = plan.lower(parameters, distance_ranges(at, at));
  const std::vector<Input> wanted = plan.inputs();
  ASSERT_EQ(wanted.size(), 1u);
  std::vector<double> d_logs(logs.size());
  const NamedArray inputs[] = {{wanted[0].name, tensor(logs.data(), {1, kTokens, 2})}};
  AttentionArgs a;
  a.q = a.k = a.v = heads(x.data(), kTokens, 2, 4);
  a.mask.causal = true;
  const auto run = [&](Workspace forward, Workspace backward) {
    std::vector<double> all(x.size() * 2 + table.size());
    const AttentionResult r{heads(all.data(), kTokens, 2, 4), {}};
    AttentionGradients g;
    g.q = heads(all.data() + x.size(), kTokens, 2, 4);
    const NamedGradient named[] = {
        {needed[0].name,
         tensor(static_cast<void*>(all.data() + 2 * x.size()), DType::f64, needed[0].shape)}};
    lowered.forward(a, inputs, r, inline_executor(), forward);
    lowered.backward(a, inputs, r, {heads(x.data(), kTokens, 2, 4), {}}, g, named,
                     inline_executor(), backward);
    return all;
  };
  AttentionGradients g;
  std::vector<double> d_q(x.size()), d_table(table.size());
  g.q = heads(d_q.data(), kTokens, 2, 4);
  const NamedGradient named[] = {
      {needed[0].name, tensor(static_cast<void*>(d_table.data()), DType::f64, needed[0].shape)}};
  const std::size_t forward = lowered.workspace_bytes(a, inputs, inline_executor());
  const std::size_t backward = lowered.workspace_bytes(a, inputs, g, named, inline_executor());
  EXPECT_EQ(lowered.explain(a, inputs).engine, "exact");
  WorkspaceMemory one(forward), two(backward);
  EXPECT_TRUE(same_bits(run(one.span(), two.span()), run({}, {})));
  EXPECT_TRUE(one.is_whole() && two.is_whole());
  EXPECT_THAT(test::refusal([&] { run(one.span().first(forward - 1), {}); }),
              HasSubstr(std::to_string(forward) + ", got"));
  EXPECT_THAT(test::refusal([&] { run({}, two.span().first(backward - 1)); }),
              HasSubstr(std::to_string(backward) + ", got"));
  std::vector<double> gates = logs;
  const NamedArray over[] = {
      {wanted[0].name, tensor(std::as_const(gates).data(), {1, kTokens, 2})}};
  std::vector<double> out(x.size());
  EXPECT_THAT(test::refusal([&] {
                lowered.forward(a, over, {heads(out.data(), kTokens, 2, 4), {}}, inline_executor(),
                                std::as_writable_bytes(std::span(gates)));
              }),
              HasSubstr("workspace must not overlap " + wanted[0].name));
  EXPECT_EQ(gates, logs);
}

TEST(Workspace, AnInvalidCallHasNoSize) {
  WorkspaceCall c;
  c.a.scale.reset();
  EXPECT_THAT(test::refusal([&] { workspace_bytes(c.a); }), HasSubstr("scale"));
  EXPECT_THAT(test::refusal([&] { workspace_bytes(c.a, AttentionGradients{}); }),
              HasSubstr("scale"));
}

TEST(CallArena, CountsWhatItGives) {
  detail::CallArena count = detail::CallArena::counting();
  EXPECT_TRUE(count.array<double>(9).data() == nullptr);
  EXPECT_EQ(count.array<double>(0).size(), 0u);
  EXPECT_EQ(count.objects<std::int32_t>(3)[2], 0);
  EXPECT_EQ(count.bytes(), std::size_t{64 + 128 + 64});
  std::vector<std::byte> memory(count.bytes());
  detail::CallArena given{Workspace(memory)};
  const std::span<double> x = given.array<double>(9);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x.data()) % 64, 0u);
  EXPECT_GE(reinterpret_cast<std::byte*>(x.data()), memory.data());
  given.objects<std::int32_t>(3);
  EXPECT_THROW(given.array<char>(1), detail::WorkspaceEnds);
  EXPECT_THROW(given.array<double>(std::numeric_limits<Index>::max()), std::bad_alloc);
}

}  // namespace
}  // namespace posenc
