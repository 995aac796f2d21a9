// SPDX-License-Identifier: Apache-2.0
// Calls of the fast attention engine in 16 bits, in turns with the same call in f32.
#include <memory>

#include "line.h"
#include "narrow_call.h"

namespace posenc::bench {
namespace {

Line beside_f32(const FastShape& s, DType type) {
  Line l;
  l.name = s.name() + "/beside_f32";
  l.name.replace(l.name.find("f32"), 3, type == DType::bf16 ? "bf16" : "f16");
  l.bytes = 4.0 * 2 * static_cast<double>(s.batch * s.tokens * s.heads * s.dim);
  l.limit_name = "f32", l.goal = 1;
  l.prepare = [=] {
    const auto call = std::make_shared<NarrowAttend>(s, type);
    Prepared r;
    const bool forward = s.gradient == Gradient::none;
    r.max_error = forward ? call->error() : call->backward_error();
    r.bound = forward ? call->bound() : NarrowAttend::kBackwardBound;
    r.run = [=] { forward ? call->run() : call->backward(); };
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
      for (const Gradient gradient : {Gradient::none, Gradient::inputs})
        all.push_back(beside_f32({2048, 8, 64, causal, By::plain, gradient}, type));
  return all;
}

}  // namespace posenc::bench
