// SPDX-License-Identifier: Apache-2.0
// Polar position embedding (PoPE) of numpy's arrays.

#include "arrays.h"
#include "bindings.h"
#include "posenc/rotary/pope.h"

namespace posenc::python {
namespace {

constexpr const char* kPope = "pope";

struct Polar {
  PopePlan plan;
  DType dtype;
};

void make(Polar* self, nb::handle encoding, nb::handle dtype, nb::handle context) {
  const DType t = dtype_of(dtype, kPope);
  new (self) Polar{
      PopePlan(resolve_spectrum(encoding_of(encoding, kPope), context_of(context, kPope)), t), t};
}

// The shape of `b`, its channels times or over two.
nb::object resized(const Borrowed& b, HeadsLayout layout, bool doubled) {
  const TensorView& v = b.view();
  std::vector<Index> shape(v.shape.begin(), v.shape.begin() + v.rank);
  shape[layout_name(layout).find('d')] = doubled ? shape.back() * 2 : shape.back() / 2;
  return new_array(v.dtype, shape);
}

nb::object apply(const Polar& self, nb::handle x, nb::handle positions, nb::handle bias,
                 nb::handle out, std::optional<std::string_view> order) {
  const Borrowed in(x, {kPope, "x"}, Use::read);
  const HeadsLayout layout = layout_of(in.view(), order, {kPope, "x"});
  const ConstHeads h = heads(in.const_view(), layout);
  const PositionsArgument p(positions, {kPope, "positions"});
  const Borrowed b = optional_array(bias, {kPope, "bias"}, Use::read);
  const nb::object result = out.is_none() ? resized(in, layout, true) : nb::borrow(out);
  const Borrowed y(result, {kPope, "out"}, Use::write);
  const Heads o = heads(y.view(), layout);
  const nb::gil_scoped_release free;
  self.plan.apply(h, o, p.value(), b.const_view());
  return result;
}

// (d_x, d_bias or None)
nb::object gradient(const Polar& self, nb::handle x, nb::handle d_out, nb::handle positions,
                    nb::handle bias, std::optional<std::string_view> order) {
  const Borrowed in(x, {kPope, "x"}, Use::read), dy(d_out, {kPope, "d_out"}, Use::read);
  const HeadsLayout layout = layout_of(in.view(), order, {kPope, "x"});
  const ConstHeads h = heads(in.const_view(), layout), d = heads(dy.const_view(), layout);
  const PositionsArgument p(positions, {kPope, "positions"});
  const Borrowed b = optional_array(bias, {kPope, "bias"}, Use::read);
  const TensorView& v = in.view();
  const nb::object d_x =
      new_array(v.dtype, std::span(v.shape.data(), static_cast<std::size_t>(v.rank)));
  const Borrowed dx(d_x, {kPope, "d_x"}, Use::write);
  nb::object d_bias = nb::none();
  Borrowed db;
  if (b.given()) {
    const Index shape[] = {h.heads, h.dim};
    d_bias = new_array(DType::f64, shape, true);
    db = Borrowed(d_bias, {kPope, "d_bias"}, Use::write);
  }
  const Heads o = heads(dx.view(), layout);
  {
    const nb::gil_scoped_release free;
    self.plan.gradient(h, d, p.value(), b.const_view(), o, db.view());
  }
  return nb::make_tuple(d_x, d_bias);
}

}  // namespace

void add_polar(nb::module_& m) {
  nb::class_<Polar>(m, "PopePlan", "Polar position embedding, prepared for one type of elements.")
      .def("__init__", &make, nb::arg("encoding").none(), nb::arg("dtype") = "float32",
           nb::kw_only(), nb::arg("context") = nb::none(),
           nb::sig("def __init__(self, encoding: EncodingLike, dtype: DTypeLike = 'float32', *, "
                   "context: int | None = None) -> None"))
      .def("apply", &apply, nb::arg("x").none(), nb::arg("positions").none(), nb::kw_only(),
           nb::arg("bias") = nb::none(), nb::arg("out") = nb::none(), nb::arg("order") = nb::none(),
           nb::sig("def apply(self, x: Any, positions: PositionsLike, *, bias: Any = None, out: "
                   "Any = None, order: str | None = None) -> Any"),
           "x of d channels becomes 2 d. bias [heads, d] belongs to keys.")
      .def("gradient", &gradient, nb::arg("x").none(), nb::arg("d_out").none(),
           nb::arg("positions").none(), nb::kw_only(), nb::arg("bias") = nb::none(),
           nb::arg("order") = nb::none(),
           nb::sig("def gradient(self, x: Any, d_out: Any, positions: PositionsLike, *, bias: Any "
                   "= None, order: str | None = None) -> tuple[Any, Any]"),
           "Gradients of x and of the bias.")
      .def_prop_ro(
          "dtype", [](const Polar& p) { return numpy_name(p.dtype); }, "Type of the elements.");
}

}  // namespace posenc::python
