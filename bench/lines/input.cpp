// SPDX-License-Identifier: Apache-2.0
// Composition at the input: sines made where they are added, rows of a table, their gradient.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>

#include "limits.h"
#include "line.h"
#include "posenc/absolute/extend.h"
#include "posenc/absolute/learned.h"
#include "posenc/absolute/plan.h"
#include "posenc/absolute/sinusoidal.h"
#include "posenc/positions/sequence.h"

namespace posenc::bench {
namespace {

double from_bf16(std::uint16_t h) {
  const std::uint32_t bits = static_cast<std::uint32_t>(h) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return static_cast<double>(f);
}

// x + PE(p) in place against the same bytes scaled in place.
Line sinusoidal_line(DType type, SineLayout layout, Index tokens, Index width) {
  Line l;
  l.name = "input/" + std::string(dtype_name(type)) + "/sinusoidal/" +
           std::string(enum_text(layout)) + '/' + std::to_string(tokens) + 'x' +
           std::to_string(width);
  const auto bytes = static_cast<std::size_t>(tokens * width * size_of(type));
  l.bytes = 2 * static_cast<double>(bytes);
  l.limit_name = "in_place";
  l.goal = 1.1;
  l.prepare = [=] {
    LoweredInput low;
    const Sinusoidal scheme{.width = width, .layout = layout};
    scheme.lower({}, low);
    const auto plan = std::make_shared<InputPlan>(low, type);
    const auto x = buffer(bytes), other = buffer(bytes);
    std::memset(x->data(), 0, bytes);
    const auto at = std::make_shared<OwnedPositions>(arange(0, tokens));
    const Index shape[] = {tokens, width};
    const TensorView view = tensor(x->data(), type, shape);
    Prepared r;
    r.run = [plan, view, at, x] { plan->apply(view, *at, view, inline_executor()); };  // x: held
    r.run();
    const Spectrum s = scheme.spectrum();
    const bool halves = layout == SineLayout::halves;
    for (Index t = 0; t < tokens; t += 61)
      for (Index m = 0; m < width / 2; m += 7) {
        const double phi = static_cast<double>(t) * s.frequency[static_cast<std::size_t>(m)];
        const Index i = t * width + (halves ? m : 2 * m);
        const double got = type == DType::f32 ? static_cast<double>(x->as<float>()[i])
                                              : from_bf16(x->as<std::uint16_t>()[i]);
        r.max_error = std::max(r.max_error, std::abs(got - std::sin(phi)));
      }
    r.bound = type == DType::f32 ? 3.1e-8 : 2e-3;
    const auto n = bytes / 4;
    r.limit = [=] { plain_loops().scale_in_place(other->as<float>(), n, 1.0f); };
    return r;
  };
  return l;
}

struct TableCase {
  std::shared_ptr<InputPlan> plan;
  std::shared_ptr<OwnedPositions> at;
};
TableCase table_case(Index batch, Index rows, Index width) {
  LoweredInput low;
  std::vector<double> values(static_cast<std::size_t>(rows * width));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 64) / 64;
  const Learned scheme{.width = width, .rows = rows};
  const ConstTensorView table = tensor(values.data(), {rows, width});
  scheme.lower(std::span(&table, 1), low);
  std::vector<Index> at;
  for (Index b = 0; b < batch; ++b)
    for (Index t = 0; t < rows; ++t) at.push_back(t);
  return {std::make_shared<InputPlan>(low, DType::f32),
          std::make_shared<OwnedPositions>(explicit_positions(std::move(at), batch))};
}

// A row of the table for every token of a batch that has its positions token by token: x is read
// and written, the table read once (it stays in the cache from batch to batch).
Line learned_line(Index batch, Index rows, Index width) {
  Line l;
  l.name = "input/f32/learned/" + std::to_string(batch) + 'x' + std::to_string(rows) + 'x' +
           std::to_string(width);
  const auto count = static_cast<std::size_t>(batch * rows * width);
  l.bytes = 2.0 * 4 * static_cast<double>(count);
  l.limit_name = "in_place";
  l.goal = 1.1;
  l.prepare = [=] {
    const TableCase c = table_case(batch, rows, width);
    const auto x = buffer(4 * count), other = buffer(4 * count);
    std::memset(x->data(), 0, 4 * count);
    const TensorView view = tensor(x->as<float>(), {batch, rows, width});
    Prepared r;
    r.run = [c, view, x] { c.plan->apply(view, *c.at, view, inline_executor()); };  // x: held
    r.run();
    for (std::size_t i = 0; i < count; i += 101) {
      const std::size_t in_table = i % static_cast<std::size_t>(rows * width);
      r.max_error = std::max(r.max_error, std::abs(static_cast<double>(x->as<float>()[i]) -
                                                   static_cast<double>(in_table % 64) / 64));
    }
    r.bound = 0;
    r.limit = [=] { plain_loops().scale_in_place(other->as<float>(), count, 1.0f); };
    return r;
  };
  return l;
}

// The gradient of the table, in double: every token is read once.
Line table_gradient_line(Index batch, Index rows, Index width) {
  Line l;
  l.name = "input/f32/learned_gradient/" + std::to_string(batch) + 'x' + std::to_string(rows) +
           'x' + std::to_string(width);
  const auto count = static_cast<std::size_t>(batch * rows * width);
  l.bytes = 4 * static_cast<double>(count);
  l.limit_name = "read";
  l.goal = 1.2;
  l.prepare = [=] {
    const TableCase c = table_case(batch, rows, width);
    const auto d = buffer(4 * count), other = buffer(4 * count);
    const auto sum = buffer(static_cast<std::size_t>(8 * rows * width));
    std::memset(sum->data(), 0, sum->bytes());
    for (std::size_t i = 0; i < count; ++i) d->as<float>()[i] = static_cast<float>(i % 8);
    const auto workspace =
        std::make_shared<std::vector<std::byte>>(c.plan->gradient_workspace(batch, rows));
    const TensorView view = tensor(d->as<float>(), {batch, rows, width});
    Prepared r;
    r.run = [=, held = d] {
      InputGradient g;
      g.table = tensor(sum->as<double>(), {rows, width});
      c.plan->gradient({}, *c.at, view, {}, std::span(&g, 1), *workspace, inline_executor());
    };
    r.run();
    for (Index i = 0; i < rows * width; i += 101)
      r.max_error = std::max(r.max_error,
                             std::abs(sum->as<double>()[i] - static_cast<double>(batch * (i % 8))));
    r.bound = 0;
    r.limit = [=] {
      volatile float sink = plain_loops().read(other->as<float>(), count);
      (void)sink;
    };
    return r;
  };
  return l;
}

// A grid of learned rows at another size, against writing what it makes.
Line extend_line(Index from, Index to, Index width) {
  Line l;
  const auto grid = [](Index n) { return std::to_string(n) + 'x' + std::to_string(n); };
  l.name = "input/f32/extend_bicubic/" + grid(from) + "->" + grid(to) + 'x' + std::to_string(width);
  const auto in = static_cast<std::size_t>(from * from * width);
  const auto out = static_cast<std::size_t>(to * to * width);
  l.bytes = 4 * static_cast<double>(out);
  l.limit_name = "write";
  l.prepare = [=] {
    const auto table = buffer(4 * in), resized = buffer(4 * out), other = buffer(4 * out);
    for (std::size_t i = 0; i < in; ++i)
      table->as<float>()[i] = static_cast<float>(i * 37 % 101) / 101.0f;
    const Extension how{.how = ExtendHow::bicubic};
    Prepared r;
    r.run = [=] {
      extend_table(tensor(table->as<float>(), {from * from, width}), {from, from},
                   tensor(resized->as<float>(), {to * to, width}), {to, to}, how,
                   inline_executor());
    };
    r.run();
    const AxisTaps taps = axis_taps(from, to, how);
    for (Index row = 0; row < to * to; row += 7)
      for (Index c = 0; c < width; c += 51) {
        double want = 0;
        for (Index i = 0; i < taps.taps; ++i)
          for (Index j = 0; j < taps.taps; ++j) {
            const auto y = static_cast<std::size_t>(row / to * taps.taps + i);
            const auto x = static_cast<std::size_t>(row % to * taps.taps + j);
            want += taps.weight[y] * taps.weight[x] *
                    static_cast<double>(
                        table->as<float>()[(taps.index[y] * from + taps.index[x]) * width + c]);
          }
        r.max_error =
            std::max(r.max_error,
                     std::abs(static_cast<double>(resized->as<float>()[row * width + c]) - want));
      }
    r.bound = 1e-7;
    const Fill fill = best_fill(4 * out);
    r.limit = [=] { fill(other->as<float>(), out, 1.0f); };
    return r;
  };
  return l;
}

}  // namespace

std::vector<Line> input_lines() {
  return {sinusoidal_line(DType::f32, SineLayout::interleaved, 8192, 4096),
          sinusoidal_line(DType::f32, SineLayout::halves, 8192, 4096),
          sinusoidal_line(DType::bf16, SineLayout::interleaved, 8192, 4096),
          sinusoidal_line(DType::bf16, SineLayout::halves, 8192, 4096),
          learned_line(8, 2048, 1024),
          table_gradient_line(8, 2048, 1024),
          extend_line(14, 37, 768)};
}

}  // namespace posenc::bench
