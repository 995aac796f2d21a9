// SPDX-License-Identifier: Apache-2.0
// What the calls of rotation share: the tensors of one call and where results go.
#pragma once
#include "arrays.h"
#include "bindings.h"
#include "posenc/core/error.h"
#include "posenc/rotary/plan.h"

namespace posenc::python {

using Order = std::optional<std::string_view>;

inline constexpr const char* kRotary = "rotary";

struct Tensors {
  Borrowed q, k;
  ConstQK in;
  HeadsLayout layout = HeadsLayout::thd;

  Tensors(nb::handle qh, nb::handle kh, Order order, Use use) {
    q = optional_array(qh, {kRotary, "q"}, use);
    k = optional_array(kh, {kRotary, "k"}, use);
    if (!q.given() && !k.given()) refuse_field(kRotary, "q", "or k must be given");
    const Borrowed& first = q.given() ? q : k;
    layout = layout_of(first.view(), order, {kRotary, q.given() ? "q" : "k"});
    if (q.given()) in.q = heads(q.const_view(), layout);
    if (k.given()) in.k = heads(k.const_view(), layout);
  }
};

inline nb::object like(const Borrowed& b) {
  const TensorView& v = b.view();
  return new_array(v.dtype, std::span(v.shape.data(), static_cast<std::size_t>(v.rank)));
}

// Where results go: the caller's, or new arrays.
struct Outputs {
  nb::object q_object, k_object;
  Borrowed q, k;
  QK out;

  Outputs(const Tensors& t, nb::handle given) {
    nb::object q_given = nb::none(), k_given = nb::none();
    if (!given.is_none()) take(t, given, q_given, k_given);
    if (t.q.given()) q_object = q_given.is_none() ? like(t.q) : q_given;
    if (t.k.given()) k_object = k_given.is_none() ? like(t.k) : k_given;
    if (t.q.given()) {
      q = Borrowed(q_object, {kRotary, "out"}, Use::write);
      out.q = heads(q.view(), t.layout);
    }
    if (t.k.given()) {
      k = Borrowed(k_object, {kRotary, "out"}, Use::write);
      out.k = heads(k.view(), t.layout);
    }
  }
  static void take(const Tensors& t, nb::handle given, nb::object& q_given, nb::object& k_given) {
    const bool both = t.q.given() && t.k.given();
    if (!both) {
      (t.q.given() ? q_given : k_given) = nb::borrow(given);
      return;
    }
    if (!PyTuple_Check(given.ptr()) || PyTuple_Size(given.ptr()) != 2)
      refuse_field(kRotary, "out", "must be a tuple of two arrays, for q and for k");
    q_given = nb::borrow(PyTuple_GetItem(given.ptr(), 0));
    k_given = nb::borrow(PyTuple_GetItem(given.ptr(), 1));
  }
  nb::object result() const {
    if (!k_object.is_valid()) return q_object;
    if (!q_object.is_valid()) return k_object;
    return nb::make_tuple(q_object, k_object);
  }
};

// The rotation of an encoding, or of a plan that was made with a context or a precision.
RotarySpec rotary_spec(nb::handle encoding, const char* who);

// Adds to the class what stands in caches.cpp.
void add_caches(nb::module_&, nb::class_<RotaryPlan>&);
void add_rerotation(nb::module_&);

}  // namespace posenc::python
