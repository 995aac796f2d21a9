// SPDX-License-Identifier: Apache-2.0
// Both axes of a resize, one after the other: for every new row of the grid the old rows are
// summed by weight along y into a buffer, then the buffer along x. The gradient is the same with
// the transposed lists.
#include "posenc/absolute/extend.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absolute/names.h"
#include "core/element.h"
#include "core/overlap.h"
#include "core/parallel.h"
#include "core/shape.h"
#include "kernels/weighted_sum.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

const Extension kGrid{ExtendHow::bicubic};  // any way that takes grids

// Row o is the sum of weight[k] x row index[k], start[o] <= k < start[o + 1].
struct RowMap {
  Index rows = 0;
  std::vector<Index> start, index;
  std::vector<double> weight;

  Index most() const {  // numbers that one row sums
    Index n = 0;
    for (std::size_t o = 0; o + 1 < start.size(); ++o) n = std::max(n, start[o + 1] - start[o]);
    return n;
  }
};

RowMap forward(const AxisTaps& t) {
  RowMap m{t.new_size, {0}, {}, {}};
  for (std::size_t at = 0; at < t.weight.size();) {
    for (Index k = 0; k < t.taps; ++k, ++at)
      if (t.weight[at] != 0) m.index.push_back(t.index[at]), m.weight.push_back(t.weight[at]);
    m.start.push_back(static_cast<Index>(m.index.size()));
  }
  return m;
}

RowMap transposed(const AxisTaps& t) {
  RowMap m{t.old_size, {}, {}, {}};
  m.start.assign(static_cast<std::size_t>(t.old_size) + 1, 0);
  for (std::size_t at = 0; at < t.weight.size(); ++at)
    if (t.weight[at] != 0) ++m.start[static_cast<std::size_t>(t.index[at]) + 1];
  for (std::size_t i = 1; i < m.start.size(); ++i) m.start[i] += m.start[i - 1];
  m.index.resize(static_cast<std::size_t>(m.start.back()));
  m.weight.resize(m.index.size());
  std::vector<Index> next(m.start.begin(), m.start.end() - 1);
  for (std::size_t at = 0; at < t.weight.size(); ++at) {
    if (t.weight[at] == 0) continue;
    const auto to = static_cast<std::size_t>(next[static_cast<std::size_t>(t.index[at])]++);
    m.index[to] = static_cast<Index>(at) / t.taps;
    m.weight[to] = t.weight[at];
  }
  return m;
}

template <class Byte>
struct BasicGridRows {
  Byte* data = nullptr;  // of the first row of the grid
  bool is_double = true;
  Index stride = 0, width = 1;  // elements a row of the table; columns of the grid
  Index step() const {          // bytes
    return stride * (is_double ? Index{sizeof(double)} : Index{sizeof(float)});
  }
  Byte* at(Index row) const { return data + row * step(); }
};

using GridRows = BasicGridRows<std::byte>;
using ConstGridRows = BasicGridRows<const std::byte>;

struct Resizing {
  ConstGridRows in;
  GridRows out;
  RowMap y, x;
  Index channels = 0;
  void (*first)(const detail::WeightedSum&) = nullptr;   // in -> buffer, or in -> out of one column
  void (*second)(const detail::WeightedSum&) = nullptr;  // buffer -> out

  bool is_line() const { return in.width == 1 && out.width == 1; }
};

// What a task needs: the rows that one new row sums, and all columns of it for the second axis.
struct Scratch {
  std::vector<const void*> rows;
  std::vector<double> buffer;

  explicit Scratch(const Resizing& w)
      : rows(static_cast<std::size_t>(std::max(w.y.most(), w.x.most()))),
        buffer(static_cast<std::size_t>(w.is_line() ? 0 : w.in.width * w.channels)) {}
};

// One new row.
void weighted_row(void (*kernel)(const detail::WeightedSum&), const RowMap& m, Index row,
                  const std::byte* in, Index step, Index width, void* out,
                  std::vector<const void*>& rows) noexcept {
  const auto o = static_cast<std::size_t>(row);
  const Index first = m.start[o], count = m.start[o + 1] - first;
  for (Index k = 0; k < count; ++k)
    rows[static_cast<std::size_t>(k)] = in + m.index[static_cast<std::size_t>(first + k)] * step;
  kernel({rows.data(), m.weight.data() + first, count, width, out});
}

