// SPDX-License-Identifier: Apache-2.0
// Random moves of stored keys, against R'(p') R(p)^-1 in long double of what is stored.
#include "posenc/rotary/rerotation_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "posenc/posenc.h"
#include "posenc/rotary/xpos.h"
#include "posenc/scaling/linear.h"
#include "posenc/scaling/yarn.h"
#include "rerotation_support.h"
#include "support/random.h"

// Of its own: other files of this folder have functions of the same names.
namespace posenc::moved_keys {
namespace {

using test::StoredKeys;

constexpr KeyType kTypes[] = {KeyType::f64, KeyType::f32, KeyType::f16, KeyType::bf16,
                              KeyType::q8_0};

RotarySpec key_rope(Index dim, Index rotary, Pairing pairing = Pairing::half_split) {
  return resolve(Rope{.head_dim = dim, .rotary_dim = rotary, .base = 10000, .pairing = pairing});
}
Yarn yarn_by_four() {
  Yarn y;
  y.factor = 4, y.original_context = 4096;
  return y;
}
RotarySpec key_yarn(Index dim, Index rotary, Pairing pairing = Pairing::half_split) {
  return resolve(Rope{.head_dim = dim, .rotary_dim = rotary, .base = 10000, .pairing = pairing},
                 yarn_by_four());
}
// Three position streams, as M-RoPE; each pair follows one.
RotarySpec streams(Index dim) {
  RotarySpec s = key_rope(dim, dim);
  Spectrum& p = s.blocks[0].spectrum;
  const std::vector<double> f = p.frequency;
  p.axes = 3;
  p.frequency.assign(3 * f.size(), 0);
  for (std::size_t i = 0; i < f.size(); ++i) p.frequency[i % 3 * f.size() + i] = f[i];
  p.geometric.reset(), p.drop_ggml("test");
  return s;
}
RotarySpec per_head(Index dim, Index heads) {
  RotarySpec s = key_rope(dim, dim);
  Spectrum& p = s.blocks[0].spectrum;
  const std::vector<double> f = p.frequency;
  p.heads = heads;
  p.frequency.clear();
  for (Index h = 0; h < heads; ++h)
    for (const double x : f) p.frequency.push_back(x * (1 + 0.1 * static_cast<double>(h)));
  p.geometric.reset(), p.drop_ggml("test");
  return s;
}
RotarySpec with_decay(Index dim) {
  RotarySpec s = key_rope(dim, dim);
  for (Index i = 0; i < dim / 2; ++i)
    s.blocks[0].log2_decay.push_back(-0.02 * static_cast<double>(dim / 2 - i));
  s.blocks[0].decay_center = 100;
  return s;
}
RotarySpec two_blocks() {  // vision towers: rows and columns; channels between them do not rotate
  RotarySpec s = key_rope(96, 32), t = key_rope(96, 32, Pairing::interleaved);
  s.blocks.push_back(t.blocks[0]);
  s.blocks[1].offset = 64;
  return s;
}
RotarySpec backwards(RotarySpec s) {
  s.blocks[0].direction = -1;
  return s;
}
RotarySpec reordered() {
  RotarySpec s = key_rope(64, 64, Pairing::interleaved);
  s.blocks[0].output_order = OutputOrder::even_then_odd;
  return s;
}
// The rotated part of MLA: channels 512 to 575 of latent | rotated.
RotarySpec latent() {
  RotarySpec s = key_rope(64, 64);
  s.head_dim = 576, s.blocks[0].offset = 512;
  return s;
}

struct SpecPair {
  const char* name;
  RotarySpec from, to;
};
const std::vector<SpecPair>& pairs_of_specs() {
  static const std::vector<SpecPair> all{
      {"same", key_rope(64, 64), key_rope(64, 64)},
      {"interleaved", key_rope(64, 64, Pairing::interleaved),
       key_rope(64, 64, Pairing::interleaved)},
      {"partial", key_rope(96, 64), key_rope(96, 64)},
      {"yarn", key_yarn(64, 64), key_yarn(64, 64)},
      {"to_yarn", key_rope(64, 64), key_yarn(64, 64)},
      {"from_yarn", key_yarn(128, 64, Pairing::interleaved),
       key_rope(128, 64, Pairing::interleaved)},
      {"streams", streams(64), streams(64)},
      {"to_streams", key_rope(64, 64), streams(64)},
      {"per_head", per_head(64, 3), per_head(64, 3)},
      {"xpos", with_decay(64), with_decay(64)},
      {"blocks", two_blocks(), two_blocks()},
      {"direction", key_rope(64, 64), backwards(key_rope(64, 64))},
      {"clockwise", backwards(key_rope(64, 64)), backwards(key_rope(64, 64))},
      {"order", reordered(), reordered()},
      {"latent", latent(), latent()},
  };
  return all;
}

enum class List { whole, pages, copies };
enum class Where { one_distance, by_page, by_token, real };

// Old or new positions [axes][groups][slots], as doubles, and a view of them in a type.
struct Places {
  Index axes, groups, count;
  std::vector<double> real;
  std::vector<Index> whole;
  std::vector<std::int32_t> narrow;
  Positions view(int type) {
    Positions p;
    whole.assign(real.begin(), real.end()), narrow.assign(real.begin(), real.end());
    p.type = type == 0 ? DType::i64 : type == 1 ? DType::i32 : DType::f64;
    p.data = type == 0   ? static_cast<const void*>(whole.data())
             : type == 1 ? static_cast<const void*>(narrow.data())
                         : static_cast<const void*>(real.data());
    p.axes = static_cast<std::int32_t>(axes), p.batch = groups, p.count = count;
    p.token_stride = 1, p.batch_stride = count, p.axis_stride = count * groups;
    return p;
  }
  double at(Index axis, Index group, Index slot) const {
    const double first =
        real[static_cast<std::size_t>((axis * groups + group) * count + (count == 1 ? 0 : slot))];
    return first + static_cast<double>(count == 1 ? slot : 0);
  }
};

struct RandomMove {
  test::Random random;
  const SpecPair& specs;
  KeyType type;
  List list;
  Where where;
  Index pages = 5, slots, heads = 3;
  StoredKeys keys, out;
  std::vector<Index> in_list, out_list, used;
  Places before, after;

