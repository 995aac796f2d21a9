// SPDX-License-Identifier: Apache-2.0
// posenc table: frequencies, turns, angles, cosine and sine of what a model or SCHEME turns by, and
// the rows of what acts at its input.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>

#include "attention_call.h"
#include "enum_words.h"
#include "notes.h"
#include "posenc/core/error.h"
#include "posenc/report/table.h"
#include "posenc/report/verb.h"
#include "table_angles.h"
#include "table_input.h"
#include "table_print.h"

namespace posenc::report {
namespace {

DType dtype_word(const std::string& word) {
  for (const DType t : {DType::f64, DType::f32, DType::f16, DType::bf16})
    if (dtype_name(t) == word) return t;
  throw UsageError("--dtype must be one of f64, f32, f16, bf16, got \"" + word + "\"");
}

const RotaryBlock& only_block(const RotarySpec& spec) {
  if (spec.blocks.empty()) throw InputError("this layer rotates nothing, so it has no table");
  if (spec.blocks.size() > 1)
    throw InputError("this layer rotates several blocks of a head; write inv_freq, or use apply");
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

// What each --what reads beside the subject; the others would do nothing and are refused.
struct Reads {
  std::string_view what;
  bool positions, rows;  // rows: --layout and --precision
  std::string_view dtypes;
};
constexpr std::array<Reads, 8> kReads{{{"rows", true, false, "f64 f32 f16 bf16"},
                                       {"bias", true, false, ""},
                                       {"inv_freq", false, false, "f64 f32"},
                                       {"turns", false, false, ""},
                                       {"angles", true, false, "f64"},
                                       {"cos", true, true, "f64 f32 f16 bf16"},
                                       {"sin", true, true, "f64 f32 f16 bf16"},
                                       {"cos_sin", true, true, "f64 f32 f16 bf16"}}};

void check_options(const TableOptions& o, const Request& r) {
  const auto found =
      std::find_if(kReads.begin(), kReads.end(), [&](const Reads& x) { return x.what == o.what; });
  if (found == kReads.end())
    throw UsageError(
        "--what must be inv_freq, turns, angles, cos, sin, cos_sin, bias or rows, got " + o.what);
  const auto refuse_unread = [&](bool read, const char* option, const std::string& given) {
    if (!read && !given.empty())
      throw UsageError(fmt::format("{} means nothing for --what {}", option, o.what));
  };
  if (!found->positions && !o.positions.empty()) {  // the form that all tables share
    read_positions(o.positions);
    note(fmt::format("--what {}: the same at every position\n", o.what));
  }
  refuse_unread(o.what == "rows", "--grid", o.grid);
  if (o.what == "bias" ? o.heads < 1 : o.heads > 0)
    throw UsageError(o.what == "bias" ? "--what bias needs --heads N"
                                      : "--heads goes with --what bias");
  refuse_unread(found->rows, "--layout", o.layout);
  refuse_unread(found->rows, "--precision", o.precision);
  refuse_unread(!found->dtypes.empty(), "--dtype", o.dtype);
  if (found->positions && o.positions.empty())
    throw UsageError("--what " + o.what + " needs --positions");
  if (o.dtype.empty()) return;
  const std::string_view word = dtype_name(dtype_word(o.dtype));
  if ((" " + std::string(found->dtypes) + " ").find(" " + std::string(word) + " ") ==
      std::string::npos)
    throw UsageError(
        fmt::format("--what {} has --dtype {}, got {}", o.what, found->dtypes, o.dtype));
  if (word == "bf16" && !r.path.empty() && array_format({r.path, r.format}) == "npy")
    throw UsageError("--dtype bf16: .npy has no bfloat16; write .safetensors");
}

DType default_dtype(Precision p) {
  return p == Precision::exact ? DType::f64 : DType::f32;
}

Arrays rows(const RotarySpec& spec, const PositionList& list, const TableOptions& o) {
  const Precision precision =
      o.precision.empty() ? Precision::exact : enum_word<Precision>("--precision", o.precision);
  const TableLayout layout =
      o.layout.empty() ? TableLayout::half : enum_word<TableLayout>("--layout", o.layout);
  const DType dtype = o.dtype.empty() ? default_dtype(precision) : dtype_word(o.dtype);
  const Spectrum& s = only_block(spec).spectrum;
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

// What acts at the input has rows and nothing else.
Arrays input_table(const Subject& subject, const TableOptions& o) {
  if (o.what != "rows") throw UsageError("a scheme at the input has --what rows, got " + o.what);
  // A scaling may have one: dynamic_linear per call.
  if (o.subject.context && (!subject.encoding || subject.encoding->scalings.empty()))
    throw UsageError("--context is for rules of length: rows at the input have none");
  const PositionList list = read_positions(o.positions);
  const DType dtype = o.dtype.empty() ? DType::f64 : dtype_word(o.dtype);
  Arrays out;
  if (subject.encoding)
    out.emplace("rows",
                input_rows(*subject.encoding, o.grid.empty() ? list : cells_of(o.grid, list), dtype,
                           o.subject));
  else
    out.emplace("rows", model_rows(*subject.model, chosen_input(*subject.model, o.subject), list,
                                   dtype, o.grid));
  return out;
}

// Rows unless something else is asked for: of a SCHEME at the input, and of a model or tower that
// turns nothing.
bool means_rows(const Subject& subject, const TableOptions& o) {
  if (subject.encoding) return is_input_scheme(*subject.encoding);
  if (!o.what.empty()) return o.what == "rows";
  if (o.subject.input) return true;
  require_readable(*subject.model);
  return !o.subject.layer && !inputs_of(*subject.model, o.subject).empty() &&
         !chosen_layer(*subject.model, o.subject).rotary;
}

Arrays rotary_table(const Subject& subject, const TableOptions& o) {
  const RotarySpec spec = turned_by(subject, o.subject);
  Arrays out;
  if (o.what == "rows")
    throw UsageError(
        "--what rows is for schemes at the input; what rotates has cos, sin or cos_sin");
  if (o.what == "inv_freq") {
    out.emplace(o.what, frequencies(spec, o.dtype.empty() ? DType::f64 : dtype_word(o.dtype)));
  } else if (o.what == "turns") {
    out.emplace(o.what, turns(spec));
  } else if (o.what == "angles") {
    const PositionList list = read_positions(o.positions);
    check_lengths(o.subject, spec, list);
    out.emplace(o.what, angles(only_block(spec).spectrum, list));
  } else {
    const PositionList list = read_positions(o.positions);
    check_lengths(o.subject, spec, list);
    out = rows(spec, list, o);
  }
  return out;
}

// Without a file to write to, and nothing that asks for another table.
bool means_frequencies(const TableOptions& o) {
  return o.positions.empty() && (o.what.empty() || o.what == "inv_freq");
}

// The frequencies, printed.
Report print_frequencies(const TableOptions& o, const Request& r) {
  if (!o.grid.empty() || !o.layout.empty() || !o.precision.empty() || !o.dtype.empty())
    throw UsageError(
        "--grid, --layout, --precision and --dtype go with --positions, or with -o F.npy, "
        "F.safetensors, F.csv or -");
  const Subject subject = read_subject(o.subject);
  if (means_rows(subject, o))
    throw UsageError(
        "what acts at the input has no frequencies to print: its rows need --positions");
  const RotarySpec spec = turned_by(subject, o.subject);
  const Array a = frequencies(spec, DType::f64);
  if (r.json) return {.text = numbers_json("inv_freq", a)};
  const std::vector<double> f = a.doubles();
  std::string text = fmt::format("{:>6}  {:>24}  {}\n", "pair", "frequency [rad/position]",
                                 "wavelength [positions]");
  const auto pairs = static_cast<std::size_t>(a.shape.back());
  for (std::size_t i = 0; i < f.size(); ++i) {
    if (i > 0 && i % pairs == 0) text += '\n';  // the next head or axis
    text += fmt::format(
        "{:>6}  {:>24}  {:>22}\n", i % pairs, number_text(f[i]),
        f[i] == 0 ? "never rotates" : short_number(2 * std::numbers::pi / std::abs(f[i]), 6));
  }
  return {.text = text};
}

}  // namespace

Report table(TableOptions o, const Request& r) {
  if (r.printed() && means_frequencies(o)) return print_frequencies(o, r);
  const Subject subject = read_subject(o.subject);
  const bool bias = o.what == "bias";
  const bool input = !bias && means_rows(subject, o);
  if (o.what.empty()) o.what = input ? "rows" : "cos_sin";
  check_options(o, r);
  if (!input && o.subject.input) throw UsageError("--input goes with --what rows");
  Arrays out =
      bias    ? Arrays{{"bias", distance_bias(bias_encodings(subject, o.subject), o.subject,
                                              o.subject.arrays, read_positions(o.positions), o.heads)}}
      : input ? input_table(subject, o)
              : rotary_table(subject, o);
  if (r.printed())
    return {.text = printed_table(out, o.positions,
                                  o.layout == "pairs" ? Columns::pairs : Columns::halves, r.json)};
  return {.schema = "posenc.table/1", .arrays = std::move(out)};
}

namespace {

Verb::Run declare_table(Words& w) {
  auto o = std::make_shared<TableOptions>();
  w.subject(o->subject, Takes::model_or_scheme);
  w.text("--positions", o->positions, "P", "A:B[:STEP] (half-open), a list 0,1,2 or an .npy")
      .file();
  w.text("--what", o->what, "WHAT",
         "inv_freq, turns, angles, cos, sin or cos_sin (default);\n"
         "bias: what a score scheme adds, [heads, distances], where --positions are distances, "
         "query - key;\nrows (default of a subject without rotation): the input encoding, learned "
         "rows from the weights\nbeside the config or from the .gguf");
  w.text("--grid", o->grid, "HxW",
         "positions count the cells of an image of H rows and W columns, row by row");
  w.whole("--heads", o->heads, 1, 65536, "N", "of bias: number of attention heads");
  w.whole("--input", o->subject.input, 0, kMost, "K",
          "which of several encodings at the input, counted from 0");
  w.text("--layout", o->layout, "LAYOUT", "half, duplicated, repeated or pairs").otherwise("half");
  w.text("--precision", o->precision, "P", "exact, hf_float32, hf_bfloat16_table or ggml")
      .otherwise("exact");
  w.text("--dtype", o->dtype, "T", "f64, f32, f16 or bf16 (default: f64 if exact, else f32)");
  w.output(Holds::one_array,
           "F.npy, F.safetensors, F.csv or - (default: printed; without --positions the "
           "frequencies)");
  return [o](const Request& r) { return table(*o, r); };
}

}  // namespace

const Verb table_verb{
    "table",
    "compute frequencies, turns, angles, cos and sin, exactly or with a program's rounding",
    &declare_table,
    "Examples:\n  posenc table config.json\n"
    "  posenc table \"rope head_dim=8 pairing=half_split\" --positions 0:4\n"
    "  posenc table config.json --positions 0:4096 --what cos --layout duplicated -o cos.npy\n"
    "  posenc table \"rope head_dim=128 pairing=half_split\" --what inv_freq -o - --format csv\n"
    "  posenc table \"sinusoidal width=512 layout=halves\" --positions 0:512 -o pe.npy\n"
    "  posenc table models/bert --what rows --positions 0:512 -o rows.npy\n"
    "  posenc table models/detr --grid 25x34 --positions 0:850 -o rows.npy\n"
    "  posenc table model.gguf --positions=-5:5 --precision ggml -o rows.safetensors"};

}  // namespace posenc::report
