// SPDX-License-Identifier: Apache-2.0
// Few queries against a long cache by the fast attention engine, one thread, beside reading keys and values once.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "limits.h"
#include "line.h"
#include "posenc/attention/attend.h"
#include "posenc/core/key_blocks.h"
#include "posenc/positions/sequence.h"

namespace posenc::bench {
namespace {

constexpr Index kKeys = 16384, kKeyHeads = 8;

struct DecodeShape {
  Index share, dim;         // queries of a key head
  DType type = DType::f32;  // of keys and values; u8: in q8_0 blocks
  // Queries are floats beside blocks.
  DType of_queries() const { return type == DType::u8 ? DType::f32 : type; }
  // Bytes of a head of a key.
  Index bytes() const { return type == DType::u8 ? dim / 32 * 34 : dim * size_of(type); }
};

struct DecodeOne {
  explicit DecodeOne(const DecodeShape& s)
      : shape(s), at(arange(kKeys - 1, 1)), keys(arange(0, kKeys)) {
    const DType type = s.of_queries();
    const Index row = heads_of() * s.dim;
    for (SharedBuffer& x : kv) x = buffer(static_cast<std::size_t>(kKeys * kKeyHeads * s.bytes()));
    q = buffer(static_cast<std::size_t>(row * size_of(type)));
    fill_keys(*kv[0], 0.37), fill_keys(*kv[1], 0.73), fill(*q, type, row, 0.51);
    out = buffer(static_cast<std::size_t>(row * size_of(type)));
    const auto view = [&](const Buffer& x, DType t, Index tokens, Index count) {
      const std::vector<Index> all{1, tokens, count, t == DType::u8 ? s.bytes() : s.dim};
      const ConstTensorView v = tensor(static_cast<const void*>(x.data()), t, all);
      return t == DType::u8 ? key_blocks(v, HeadsLayout::bthd) : heads(v, HeadsLayout::bthd);
    };
    args.q = view(*q, type, 1, heads_of()), args.k = view(*kv[0], s.type, kKeys, kKeyHeads);
    args.v = view(*kv[1], s.type, kKeys, kKeyHeads);
    args.scale = 1 / std::sqrt(static_cast<double>(s.dim));
    args.query_positions = at, args.key_positions = keys;
  }
  DecodeOne(const DecodeOne&) = delete;
  Index heads_of() const { return kKeyHeads * shape.share; }
  // bfloat16: the upper half of a float.
  static void fill(const Buffer& x, DType type, Index n, double step) {
    for (Index i = 0; i < n; ++i) {
      const auto y = static_cast<float>(std::sin(static_cast<double>(i) * step));
      std::uint32_t bits;
      std::memcpy(&bits, &y, sizeof bits);
      if (type == DType::f32)
        x.as<float>()[i] = y;
      else
        x.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(bits >> 16);
    }
  }
  void fill_keys(const Buffer& x, double step) const {
    if (shape.type != DType::u8) return fill(x, shape.type, kKeys * kKeyHeads * shape.dim, step);
    const std::uint16_t scale = 0x2000;  // 2^-7
    for (Index b = 0; b < kKeys * kKeyHeads * shape.dim / 32; ++b) {
      std::int8_t* block = x.as<std::int8_t>() + b * 34;
      std::memcpy(block, &scale, sizeof scale);
      for (Index i = 0; i < 32; ++i)
        block[2 + i] =
            static_cast<std::int8_t>(127 * std::sin(static_cast<double>(b * 32 + i) * step));
    }
  }
  void run(bool exact = false) {
    AttentionArgs a = args;
    a.exact = exact;
    const std::vector<Index> all{1, 1, heads_of(), shape.dim};
    attend(a, {heads(tensor(out->data(), shape.of_queries(), all), HeadsLayout::bthd), {}},
           inline_executor());
  }
  void read() const {
    for (const SharedBuffer& x : kv) {
      volatile float sink = plain_loops().read_ahead(x->as<float>(), x->bytes() / sizeof(float));
      (void)sink;
    }
  }
  double output(Index n) const {
    if (shape.of_queries() == DType::f32) return static_cast<double>(out->as<float>()[n]);
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
  l.name = std::string("attend/") +
           (s.type == DType::u8 ? "q8_0" : std::string(dtype_name(s.type))) + "/decode/16384x8x" +
           std::to_string(s.dim) + "/queries:" + std::to_string(s.share);
  l.bytes = static_cast<double>(2 * kKeys * kKeyHeads * s.bytes());
  l.flops = static_cast<double>(4 * kKeys * kKeyHeads * s.share * s.dim);
  l.limit_name = "read_ahead", l.goal = goal;
  l.prepare = [=] {
    const auto call = std::make_shared<DecodeOne>(s);
    Prepared r;
    r.max_error = call->error(),
    r.bound = s.of_queries() == DType::f32 ? 5e-6 : 1e-4;  // outputs below 0.02, rounded once
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
          decode_line({4, 128, DType::bf16}, 1.6),
          decode_line({1, 128, DType::u8}, 1.8),
          decode_line({4, 128, DType::u8}, 2.8)};
}

}  // namespace posenc::bench
