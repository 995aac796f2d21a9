// SPDX-License-Identifier: Apache-2.0
// rows, frequencies, temperature, shift: what a definition holds before anything is turned.
#include <cmath>

#include "conformance/runner/encoding.h"
#include "conformance/runner/position_list.h"
#include "conformance/runner/tensors.h"
#include "posenc/core/error.h"
#include "posenc/rotary/rerotate.h"

namespace posenc::conformance {
namespace {

TableLayout layout_of(const Check& check) {
  const std::string text = check.text("layout", "half");
  for (std::size_t i = 0; i < EnumNames<TableLayout>::value.size(); ++i)
    if (EnumNames<TableLayout>::value[i] == text) return static_cast<TableLayout>(i);
  refuse_field("case", "layout", "must be half, duplicated, repeated or pairs", text);
}

const RotaryBlock& block_of(const Check& check, const RotarySpec& spec) {
  const auto i = static_cast<std::size_t>(check.integer("block", 0));
  if (i >= spec.blocks.size())
    refuse("case", "the scheme has no such block", static_cast<Index>(i));
  return spec.blocks[i];
}

// The dtype that a row check is made in: that of the wanted array (f64 for integers).
DType dtype_of_rows(const Check& check, std::string_view ours) {
  const DType own = slice(check.in_case, *check.array_name("out", ours)).array->dtype;
  return is_float(own) ? own : DType::f64;
}

std::vector<double> angles(const Spectrum& s, const OwnedPositions& owned) {
  if (owned.axes != 1 && owned.axes != s.axes)
    refuse_field("case", "positions", "must have one axis or those of the scheme",
                 static_cast<Index>(owned.axes));
  const Index tokens = owned.count(), pairs = s.pairs();
  std::vector<double> out;
  const auto position = [&](Index axis, Index b, Index t) {
    const auto i = static_cast<std::size_t>((axis * owned.batch + b) * tokens + t);
    return owned.value.index() == 0
               ? static_cast<double>(std::get<std::vector<Index>>(owned.value)[i])
               : std::get<std::vector<double>>(owned.value)[i];
  };
  for (Index b = 0; b < owned.batch; ++b)
    for (Index t = 0; t < tokens; ++t)
      for (Index h = 0; h < s.heads; ++h)
        for (Index p = 0; p < pairs; ++p) {
          double phase = 0;
          for (Index a = 0; a < s.axes; ++a)
            phase += position(owned.axes == 1 ? 0 : a, b, t) *
                     s.frequency[static_cast<std::size_t>((h * s.axes + a) * pairs + p)];
          out.push_back(phase);
        }
  return out;
}

// xPos: what q is multiplied with; one column a pair, each member of a pair the same.
std::vector<double> decays(const RotaryBlock& block, const OwnedPositions& owned,
                           TableLayout layout) {
  std::vector<double> out;
  const auto pairs = block.log2_decay.size();
  for (Index t = 0; t < owned.count() * owned.batch; ++t) {
    const auto i = static_cast<std::size_t>(t);
    const double p = owned.value.index() == 0
                         ? static_cast<double>(std::get<std::vector<Index>>(owned.value)[i])
                         : std::get<std::vector<double>>(owned.value)[i];
    const std::size_t columns = layout == TableLayout::half ? pairs : 2 * pairs;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::size_t pair = layout == TableLayout::repeated ? c / 2 : c % pairs;
      out.push_back(
          std::exp2(block.log2_decay[pair] * (p - block.decay_center) / block.decay_scale));
    }
  }
  return out;
}

Array row_array(const Spectrum& s, const OwnedPositions& owned, DType dtype, Index columns) {
  const Index rows = owned.count() * owned.batch;
  if (s.heads > 1) return make_array(dtype, {rows, s.heads, columns});
  return make_array(dtype, {rows, columns});
}

// FoPE: cos[t, h, d] = sum over D of cos[t, D] coef[h, D, d], one matrix a head.
std::vector<double> mixed(const std::vector<double>& rows, const Slice& coefficients) {
  if (coefficients.shape.size() != 3 || coefficients.count() == 0)
    refuse_field("case", "coefficients", "must be [head, in, out]", coefficients.text);
  const auto heads = static_cast<std::size_t>(coefficients.shape[0]);
  const auto in = static_cast<std::size_t>(coefficients.shape[1]);
  const auto out = static_cast<std::size_t>(coefficients.shape[2]);
  const std::vector<double> c = coefficients.values();
  std::vector<double> result;
  for (std::size_t t = 0; t < rows.size() / in; ++t)
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t d = 0; d < out; ++d) {
        double sum = 0;
        for (std::size_t i = 0; i < in; ++i) sum += rows[t * in + i] * c[(h * in + i) * out + d];
        result.push_back(sum);
      }
  return result;
}

// Compares [tokens, heads, columns]; another order of the wanted array is said in `axes`.
void expect_rows(Check& check, std::string_view ours, const std::vector<double>& got,
                 const OwnedPositions& positions, Index heads) {
  const Slice want = slice(check.in_case, *check.array_name("out", ours));
  const Index rows = positions.batch * positions.count() * heads;
  const std::vector<Index> shape{positions.batch, positions.count(), heads,
                                 rows == 0 ? 0 : static_cast<Index>(got.size()) / rows};
  const Json* letters = check.member("axes", want.text);
  if (letters == nullptr) return check.expect(want, got, shape);
  const Axes axes(want.shape, letters->as_string(), {});
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (axes["bthd"[i]].size != shape[i])
      refuse("case", "the rows have another shape than " + want.text, shape[i]);
  const std::vector<Index> to = axes.walk("bthd");
  std::vector<double> ordered(got.size());
  for (std::size_t i = 0; i < to.size(); ++i) ordered[static_cast<std::size_t>(to[i])] = got[i];
  check.expect(want, ordered);
}

}  // namespace