void resize_rows(const Resizing& w, Index from, Index to, Scratch& scratch) noexcept {
  const Index c = w.channels, columns = w.in.width, step = w.in.step();
  auto& [rows, buffer] = scratch;
  if (w.is_line()) {
    for (Index o = from; o < to; ++o)
      weighted_row(w.first, w.y, o, w.in.data, step, c, w.out.at(o), rows);
    return;
  }
  const auto* kept = reinterpret_cast<const std::byte*>(buffer.data());
  for (Index o = from; o < to; ++o) {
    if (w.in.stride == c)
      weighted_row(w.first, w.y, o, w.in.data, columns * step, columns * c, buffer.data(), rows);
    else
      for (Index i = 0; i < columns; ++i)
        weighted_row(w.first, w.y, o, w.in.at(i), columns * step, c, buffer.data() + i * c, rows);
    for (Index i = 0; i < w.out.width; ++i)
      weighted_row(w.second, w.x, i, kept, c * Index{sizeof(double)}, c,
                   w.out.at(o * w.out.width + i), rows);
  }
}

void run(Resizing& w, const Executor& executor) {
  const detail::WeightedSumKernels& k = detail::weighted_sum_kernels(active_isa());
  const bool line = w.is_line();
  if (w.in.is_double)
    w.first = line && !w.out.is_double ? k.f64_f32 : k.f64_f64;
  else
    w.first = line && !w.out.is_double ? k.f32_f32 : k.f32_f64;
  w.second = w.out.is_double ? k.f64_f64 : k.f64_f32;
  const Index values = w.y.rows * std::max(w.in.width, w.out.width) * w.channels;
  const Index most = values / detail::kValuesPerTask;
  std::vector<Scratch> scratch(
      static_cast<std::size_t>(detail::task_count(executor, w.y.rows, most)), Scratch(w));
  detail::parallel_for(executor, w.y.rows, most, [&](Index from, Index to, Index task) noexcept {
    resize_rows(w, from, to, scratch[static_cast<std::size_t>(task)]);
  });
}

void check_layout(const TableShape& l, const Extension& e) {
  for (const Index n : {l.height, l.width})
    if (n < 1 || n > Index{1} << 31) refuse(kExtend, "height and width must be 1 to 2^31", n);
  for (const Index n : {l.prefix, l.suffix})
    if (n < 0 || n > Index{1} << 31) refuse(kExtend, "prefix and suffix must be 0 to 2^31", n);
  if (e.rows == TableRows::offsets && l.prefix != 0)
    refuse(kExtend, "prefix of a table of offsets must be 0 (BEiT's three rows are a suffix)",
           l.prefix);
  if (is_one_axis(e.how) && l.width != 1)
    refuse(kExtend, std::string(enum_text(e.how)) + " is for one axis: width must be 1", l.width);
}

void check_table(const ConstTensorView& t, const TableShape& l, Index channels, const char* what) {
  const std::string who(what);
  if (!is_float(t.dtype))
    refuse_field(kExtend, who, "must be f64, f32, f16 or bf16", dtype_name(t.dtype));
  if (t.device != Device::cpu) refuse_field(kExtend, who, "must be in the CPU's memory");
  if (t.rank != 2) detail::refuse_shape(kExtend, who, "must be [rows, channels]", t);
  if (t.shape[0] != l.rows())
    refuse_field(kExtend, who, "must have the " + std::to_string(l.rows()) + " rows of its layout",
                 t.shape[0]);
  if (t.shape[1] < 1 || (channels > 0 && t.shape[1] != channels))
    refuse_field(kExtend, who, "must have channels, as many as the other table", t.shape[1]);
  if (t.stride[1] != 1 && t.shape[1] != 1)
    refuse_field(kExtend, who, "must have its channels together, stride", t.stride[1]);
}

