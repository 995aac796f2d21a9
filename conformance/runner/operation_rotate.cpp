// SPDX-License-Identifier: Apache-2.0
// rotate, rotate_rows: q and k through a plan, and the gradients of what made the phase.
#include <algorithm>
#include <cmath>

#include "conformance/runner/encoding.h"
#include "conformance/runner/position_list.h"
#include "conformance/runner/tensors.h"
#include "posenc/core/error.h"
#include "posenc/rotary/plan.h"

namespace posenc::conformance {
namespace {

// One of q, k on its way through a plan.
struct Stream {
  std::string letters;
  std::optional<HeadsArray> in, out;

  Heads in_view() { return in ? in->view() : Heads{}; }
  Heads out_view() { return out ? out->view() : Heads{}; }
};

RotateMode sense_of(const Check& check) {
  const std::string text = check.text("sense", "forward");
  for (std::size_t i = 0; i < EnumNames<RotateMode>::value.size(); ++i)
    if (EnumNames<RotateMode>::value[i] == text) return static_cast<RotateMode>(i);
  refuse_field("case", "sense", "must be forward, gradient, inverse or shift", text);
}

// The widest dtype among q, k and what is wanted of them; the named precisions keep the inputs'.
DType dtype_of_run(const Check& check) {
  std::optional<DType> dtype;
  const auto widen = [&](std::string_view group, std::string_view ours) {
    const std::string* name = check.array_name(group, ours);
    if (name == nullptr) return;
    const DType own = slice(check.in_case, *name).array->dtype;
    dtype = dtype ? wider(*dtype, own) : own;
  };
  for (const char* ours : {"q", "k"}) widen("in", ours);
  for (const char* ours : {"q", "k"}) widen("out", ours);
  if (!dtype) refuse("case", "the check turns neither q nor k");
  return *dtype;
}

Stream stream_of(const Check& check, std::string_view ours, DType dtype, Index head_dim) {
  Stream stream;
  const std::string* name = check.array_name("in", ours);
  if (name == nullptr) return stream;
  const Slice s = slice(check.in_case, *name);
  stream.letters = letters_of(check, s);
  stream.in = heads_of(s, dtype, stream.letters, head_dim);
  stream.out = HeadsArray{make_array(dtype, s.shape), stream.in->axes};
  return stream;
}

// cos or sin of the case: letters b, t, h, d (columns); two axes are [rows, columns].
struct Rows {
  Array data;
  TensorView view;
};

std::string row_letters(const Check& check, const Slice& s) {
  const char* usual[] = {"td", "btd", "bthd"};
  if (s.shape.size() < 2 || s.shape.size() > 4)
    refuse_field("case", "rows", "must have 2, 3 or 4 axes", s.text);
  return letters_of(check, s, usual[s.shape.size() - 2]);
}

Rows rows_of(const Check& check, std::string_view ours, DType run) {
  const Slice s = check.input(ours);
  Rows rows;
  const DType own = s.array->dtype;
  const DType dtype = run == DType::f64 ? run : (own == run ? own : DType::f32);
  rows.data = dense(s, dtype);
  const std::string letters = row_letters(check, s);
  const Axes axes(s.shape, letters, {});
  std::vector<Index> shape, stride;
  for (const char letter : {'b', 't', 'h', 'd'}) {
    const bool there = letters.find(letter) != std::string::npos;
    // [tokens, heads, columns] of the caller needs its batch axis.
    const bool needed = letter == 'b' && letters.find('h') != std::string::npos;
    if (!there && !needed) continue;
    shape.push_back(axes[letter].size);
    stride.push_back(axes[letter].stride);
  }
  rows.view = tensor(static_cast<void*>(rows.data.bytes.data()), dtype, shape, stride);
  return rows;
}

TableLayout table_layout(const Check& check) {
  const std::string text = check.text("layout", "half");
  for (std::size_t i = 0; i < EnumNames<TableLayout>::value.size(); ++i)
    if (EnumNames<TableLayout>::value[i] == text) return static_cast<TableLayout>(i);
  refuse_field("case", "layout", "must be half, duplicated, repeated or pairs", text);
}

// Multi-axis positions with one table: the row of each pair is that of its own axis. [b, t, pairs]
Rows gathered(const Rows& table, const OwnedPositions& owned, const std::vector<Index>& axis) {
  const std::vector<double> values = table.data.doubles();
  const Index columns = table.view.shape[1], tokens = owned.count();
  if (static_cast<Index>(axis.size()) != columns)
    refuse_field("case", "axis_of_pair", "must have one number a column",
                 static_cast<Index>(axis.size()));
  const auto& where = std::get<std::vector<Index>>(owned.value);
  for (const Index stream : axis)
    if (stream < 0 || stream >= owned.axes)
      refuse_field("case", "axis_of_pair", "must be an axis of the positions", stream);
  Rows rows;
  rows.data = make_array(DType::f64, {owned.batch, tokens, columns});
  auto* out = reinterpret_cast<double*>(rows.data.bytes.data());
  for (Index b = 0; b < owned.batch; ++b)
    for (Index t = 0; t < tokens; ++t)
      for (Index p = 0; p < columns; ++p) {
        const Index stream = axis[static_cast<std::size_t>(p)];
        const Index row =
            where.at(static_cast<std::size_t>((stream * owned.batch + b) * tokens + t));
        out[(b * tokens + t) * columns + p] =
            values.at(static_cast<std::size_t>(row * columns + p));
      }
  if (table.data.dtype != DType::f64) {  // back to what the table held, exactly
    Array narrow = make_array(DType::f32, rows.data.shape);
    auto* to = reinterpret_cast<float*>(narrow.bytes.data());
    for (Index i = 0; i < rows.data.count(); ++i) to[i] = static_cast<float>(out[i]);
    rows.data = std::move(narrow);
  }
  rows.view = rows.data.view();
  return rows;
}

// Rows of another definition ("rows": a check of its own with scheme, positions, layout), for
// programs that put a table to channels it was not made for.
Rows computed(const Check& check, const Json& made, bool cosine, DType run) {
  const Check given(check, made, "rows");
  const Json* sine = given.find("sin_scheme");
  const Check inner = given.inherited(
      cosine || sine == nullptr ? Json::object() : Json::object({{"scheme", *sine}}));
  const RotarySpec spec = rotary_of(inner);
  const Spectrum& s = spec.blocks.at(0).spectrum;
  const OwnedPositions positions = positions_of(inner);
  const TableLayout layout = table_layout(inner);
  const Index columns = layout == TableLayout::half ? s.pairs() : 2 * s.pairs();
  Rows rows;
  rows.data = make_array(run == DType::f64 ? run : DType::f32,
                         {positions.batch, positions.count(), columns});
  const Index flat[] = {positions.batch * positions.count(), columns};
  const TensorView all = tensor(static_cast<void*>(rows.data.bytes.data()), rows.data.dtype, flat);
  phase_rows(s, positions, cosine ? all : TensorView{}, cosine ? TensorView{} : all, layout);
  rows.view = positions.batch == 1 ? all : rows.data.view();
  return rows;
}

void expect_rows_inside(const OwnedPositions& index, Index rows) {
  const Positions view = index;
  for (std::int32_t a = 0; a < index.axes; ++a)
    for (Index b = 0; b < index.batch; ++b)
      for (Index t = 0; t < index.count(); ++t) {
        const double p = position_at(view, a, b, t);
        if (!(p >= 0) || p >= static_cast<double>(rows))
          refuse("case", "a position lies outside the rows that are given", p);
      }
}

// cos and sin with the rows they are looked up by.
struct Given {
  Rows cos, sin;
  OwnedPositions index;
  CallerRows rows;
};

void given_rows(const Check& check, DType run, Given& given) {
  if (const Json* made = check.part("rows")) {
    given.cos = computed(check, *made, true, run);
    given.sin = computed(check, *made, false, run);
  } else {
    given.cos = rows_of(check, "cos", run);
    given.sin = rows_of(check, "sin", run);
  }
  if (has_positions(check)) {
    given.index = positions_of(check);
    expect_rows_inside(given.index, given.cos.view.shape[0]);
  }
  if (const Json* axis = check.find("axis_of_pair")) {
    std::vector<Index> axes;
    const Json list = axis->is_string() ? check.in_case.parameter(axis->as_string()) : *axis;
    for (const Json& a : list.as_array()) axes.push_back(a.as_integer());
    given.cos = gathered(given.cos, given.index, axes);
    given.sin = gathered(given.sin, given.index, axes);
  } else if (has_positions(check)) {
    given.rows.index = given.index;
  }
  given.rows.cos = given.cos.view;
  given.rows.sin = given.sin.view;
  given.rows.layout = table_layout(check);
}

void expect_streams(Check& check, Stream& q, Stream& k, Index head_dim) {
  if (q.out) expect_heads(check, "q", *q.out, q.letters, head_dim);
  if (k.out) expect_heads(check, "k", *k.out, k.letters, head_dim);
}

struct Turned {
  Stream q, k;
};
Turned turn_by_rows(const Check& check, const RotarySpec& spec, DType dtype) {
  Turned t{stream_of(check, "q", dtype, spec.head_dim),
           stream_of(check, "k", dtype, spec.head_dim)};
  Given given;
  given_rows(check, dtype, given);
  RotaryPlan(spec, dtype, {.outside = OutsideRange::allow})
      .apply_rows(QK{t.q.in_view(), t.k.in_view()}, QK{t.q.out_view(), t.k.out_view()}, given.rows,
                  sense_of(check));
  return t;
}
Turned turn(const Check& check, const RotarySpec& spec, DType dtype,
            const OwnedPositions& positions) {
  Turned t{stream_of(check, "q", dtype, spec.head_dim),
           stream_of(check, "k", dtype, spec.head_dim)};
  RotaryPlan(spec, dtype, {.outside = OutsideRange::allow})
      .apply(QK{t.q.in_view(), t.k.in_view()}, QK{t.q.out_view(), t.k.out_view()}, positions,
             sense_of(check));
  return t;
}

// plan.h: cosine and sine within 1.1e-7, arithmetic in float32, one rounding.
void expect_agreement(Check& check, const Stream& own, const Stream& truth, DType dtype) {
  const std::vector<double> got = own.out->data.doubles(), want = truth.out->data.doubles();
  const std::vector<double> x = truth.in->data.doubles();
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    largest = std::max({largest, std::abs(x[i]), std::abs(want[i])});
  const double unit = dtype == DType::f32 ? 0x1p-23 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
  for (std::size_t i = 0; i < got.size(); ++i)
    check.comparison.element(got[i], want[i], unit * std::abs(want[i]) + 4e-7 * largest,
                             "the same in double",
                             [&] { return std::vector<Index>{static_cast<Index>(i)}; });
}

Workspace scratch(std::vector<std::byte>& memory, std::size_t size) {
  memory.resize(size + 64);
  return memory;
}

}  // namespace

// Exact: first in double, since the tolerance of a case is its distance from an exact rotation;
// then in the dtype of the tensors, which must agree with the double result as it promises to.
// Named precisions: in the dtype of the tensors alone.
template <class Turn>
void run_both(Check& check, const RotarySpec& spec, Turn&& made) {
  const DType dtype = dtype_of_run(check);
  Turned native = made(dtype);
  if (spec.precision != Precision::exact || dtype == DType::f64)
    return expect_streams(check, native.q, native.k, spec.head_dim);
  Turned wide = made(DType::f64);
  expect_streams(check, wide.q, wide.k, spec.head_dim);
  for (const auto& [own, truth] : {std::pair(&native.q, &wide.q), std::pair(&native.k, &wide.k)})
    if (own->out) expect_agreement(check, *own, *truth, dtype);
}

void run_rotate(Check& check) {
  const RotarySpec spec = rotary_of(check);
  const OwnedPositions positions = positions_of(check);
  run_both(check, spec, [&](DType dtype) { return turn(check, spec, dtype, positions); });
}

void run_rotate_rows(Check& check) {
  const RotarySpec spec = rotary_of(check);
  run_both(check, spec, [&](DType dtype) { return turn_by_rows(check, spec, dtype); });
}

void run_phase_gradients(Check& check) {
  const RotarySpec spec = rotary_of(check);
  const Slice x = check.input("q"), grad = check.input("grad_q");
  const DType dtype = wider(x.array->dtype, grad.array->dtype);
  const std::string letters = letters_of(check, x);
  HeadsArray in = heads_of(x, dtype, letters, spec.head_dim);
  HeadsArray d_out = heads_of(grad, dtype, letters_of(check, grad, letters), spec.head_dim);
  const OwnedPositions positions = positions_of(check);
  const auto block = static_cast<std::size_t>(check.integer("block", 0));
  const Spectrum& spectrum = spec.blocks.at(block).spectrum;
  Array frequency = make_array(DType::f64, {spectrum.heads, spectrum.axes, spectrum.pairs()});
  Array gain = make_array(DType::f64, {1});
  Array position = make_array(DType::f64, {positions.axes, positions.batch, positions.count()});
  PhaseGradients gradients;
  gradients.block = static_cast<Index>(block);
  gradients.frequency = frequency.view();
  gradients.gain = gain.view();
  if (check.array_name("out", "position") != nullptr) gradients.position = position.view();
  const RotaryPlan plan(spec, dtype, {.outside = OutsideRange::allow});
  const QK qk{in.view(), {}};
  std::vector<std::byte> memory;
  plan.phase_gradients(qk, QK{d_out.view(), {}}, positions, gradients,
                       scratch(memory, plan.phase_gradients_workspace(qk)));
  const auto put = [&](std::string_view ours, const Array& got, std::string_view order) {
    const std::string* name = check.array_name("out", ours);
    if (name == nullptr) return;
    const Slice want = slice(check.in_case, *name);
    const Axes axes(want.shape, letters_of(check, want, order), {});
    const std::vector<double> values = got.doubles();
    const std::vector<Index> to = axes.walk(order);
    if (to.size() != values.size())
      refuse("case", "the gradient has another size than " + want.text,
             static_cast<Index>(values.size()));
    std::vector<double> ordered(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      ordered[static_cast<std::size_t>(to[i])] = values[i];
    check.expect(want, ordered);
  };
  // heads, axes, pairs of the frequencies; a letter that the array lacks counts once.
  const std::string* name = check.array_name("out", "frequency");
  if (name != nullptr)
    put("frequency", frequency, slice(check.in_case, *name).shape.size() == 1 ? "d" : "had");
  put("gain", gain, "d");
  put("position", position, "abt");
}

void run_row_gradients(Check& check) {
  const RotarySpec spec = rotary_of(check);
  const Slice x = check.input("q"), grad = check.input("grad_q");
  const DType dtype = wider(x.array->dtype, grad.array->dtype);
  const std::string letters = letters_of(check, x);
  HeadsArray in = heads_of(x, dtype, letters, spec.head_dim);
  HeadsArray d_out = heads_of(grad, dtype, letters_of(check, grad, letters), spec.head_dim);
  Given given;
  given_rows(check, dtype, given);
  Array cos = make_array(DType::f64, given.cos.data.shape);
  Array sin = make_array(DType::f64, given.sin.data.shape);
  RotaryPlan(spec, dtype, {.outside = OutsideRange::allow})
      .row_gradients(QK{in.view(), {}}, QK{d_out.view(), {}}, given.rows, {cos.view(), sin.view()});
  check.expect("cos", cos.doubles(), cos.shape);
  check.expect("sin", sin.doubles(), sin.shape);
}

}  // namespace posenc::conformance
