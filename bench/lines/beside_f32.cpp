// SPDX-License-Identifier: Apache-2.0
// Calls of the fast attention engine in 16 bits, in turns with the same call in f32.
#include <bit>
#include <cmath>
#include <memory>

#include "fast_call.h"
#include "line.h"

namespace posenc::bench {
namespace {

// Of multiples of 1/64, which both types hold.
std::uint16_t narrow(float y, DType type) {
  const auto bits = std::bit_cast<std::uint32_t>(y);
  if (type == DType::bf16) return static_cast<std::uint16_t>(bits >> 16);
  if (y == 0) return 0;
  const std::uint32_t exponent_and_rest = ((bits & 0x7fffffffU) >> 13) - (112U << 10);
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | exponent_and_rest);
}
double widen(std::uint16_t y, DType type) {
  if (type == DType::bf16) return static_cast<double>(std::bit_cast<float>(std::uint32_t{y} << 16));
  const int exponent = y >> 10 & 31, rest = y & 1023;
  const double size =
      exponent == 0 ? std::ldexp(rest, -24) : std::ldexp(1024 + rest, exponent - 25);
  return y >> 15 != 0 ? -size : size;
}

struct NarrowAttend {
  NarrowAttend(const FastShape& s, DType t) : wide(s), type(t) {
    for (std::size_t array = 0; array < 3; ++array)
      for (float& y : wide.x[array]) {
        y = std::round(64 * y) / 64;
        x[array].push_back(narrow(y, type));
      }
    out.resize(wide.out.size());
    args = wide.args;
    args.q = view(x[0]), args.k = view(x[1]), args.v = view(x[2]);
  }
  NarrowAttend(const NarrowAttend&) = delete;
  ConstHeads view(const std::vector<std::uint16_t>& of) const {
    return heads(tensor(static_cast<const void*>(of.data()), type, wide.shape_of()),
                 HeadsLayout::bthd);
  }
  void run() {
    const Heads to =
        heads(tensor(static_cast<void*>(out.data()), type, wide.shape_of()), HeadsLayout::bthd);
    attend(args, {to, {}}, inline_executor());
  }
  double error() {
    run(), wide.run();
    double worst = 0;
    for (std::size_t n = 0; n < out.size(); ++n)
      worst = std::max(worst, std::abs(widen(out[n], type) - static_cast<double>(wide.out[n])));
    return worst;
  }

  FastAttend wide;
  DType type;
  std::vector<std::uint16_t> x[3], out;
  AttentionArgs args;
};

Line beside_f32(const FastShape& s, DType type) {
  Line l;
  l.name = s.name() + "/beside_f32";
  l.name.replace(l.name.find("f32"), 3, type == DType::bf16 ? "bf16" : "f16");
  l.bytes = 4.0 * 2 * static_cast<double>(s.batch * s.tokens * s.heads * s.dim);
  l.limit_name = "f32", l.goal = 1;
  l.prepare = [=] {
    const auto call = std::make_shared<NarrowAttend>(s, type);
    Prepared r;
    r.max_error = call->error();
    r.bound = (type == DType::bf16 ? 0x1p-9 : 0x1p-12) + 5e-6;  // half a unit of 1
    r.run = [call] { call->run(); };
    r.limit = [call] { call->wide.run(); };
    return r;
  };
  return l;
}

}  // namespace

std::vector<Line> beside_f32_lines() {
  std::vector<Line> all;
  for (const DType type : {DType::bf16, DType::f16})
    for (const bool causal : {false, true})
      all.push_back(beside_f32({2048, 8, 64, causal, By::plain}, type));
  return all;
}

}  // namespace posenc::bench