std::vector<double> widened(const ConstTensorView& t) {
  std::vector<double> v(static_cast<std::size_t>(t.shape[0] * t.shape[1]));
  for (Index r = 0; r < t.shape[0]; ++r)
    for (Index c = 0; c < t.shape[1]; ++c)
      v[static_cast<std::size_t>(r * t.shape[1] + c)] =
          detail::float_element(t.data, t.dtype, r * t.stride[0] + c);
  return v;
}
void narrow(const std::vector<double>& v, const TensorView& t) {
  for (Index r = 0; r < t.shape[0]; ++r)
    for (Index c = 0; c < t.shape[1]; ++c)
      detail::put_element(t.data, t.dtype, r * t.stride[0] + c,
                          v[static_cast<std::size_t>(r * t.shape[1] + c)]);
}

template <class Data>
auto side(const BasicTensorView<Data>& t, const TableShape& l) {
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  BasicGridRows<Byte> s{static_cast<Byte*>(t.data), t.dtype == DType::f64, t.stride[0], l.width};
  s.data = s.at(l.prefix);
  return s;
}

void copy_rows(const ConstTensorView& from, Index first, const TensorView& to, Index to_first,
               Index count) {
  const Index size = size_of(from.dtype);
  for (Index r = 0; r < count; ++r)
    std::memcpy(static_cast<std::byte*>(to.data) + (to_first + r) * to.stride[0] * size,
                static_cast<const std::byte*>(from.data) + (first + r) * from.stride[0] * size,
                static_cast<std::size_t>(from.shape[1] * size));
}

bool unchanged(const TableShape& a, const TableShape& b, const Extension& e) {
  return a == b && e.offset == 0 && !e.scale_y && !e.scale_x;
}

// From `in` of layout a to `out` of layout b; the taps are those of small -> large either way.
void resize(const ConstTensorView& in, const TableShape& a, const TensorView& out,
            const TableShape& b, const AxisTaps& y, const AxisTaps& x, bool gradient,
            const Executor& executor) {
  if (size_of(in.dtype) == 2) {
    std::vector<double> wide = widened(in),
                        result(static_cast<std::size_t>(out.shape[0] * out.shape[1]));
    resize(tensor(wide.data(), {in.shape[0], in.shape[1]}), a,
           tensor(result.data(), {out.shape[0], out.shape[1]}), b, y, x, gradient, executor);
    return narrow(result, out);
  }
  Resizing w{side(in, a), side(out, b), gradient ? transposed(y) : forward(y),
             gradient ? transposed(x) : forward(x), in.shape[1]};
  run(w, executor);
  copy_rows(in, 0, out, 0, a.prefix);
  copy_rows(in, a.rows() - a.suffix, out, b.rows() - b.suffix, a.suffix);
}

// `forward`: out is written, or else the table.
void check_call(const ConstTensorView& table, const TableShape& from, const ConstTensorView& out,
                const TableShape& to, const Extension& e, bool forward) {
  check_layout(from, e);
  check_layout(to, e);
  check_table(table, from, 0, "the table");
  check_table(out, to, table.shape[1], "the resized table");
  if (table.dtype != out.dtype)
    refuse(kExtend, "both tables must be of one dtype, " + std::string(dtype_name(table.dtype)),
           dtype_name(out.dtype));
  if (from.prefix != to.prefix || from.suffix != to.suffix)
    refuse(kExtend, "prefix and suffix are kept: both layouts must have the same, rows",
           to.prefix + to.suffix);
  detail::check_outputs(kExtend, {{"the result", detail::memory_of(forward ? out : table)}}, {},
                        {{forward ? "the table" : "the gradient that comes in",
                          detail::memory_of(forward ? table : out)}});
}

AxisTaps y_taps(const TableShape& from, const TableShape& to, const Extension& e) {
  return axis_taps(from.height, to.height, e, e.scale_y);
}
// A line has one column, which no way touches.
AxisTaps x_taps(const TableShape& from, const TableShape& to, const Extension& e) {
  if (is_one_axis(e.how)) {
    if (e.scale_x) refuse(kExtend, "a line has no factor of x", *e.scale_x);
    return {1, 1, 1, {0}, {1}};
  }
  return axis_taps(from.width, to.width, e, e.scale_x);
}

