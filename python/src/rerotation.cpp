// SPDX-License-Identifier: Apache-2.0
// Plans that move cached keys: numpy's arrays, and tensors of other programs, in place.

#include "posenc/rotary/rerotation_plan.h"

#include "rotation.h"

namespace posenc::python {
namespace {

constexpr const char* kMove = "rerotate";

KeyType key_type(nb::handle dtype) {
  if (nb::isinstance<nb::str>(dtype) && nb::cast<std::string>(dtype) == "q8_0")
    return KeyType::q8_0;
  return key_type_of(dtype_of(dtype, kMove));
}
std::string type_name(const RerotationPlan& plan) {
  const KeyType t = plan.type();
  return t == KeyType::q8_0 ? "q8_0" : numpy_name(static_cast<DType>(t));
}

// Keys, or blocks of them.
struct Keys {
  Borrowed array;
  Heads heads;

  Keys(const RerotationPlan& plan, nb::handle h, const char* name, Order order, Use use)
      : array(h, {kMove, name}, use) {
    const HeadsLayout layout = layout_of(array.view(), order, {kMove, name});
    const bool blocks = plan.type() == KeyType::q8_0;
    heads = blocks ? key_blocks(array.view(), layout) : posenc::heads(array.view(), layout);
  }
};

struct Places {
  PositionsArgument was, is;
  Places(nb::handle old_positions, nb::handle new_positions)
      : was(old_positions, {kMove, "old_positions"}), is(new_positions, {kMove, "new_positions"}) {}
};

// A list of whole numbers; None: none.
struct Numbers {
  std::vector<Index> values;

