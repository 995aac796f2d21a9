// SPDX-License-Identifier: Apache-2.0
// The output of a call of attention as new or given arrays.
#pragma once
#include <utility>
#include <vector>

#include "attention_call.h"
#include "posenc/attention/attention.h"

namespace posenc::python {

struct ResultArrays {
  ResultArrays() = default;
  // `like`: q of the caller; `given` and `sums` may be None.
  ResultArrays(const TensorView& like, HeadsLayout layout, Index value_dim, nb::object given,
               nb::object sums) {
    std::vector<Index> shape(like.shape.begin(), like.shape.begin() + like.rank);
    shape[layout_name(layout).find('d')] = value_dim;
    out = given.is_none() ? new_array(like.dtype, shape) : std::move(given);
    out_array = Borrowed(out, {kAttentionName, "out"}, Use::write);
    const Heads h = heads_of(out_array.view(), layout, {kAttentionName, "out"});
    const Index of_rows[] = {h.batch, h.heads, h.tokens};
    log_sum_exp = sums.is_none() ? new_array(DType::f64, of_rows) : std::move(sums);
    sum_array = Borrowed(log_sum_exp, {kAttentionName, "log_sum_exp"}, Use::write);
    result = {h, sum_array.view()};
  }

  void require_in_place(const char* who) const {
    out_array.require_in_place(who);
    sum_array.require_in_place(who);
  }

  nb::object out, log_sum_exp;
  Borrowed out_array, sum_array;
  AttentionResult result;
};

// Output and log-sum-exp of a result of a call, or of a pair of them.
inline std::pair<nb::object, nb::object> result_or_pair(nb::handle h, Name name, const char* rule) {
  if (nb::hasattr(h, "log_sum_exp")) return {h.attr("out"), h.attr("log_sum_exp")};
  if (!nb::isinstance<nb::sequence>(h) || nb::len(h) != 2)
    refuse_field(name.who, name.name, rule, text_of(nb::repr(h)));
  return {h[0], h[1]};
}

// A new array of zeros that gradients are added to; it lives in `into`.
inline TensorView array_in(nb::dict& into, const char* name, DType t, std::span<const Index> shape,
                           bool zeros) {
  const nb::object a = new_array(t, shape, zeros);
  into[name] = a;
  return Borrowed(a, {kAttentionName, name}, Use::write).view();
}
inline TensorView zeros_in(nb::dict& into, const char* name, DType t,
                           std::span<const Index> shape) {
  return array_in(into, name, t, shape, true);
}
inline std::span<const Index> shape_of(const TensorView& v) {
  return {v.shape.data(), static_cast<std::size_t>(v.rank)};
}
inline std::span<const Index> shape_of(const ConstTensorView& v) {
  return {v.shape.data(), static_cast<std::size_t>(v.rank)};
}
// Gradients of f64 are f64, of all others f32.
inline DType gradient_type(DType t) {
  return t == DType::f64 ? DType::f64 : DType::f32;
}

// None: all.
class Wanted {
 public:
  Wanted(nb::handle only, const char* who) : all_(only.is_none()), who_(who) {
    if (!all_)
      for (const nb::object& name : items_of(only, {who, "only"}, "must be a list of names"))
        names_.push_back(text_of(name));
    known_.resize(names_.size());
  }
  bool operator()(const std::string& name) {
    bool found = all_;
    for (std::size_t n = 0; n < names_.size(); ++n)
      if (names_[n] == name) found = known_[n] = true;
    return found;
  }
  // Rejects names that no argument has, once all were asked for.
  void check() const {
    for (std::size_t n = 0; n < names_.size(); ++n)
      if (!known_[n])
        refuse_field(who_, "only", "must name arguments of the call that have a gradient",
                     names_[n]);
  }

 private:
  bool all_;
  const char* who_;
  std::vector<std::string> names_;
  std::vector<bool> known_;
};

}  // namespace posenc::python
