// SPDX-License-Identifier: Apache-2.0
// Rotation of numpy's arrays, rows of cosine and sine, frequencies, polar embedding.

#include <mutex>
#include <unordered_map>

#include "posenc/posenc.h"
#include "rotation.h"

namespace posenc::python {
namespace {

Precision precision_of(std::string_view word) {
  return word_of<Precision>(word, {kRotary, "precision"});
}

RotaryPlan make_plan(nb::handle encoding, DType dtype, nb::handle context,
                     std::string_view precision, std::string_view outside) {
  RotarySpec spec = resolve(encoding_of(encoding, kRotary), context_of(context, kRotary));
  spec.precision = precision_of(precision);
  return RotaryPlan(spec, dtype, {.outside = word_of<OutsideRange>(outside, {kRotary, "outside"})});
}

nb::object rotate(const RotaryPlan& plan, nb::handle q, nb::handle k, nb::handle positions,
                  nb::handle out, std::string_view mode, Order order) {
  const Tensors t(q, k, order, Use::read);
  const PositionsArgument p(positions, {kRotary, "positions"});
  const RotateMode m = word_of<RotateMode>(mode, {kRotary, "mode"});
  const Outputs o(t, out);
  {
    const nb::gil_scoped_release free;
    plan.apply(t.in, o.out, p.value(), m);
  }
  return o.result();
}

void rotate_in_place(const RotaryPlan& plan, nb::handle q, nb::handle k, nb::handle positions,
                     std::string_view mode, Order order) {
  const Tensors t(q, k, order, Use::write);
  const PositionsArgument p(positions, {kRotary, "positions"});
  const RotateMode m = word_of<RotateMode>(mode, {kRotary, "mode"});
  QK qk;
  if (t.q.given()) qk.q = heads(t.q.view(), t.layout);
  if (t.k.given()) qk.k = heads(t.k.view(), t.layout);
  const nb::gil_scoped_release free;
  plan.apply(qk, p.value(), m);
}

nb::object rows(const RotaryPlan& plan, nb::handle positions, nb::handle out) {
  const PositionsArgument p(positions, {kRotary, "positions"});
  const Index shape[] = {p.value().batch * p.value().count, plan.row_columns()};
  const DType t = plan.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const nb::object result = out.is_none() ? new_array(t, shape) : nb::borrow(out);
  const Borrowed b(result, {kRotary, "out"}, Use::write);
  const nb::gil_scoped_release free;
  plan.rows(p.value(), b.view());
  return result;
}

nb::object rotate_rows(const RotaryPlan& plan, nb::handle q, nb::handle k, nb::handle rows_given,
                       nb::handle out, std::string_view mode, Order order) {
  const Tensors t(q, k, order, Use::read);
  const Borrowed r(rows_given, {kRotary, "rows"}, Use::read);
  const RotateMode m = word_of<RotateMode>(mode, {kRotary, "mode"});
  const Outputs o(t, out);
  {
    const nb::gil_scoped_release free;
    plan.apply_rows(t.in, o.out, r.const_view(), m);
  }
  return o.result();
}

nb::object rotate_by(const RotaryPlan& plan, nb::handle q, nb::handle k, nb::handle cos,
                     nb::handle sin, nb::handle index, std::string_view layout, nb::handle out,
                     std::string_view mode, Order order) {
  const Tensors t(q, k, order, Use::read);
  const Borrowed c(cos, {kRotary, "cos"}, Use::read), s(sin, {kRotary, "sin"}, Use::read);
  std::optional<PositionsArgument> i;
  if (!index.is_none()) i.emplace(index, Name{kRotary, "index"});
  CallerRows caller{
      c.const_view(), s.const_view(), word_of<TableLayout>(layout, {kRotary, "layout"}), {}};
  if (i) caller.index = i->value();
  const RotateMode m = word_of<RotateMode>(mode, {kRotary, "mode"});
  const Outputs o(t, out);
  {
    const nb::gil_scoped_release free;
    plan.apply_rows(t.in, o.out, caller, m);
  }
  return o.result();
}

// Plans of calls that name an encoding: made once for each text, dtype and context.
RotaryPlan kept_plan(nb::handle encoding, DType dtype, nb::handle context) {
  static std::mutex mutex;
  static auto* const plans = new std::unordered_map<std::string, RotaryPlan>;
  const std::string key = scheme_text(encoding, kRotary) + '\n' +
                          std::to_string(static_cast<int>(dtype)) + '\n' + text_of(context);
  {
    const std::lock_guard lock(mutex);
    const auto found = plans->find(key);
    if (found != plans->end()) return found->second;
  }
  RotaryPlan plan = make_plan(encoding, dtype, context, "exact", "refuse");
  const std::lock_guard lock(mutex);
  if (plans->size() >= 256) plans->clear();
  plans->emplace(key, plan);
  return plan;
}

nb::object rotate_once(nb::handle encoding, nb::handle q, nb::handle k, nb::handle positions,
                       nb::handle context, nb::handle out, std::string_view mode, Order order) {
  const Borrowed first(q.is_none() ? k : q, {kRotary, "q"}, Use::read);
  return rotate(kept_plan(encoding, first.view().dtype, context), q, k, positions, out, mode,
                order);
}

nb::object frequencies(nb::handle encoding, nb::handle context) {
  const Spectrum s =
      resolve_spectrum(encoding_of(encoding, "frequencies"), context_of(context, "frequencies"));
  const std::vector<Index> shape = s.heads * s.axes == 1
                                       ? std::vector<Index>{s.pairs()}
                                       : std::vector<Index>{s.heads, s.axes, s.pairs()};
  return new_array(s.frequency, shape);
}

nb::object cos_sin(nb::handle encoding, nb::handle positions, std::string_view layout,
                   nb::handle dtype, std::string_view precision, nb::handle context,
                   nb::handle out) {
  constexpr const char* kWho = "cos_sin";
  const Spectrum s = resolve_spectrum(encoding_of(encoding, kWho), context_of(context, kWho));
  const PositionsArgument p(positions, {kWho, "positions"});
  const TableLayout l = word_of<TableLayout>(layout, {kWho, "layout"});
  const Precision exactness = word_of<Precision>(precision, {kWho, "precision"});
  const Index shape[] = {p.value().batch * p.value().count,
                         s.heads * s.pairs() * (l == TableLayout::half ? 1 : 2)};
  nb::object cos, sin;
  if (out.is_none()) {
    const DType t = dtype_of(dtype, kWho);
    cos = new_array(t, shape);
    sin = new_array(t, shape);
  } else {
    if (!PyTuple_Check(out.ptr()) || PyTuple_Size(out.ptr()) != 2)
      refuse_field(kWho, "out", "must be a tuple of two arrays, for cos and for sin");
    cos = nb::borrow(PyTuple_GetItem(out.ptr(), 0));
    sin = nb::borrow(PyTuple_GetItem(out.ptr(), 1));
  }
  const Borrowed c(cos, {kWho, "out"}, Use::write), n(sin, {kWho, "out"}, Use::write);
  {
    const nb::gil_scoped_release free;
    phase_rows(s, p.value(), c.view(), n.view(), l, exactness);
  }
  return nb::make_tuple(cos, sin);
}

void add_rows(nb::class_<RotaryPlan>& plan) {
  plan.def("rows", &rows, nb::arg("positions").none(), nb::kw_only(), nb::arg("out") = nb::none(),
           nb::sig("def rows(self, positions: PositionsLike, *, out: Any = None) -> Any"),
           "Exact rows of cosine and sine, [batch * tokens, columns], once a step for all layers.")
      .def("rotate_rows", &rotate_rows, nb::arg("q").none(), nb::arg("k") = nb::none(),
           nb::kw_only(), nb::arg("rows").none(), nb::arg("out") = nb::none(),
           nb::arg("mode") = "forward", nb::arg("order") = nb::none(),
           nb::sig("def rotate_rows(self, q: Any, k: Any = None, *, rows: Any, out: Any = None, "
                   "mode: str = 'forward', order: str | None = None) -> Any"),
           "Rotates by the cosines and sines of `rows`.")
      .def("rotate_by", &rotate_by, nb::arg("q").none(), nb::arg("k") = nb::none(), nb::kw_only(),
           nb::arg("cos").none(), nb::arg("sin").none(), nb::arg("index") = nb::none(),
           nb::arg("layout") = "half", nb::arg("out") = nb::none(), nb::arg("mode") = "forward",
           nb::arg("order") = nb::none(),
           nb::sig("def rotate_by(self, q: Any, k: Any = None, *, cos: Any, sin: Any, index: "
                   "PositionsLike | None = None, layout: str = 'half', out: Any = None, mode: str "
                   "= 'forward', order: str | None = None) -> Any"),
           "Rotates by any cosine and sine; `index` picks a row of them for each token.");
}

void add_functions(nb::module_& m) {
  m.def("rotate", &rotate_once, nb::arg("encoding").none(), nb::arg("q").none(),
        nb::arg("k") = nb::none(), nb::kw_only(), nb::arg("positions").none(),
        nb::arg("context") = nb::none(), nb::arg("out") = nb::none(), nb::arg("mode") = "forward",
        nb::arg("order") = nb::none(),
        nb::sig("def rotate(encoding: EncodingLike, q: Any, k: Any = None, *, positions: "
                "PositionsLike, context: int | None = None, out: Any = None, mode: str = "
                "'forward', order: str | None = None) -> Any"),
        "Rotates q, or q and k, in one call; its plan is kept for the next.");
  m.def("frequencies", &frequencies, nb::arg("encoding").none(), nb::kw_only(),
        nb::arg("context") = nb::none(),
        nb::sig("def frequencies(encoding: EncodingLike, *, context: int | None = None) -> Any"),
        "Frequencies in rad per position after the scalings: float64 [pairs], or [heads, axes, "
        "pairs].");
  m.def("cos_sin", &cos_sin, nb::arg("encoding").none(), nb::arg("positions").none(), nb::kw_only(),
        nb::arg("layout") = "half", nb::arg("dtype") = "float32", nb::arg("precision") = "exact",
        nb::arg("context") = nb::none(), nb::arg("out") = nb::none(),
        nb::sig("def cos_sin(encoding: EncodingLike, positions: PositionsLike, *, layout: str = "
                "'half', dtype: DTypeLike = 'float32', precision: str = 'exact', context: int | "
                "None = None, out: Any = None) -> tuple[Any, Any]"),
        "Cosine and sine, [batch * tokens, columns] each. layout: half, duplicated or repeated. "
        "precision: exact, hf_float32, hf_bfloat16_table or ggml.");
}

}  // namespace

void add_rotation(nb::module_& m) {
  nb::class_<RotaryPlan> plan(
      m, "RotaryPlan",
      "A rotary encoding, checked and prepared for one type of elements. It is "
      "immutable; threads may share it.");
  plan.def(
          "__init__",
          [](RotaryPlan* self, nb::handle encoding, nb::handle dtype, nb::handle context,
             std::string_view precision, std::string_view outside) {
            new (self) RotaryPlan(
                make_plan(encoding, dtype_of(dtype, kRotary), context, precision, outside));
          },
          nb::arg("encoding").none(), nb::arg("dtype") = "float32", nb::kw_only(),
          nb::arg("context") = nb::none(), nb::arg("precision") = "exact",
          nb::arg("outside") = "refuse",
          nb::sig("def __init__(self, encoding: EncodingLike, dtype: DTypeLike = 'float32', *, "
                  "context: int | None = None, precision: str = 'exact', outside: str = 'refuse') "
                  "-> None"))
      .def("rotate", &rotate, nb::arg("q").none(), nb::arg("k") = nb::none(), nb::kw_only(),
           nb::arg("positions").none(), nb::arg("out") = nb::none(), nb::arg("mode") = "forward",
           nb::arg("order") = nb::none(),
           nb::sig("def rotate(self, q: Any, k: Any = None, *, positions: PositionsLike, out: Any "
                   "= None, mode: str = 'forward', order: str | None = None) -> Any"),
           "Rotates q, or q and k, into new arrays or into `out`, which may be the inputs "
           "themselves. order: thd (arrays of three axes), bthd, bhtd, tbhd. mode: forward, "
           "gradient, inverse or shift.")
      .def("rotate_", &rotate_in_place, nb::arg("q").none(), nb::arg("k") = nb::none(),
           nb::kw_only(), nb::arg("positions").none(), nb::arg("mode") = "forward",
           nb::arg("order") = nb::none(),
           nb::sig("def rotate_(self, q: Any, k: Any = None, *, positions: PositionsLike, mode: "
                   "str = 'forward', order: str | None = None) -> None"),
           "The same in place.")
      .def_prop_ro("row_columns", &RotaryPlan::row_columns, "Columns of `rows`.")
      .def_prop_ro(
          "dtype", [](const RotaryPlan& p) { return numpy_name(p.dtype()); },
          "Type of the elements.")
      .def_prop_ro(
          "head_dim", [](const RotaryPlan& p) { return p.spec().head_dim; }, "Channels of a head.")
      .def_prop_ro(
          "logit_factor", [](const RotaryPlan& p) { return p.spec().logit_factor(); },
          "Factor on the softmax scale that a scaling requires; the caller applies it.");
  add_rows(plan);
  add_caches(m, plan);
  add_functions(m);
}

}  // namespace posenc::python
