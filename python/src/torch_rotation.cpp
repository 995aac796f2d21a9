// SPDX-License-Identifier: Apache-2.0
// Rotation of PyTorch's tensors: what the operators of posenc.torch compute.
#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "bindings.h"
#include "posenc/core/error.h"
#include "posenc/posenc.h"
#include "torch.h"

namespace posenc::python {
namespace {

constexpr const char* kRotary = "rotary";

using Order = std::optional<std::string_view>;

// None: the three axes of one sequence.
HeadsLayout layout_named(Order layout, nb::handle x, const char* name) {
  if (layout) return layout_from_name(*layout);
  const std::int32_t axes = torch_view(x, {kRotary, name}).rank;
  if (axes == 3) return HeadsLayout::thd;
  refuse_field(kRotary, "layout",
               "must be given for tensors without exactly three axes: bhtd, bthd or tbhd",
               std::string(name) + " with " + std::to_string(axes) + " axes");
}

// Tensors of one call, q or k or both.
struct Given {
  QK qk;
  DType dtype = DType::f32;

  Given(nb::handle q, nb::handle k, Order layout, const char* q_name = "q",
        const char* k_name = "k") {
    if (q.is_none() && k.is_none()) refuse_field(kRotary, "q", "or k must be given");
    const HeadsLayout l = layout_named(layout, q.is_none() ? k : q, q.is_none() ? k_name : q_name);
    if (!q.is_none()) qk.q = heads(torch_view(q, {kRotary, q_name}), l);
    if (!k.is_none()) qk.k = heads(torch_view(k, {kRotary, k_name}), l);
    dtype = q.is_none() ? qk.k.dtype : qk.q.dtype;
  }
  // Results, which may be the tensors themselves.
  Given(const Given& in, nb::handle q_in, nb::handle k_in, nb::handle q, nb::handle k, Order layout)
      : Given(q.is(q_in) && k.is(k_in) ? in : Given(q, k, layout, "q_out", "k_out")) {}
};

Positions positions_of(nb::handle tensor, const char* name) {
  return positions(ConstTensorView(torch_view(tensor, {kRotary, name})));
}

void rotate(const RotaryPlan& plan, nb::handle q, nb::handle k, nb::handle q_out, nb::handle k_out,
            nb::handle positions, Order layout, std::string_view mode) {
  const Given in(q, k, layout), out(in, q, k, q_out, k_out, layout);
  const Positions p = positions_of(positions, "positions");
  const RotateMode m = word_of<RotateMode>(mode, {kRotary, "mode"});
  const Executor team = torch_team();
  const nb::gil_scoped_release free;
  plan.apply(in.qk, out.qk, p, m, team);
}

// A plan for the caller's rows: its frequencies are not used.
RotaryPlan rows_plan(Index head_dim, Index width, Index offset, Pairing pairing, OutputOrder order,
                     DType dtype) {
  using Key = std::tuple<Index, Index, Index, Pairing, OutputOrder, DType>;
  static std::mutex mutex;
  static auto* const plans = new std::map<Key, RotaryPlan>;
  const Key key{head_dim, width, offset, pairing, order, dtype};
  const std::lock_guard lock(mutex);
  const auto found = plans->find(key);
  if (found != plans->end()) return found->second;
  const Rope rope{.head_dim = head_dim,
                  .rotary_dim = width,
                  .offset = offset,
                  .pairing = pairing,
                  .output_order = order};
  const RotaryPlan plan(resolve(rope), dtype);
  if (plans->size() >= 256) plans->clear();
  plans->emplace(key, plan);
  return plan;
}

// cos, sin and how they are meant, with the plan that they are for.
struct Rows {
  CallerRows rows;
  RotaryPlan plan;

  Rows(const Given& x, nb::handle cos, nb::handle sin, nb::handle index, std::string_view pairing,
       std::string_view columns, std::string_view order, Index offset)
      : rows{torch_view(cos, {kRotary, "cos"}),
             torch_view(sin, {kRotary, "sin"}),
             word_of<TableLayout>(columns, {kRotary, "columns"}),
             {}},
        plan(rows_plan(x.qk.q.dim > 0 ? x.qk.q.dim : x.qk.k.dim, width(), offset,
                       word_of<Pairing>(pairing, {kRotary, "pairing"}),
                       word_of<OutputOrder>(order, {kRotary, "output_order"}), x.dtype)) {
    if (index.is_none()) return;
    rows.index = positions_of(index, "index");
    const Index tokens = std::max(x.qk.q.tokens, x.qk.k.tokens);
    if (rows.index.count * rows.index.batch == 0 && tokens > 0)  // else it counts as not given
      refuse_field(kRotary, "index",
                   "must have a row number for each of the " + std::to_string(tokens) + " tokens",
                   "none");
  }

