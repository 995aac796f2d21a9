// SPDX-License-Identifier: Apache-2.0
// Rotation through the public API: 32 query heads, 8 key heads, 128 channels, as Llama-3 8B
// decodes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "limits.h"
#include "line.h"
#include "posenc/io/array.h"
#include "posenc/registry.h"
#include "posenc/rotary/plan.h"
#include "posenc/rotary/table.h"

namespace posenc::bench {
namespace {

constexpr int kQueryHeads = 32, kKeyHeads = 8, kDim = 128;
constexpr Index kRow = Index{kQueryHeads + kKeyHeads} * kDim;  // elements a token

enum class Path { table_free, rows, table, table_random };

struct Shape {
  DType dtype = DType::f32;
  Pairing pairing = Pairing::half_split;
  Index rotary_dim = kDim, tokens = 1;
  bool in_place = true;
  Path path = Path::table_free;
  int threads = 1;
  bool heads_first = false;  // bhtd: all tokens of a head, then the next head
  Index table_rows = 0;  // of Llama-3.1's positions, read at its end or all over; 0: of plain rope
};

RotarySpec spec_of(const Shape& s) {
  if (s.table_rows > 0) return llama31();
  return resolve(
      Rope{.head_dim = kDim, .rotary_dim = s.rotary_dim, .base = 500000, .pairing = s.pairing});
}

// Where the tokens stand: one after the other, or all over the table.
std::vector<Index> places_of(const Shape& s, Index first) {
  std::vector<Index> out(static_cast<std::size_t>(s.tokens));
  const Index rows = s.table_rows > 0 ? s.table_rows : s.tokens;
  const Index step = s.table_rows > 0 ? rows / 3 + 7919 : 7919;
  for (Index t = 0; t < s.tokens; ++t)
    out[static_cast<std::size_t>(t)] =
        s.path == Path::table_random ? (t * step + 13) % rows : first + t;
  return out;
}

float widen(DType t, const void* data, Index i) {
  if (t == DType::f32) return static_cast<const float*>(data)[i];
  const Array one = make_array(
      tensor(static_cast<std::uint16_t*>(const_cast<void*>(data)) + i, t, std::vector<Index>{1}));
  return static_cast<float>(one.doubles()[0]);
}

// Everything a call needs, alive as long as the line is measured.
struct Case {
  Case(const Shape& s, Index base_position)
      : shape(s),
        spec(spec_of(s)),
        plan(spec, s.dtype),
        elements(kRow * s.tokens),
        in(buffer(static_cast<std::size_t>(elements * size_of(s.dtype)))),
        out(s.in_place ? in : buffer(static_cast<std::size_t>(elements * size_of(s.dtype)))) {
    fill();
    if (s.table_rows > 0) base_position = s.table_rows - s.tokens;
    position = places_of(s, base_position);
    if (s.path == Path::rows) {
      rows = buffer(static_cast<std::size_t>(s.tokens * plan.row_columns()) * sizeof(float));
      rows_view = tensor(rows->as<float>(), {s.tokens, plan.row_columns()});
      plan.rows(positions(std::span<const Index>(position)), rows_view);
    }
    if (s.path == Path::table || s.path == Path::table_random)
      table = std::make_unique<RotaryTable>(spec, base_position + s.tokens);
    executor = s.threads == 1 ? inline_executor() : default_executor();
    from_view = view(in), to_view = view(out);
    where = positions(std::span<const Index>(position));
  }
  void fill() const {
    if (shape.dtype == DType::f32) {
      for (Index i = 0; i < elements; ++i) in->as<float>()[i] = value(i);
      return;
    }
    // Halves and bfloat16 by their bits: 1.0 to 2.0, either sign.
    const std::uint16_t one = shape.dtype == DType::f16 ? 0x3c00 : 0x3f80;
    const int bits = shape.dtype == DType::f16 ? 10 : 7;
    for (Index i = 0; i < elements; ++i)
      in->as<std::uint16_t>()[i] = static_cast<std::uint16_t>(
          (one + static_cast<int>(i * 37 % (1 << bits))) | (i % 3 == 0 ? 0x8000 : 0));
  }
  static float value(Index i) { return static_cast<float>(i * 2654435761u % 1000) / 500.0f - 1.0f; }
  QK view(const SharedBuffer& b) const {
    const auto part = [&](std::byte* data, Index count) {
      const Index by_token[] = {1, shape.tokens, count, kDim},
                  by_head[] = {1, count, shape.tokens, kDim};
      return heads(
          tensor(static_cast<void*>(data), shape.dtype, shape.heads_first ? by_head : by_token),
          shape.heads_first ? HeadsLayout::bhtd : HeadsLayout::bthd);
    };
    auto* data = b->as<std::byte>();
    return {part(data, kQueryHeads),
            part(data + shape.tokens * kQueryHeads * kDim * size_of(shape.dtype), kKeyHeads)};
  }
  // As an engine calls: views of buffers that stay are made once.
  void call() const {
    if (shape.in_place)
      rotate(from_view);
    else
      rotate(from_view, to_view);
  }
  template <class... Tensors>  // x, or in and out
  void rotate(const Tensors&... x) const {
    switch (shape.path) {
      case Path::table_free:
        plan.apply(x..., where, RotateMode::forward, executor);
        break;
      case Path::rows:
        plan.apply_rows(x..., rows_view, RotateMode::forward, executor);
        break;
      default:
        apply(plan, x..., *table, where, RotateMode::forward, executor);
    }
  }
  // One call on fresh data against double arithmetic, at tokens spread over the whole.
  double error() const {
    fill();
    const SharedBuffer before = buffer(in->bytes());
    std::memcpy(before->data(), in->data(), in->bytes());
    call();
    double worst = 0;
    const Index pairs = shape.rotary_dim / 2, step = std::max<Index>(1, shape.tokens / 16);
    for (Index t = 0; t < shape.tokens; t += step)
      for (const Index first :
           {t * (shape.heads_first ? 1 : kQueryHeads) * kDim,
            shape.tokens * kQueryHeads * kDim + t * (shape.heads_first ? 1 : kKeyHeads) * kDim})
        for (Index i = 0; i < pairs; ++i)
          worst = std::max(worst, pair_error(before->data(), first, t, i, pairs));
    return worst;
  }
  double pair_error(const void* before, Index first, Index t, Index i, Index pairs) const {
    const bool half = shape.pairing == Pairing::half_split;
    const Index ia = first + (half ? i : 2 * i), ib = first + (half ? i + pairs : 2 * i + 1);
    const double phi = static_cast<double>(position[static_cast<std::size_t>(t)]) *
                       spec.blocks.front().spectrum.frequency[static_cast<std::size_t>(i)];
    const double a = widen(shape.dtype, before, ia), b = widen(shape.dtype, before, ib);
    const double ya = a * std::cos(phi) - b * std::sin(phi),
                 yb = a * std::sin(phi) + b * std::cos(phi);
    return std::max(std::abs(widen(shape.dtype, out->data(), ia) - ya),
                    std::abs(widen(shape.dtype, out->data(), ib) - yb));
  }