  RandomMove(std::uint64_t seed, const SpecPair& p, KeyType t, List l, Where w)
      : random(seed),
        specs(p),
        type(t),
        list(l),
        where(w),
        slots(p.to.head_dim > 128 || random.integer(0, 7) != 0 ? 4 : 70),
        keys(t, 5, slots, 3, p.to.head_dim),
        out(t, 6, slots, 3, p.to.head_dim) {
    for (Index page = 0; page < pages; ++page)
      for (Index s = 0; s < slots; ++s)
        for (Index h = 0; h < heads; ++h)
          keys.put(page, s, h, random.normals(static_cast<std::size_t>(keys.dim)));
    in_list = list == List::whole   ? std::vector<Index>{0, 1, 2, 3, 4}
              : list == List::pages ? std::vector<Index>{4, 0, 3}
                                    : std::vector<Index>{2, 1, 2};
    out_list = list == List::copies ? std::vector<Index>{5, 0, 3} : in_list;
    if (list != List::whole) used = {slots, slots - 1, random.integer(0, slots)};
    before = places(p.from.axes()), after = places(p.to.axes());
    if (where == Where::one_distance) {
      after = before;
      for (Index a = 0; a < after.axes; ++a)
        for (Index i = 0; i < after.groups * after.count; ++i)
          after.real[static_cast<std::size_t>(a * after.groups * after.count + i)] -=
              static_cast<double>(37 * a + 5);
    }
  }
  Places places(Index axes) {
    const bool first = where == Where::by_page && list != List::whole;
    Places r{axes, static_cast<Index>(in_list.size()), first ? 1 : slots, {}, {}, {}};
    for (Index i = 0; i < axes * r.groups * r.count; ++i)
      r.real.push_back(where == Where::real ? random.uniform(-2000, 2000)
                                            : static_cast<double>(random.integer(-5, 3000)));
    return r;
  }
  double error() {
    const StoredKeys old = keys;
    const RerotationPlan plan(specs.from, specs.to, type, {.cut_blocks = true});
    const int kind = where == Where::real ? 2 : static_cast<int>(random.integer(0, 1));
    const Positions p = before.view(kind), q = after.view(where == Where::real ? 2 : 0);
    StoredKeys* target = &keys;
    if (list == List::whole) plan.move(keys.view(), p, q);
    const KeyPages listed{in_list, {}, used};
    if (list == List::pages) plan.move_pages(keys.view(), listed, p, q);
    if (list == List::copies) {
      plan.move_pages_into(keys.view(), out.view(), {in_list, out_list, used}, p, q);
      EXPECT_EQ(keys.bytes, old.bytes) << "what is read alone is not written";
      target = &out;
    }
    return worst(old, *target);
  }
  double worst(const StoredKeys& old, const StoredKeys& now) const {
    double e = 0;
    std::vector<std::byte> touched(now.bytes.size());
    for (std::size_t g = 0; g < in_list.size(); ++g)
      for (Index s = 0; s < (used.empty() ? slots : used[g]); ++s)
        for (Index h = 0; h < heads; ++h) {
          std::fill_n(touched.begin() + (now.at(out_list[g], s, h) - now.bytes.data()),
                      now.head_bytes(), std::byte{1});
          if ((s + h) % 3 != 0) continue;  // cosines of long double take their time
          std::vector<double> p, q;
          const auto group = static_cast<Index>(g);
          for (Index a = 0; a < before.axes; ++a) p.push_back(before.at(a, group, s));
          for (Index a = 0; a < after.axes; ++a) q.push_back(after.at(a, group, s));
          const auto x = old.get(in_list[g], s, h), y = now.get(out_list[g], s, h);
          const auto want = test::moved_key(specs.from, specs.to, h, p, q, x);
          e = std::max(e, test::worst_pair(specs.to, type, want, y));
          untouched(x, y);
        }
    if (list != List::copies)
      for (std::size_t i = 0; i < touched.size(); ++i)
        if (touched[i] == std::byte{0}) {
          EXPECT_EQ(now.bytes[i], old.bytes[i]) << "a slot that no entry lists";
        }
    return e;
  }
  // Channels that do not rotate are copied; those of a cut block of q8_0 are rounded (none here).
  void untouched(const std::vector<double>& x, const std::vector<double>& y) const {
    std::vector<bool> rotates(x.size());
    for (const RotaryBlock& b : specs.to.blocks)
      for (Index i = 0; i < b.width(); ++i) rotates[static_cast<std::size_t>(b.offset + i)] = true;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!rotates[i]) {
        EXPECT_EQ(x[i], y[i]) << i;
      }
  }
};

TEST(RerotationPlan, EveryKindOfMoveIsWithinTheBound) {
  std::uint64_t seed = 1;
  for (const SpecPair& specs : pairs_of_specs())
    for (const KeyType type : kTypes)
      for (const List list : {List::whole, List::pages, List::copies})
        for (const Where where :
             {Where::one_distance, Where::by_page, Where::by_token, Where::real}) {
          const bool xpos = !specs.to.blocks[0].log2_decay.empty();
          if (xpos && (type == KeyType::q8_0 || type == KeyType::f16)) continue;
          // Axes that need not advance together.
          if (where == Where::by_page && specs.to.axes() != specs.from.axes()) continue;
          // One distance means nothing where the axes of both sides differ in number.
          if (where == Where::one_distance && specs.to.axes() != specs.from.axes()) continue;
          RandomMove move(seed++, specs, type, list, where);
          const double bound =
              RerotationPlan(specs.from, specs.to, type, {.cut_blocks = true}).bound();
          EXPECT_LE(move.error(), bound * (xpos && type == KeyType::f64 ? 3 : 1))
              << specs.name << " " << enum_text(type) << " list " << static_cast<int>(list)
              << " positions " << static_cast<int>(where);
        }
}

// Moved again and again, keys stay within bound(n); how far they go is what other programs found in
// theirs (moves by -3, relative error of whole keys; a prototype with its own storage and rotation):
// f16 2.9e-4, 5.4e-3, 4.5e-2; bf16 2.2e-3, 3.9e-2, 0.53; q8_0 7.2e-3, 0.12, 0.96 after 1, 64, 1024.
TEST(RerotationPlan, RepeatedMovesStayWithinTheBound) {
  struct Found {
    KeyType type;
    double after[3];
  };
  const RotarySpec s = key_rope(128, 128);
  for (const auto& [type, after] :
       {Found{KeyType::f16, {2.9e-4, 5.4e-3, 4.5e-2}}, Found{KeyType::bf16, {2.2e-3, 3.9e-2, 0.53}},
        Found{KeyType::q8_0, {7.2e-3, 0.12, 0.96}}}) {
    StoredKeys keys(type, 1, 4, 2, 128);
    test::Random random(3);
    for (Index t = 0; t < 4; ++t)
      for (Index h = 0; h < 2; ++h) keys.put(0, t, h, random.normals(128));
    const StoredKeys start = keys;
    const RerotationPlan plan(s, s, type);
    int at = 0;
    for (Index n = 1; n <= 1024; ++n) {
      ASSERT_EQ(plan.move(keys.view(), arange(5000 - 3 * n + 3, 4), arange(5000 - 3 * n, 4)),
                MoveVerdict::moved);
      if (n != 1 && n != 64 && n != 1024) continue;
      double pair = 0, error2 = 0, length2 = 0;
      for (Index t = 0; t < 4; ++t)
        for (Index h = 0; h < 2; ++h) {
          const auto x = start.get(0, t, h), y = keys.get(0, t, h);
          const auto want = test::moved_key(s, s, h, {3.0 * static_cast<double>(n)}, {0}, x);
          pair = std::max(pair, test::worst_pair(s, type, want, y));
          for (std::size_t i = 0; i < 128; ++i)
            error2 += std::pow(y[i] - want[i], 2), length2 += want[i] * want[i];
        }
      EXPECT_LE(pair, plan.bound(n)) << enum_text(type) << " after " << n;
      const double relative = std::sqrt(error2 / length2);
      EXPECT_LT(relative, 2 * after[at]) << enum_text(type) << " after " << n;
      EXPECT_GT(relative, after[at] / 2) << enum_text(type) << " after " << n;
      ++at;
    }
  }
}

// A number of the bound for each type, worked out by hand: sqrt 2 (1.1e-7) + 2.414 x 2^-24 and the rounding
// of the type; f64 alike.
TEST(RerotationPlan, Bounds) {
  const RotarySpec s = key_rope(64, 64);
  const auto bound = [&](KeyType t, Index n) { return RerotationPlan(s, s, t).bound(n); };
  EXPECT_NEAR(bound(KeyType::f32, 1), 2.995e-7, 1e-10);
  EXPECT_NEAR(bound(KeyType::f64, 1), 6.92e-16, 1e-18);
  EXPECT_NEAR(bound(KeyType::f16, 1), 4.8858e-4, 1e-8);
  EXPECT_NEAR(bound(KeyType::bf16, 1), 3.90655e-3, 1e-8);
  EXPECT_NEAR(bound(KeyType::q8_0, 1), 7.8783e-3, 1e-6);
  EXPECT_EQ(bound(KeyType::bf16, 0), 0);
  EXPECT_NEAR(bound(KeyType::bf16, 2), 2 * 3.90655e-3 + 3.90655e-3 * 3.90655e-3, 1e-8);
}

TEST(RerotationPlan, KeepsWhatDoesNotMove) {
  for (const KeyType type : kTypes) {
    StoredKeys keys(type, 3, 8, 2, 64), out(type, 3, 8, 2, 64);
    test::Random random(4);
    for (Index p = 0; p < 3; ++p)
      for (Index t = 0; t < 8; ++t)
        for (Index h = 0; h < 2; ++h) keys.put(p, t, h, random.normals(64));
    const std::vector<std::byte> before = keys.bytes;
    const RerotationPlan plan(key_rope(64, 64), key_rope(64, 64), type);
    EXPECT_EQ(plan.verdict(), MoveVerdict::kept);
    EXPECT_EQ(plan.move(keys.view(), arange(7, 8), arange(7, 8)), MoveVerdict::kept);
    EXPECT_EQ(keys.bytes, before);
    EXPECT_EQ(plan.move_into(keys.view(), out.view(), arange(7, 8), arange(7, 8)),
              MoveVerdict::kept);
    EXPECT_EQ(out.bytes, before);
    // One page of two moves.
    const std::vector<Index> pages{2, 0}, old{0, 8}, now{0, 5};
    Positions p = positions(old), q = positions(now);
    p.batch = q.batch = 2, p.count = q.count = 1, p.batch_stride = q.batch_stride = 1;
    EXPECT_EQ(plan.move_pages(keys.view(), {.pages = pages}, p, q), MoveVerdict::moved);
    const auto page = static_cast<std::ptrdiff_t>(before.size() / 3);
    EXPECT_FALSE(std::equal(before.begin(), before.begin() + page, keys.bytes.begin()));
    EXPECT_TRUE(std::equal(before.begin() + page, before.end(), keys.bytes.begin() + page));
  }
}

}  // namespace
}  // namespace posenc::moved_keys
