// SPDX-License-Identifier: Apache-2.0
// Cached keys that move, 8 heads of 128 channels: beside `apply` on the same keys; q8_0 beside bf16.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "limits.h"
#include "line.h"
#include "posenc/posenc.h"
#include "posenc/rotary/rerotation_plan.h"

namespace posenc::bench {
namespace {

constexpr Index kMoveHeads = 8, kMoveDim = 128, kPage = 16;

enum class MoveBy { one_distance, token, rescale, pages };

RotarySpec key_rotation(double factor) {
  const Rope rope{.head_dim = kMoveDim, .base = 500000, .pairing = Pairing::half_split};
  return factor == 1 ? resolve(rope) : resolve(rope, Linear{.factor = factor});
}

// A cache of keys, how they move, and `apply` on the same memory.
struct KeyCase {
  KeyType type;
  MoveBy by;
  bool blocks;
  Index tokens;
  SharedBuffer memory;
  Heads flat, pool;
  RerotationPlan plan;
  RotaryPlan rotation;
  std::vector<Index> old_at, new_at, pages, old_first, new_first;

  KeyCase(KeyType t, MoveBy how, Index count)
      : type(t),
        by(how),
        blocks(t == KeyType::q8_0),
        tokens(count),
        memory(buffer(static_cast<std::size_t>(count * kMoveHeads * head_bytes()))),
        plan(key_rotation(1), key_rotation(how == MoveBy::rescale ? 4 : 1), t),
        rotation(key_rotation(1), blocks ? DType::f32 : static_cast<DType>(t)),
        old_at(static_cast<std::size_t>(count)),
        new_at(static_cast<std::size_t>(count)),
        pages(static_cast<std::size_t>(count / kPage)) {
    const Index last = blocks ? head_bytes() : kMoveDim;
    flat = view({1, tokens, kMoveHeads, last}),
    pool = view({tokens / kPage, kPage, kMoveHeads, last});
    std::iota(old_at.begin(), old_at.end(), 512), std::iota(new_at.begin(), new_at.end(), 0);
    if (by == MoveBy::token)
      for (Index& p : new_at) p /= 2;
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(1));
    for (Index i = 0; i < tokens / kPage; ++i)
      old_first.push_back(512 + i * kPage), new_first.push_back(i * kPage);
    fill();
  }
  Index head_bytes() const {
    return blocks ? kMoveDim / 32 * 34 : kMoveDim * size_of(static_cast<DType>(type));
  }
  Heads view(std::initializer_list<Index> shape) const {
    const DType dtype = blocks ? DType::u8 : static_cast<DType>(type);
    const TensorView v = tensor(memory->data(), dtype, shape);
    return blocks ? key_blocks(v, HeadsLayout::bthd) : heads(v, HeadsLayout::bthd);
  }
  // 1 to 2 in f32, f16 and bf16; scales of 2^-7 in q8_0.
  void fill() const {
    auto* at = memory->as<std::uint8_t>();
    for (std::size_t i = 0; i < memory->bytes(); ++i)
      at[i] = static_cast<std::uint8_t>(i * 37 % 113);
    if (type == KeyType::f32)
      for (std::size_t i = 0; i < memory->bytes() / 4; ++i)
        memory->as<float>()[i] = 1 + static_cast<float>(i * 37 % 1000) / 1000;
    if (type == KeyType::f16 || type == KeyType::bf16)
      for (std::size_t i = 0; i < memory->bytes() / 2; ++i)
        memory->as<std::uint16_t>()[i] =
            static_cast<std::uint16_t>((type == KeyType::f16 ? 0x3c00 : 0x3f80) + i * 37 % 128);
    const std::uint16_t scale = 0x2000;
    for (std::size_t i = 0; blocks && i < memory->bytes(); i += 34) std::memcpy(at + i, &scale, 2);
  }
  static Positions first_of_pages(const std::vector<Index>& list) {
    Positions p = positions(std::span<const Index>(list));
    p.batch = p.count, p.count = 1, p.batch_stride = 1;
    return p;
  }
  void move() const {
    if (by == MoveBy::pages) {
      plan.move_pages(pool, {.pages = pages}, first_of_pages(old_first), first_of_pages(new_first),
                      inline_executor());
      return;
    }
    plan.move(flat, positions(std::span<const Index>(old_at)),
              positions(std::span<const Index>(new_at)), inline_executor());
  }
  void apply() const {
    rotation.apply(flat, positions(std::span<const Index>(old_at)), RotateMode::forward,
                   inline_executor());
  }
  double number(Index token, Index channel) const {  // of the first head
    const std::byte* at = memory->as<std::byte>() + token * kMoveHeads * head_bytes();
    if (blocks) {
      std::uint16_t scale;
      std::memcpy(&scale, at + channel / 32 * 34, 2);
      return std::ldexp(1 + (scale & 0x3ff) / 1024.0, (scale >> 10) - 15) *
             static_cast<std::int8_t>(at[channel / 32 * 34 + 2 + channel % 32]);
    }
    if (type == KeyType::f32) return reinterpret_cast<const float*>(at)[channel];
    const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(at)[channel];
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    return type == KeyType::f16
               ? sign * std::ldexp(1 + (bits & 0x3ff) / 1024.0, (bits >> 10 & 31) - 15)
               : sign * std::ldexp(1 + (bits & 0x7f) / 128.0, (bits >> 7 & 255) - 127);
  }
  // Of some tokens, over the longest pair.
  double error() const {
    std::vector<double> before;
    const Index step = std::max<Index>(1, tokens / 16);
    const auto each = [&](auto f) {
      for (Index t = 0; t < tokens; t += step)
        for (Index i = 0; i < 64; ++i) f(t, i);
    };
    each([&](Index t, Index i) {
      before.push_back(number(t, i)), before.push_back(number(t, 64 + i));
    });
    move();
    std::size_t at = 0;
    double worst = 0;
    const std::vector<double>& f = plan.to().blocks[0].spectrum.frequency;
    const std::vector<double>& g = plan.from().blocks[0].spectrum.frequency;
    each([&](Index t, Index i) {
      const auto n = static_cast<std::size_t>(i);
      // The page at place j of the list is page pages[j].
      auto place = static_cast<std::size_t>(t);
      if (by == MoveBy::pages)
        place = static_cast<std::size_t>(
            (std::find(pages.begin(), pages.end(), t / kPage) - pages.begin()) * kPage + t % kPage);
      const double phi =
          static_cast<double>(new_at[place]) * f[n] - static_cast<double>(old_at[place]) * g[n];
      const double a = before[at], b = before[at + 1];
      at += 2;
      const double u = number(t, i) - (a * std::cos(phi) - b * std::sin(phi));
      const double v = number(t, 64 + i) - (a * std::sin(phi) + b * std::cos(phi));
      worst = std::max(worst, std::hypot(u, v) / (blocks ? 0.875 : std::hypot(a, b)));
    });
    return worst;
  }
};

// 256 MiB of keys; of q8_0 the same keys as bf16.
Line move_line(KeyType type, MoveBy by, double goal) {
  constexpr const char* kNames[] = {"one_distance", "by_token", "rescale", "pages_of_16"};
  const bool blocks = type == KeyType::q8_0;
  const Index tokens =
      (Index{256} << 20) / (kMoveHeads * kMoveDim * (type == KeyType::f32 ? 4 : 2));
  Line l;
  l.name = "move_keys/" + std::string(enum_text(type)) + "/" + kNames[static_cast<int>(by)];
  l.bytes = 2.0 * static_cast<double>(tokens * kMoveHeads) *
            (blocks ? 136 : kMoveDim * (type == KeyType::f32 ? 4 : 2));
  l.flops = 3.0 * static_cast<double>(tokens * kMoveHeads * kMoveDim);
  l.limit_name = blocks ? "bf16" : "apply";
  l.goal = goal;
  l.prepare = [type, by, tokens, blocks] {
    const auto c = std::make_shared<KeyCase>(type, by, tokens);
    Prepared p;
    p.max_error = c->error();
    p.bound = c->plan.bound();
    p.run = [c] { c->move(); };
    if (!blocks) {
      p.limit = [c] { c->apply(); };
      return p;
    }
    const auto other = std::make_shared<KeyCase>(KeyType::bf16, by, tokens);
    p.limit = [other] { other->move(); };
    return p;
  };
  return l;
}

}  // namespace

std::vector<Line> rerotation_lines() {
  std::vector<Line> v;
  for (const KeyType t : {KeyType::f32, KeyType::f16, KeyType::bf16})
    for (const MoveBy by : {MoveBy::one_distance, MoveBy::token, MoveBy::rescale, MoveBy::pages})
      v.push_back(move_line(t, by, 1.1));
  for (const MoveBy by : {MoveBy::one_distance, MoveBy::pages})
    v.push_back(move_line(KeyType::q8_0, by, 1.3));
  return v;
}

}  // namespace posenc::bench