  Shape shape;
  RotarySpec spec;
  RotaryPlan plan;
  Index elements;
  SharedBuffer in, out, rows;
  std::vector<Index> position;
  std::unique_ptr<RotaryTable> table;
  Executor executor;
  QK from_view, to_view;
  TensorView rows_view;
  Positions where;
};

double bound_of(DType t) {
  return t == DType::f32 ? 1e-6 : t == DType::f16 ? 2.1e-3 : 1.7e-2;
}

struct PlainRows {
  SharedBuffer cos, sin;  // [tokens, 64] of float, positions from 0
};
PlainRows plain_rows(Index tokens) {
  const auto bytes = static_cast<std::size_t>(tokens) * 64 * 4;
  const PlainRows r{buffer(bytes), buffer(bytes)};
  for (Index t = 0; t < tokens; ++t)
    for (Index i = 0; i < 64; ++i) {
      const double phi = static_cast<double>(t) * std::pow(500000.0, -static_cast<double>(i) / 64);
      r.cos->as<float>()[t * 64 + i] = static_cast<float>(std::cos(phi));
      r.sin->as<float>()[t * 64 + i] = static_cast<float>(std::sin(phi));
    }
  return r;
}

std::function<void()> plain_tokens(const std::shared_ptr<Case>& c) {
  const auto [cos, sin] = plain_rows(c->shape.tokens);
  return [c, cos = cos, sin = sin, rotate = plain_loops().token_rotation] {
    float* q = c->in->as<float>();
    float* k = q + c->shape.tokens * kQueryHeads * kDim;
    for (Index t = 0; t < c->shape.tokens; ++t)
      rotate(q + t * kQueryHeads * kDim, kQueryHeads, k + t * kKeyHeads * kDim, kKeyHeads, 64,
             cos->as<float>() + t * 64, sin->as<float>() + t * 64);
  };
}

// What the line is held against.
std::function<void()> limit_of(const std::shared_ptr<Case>& c, const std::string& name) {
  const std::size_t floats = c->in->bytes() / 4;
  if (name == "plain_loop") return plain_tokens(c);
  if (name == "in_place")
    return [c, floats] { plain_loops().scale_in_place(c->in->as<float>(), floats, 1.0f); };
  if (name == "copy") {
    const Copy copy = best_copy(c->in->bytes());
    return [c, copy, floats] { copy(c->out->as<float>(), c->in->as<float>(), floats); };
  }
  Shape other = c->shape;  // f32: the same in float32; one_thread: the same on one
  if (name == "f32") other.dtype = DType::f32;
  if (name == "one_thread") other.threads = 1;
  const auto reference = std::make_shared<Case>(other, 1000);
  return [reference] { reference->call(); };
}

// The plainest loop for a tensor in memory, beside the library's rotations of the same one.
Line plain_line(DType type) {
  constexpr Index kTokens = 8192;
  Line l;
  l.name = "plain_loop/" + std::string(dtype_name(type)) + "/half_split/in_place/" +
           std::to_string(kTokens) + "/threads:1";
  l.bytes = 2.0 * static_cast<double>(kRow * kTokens * size_of(type));
  l.flops = 3.0 * static_cast<double>(kRow * kTokens);
  l.limit_name = "in_place";
  l.prepare = [type] {
    if (type == DType::f16 && !plain_loops().rotation_f16)
      throw std::invalid_argument("n/a: the instruction set does not convert f16");
    const auto c = std::make_shared<Case>(Shape{.dtype = type, .tokens = kTokens}, 0);
    const PlainRows rows = plain_rows(kTokens);
    Prepared p;
    p.run = [c, rows, type] {
      const auto *cos = rows.cos->as<float>(), *sin = rows.sin->as<float>();
      constexpr Index kHeads = kQueryHeads + kKeyHeads;
      const PlainLoops& loops = plain_loops();
      if (type == DType::f32)
        loops.rotation_f32(c->in->as<float>(), kTokens, kHeads, cos, sin);
      else if (type == DType::bf16)
        loops.rotation_bf16(c->in->as<std::uint16_t>(), kTokens, kHeads, cos, sin);
      else
        loops.rotation_f16(c->in->as<std::uint16_t>(), kTokens, kHeads, cos, sin);
    };
    p.limit = limit_of(c, "in_place");
    return p;
  };
  return l;
}

Line line(const Shape& s, const std::string& limit, double goal) {
  Line l;
  const char* path = s.path == Path::rows           ? "rotate_rows"
                     : s.path == Path::table        ? "rotate_table"
                     : s.path == Path::table_random ? "rotate_table_random"
                                                    : "rotate";
  const std::string rows = s.table_rows > 0 ? "/llama3_" + std::to_string(s.table_rows) : "";
  l.name = std::string(path) + "/" + std::string(dtype_name(s.dtype)) + rows + "/" +
           std::string(enum_text(s.pairing)) + (s.rotary_dim < kDim ? "_partial" : "") +
           (s.heads_first ? "_heads_first" : "") + (s.in_place ? "/in_place/" : "/out_of_place/") +
           std::to_string(s.tokens) + "/threads:" + std::to_string(s.threads);
  const double share = s.in_place ? static_cast<double>(s.rotary_dim) / kDim : 1;
  l.bytes = 2 * share * static_cast<double>(kRow * s.tokens * size_of(s.dtype));
  l.flops = 3.0 * share * static_cast<double>(kRow * s.tokens);
  l.limit_name = limit;
  l.goal = goal;
  l.prepare = [s, limit] {
    if (s.threads > 1 && default_executor().concurrency < s.threads)
      throw std::invalid_argument("n/a: this machine gives one thread");
    const auto c = std::make_shared<Case>(s, 1000);
    Prepared p;
    p.max_error = c->error();
    p.bound = bound_of(s.dtype);
    p.run = [c] { c->call(); };
    p.limit = limit_of(c, limit);
    return p;
  };
  return l;
}

}  // namespace

std::vector<Line> rotation_lines() {
  const auto half = Pairing::half_split, inter = Pairing::interleaved;
  std::vector<Line> v;
  v.push_back(line({.tokens = 1, .path = Path::rows}, "plain_loop", 1.1));
  v.push_back(line({.tokens = 1}, "plain_loop", 1.3));
  v.push_back(line({.tokens = 64, .path = Path::rows}, "plain_loop", 1.1));
  v.push_back(line({.tokens = 64}, "plain_loop", 1.1));
  for (const Pairing p : {half, inter}) {
    v.push_back(line({.pairing = p, .tokens = 8192}, "in_place", p == half ? 1.05 : 1.05));
    v.push_back(line({.pairing = p, .tokens = 8192, .path = Path::rows}, "in_place", 1.03));
    v.push_back(line({.pairing = p, .tokens = 8192, .in_place = false}, "copy", 1.05));
  }
  v.push_back(line({.rotary_dim = 64, .tokens = 8192}, "in_place", 1.05));
  for (const DType t : {DType::f32, DType::bf16})
    v.push_back(line({.dtype = t, .tokens = 8192, .heads_first = true}, "in_place", 0));
  for (const DType t : {DType::bf16, DType::f16}) {
    v.push_back(line({.dtype = t, .tokens = 64}, "f32", 1.0));
    v.push_back(line({.dtype = t, .tokens = 8192}, "in_place", 1.05));
    v.push_back(line({.dtype = t, .pairing = inter, .tokens = 8192}, "in_place", 1.05));
    v.push_back(line({.dtype = t, .tokens = 8192, .in_place = false}, "copy", 1.05));
    v.push_back(
        line({.dtype = t, .pairing = inter, .tokens = 8192, .in_place = false}, "copy", 1.05));
  }
  for (const DType t : {DType::f32, DType::bf16, DType::f16}) v.push_back(plain_line(t));
  v.push_back(line({.tokens = 8192, .path = Path::table}, "in_place", 1.05));
  v.push_back(line({.tokens = 8192, .path = Path::table_random}, "in_place", 1.05));
  for (const Index rows : {131072, 1048576})
    for (const Path path : {Path::table, Path::table_random})
      v.push_back(line({.tokens = 8192, .path = path, .table_rows = rows}, "in_place", 1.05));
  v.push_back(line({.tokens = 256, .threads = 2}, "one_thread", 0.556));
  return v;
}

}  // namespace posenc::bench