  Numbers(nb::handle h, const char* name) {
    if (h.is_none()) return;
    const PositionsArgument list(h, {kMove, name});
    const Positions& p = list.value();
    if (p.axes != 1 || p.batch != 1 || p.type == DType::f64)
      refuse_field(kMove, name, "must be a list of whole numbers", text_of(nb::repr(h)));
    for (Index i = 0; i < p.count; ++i)
      values.push_back(p.type == DType::i64
                           ? static_cast<const Index*>(p.data)[i * p.token_stride]
                           : static_cast<const std::int32_t*>(p.data)[i * p.token_stride]);
  }
};

struct Pages {
  Numbers pages, out, tokens;
  Pages(nb::handle p, nb::handle o, nb::handle t)
      : pages(p, "pages"), out(o, "out"), tokens(t, "tokens") {
    if (p.is_none()) refuse_field(kMove, "pages", "must be given");
    check(o, out, "out");
    check(t, tokens, "tokens");
  }
  // An empty list means none to the library.
  void check(nb::handle given, const Numbers& list, const char* name) const {
    if (!given.is_none() && list.values.empty() && !pages.values.empty())
      refuse_field(kMove, name,
                   "must have a number for each of the " + std::to_string(pages.values.size()) +
                       " listed pages",
                   Index{0});
  }
  KeyPages list() const { return {pages.values, out.values, tokens.values}; }
};

// f without the GIL; its verdict as a word.
template <class F>
std::string moved(const F& f) {
  const nb::gil_scoped_release free;
  return std::string(enum_text(f()));
}

void make(RerotationPlan* self, nb::handle before, nb::handle after, nb::handle dtype,
          bool cut_blocks) {
  new (self) RerotationPlan(rotary_spec(before, kMove), rotary_spec(after, kMove), key_type(dtype),
                            {.cut_blocks = cut_blocks});
}

std::string move(const RerotationPlan& plan, nb::handle keys, nb::handle old_positions,
                 nb::handle new_positions, Order order) {
  const Keys k(plan, keys, "keys", order, Use::write);
  const Places p(old_positions, new_positions);
  return moved([&] { return plan.move(k.heads, p.was.value(), p.is.value()); });
}

std::string move_into(const RerotationPlan& plan, nb::handle keys, nb::handle out,
                      nb::handle old_positions, nb::handle new_positions, Order order) {
  const Keys k(plan, keys, "keys", order, Use::read), o(plan, out, "out", order, Use::write);
  const Places p(old_positions, new_positions);
  return moved([&] { return plan.move_into(k.heads, o.heads, p.was.value(), p.is.value()); });
}

std::string move_pages(const RerotationPlan& plan, nb::handle pool, nb::handle pages,
                       nb::handle old_positions, nb::handle new_positions, nb::handle out,
                       nb::handle tokens, Order order) {
  const Keys k(plan, pool, "pool", order, Use::write);
  const Pages list(pages, out, tokens);
  const Places p(old_positions, new_positions);
  return moved([&] { return plan.move_pages(k.heads, list.list(), p.was.value(), p.is.value()); });
}

std::string move_pages_into(const RerotationPlan& plan, nb::handle pool, nb::handle out_pool,
                            nb::handle pages, nb::handle old_positions, nb::handle new_positions,
                            nb::handle out, nb::handle tokens, Order order) {
  const Keys k(plan, pool, "pool", order, Use::read);
  const Keys o(plan, out_pool, "out_pool", order, Use::write);
  const Pages list(pages, out, tokens);
  const Places p(old_positions, new_positions);
  return moved([&] {
    return plan.move_pages_into(k.heads, o.heads, list.list(), p.was.value(), p.is.value());
  });
}

void add_moves(nb::class_<RerotationPlan>& plan) {
  plan.def("move", &move, nb::arg("keys").none(), nb::kw_only(), nb::arg("old_positions").none(),
           nb::arg("new_positions").none(), nb::arg("order") = nb::none(),
           nb::sig("def move(self, keys: Any, *, old_positions: PositionsLike, new_positions: "
                   "PositionsLike, order: str | None = None) -> str"),
           "Moves keys in place, to the new position of each token. Returns \"kept\" if no key "
           "changed, otherwise \"moved\".")
      .def("move_into", &move_into, nb::arg("keys").none(), nb::arg("out").none(), nb::kw_only(),
           nb::arg("old_positions").none(), nb::arg("new_positions").none(),
           nb::arg("order") = nb::none(),
           nb::sig("def move_into(self, keys: Any, out: Any, *, old_positions: PositionsLike, "
                   "new_positions: PositionsLike, order: str | None = None) -> str"),
           "The same into other memory, which receives every key.")
      .def("move_pages", &move_pages, nb::arg("pool").none(), nb::arg("pages").none(),
           nb::kw_only(), nb::arg("old_positions").none(), nb::arg("new_positions").none(),
           nb::arg("out") = nb::none(), nb::arg("tokens") = nb::none(),
           nb::arg("order") = nb::none(),
           nb::sig("def move_pages(self, pool: Any, pages: Any, *, old_positions: PositionsLike, "
                   "new_positions: PositionsLike, out: Any = None, tokens: Any = None, order: str "
                   "| None = None) -> str"),
           "Moves the listed pages of a pool [pages, page size, heads, head size] in place, or "
           "into the pages `out`. tokens: used slots of each page. Positions have a row for each "
           "listed page, or one for all: a position for each slot, or that of the first slot.")
      .def("move_pages_into", &move_pages_into, nb::arg("pool").none(), nb::arg("out_pool").none(),
           nb::arg("pages").none(), nb::kw_only(), nb::arg("old_positions").none(),
           nb::arg("new_positions").none(), nb::arg("out") = nb::none(),
           nb::arg("tokens") = nb::none(), nb::arg("order") = nb::none(),
           nb::sig("def move_pages_into(self, pool: Any, out_pool: Any, pages: Any, *, "
                   "old_positions: PositionsLike, new_positions: PositionsLike, out: Any = None, "
                   "tokens: Any = None, order: str | None = None) -> str"),
           "The same into another pool.");
}

}  // namespace

void add_rerotation(nb::module_& m) {
  nb::class_<RerotationPlan> plan(
      m, "RerotationPlan",
      "Moves cached keys to other positions, or from the encoding `before` to `after`: checked and "
      "prepared once. dtype: that of the keys, or \"q8_0\" for ggml's blocks, as arrays of uint8 "
      "with head size / 32 * 34 bytes on their last axis. cut_blocks: blocks of which only some "
      "channels rotate are rounded again; otherwise they are rejected. It is immutable; threads "
      "may share it.");
  plan.def("__init__", &make, nb::arg("before").none(), nb::arg("after").none(),
           nb::arg("dtype") = "float32", nb::kw_only(), nb::arg("cut_blocks") = false,
           nb::sig("def __init__(self, before: EncodingLike | RotaryPlan, after: EncodingLike | "
                   "RotaryPlan, dtype: DTypeLike = 'float32', *, cut_blocks: bool = False) -> "
                   "None"))
      .def("bound", &RerotationPlan::bound, nb::arg("moves") = 1,
           nb::sig("def bound(self, moves: int = 1) -> float"),
           "The largest error of a pair after so many moves, relative to its length; of q8_0 to "
           "the largest absolute value of its blocks.")
      .def_prop_ro(
          "verdict", [](const RerotationPlan& p) { return std::string(enum_text(p.verdict())); },
          nb::sig("def verdict(self) -> str"),
          "\"kept\": both rotations are the same, so only keys whose position changes are "
          "rewritten. Otherwise \"moved\".")
      .def_prop_ro("dtype", &type_name, nb::sig("def dtype(self) -> str"), "Type of the keys.");
  add_moves(plan);
}

}  // namespace posenc::python
