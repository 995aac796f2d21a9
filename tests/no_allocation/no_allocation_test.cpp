// SPDX-License-Identifier: Apache-2.0
// What promises to allocate nothing does not, on the caller's thread or the pool's: this program's
// own operator new counts. Every call runs once before it is counted, so that the pool stands.
#include <gtest/gtest.h>

#include <new>

#include "no_allocation/counted_new.h"
#include "posenc/absolute/plan.h"
#include "posenc/posenc.h"
#include "posenc/registry.h"
#include "posenc/rotary/pope.h"
#include "posenc/rotary/rerotation_plan.h"

namespace posenc {
namespace {

constexpr Index kHeads = 4, kDim = 64;
constexpr DType kTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

template <class Call>
long allocations_of(const Call& call) {
  call();
  const long before = test::allocations();
  call();
  return test::allocations() - before;
}

// Zeroed memory with room for a tensor of the dtype.
struct Memory {
  Memory(DType d, std::vector<Index> shape) : bytes(1), dtype(d), sizes(std::move(shape)) {
    std::size_t n = size_of(d);
    for (const Index s : sizes) n *= static_cast<std::size_t>(s);
    bytes.assign(n / 8 + 1, 0.0);
  }
  TensorView view() { return tensor(static_cast<void*>(bytes.data()), dtype, sizes); }
  std::vector<double> bytes;
  DType dtype;
  std::vector<Index> sizes;
};

RotarySpec spec() {
  return resolve(
      parse_encoding("rope head_dim=64 pairing=half_split base=500000 + llama3 factor=8 "
                     "low_freq_factor=1 high_freq_factor=4 original_context=8192"));
}

TEST(NoAllocation, TheCounterCounts) {
  EXPECT_EQ(allocations_of([] { ::operator delete(::operator new(8)); }), 1);
  EXPECT_EQ(allocations_of([] { ::operator delete(::operator new(8, std::nothrow)); }), 1);
}

// One token of a decoder, a prompt on the caller's thread, one that the pool shares.
TEST(NoAllocation, Rotation) {
  for (const DType dtype : kTypes)
    for (const Index tokens : {Index{1}, Index{64}, Index{4096}}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(tokens));
      const RotaryPlan plan(spec(), dtype);
      Memory q(dtype, {tokens, kHeads, kDim}), k(dtype, {tokens, 2, kDim});
      const QK qk{heads(q.view(), HeadsLayout::thd), heads(k.view(), HeadsLayout::thd)};
      const OwnedPositions at = arange(70000, tokens);
      for (const RotateMode sense :
           {RotateMode::forward, RotateMode::gradient, RotateMode::inverse, RotateMode::shift})
        EXPECT_EQ(allocations_of([&] { plan.apply(qk, at, sense); }), 0);
      Memory rows(dtype == DType::f64 ? DType::f64 : DType::f32, {tokens, plan.row_columns()});
      const TensorView r = rows.view();
      EXPECT_EQ(allocations_of([&] { plan.rows(at, r); }), 0);
      EXPECT_EQ(allocations_of([&] { plan.apply_rows(qk, qk, r); }), 0);
    }
}

TEST(NoAllocation, PositionsOfAnyForm) {
  constexpr Index kTokens = 32;
  const RotaryPlan plan(spec(), DType::f32);
  Memory q(DType::f32, {kTokens, kHeads, kDim});
  const QK qk{heads(q.view(), HeadsLayout::thd), {}};
  std::vector<Index> whole(kTokens);
  std::vector<double> real(kTokens);
  for (std::size_t i = 0; i < kTokens; ++i)
    whole[i] = static_cast<Index>(3 * i), real[i] = 0.5 * static_cast<double>(i);
  const OwnedPositions forms[] = {explicit_positions(whole), explicit_positions(real)};
  for (const OwnedPositions& at : forms) EXPECT_EQ(allocations_of([&] { plan.apply(qk, at); }), 0);
}

// Gradients work in the caller's memory.
TEST(NoAllocation, GradientsOfThePhase) {
  constexpr Index kTokens = 256;
  const RotaryPlan plan(spec(), DType::f32);
  Memory x(DType::f32, {kTokens, kHeads, kDim}), g(DType::f32, {kTokens, kHeads, kDim});
  Memory frequency(DType::f64, {1, 1, kDim / 2}), gain(DType::f64, {1});
  Memory position(DType::f64, {1, 1, kTokens});
  const QK in{heads(x.view(), HeadsLayout::thd), {}}, out{heads(g.view(), HeadsLayout::thd), {}};
  std::vector<double> memory(plan.phase_gradients_workspace(in) / sizeof(double) + 8);
  const Workspace workspace = std::as_writable_bytes(std::span(memory));
  const PhaseGradients wanted{0, frequency.view(), gain.view(), position.view()};
  const OwnedPositions at = arange(0, kTokens);
  EXPECT_EQ(allocations_of([&] { plan.phase_gradients(in, out, at, wanted, workspace); }), 0);
}

TEST(NoAllocation, Table) {
  const RotarySpec s = spec();
  const RotaryTable table(s, 4096);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const Index tokens : {Index{1}, Index{4096}}) {
      const RotaryPlan plan(s, dtype);
      Memory q(dtype, {tokens, kHeads, kDim}), k(dtype, {tokens, 2, kDim});
      const QK qk{heads(q.view(), HeadsLayout::thd), heads(k.view(), HeadsLayout::thd)};
      const OwnedPositions at = arange(0, tokens);
      EXPECT_EQ(allocations_of([&] { apply(plan, qk, table, at); }), 0) << tokens;
    }
}