namespace {

// Rows in `dtype`: cos, sin, or both side by side.
Array made_rows(const RotarySpec& spec, const Spectrum& s, const OwnedPositions& positions,
                std::string_view ours, TableLayout layout, DType dtype) {
  const Index columns = layout == TableLayout::half ? s.pairs() : 2 * s.pairs();
  if (ours == "cos_sin") {
    const Index width = layout == TableLayout::pairs ? columns : 2 * columns;
    Array rows = row_array(s, positions, dtype, width);
    phase_rows(s, positions, rows.view(), layout, spec.precision);
    return rows;
  }
  Array rows = row_array(s, positions, dtype, columns);
  const bool cosine = ours == "cos";
  phase_rows(s, positions, cosine ? rows.view() : TensorView{}, cosine ? TensorView{} : rows.view(),
             layout, spec.precision);
  return rows;
}

// phase.h: rounded once to the dtype of the output (twice where the peer rounds cosine and
// product).
void expect_rounded(Check& check, const Array& own, const std::vector<double>& truth, int times) {
  const double unit = own.dtype == DType::f32   ? 0x1p-24
                      : own.dtype == DType::f16 ? 0x1p-11
                                                : 0x1p-8;
  const std::vector<double> got = own.doubles();
  for (std::size_t i = 0; i < got.size(); ++i)
    check.comparison.element(got[i], truth[i], times * unit * 1.0001 * std::abs(truth[i]) + 0x1p-25,
                             "the same in double",
                             [&] { return std::vector<Index>{static_cast<Index>(i)}; });
}

}  // namespace

// Exact: first in double, since the tolerance of a case is its distance from exact rows; then in
// the dtype of the wanted array, which must be the double result rounded once.
void run_rows(Check& check) {
  const RotarySpec spec = rotary_of(check);
  const RotaryBlock& block = block_of(check, spec);
  const Spectrum& s = block.spectrum;
  const OwnedPositions positions = positions_of(check);
  const TableLayout layout = layout_of(check);
  for (const char* ours : {"cos", "sin", "cos_sin"}) {
    if (check.array_name("out", ours) == nullptr) continue;
    const DType dtype = dtype_of_rows(check, ours);
    const bool exact = spec.precision == Precision::exact;
    const Array native = made_rows(spec, s, positions, ours, layout, dtype);
    std::vector<double> rows = native.doubles();
    // The bound of hf_float32, too, is that of its product before rounding.
    if ((exact || spec.precision == Precision::hf_float32) && dtype != DType::f64) {
      rows = made_rows(spec, s, positions, ours, layout, DType::f64).doubles();
      expect_rounded(check, native, rows, exact ? 1 : 2);
    }
    const std::string name = std::string(ours) + "_coef";
    const bool mixing = check.array_name("in", name) != nullptr;
    Slice coefficients;
    if (mixing) rows = mixed(rows, coefficients = check.input(name));
    expect_rows(check, ours, rows, positions, mixing ? coefficients.shape.at(0) : s.heads);
  }
  if (check.array_name("out", "angles") != nullptr)
    expect_rows(check, "angles", angles(s, positions), positions, s.heads);
  if (check.array_name("out", "decay") != nullptr)
    expect_rows(check, "decay", decays(block, positions, layout), positions, 1);
}

void run_temperature(Check& check) {
  QueryTemperature temperature;
  const std::string form = check.text("form");
  bool known = false;
  for (std::size_t i = 0; i < EnumNames<TemperatureForm>::value.size(); ++i)
    if (EnumNames<TemperatureForm>::value[i] == form) {
      temperature.form = static_cast<TemperatureForm>(i);
      known = true;
    }
  if (!known) refuse_field("case", "form", "must be llama4, ministral or log_n", form);
  const auto parameter = [&](std::string_view key) {
    const Json* given = check.find(key);
    if (given == nullptr) return 0.0;
    return given->is_string() ? check.in_case.parameter(given->as_string()).as_number()
                              : given->as_number();
  };
  temperature.beta = parameter("beta");
  temperature.period = static_cast<Index>(parameter("period"));
  const OwnedPositions positions = positions_of(check);
  std::vector<double> factors;
  const auto add = [&](const auto& list) {
    for (const auto p : list) factors.push_back(query_factor(temperature, static_cast<double>(p)));
  };
  std::visit(add, positions.value);
  check.expect("factor", factors, {positions.axes, positions.batch, positions.count()});
}

// Cached keys moved from `positions` to `new_positions`, or to the scheme `to`.
void run_shift(Check& check) {
  const RotarySpec from = rotary_of(check);
  RotarySpec to = from;
  if (check.find("to") != nullptr) to = resolve(encoding_of(check, "to"));
  const Slice s = check.input("k");
  const std::string letters = letters_of(check, s);
  const std::string* out = check.array_name("out", "k");
  const DType wanted = out == nullptr ? s.array->dtype : slice(check.in_case, *out).array->dtype;
  HeadsArray keys = heads_of(s, wider(s.array->dtype, wanted), letters, from.head_dim);
  const OwnedPositions before = positions_of(check), after = positions_of(check, "new_positions");
  rerotate(keys.view(), from, before, to, after);
  expect_heads(check, "k", keys, letters, from.head_dim);
}

}  // namespace posenc::conformance