Index packed_rows(std::span<const VisionGrid> images, Index merge) {
  if (merge < 1) refuse_field(kExtend, "merge", "must be positive", merge);
  Index rows = 0;
  for (const VisionGrid& g : images) {
    for (const Index n : {g.frames, g.rows, g.columns})
      if (n < 1 || n > Index{1} << 20)
        refuse(kExtend, "a grid must have 1 to 2^20 on each axis", n);
    if (g.rows % merge != 0 || g.columns % merge != 0)
      refuse_field(kExtend, "merge", "must divide the rows and columns of a grid", merge);
    rows += g.frames * g.rows * g.columns;
  }
  return rows;
}

// Grid row of patch i of a frame in the order of merge x merge blocks.
Index merged(const VisionGrid& g, Index merge, Index i) {
  const Index in_block = i % (merge * merge), block = i / (merge * merge);
  const Index across = g.columns / merge;
  return ((block / across) * merge + in_block / merge) * g.columns + (block % across) * merge +
         in_block % merge;
}

}  // namespace

void extend_table(const ConstTensorView& table, const TableShape& from, const TensorView& out,
                  const TableShape& to, const Extension& e, const Executor& executor) {
  check_call(table, from, out, to, e, true);
  const AxisTaps y = y_taps(from, to, e), x = x_taps(from, to, e);
  if (unchanged(from, to, e)) return copy_rows(table, 0, out, 0, from.rows());
  resize(table, from, out, to, y, x, false, executor);
}

void extend_gradient(const ConstTensorView& d_out, const TableShape& to, const TensorView& d_table,
                     const TableShape& from, const Extension& e, const Executor& executor) {
  check_call(d_table, from, d_out, to, e, false);
  const AxisTaps y = y_taps(from, to, e), x = x_taps(from, to, e);
  if (unchanged(from, to, e)) return copy_rows(d_out, 0, d_table, 0, from.rows());
  resize(d_out, to, d_table, from, y, x, true, executor);
}

void extend_packed(const ConstTensorView& table, const TableShape& from,
                   std::span<const VisionGrid> images, Index merge, const TensorView& out,
                   const Extension& e, const Executor& executor) {
  const Index rows = packed_rows(images, merge);
  check_call(table, from, out, {rows, 1, 0, 0}, kGrid, true);
  if (from.prefix != 0 || from.suffix != 0)
    refuse(kExtend, "packed images have no prefix or suffix");
  Index at = 0;
  for (const VisionGrid& g : images) {
    const TableShape to{g.rows, g.columns, 0, 0};
    std::vector<std::byte> part(
        static_cast<std::size_t>(to.rows() * table.shape[1] * size_of(table.dtype)));
    const Index shape[] = {to.rows(), table.shape[1]};
    const TensorView grid = tensor(static_cast<void*>(part.data()), table.dtype, shape);
    extend_table(table, from, grid, to, e, executor);
    for (Index f = 0; f < g.frames; ++f)
      for (Index i = 0; i < to.rows(); ++i) copy_rows(grid, merged(g, merge, i), out, at++, 1);
  }
}

void extend_packed_gradient(const ConstTensorView& d_out, std::span<const VisionGrid> images,
                            Index merge, const TensorView& d_table, const TableShape& from,
                            const Extension& e, const Executor& executor) {
  const Index rows = packed_rows(images, merge);
  check_call(d_table, from, d_out, {rows, 1, 0, 0}, kGrid, false);
  if (from.prefix != 0 || from.suffix != 0)
    refuse(kExtend, "packed images have no prefix or suffix");
  const Index c = d_table.shape[1];
  std::vector<double> sum(static_cast<std::size_t>(from.rows() * c)), one(sum.size());
  Index at = 0;
  for (const VisionGrid& g : images) {
    const TableShape to{g.rows, g.columns, 0, 0};
    std::vector<double> grid(static_cast<std::size_t>(to.rows() * c));
    for (Index f = 0; f < g.frames; ++f)
      for (Index i = 0; i < to.rows(); ++i, ++at)
        for (Index k = 0; k < c; ++k)
          grid[static_cast<std::size_t>(merged(g, merge, i) * c + k)] +=
              detail::float_element(d_out.data, d_out.dtype, at * d_out.stride[0] + k);
    extend_gradient(tensor(grid.data(), {to.rows(), c}), to, tensor(one.data(), {from.rows(), c}),
                    from, e, executor);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  }
  narrow(sum, d_table);
}

}  // namespace posenc::v0