TEST(NoAllocation, RowsAtTheInput) {
  std::vector<double> table(128 * kDim, 0.5);
  const ConstTensorView rows[] = {tensor(table.data(), {128, kDim})};
  LoweredInput sines, learned;
  Sinusoidal{.width = kDim}.lower({}, sines);
  Learned{.width = kDim, .rows = 128}.lower(rows, learned);
  for (const DType dtype : kTypes)
    for (const Index tokens : {Index{1}, Index{128}}) {
      Memory x(dtype, {32, tokens, kDim});
      const TensorView view = x.view();
      const OwnedPositions at = arange(0, tokens);
      for (const LoweredInput* lowered : {&sines, &learned}) {
        const InputPlan plan(*lowered, dtype);
        EXPECT_EQ(allocations_of([&] { plan.apply(view, at, view); }), 0)
            << dtype_name(dtype) << " " << tokens;
      }
    }
}

TEST(NoAllocation, PolarPositions) {
  const PopePlan plan(Pope{.head_dim = kDim}, DType::f32);
  Memory in(DType::f32, {64, kHeads, kDim}), out(DType::f32, {64, kHeads, 2 * kDim});
  const Heads from = heads(in.view(), HeadsLayout::thd), to = heads(out.view(), HeadsLayout::thd);
  const OwnedPositions at = arange(9, 64);
  EXPECT_EQ(allocations_of([&] { plan.apply(from, to, at); }), 0);
}

// Keys that move: by one distance, by token, to another rotation, by listed pages.
TEST(NoAllocation, MovedKeys) {
  RotarySpec other = spec();
  other.blocks[0].direction = -1;
  for (const KeyType type :
       {KeyType::f64, KeyType::f32, KeyType::f16, KeyType::bf16, KeyType::q8_0}) {
    constexpr Index kPages = 64, kSlots = 16;
    const bool blocks = type == KeyType::q8_0;
    Memory keys(blocks ? DType::u8 : static_cast<DType>(type),
                {kPages, kSlots, kHeads, blocks ? kDim / 32 * 34 : kDim});
    const Heads pool =
        blocks ? key_blocks(keys.view(), HeadsLayout::bthd) : heads(keys.view(), HeadsLayout::bthd);
    const RerotationPlan move(spec(), spec(), type), turn(spec(), other, type);
    const OwnedPositions old = arange(100, kSlots), now = arange(3, kSlots);
    const OwnedPositions spread = explicit_positions(std::vector<Index>(kSlots, 7));
    const std::vector<Index> list{5, 2, 63};
    const KeyPages pages{.pages = list};
    EXPECT_EQ(allocations_of([&] { move.move(pool, old, now); }), 0) << enum_text(type);
    EXPECT_EQ(allocations_of([&] { move.move(pool, old, spread); }), 0) << enum_text(type);
    EXPECT_EQ(allocations_of([&] { turn.move(pool, old, now); }), 0) << enum_text(type);
    EXPECT_EQ(allocations_of([&] { move.move_pages(pool, pages, old, now); }), 0)
        << enum_text(type);
  }
}

}  // namespace
}  // namespace posenc