 private:
  Index width() const {
    const ConstTensorView& c = rows.cos;
    if (c.rank == 0) refuse_field(kRotary, "cos", "must have two axes or more", Index{0});
    return c.shape[static_cast<std::size_t>(c.rank - 1)] *
           (rows.layout == TableLayout::half ? 2 : 1);
  }
};

void rotate_rows(nb::handle q, nb::handle k, nb::handle q_out, nb::handle k_out, nb::handle cos,
                 nb::handle sin, nb::handle index, std::string_view pairing,
                 std::string_view columns, Order layout, std::string_view order, Index offset,
                 std::string_view mode) {
  const Given in(q, k, layout), out(in, q, k, q_out, k_out, layout);
  const Rows r(in, cos, sin, index, pairing, columns, order, offset);
  const RotateMode m = word_of<RotateMode>(mode, {kRotary, "mode"});
  const Executor team = torch_team();
  const nb::gil_scoped_release free;
  r.plan.apply_rows(in.qk, out.qk, r.rows, m, team);
}

// d_cos, d_sin: zeros of float32 or float64, accumulated into.
void row_gradients(nb::handle q, nb::handle k, nb::handle d_q, nb::handle d_k, nb::handle cos,
                   nb::handle sin, nb::handle index, nb::handle d_cos, nb::handle d_sin,
                   std::string_view pairing, std::string_view columns, Order layout,
                   std::string_view order, Index offset) {
  const Given in(q, k, layout), d(d_q, d_k, layout, "d_q", "d_k");
  const Rows r(in, cos, sin, index, pairing, columns, order, offset);
  const RowGradients g{torch_view(d_cos, {kRotary, "d_cos"}),
                       torch_view(d_sin, {kRotary, "d_sin"})};
  const Executor team = torch_team();
  const nb::gil_scoped_release free;
  r.plan.row_gradients(in.qk, d.qk, r.rows, g, team);
}

// d_positions: zeros of float64, [axes, batch, tokens]; d_frequencies: zeros of float64, [heads or 1,
// axes, pairs] of the only block; None where not wanted. Accumulated into.
void phase_gradients(const RotaryPlan& plan, nb::handle q, nb::handle k, nb::handle d_q,
                     nb::handle d_k, nb::handle positions, nb::handle d_positions,
                     nb::handle d_frequencies, Order layout) {
  const Given x(q, k, layout), d(d_q, d_k, layout, "d_q", "d_k");
  const Positions p = positions_of(positions, "positions");
  PhaseGradients want;
  want.frequency = optional_torch_view(d_frequencies, {kRotary, "d_frequencies"});
  want.position = optional_torch_view(d_positions, {kRotary, "d_positions"});
  const Executor team = torch_team();
  const nb::gil_scoped_release free;
  std::vector<std::byte> work(plan.phase_gradients_workspace(x.qk));
  const auto blocks = static_cast<Index>(plan.spec().blocks.size());
  for (want.block = 0; want.block < blocks; ++want.block) {
    // A block reads the first streams of positions, as many as it has axes.
    if (want.position.rank > 0)
      want.position.shape[0] =
          plan.spec().blocks[static_cast<std::size_t>(want.block)].spectrum.axes;
    plan.phase_gradients(x.qk, d.qk, p, want, work, team);
  }
}

}  // namespace

void add_torch_rotation(nb::module_& m) {
  m.def("torch_rotate", &rotate, nb::arg("plan"), nb::arg("q").none(), nb::arg("k").none(),
        nb::arg("q_out").none(), nb::arg("k_out").none(), nb::arg("positions").none(),
        nb::arg("layout").none(), nb::arg("mode"));
  m.def("torch_rotate_rows", &rotate_rows, nb::arg("q").none(), nb::arg("k").none(),
        nb::arg("q_out").none(), nb::arg("k_out").none(), nb::arg("cos").none(),
        nb::arg("sin").none(), nb::arg("index").none(), nb::arg("pairing"), nb::arg("columns"),
        nb::arg("layout").none(), nb::arg("output_order"), nb::arg("offset"), nb::arg("mode"));
  m.def("torch_row_gradients", &row_gradients, nb::arg("q").none(), nb::arg("k").none(),
        nb::arg("d_q").none(), nb::arg("d_k").none(), nb::arg("cos").none(), nb::arg("sin").none(),
        nb::arg("index").none(), nb::arg("d_cos").none(), nb::arg("d_sin").none(),
        nb::arg("pairing"), nb::arg("columns"), nb::arg("layout").none(), nb::arg("output_order"),
        nb::arg("offset"));
  m.def("torch_phase_gradients", &phase_gradients, nb::arg("plan"), nb::arg("q").none(),
        nb::arg("k").none(), nb::arg("d_q").none(), nb::arg("d_k").none(),
        nb::arg("positions").none(), nb::arg("d_positions").none(), nb::arg("d_frequencies").none(),
        nb::arg("layout").none());
}

}  // namespace posenc::python
