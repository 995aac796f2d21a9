// SPDX-License-Identifier: Apache-2.0
// Beside the rotation itself: cached keys that move, tables that grow, gradients of the phase.

#include "posenc/rotary/rerotate.h"
#include "posenc/rotary/table.h"
#include "rotation.h"

namespace posenc::python {
namespace {

constexpr const char* kRerotate = "rerotate";
constexpr const char* kTable = "rotary table";

const RotaryTable& table_of(nb::handle h) {
  const RotaryTable* table = nullptr;
  if (!nb::try_cast(h, table, false) || table == nullptr)
    refuse_field(kRotary, "table", "must be a RotaryTable", text_of(h.type()));
  return *table;
}

void rerotate_in_place(nb::handle keys, nb::handle before, nb::handle after,
                       nb::handle old_positions, nb::handle new_positions, Order order) {
  const Borrowed k(keys, {kRerotate, "keys"}, Use::write);
  const Heads h = heads(k.view(), layout_of(k.view(), order, {kRerotate, "keys"}));
  const RotarySpec from = rotary_spec(before, kRerotate), to = rotary_spec(after, kRerotate);
  const PositionsArgument was(old_positions, {kRerotate, "old_positions"});
  const PositionsArgument is(new_positions, {kRerotate, "new_positions"});
  const nb::gil_scoped_release free;
  rerotate(h, from, was.value(), to, is.value());
}

nb::object verdict(nb::handle before, nb::handle after) {
  const Rerotation r = can_rerotate(rotary_spec(before, kRerotate), rotary_spec(after, kRerotate));
  return nb::make_tuple(std::string(enum_text(r.verdict)), r.reason);
}

nb::object gradients(const RotaryPlan& plan, nb::handle q, nb::handle k, nb::handle d_q,
                     nb::handle d_k, nb::handle positions, Index block, Order order) {
  const Tensors x(q, k, order, Use::read);
  ConstQK d;
  const Borrowed dq = optional_array(d_q, {kRotary, "d_q"}, Use::read);
  const Borrowed dk = optional_array(d_k, {kRotary, "d_k"}, Use::read);
  if (dq.given()) d.q = heads(dq.const_view(), x.layout);
  if (dk.given()) d.k = heads(dk.const_view(), x.layout);
  const PositionsArgument p(positions, {kRotary, "positions"});
  if (block < 0 || block >= static_cast<Index>(plan.spec().blocks.size()))
    refuse_field(kRotary, "block", "must be one of the plan's", block);
  const Spectrum& s = plan.spec().blocks[static_cast<std::size_t>(block)].spectrum;
  const ConstHeads& h = x.in.q.data != nullptr ? x.in.q : x.in.k;
  const Index frequency_shape[] = {s.heads, s.axes, s.pairs()}, gain_shape[] = {1};
  const Index position_shape[] = {s.axes, h.batch, h.tokens};
  nb::dict result;
  result["frequency"] = new_array(DType::f64, frequency_shape, true);
  result["gain"] = new_array(DType::f64, gain_shape, true);
  result["position"] = new_array(DType::f64, position_shape, true);
  const Borrowed frequency(result["frequency"], {kRotary, "frequency"}, Use::write);
  const Borrowed gain(result["gain"], {kRotary, "gain"}, Use::write);
  const Borrowed position(result["position"], {kRotary, "position"}, Use::write);
  const PhaseGradients want{block, frequency.view(), gain.view(), position.view()};
  {
    const nb::gil_scoped_release free;
    std::vector<std::byte> work(plan.phase_gradients_workspace(x.in));
    plan.phase_gradients(x.in, d, p.value(), want, work);
  }
  return result;
}

// The plan with other frequencies: they are learned, or no formula gives them.
RotaryPlan with_frequencies(const RotaryPlan& plan, nb::handle frequencies,
                            std::optional<double> gain) {
  constexpr const char* kName = "frequencies";
  RotarySpec spec = plan.spec();
  if (spec.blocks.size() != 1)
    refuse(kRotary,
           "frequencies replace those of one block of channels (mixed_axes has any of several axes "
           "in one), blocks",
           static_cast<Index>(spec.blocks.size()));
  if (spec.precision != Precision::exact)
    refuse(kRotary, "frequencies replace those of precision exact", enum_text(spec.precision));
  Spectrum& s = spec.blocks[0].spectrum;
  const Borrowed given(frequencies, {kRotary, kName}, Use::read);
  const ConstTensorView v = given.const_view();
  const bool wide = v.dtype == DType::f64;
  std::string sizes;
  for (std::size_t i = 0; i < static_cast<std::size_t>(v.rank); ++i)
    sizes += (i > 0 ? ", " : "") + std::to_string(v.shape[i]);
  if ((!wide && v.dtype != DType::f32) || v.rank != 3 || v.shape[0] < 1 || v.shape[1] != s.axes ||
      v.shape[2] != s.pairs())
    refuse_field(kRotary, kName,
                 "must be float64 or float32, [heads or 1, " + std::to_string(s.axes) + ", " +
                     std::to_string(s.pairs()) + "]",
                 std::string(numpy_name(v.dtype)) + " [" + sizes + "]");
  s.heads = v.shape[0];
  s.frequency.clear();
  for (Index h = 0; h < v.shape[0]; ++h)
    for (Index a = 0; a < v.shape[1]; ++a)
      for (Index i = 0; i < v.shape[2]; ++i) {
        const Index at = h * v.stride[0] + a * v.stride[1] + i * v.stride[2];
        s.frequency.push_back(wide ? static_cast<const double*>(v.data)[at]
                                   : double{static_cast<const float*>(v.data)[at]});
      }
  s.geometric.reset();
  s.drop_ggml("its frequencies are given");
  s.valid_from = 0, s.valid_to = kUnbounded;
  if (gain) s.gain = *gain;
  return RotaryPlan(spec, plan.dtype());
}

void make_table(RotaryTable* self, nb::handle encoding, Index positions, nb::handle dtype,
                std::string_view layout, std::string_view beyond) {
  const RotarySpec spec = rotary_spec(encoding, kTable);
  const DType t = dtype_of(dtype, kTable);
  const TableLayout l = word_of<TableLayout>(layout, {kTable, "layout"});
  const BeyondTable b = word_of<BeyondTable>(beyond, {kTable, "beyond"});
  const nb::gil_scoped_release free;
  new (self) RotaryTable(spec, positions, t, l, b);
}

void replace(RotaryTable& table, nb::handle encoding) {
  const RotarySpec spec = rotary_spec(encoding, kTable);
  const nb::gil_scoped_release free;
  table.replace(spec);
}

void save(const RotaryTable& table, nb::handle path, std::string_view layout) {
  const FilePath file = path_of(path, kTable);
  const TableLayout l = word_of<TableLayout>(layout, {kTable, "layout"});
  const nb::gil_scoped_release free;
  table.save(file, l);
}

RotaryTable map_table(nb::handle path, nb::handle encoding, std::string_view beyond, Order layout) {
  const FilePath file = path_of(path, kTable);
  const RotarySpec spec = rotary_spec(encoding, kTable);
  const BeyondTable b = word_of<BeyondTable>(beyond, {kTable, "beyond"});
  std::optional<TableLayout> l;
  if (layout) l = word_of<TableLayout>(*layout, {kTable, "layout"});
  const nb::gil_scoped_release free;
  return RotaryTable::map(file, spec, b, l);
}

// The rows where they are; the array keeps them.
nb::object rows(const RotaryTable& table) {
  auto* const held = new RotaryTable::Snapshot(table.snapshot());
  const nb::capsule owner(held,
                          [](void* p) noexcept { delete static_cast<RotaryTable::Snapshot*>(p); });
  const ConstTensorView& v = held->cos_sin;
  const std::size_t shape[] = {static_cast<std::size_t>(v.shape[0]),
                               static_cast<std::size_t>(v.shape[1])};
  const auto bits = static_cast<std::uint8_t>(8 * size_of(v.dtype));
  const bool real = v.dtype != DType::bf16;  // numpy itself has no bfloat16
  const auto code = static_cast<std::uint8_t>(real ? nb::dlpack::dtype_code::Float
                                                   : nb::dlpack::dtype_code::UInt);
  const nb::ndarray<nb::numpy, nb::ro> numbers(v.data, 2, shape, owner, nullptr, {code, bits, 1});
  nb::object array = nb::cast(numbers, nb::rv_policy::reference);
  if (real) return array;
  const Index none[] = {0};
  return array.attr("view")(new_array(DType::bf16, none).attr("dtype"));
}

nb::object rotate_table(const RotaryPlan& plan, nb::handle q, nb::handle k, nb::handle table,
                        nb::handle positions, nb::handle out, std::string_view mode, Order order) {
  const RotaryTable& rows = table_of(table);
  const Tensors t(q, k, order, Use::read);
  const PositionsArgument p(positions, {kRotary, "positions"});
  const RotateMode m = word_of<RotateMode>(mode, {kRotary, "mode"});
  const Outputs o(t, out);
  {
    const nb::gil_scoped_release free;
    apply(plan, t.in, o.out, rows, p.value(), m);
  }
  return o.result();
}

void add_table(nb::module_& m) {
  nb::class_<RotaryTable>(
      m, "RotaryTable",
      "Cosine and sine of positions 0 to size - 1, for `RotaryPlan.rotate_table`; threads may read "
      "it while it grows. dtype: float32, float16 or bfloat16. layout: half (read fastest), "
      "duplicated or repeated. beyond: at a position past the end, refuse or grow.")
      .def("__init__", &make_table, nb::arg("encoding").none(), nb::arg("positions"),
           nb::arg("dtype") = "float32", nb::kw_only(), nb::arg("layout") = "half",
           nb::arg("beyond") = "refuse",
           nb::sig("def __init__(self, encoding: EncodingLike | RotaryPlan, positions: int, dtype: "
                   "DTypeLike = 'float32', *, layout: str = 'half', beyond: str = 'refuse') -> "
                   "None"))
      .def(
          "grow",
          [](RotaryTable& t, Index positions) {
            const nb::gil_scoped_release free;
            t.grow(positions);
          },
          nb::arg("positions"), nb::sig("def grow(self, positions: int) -> None"),
          "To as many positions at least; arrays of `rows` do not change.")
      .def("replace", &replace, nb::arg("encoding").none(),
           nb::sig("def replace(self, encoding: EncodingLike | RotaryPlan) -> None"),
           "Replaces all rows by those of another encoding, such as a changed scaling. Plans of "
           "the old encoding then rotate by the new rows.")
      .def("save", &save, nb::arg("path").none(), nb::kw_only(), nb::arg("layout") = "half",
           nb::sig("def save(self, path: str | PathLike[str], *, layout: str = 'half') -> None"),
           "Writes the rows, in any layout, to .npy (not bfloat16) or .safetensors by the name's "
           "ending.")
      .def_static(
          "map", &map_table, nb::arg("path").none(), nb::arg("encoding").none(), nb::kw_only(),
          nb::arg("beyond") = "refuse", nb::arg("layout") = nb::none(),
          nb::sig(
              "def map(path: str | PathLike[str], encoding: EncodingLike | RotaryPlan, *, beyond: "
              "str = 'refuse', layout: str | None = None) -> RotaryTable"),
          "Maps a file of `save` into memory without a copy; rows of another encoding are "
          "rejected. A .npy file does not contain its layout: half unless given.")
      .def("rows", &rows, nb::sig("def rows(self) -> Any"),
           "The rows now, [positions, columns], read-only and without a copy: cosines and then "
           "sines of each block.")
      .def_prop_ro("size", &RotaryTable::size, nb::sig("def size(self) -> int"),
                   "Positions that it has rows for.")
      .def_prop_ro("bytes", &RotaryTable::bytes, nb::sig("def bytes(self) -> int"),
                   "Bytes of the rows.");
}

void add_keys(nb::module_& m) {
  m.def("rerotate_", &rerotate_in_place, nb::arg("keys").none(), nb::arg("before").none(),
        nb::arg("after").none(), nb::kw_only(), nb::arg("old_positions").none(),
        nb::arg("new_positions").none(), nb::arg("order") = nb::none(),
        nb::sig("def rerotate_(keys: Any, before: EncodingLike | RotaryPlan, after: EncodingLike | "
                "RotaryPlan, *, old_positions: PositionsLike, new_positions: PositionsLike, order: "
                "str | None = None) -> None"),
        "Moves cached keys, in place, to other positions or from the encoding `before` to `after`. "
        "A plan states context and precision. Raises for a move that `can_rerotate` refuses; it "
        "gives "
        "the "
        "reason.");
  m.def("can_rerotate", &verdict, nb::arg("before").none(), nb::arg("after").none(),
        nb::sig("def can_rerotate(before: EncodingLike | RotaryPlan, after: EncodingLike | "
                "RotaryPlan) -> tuple[str, str]"),
        "What happens to cached keys: kept (only those whose position changes are rewritten), "
        "moved or "
        "refused, and the reason.");
}

}  // namespace

RotarySpec rotary_spec(nb::handle encoding, const char* who) {
  if (const RotaryPlan* plan = nullptr; nb::try_cast(encoding, plan, false) && plan != nullptr)
    return plan->spec();
  return resolve(encoding_of(encoding, who));
}

void add_caches(nb::module_& m, nb::class_<RotaryPlan>& plan) {
  add_table(m);
  add_keys(m);
  add_rerotation(m);
  plan.def("rotate_table", &rotate_table, nb::arg("q").none(), nb::arg("k") = nb::none(),
           nb::kw_only(), nb::arg("table").none(), nb::arg("positions").none(),
           nb::arg("out") = nb::none(), nb::arg("mode") = "forward", nb::arg("order") = nb::none(),
           nb::sig("def rotate_table(self, q: Any, k: Any = None, *, table: RotaryTable, "
                   "positions: PositionsLike, out: Any = None, mode: str = 'forward', order: str "
                   "| None = None) -> Any"),
           "Rotates by the rows of a table, looked up by position; it must have been built from "
           "the plan's encoding.")
      .def(
          "phase_gradients", &gradients, nb::arg("q").none(), nb::arg("k") = nb::none(),
          nb::kw_only(), nb::arg("d_q").none() = nb::none(), nb::arg("d_k") = nb::none(),
          nb::arg("positions").none(), nb::arg("block") = 0, nb::arg("order") = nb::none(),
          nb::sig("def phase_gradients(self, q: Any, k: Any = None, *, d_q: Any = None, d_k: Any "
                  "= None, positions: PositionsLike, block: int = 0, order: str | None = None) -> "
                  "dict[str, Any]"),
          "Gradients in float64: frequency [heads or 1, axes, pairs], gain [1], position [axes, "
          "batch, tokens]. q and k are those before the rotation, d_q and d_k the gradients of its "
          "results. Of one block of channels: with several, add the gradients of positions.")
      .def("with_frequencies", &with_frequencies, nb::arg("frequencies").none(), nb::kw_only(),
           nb::arg("gain") = nb::none(),
           nb::sig("def with_frequencies(self, frequencies: Any, *, gain: float | None = None) -> "
                   "RotaryPlan"),
           "The same plan with these (learned) frequencies, [heads or 1, axes, pairs] in rad per "
           "position, for every length, and with this factor on cosine and sine if it is given.");
}

}  // namespace posenc::python
