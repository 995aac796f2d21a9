// SPDX-License-Identifier: Apache-2.0
// posenc table: frequencies, turns, angles, cosine and sine of what a model or SCHEME turns by.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "enum_words.h"
#include "verbs.h"

namespace posenc::cli {
namespace {

// What is tabled of a scheme that is no rotation are its frequencies: one block that nothing turns.
RotarySpec turned_by(const Subject& s, const SubjectOptions& o) {
  if (!s.encoding || !std::holds_alternative<Pope>(s.encoding->scheme)) return rotary_of(s, o);
  RotarySpec spec;
  spec.blocks.emplace_back();
  spec.blocks.back().spectrum = resolve_spectrum(*s.encoding, {o.context.value_or(0)});
  return spec;
}

DType dtype_word(const std::string& word) {
  for (const DType t : {DType::f64, DType::f32, DType::f16, DType::bf16})
    if (name(t) == word) return t;
  throw UsageError("--dtype must be one of f64, f32, f16, bf16, got \"" + word + "\"");
}

const RotaryBlock& only_block(const RotarySpec& spec) {
  if (spec.blocks.empty()) throw InputError("this layer turns nothing: there is no table");
  return spec.blocks.front();
}

bool one_axis_a_pair(const Spectrum& s) {
  if (s.heads != 1) return false;
  for (Index i = 0; i < s.pairs(); ++i) {
    int nonzero = 0;
    for (Index a = 0; a < s.axes; ++a)
      nonzero += s.frequency[static_cast<std::size_t>(a * s.pairs() + i)] != 0;
    if (nonzero > 1) return false;
  }
  return true;
}

// [pairs], where every pair has one axis; else [heads, axes, pairs].
Array frequencies(const RotarySpec& spec, DType dtype) {
  std::vector<double> f;
  std::vector<Index> shape;
  bool flat = true;
  for (const RotaryBlock& b : spec.blocks) flat = flat && one_axis_a_pair(b.spectrum);
  if (flat) {
    for (const RotaryBlock& b : spec.blocks)
      for (Index i = 0; i < b.pairs(); ++i) {
        double sum = 0;
        for (Index a = 0; a < b.spectrum.axes; ++a)
          sum += b.spectrum.frequency[static_cast<std::size_t>(a * b.pairs() + i)];
        f.push_back(sum);
      }
    shape = {static_cast<Index>(f.size())};
  } else {
    const Spectrum& s = only_block(spec).spectrum;
    f = s.frequency;
    shape = {s.heads, s.axes, s.pairs()};
  }
  if (dtype != DType::f64 && dtype != DType::f32)
    throw UsageError("frequencies are f64 or f32: sixteen bits do not hold them");
  Array out = make_array(dtype, shape);
  if (dtype == DType::f64)
    std::memcpy(out.bytes.data(), f.data(), out.bytes.size());
  else
    for (std::size_t i = 0; i < f.size(); ++i) {
      const float x = static_cast<float>(f[i]);
      std::memcpy(out.bytes.data() + 4 * i, &x, 4);
    }
  return out;
}

// u8 [.., 16]: 128-bit fractions of a turn a position, little-endian.
Array turns(const RotarySpec& spec) {
  const Spectrum& s = only_block(spec).spectrum;
  const std::vector<Turns> t = exact_turns(s);
  std::vector<Index> shape = s.heads * s.axes == 1 ? std::vector<Index>{s.pairs()}
                                                   : std::vector<Index>{s.heads, s.axes, s.pairs()};
  shape.push_back(16);
  Array out = make_array(DType::u8, shape);
  for (std::size_t i = 0; i < t.size(); ++i)
    for (int byte = 0; byte < 16; ++byte) {
      const std::uint64_t word = byte < 8 ? t[i].lo : t[i].hi;
      out.bytes[16 * i + static_cast<std::size_t>(byte)] =
          static_cast<std::byte>(word >> (8 * (byte % 8)) & 0xff);
    }
  return out;
}

// position x frequency in rad, each product rounded once; sums over axes. f64 [tokens, pairs].
Array angles(const RotarySpec& spec, const PositionList& list) {
  const Spectrum& s = only_block(spec).spectrum;
  const Positions p = spread_over_axes(list, s.axes);
  if (s.heads != 1) throw InputError("angles of a spectrum per head: write inv_freq instead");
  const Index rows = p.batch * p.count;
  Array out = make_array(DType::f64, {rows, s.pairs()});
  double* to = reinterpret_cast<double*>(out.bytes.data());
  for (Index r = 0; r < rows; ++r)
    for (Index i = 0; i < s.pairs(); ++i) {
      double sum = 0;
      for (Index a = 0; a < s.axes; ++a) {
        const Index at =
            (r / p.count) * p.batch_stride + (r % p.count) * p.token_stride + a * p.axis_stride;
        const double position = p.type == DType::i64
                                    ? static_cast<double>(static_cast<const Index*>(p.data)[at])
                                    : static_cast<const double*>(p.data)[at];
        sum += position * s.frequency[static_cast<std::size_t>(a * s.pairs() + i)];
      }
      to[r * s.pairs() + i] = sum;
    }
  return out;
}

DType default_dtype(Precision p) {
  return p == Precision::exact ? DType::f64 : DType::f32;
}

Arrays rows(const RotarySpec& spec, const PositionList& list, const TableOptions& o) {
  const Precision precision = enum_word<Precision>("--precision", o.precision);
  const TableLayout layout = enum_word<TableLayout>("--layout", o.layout);
  const DType dtype = o.dtype.empty() ? default_dtype(precision) : dtype_word(o.dtype);
  const Spectrum& s = only_block(spec).spectrum;
  if (spec.blocks.size() > 1)
    throw InputError("this layer turns several blocks of a head; write inv_freq, or use apply");
  const Positions p = spread_over_axes(list, s.axes);
  const Index columns = s.heads * (layout == TableLayout::half ? s.pairs() : 2 * s.pairs());
  std::vector<Index> shape = {p.batch * p.count, columns};
  Arrays out;
  if (o.what == "cos_sin") {
    shape[1] = layout == TableLayout::pairs ? columns : 2 * columns;
    Array a = make_array(dtype, shape);
    phase_rows(s, p, a.view(), layout, precision);
    out.emplace("cos_sin", std::move(a));
    return out;
  }
  if (layout == TableLayout::pairs) throw UsageError("--layout pairs goes with --what cos_sin");
  Array a = make_array(dtype, shape);
  const TensorView none{};
  if (o.what == "cos")
    phase_rows(s, p, a.view(), none, layout, precision);
  else
    phase_rows(s, p, none, a.view(), layout, precision);
  out.emplace(o.what, std::move(a));
  return out;
}

// A scheme at the input has rows and nothing else.
Arrays input_table(const Encoding& e, const TableOptions& o) {
  if (o.what != "rows") throw UsageError("a scheme at the input has --what rows, got " + o.what);
  if (o.layout != "half" || o.precision != "exact")
    throw UsageError("--layout and --precision are for cos and sin, not for rows");
  if (o.positions.empty()) throw UsageError("--what rows needs --positions");
  Arrays out;
  out.emplace("rows", input_rows(e, read_positions(o.positions),
                                 o.dtype.empty() ? DType::f64 : dtype_word(o.dtype)));
  return out;
}

Arrays rotary_table(const Subject& subject, const TableOptions& o) {
  const RotarySpec spec = turned_by(subject, o.subject);
  Arrays out;
  if (o.what == "inv_freq") {
    out.emplace("inv_freq", frequencies(spec, o.dtype.empty() ? DType::f64 : dtype_word(o.dtype)));
  } else if (o.what == "turns") {
    if (!o.dtype.empty()) throw UsageError("--what turns is always u8[.., 16]; leave --dtype out");
    out.emplace("turns", turns(spec));
  } else {
    if (o.positions.empty()) throw UsageError("--what " + o.what + " needs --positions");
    const PositionList list = read_positions(o.positions);
    if (o.what == "angles") {
      if (!o.dtype.empty() && o.dtype != "f64") throw UsageError("--what angles is f64");
      out.emplace("angles", angles(spec, list));
    } else if (o.what == "cos" || o.what == "sin" || o.what == "cos_sin") {
      out = rows(spec, list, o);
    } else {
      throw UsageError("--what must be inv_freq, turns, angles, cos, sin or cos_sin, got " +
                       o.what);
    }
  }
  return out;
}

}  // namespace

int table(TableOptions o) {
  const Subject subject = read_subject(o.subject);
  const bool input = subject.encoding && is_input_scheme(*subject.encoding);
  if (o.what.empty()) o.what = input ? "rows" : "cos_sin";
  const Arrays out = input ? input_table(*subject.encoding, o) : rotary_table(subject, o);
  if (o.json && is_stdout(o.output.path))
    throw UsageError("--json and the data cannot both go to stdout");
  write_arrays(o.output, out);
  if (o.json) {
    write_report("posenc.table/1", o.output.path, out);
  } else if (!is_stdout(o.output.path)) {
    const auto& [name, array] = *out.begin();
    std::string shape;
    for (Index n : array.shape) shape += (shape.empty() ? "" : " x ") + std::to_string(n);
    fmt::print(stderr, "{}: {} {} [{}]\n", o.output.path, name, posenc::name(array.dtype), shape);
  }
  return kSuccess;
}

}  // namespace posenc::cli
