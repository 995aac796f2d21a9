// SPDX-License-Identifier: Apache-2.0
// Few queries against a long cache by the fast attention engine, one thread, beside reading keys and values once.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "limits.h"
#include "line.h"
#include "posenc/attention/attend.h"
#include "posenc/positions/sequence.h"

namespace posenc::bench {
namespace {

constexpr Index kKeys = 16384, kKeyHeads = 8;

struct DecodeShape {
  Index share, dim;  // queries of a key head
  DType type = DType::f32;
};

struct DecodeOne {
  explicit DecodeOne(const DecodeShape& s)
      : shape(s), at(arange(kKeys - 1, 1)), keys(arange(0, kKeys)) {
    const Index size = size_of(s.type), cache = kKeys * kKeyHeads * s.dim, row = heads_of() * s.dim;
    for (SharedBuffer& x : kv) x = buffer(static_cast<std::size_t>(cache * size));
    q = buffer(static_cast<std::size_t>(row * size));
    fill(*kv[0], cache, 0.37), fill(*kv[1], cache, 0.73), fill(*q, row, 0.51);
    out = buffer(static_cast<std::size_t>(row * size));
    const auto view = [&](const Buffer& x, Index tokens, Index count) {
      const std::vector<Index> all{1, tokens, count, s.dim};
      return heads(tensor(static_cast<const void*>(x.data()), s.type, all), HeadsLayout::bthd);
    };
    args.q = view(*q, 1, heads_of()), args.k = view(*kv[0], kKeys, kKeyHeads);
    args.v = view(*kv[1], kKeys, kKeyHeads);
    args.scale = 1 / std::sqrt(static_cast<double>(s.dim));
    args.query_positions = at, args.key_positions = keys;
  }
  DecodeOne(const DecodeOne&) = delete;
  Index heads_of() const { return kKeyHeads * shape.share; }
  // bfloat16: the upper half of a float.
  void fill(const Buffer& x, Index n, double step) const {
    for (Index i = 0; i < n; ++i) {
      const auto y = static_cast<float>(std::sin(static_cast<double>(i) * step));
      std::uint32_t bits;
      std::memcpy(&bits, &y, sizeof bits);
      if (shape.type == DType::f32)
        x.as<float>()[i] = y;
      else
        x.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(bits >> 16);
    }
  }
  void run(bool exact = false) {
    AttentionArgs a = args;
    a.exact = exact;
    const std::vector<Index> all{1, 1, heads_of(), shape.dim};
    attend(a, {heads(tensor(out->data(), shape.type, all), HeadsLayout::bthd), {}},
           inline_executor());
  }
  void read() const {
    for (const SharedBuffer& x : kv) {
      volatile float sink = plain_loops().read_ahead(x->as<float>(), x->bytes() / sizeof(float));
      (void)sink;
    }
  }
  double output(Index n) const {
    if (shape.type == DType::f32) return static_cast<double>(out->as<float>()[n]);
    const std::uint32_t bits = std::uint32_t{out->as<std::uint16_t>()[n]} << 16;
    float y;
    std::memcpy(&y, &bits, sizeof y);
    return static_cast<double>(y);
  }
  double error() {
    std::vector<double> got;
    run();
    for (Index n = 0; n < heads_of() * shape.dim; ++n) got.push_back(output(n));
    run(true);
    double worst = 0;
    for (std::size_t n = 0; n < got.size(); ++n)
      worst = std::max(worst, std::abs(got[n] - output(static_cast<Index>(n))));
    return worst;
  }

  DecodeShape shape;
  SharedBuffer kv[2], q, out;
  OwnedPositions at, keys;
  AttentionArgs args;
};

Line decode_line(const DecodeShape& s, double goal) {
  Line l;
  l.name = std::string("attend/") + (s.type == DType::f32 ? "f32" : "bf16") + "/decode/16384x8x" +
           std::to_string(s.dim) + "/queries:" + std::to_string(s.share);
  l.bytes = static_cast<double>(2 * kKeys * kKeyHeads * s.dim * size_of(s.type));
  l.flops = static_cast<double>(4 * kKeys * kKeyHeads * s.share * s.dim);
  l.limit_name = "read_ahead", l.goal = goal;
  l.prepare = [=] {
    const auto call = std::make_shared<DecodeOne>(s);
    Prepared r;
    r.max_error = call->error(),
    r.bound = s.type == DType::f32 ? 5e-6 : 1e-4;  // outputs below 0.02, rounded once
    r.run = [call] { call->run(); };
    r.limit = [call] { call->read(); };
    return r;
  };
  return l;
}

}  // namespace

std::vector<Line> decode_lines() {
  return {decode_line({1, 128}, 1.15),
          decode_line({4, 128}, 1.5),
          decode_line({8, 128}, 2),
          decode_line({1, 64}, 1.25),
          decode_line({1, 128, DType::bf16}, 1.3),
          decode_line({4, 128, DType::bf16}, 1.6)};
}

}  // namespace posenc::bench
