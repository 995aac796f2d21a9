// SPDX-License-Identifier: Apache-2.0
// A call of attention as Python's keyword arguments say it: arrays by name, masks, positions.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "posenc/attention/attention.h"
#include "posenc/core/error.h"
#include "posenc/core/key_blocks.h"

namespace posenc::python {

constexpr const char* kAttentionName = "attention";

// What a caller gave by name, with None for what was not given.
struct Options {
  nb::dict given;

  nb::object get(const char* name) const {
    PyObject* const found = PyDict_GetItemString(given.ptr(), name);
    return found == nullptr ? nb::object(nb::none()) : nb::borrow(found);
  }
  template <class T>
  std::optional<T> value(const char* name, const char* rule) const {
    const nb::object o = get(name);
    if (o.is_none()) return std::nullopt;
    T v{};
    if (!nb::try_cast<T>(o, v)) refuse_field(kAttentionName, name, rule, text_of(nb::repr(o)));
    return v;
  }
};

// The arrays of one call, kept alive, and its AttentionArgs.
class CallArguments {
 public:
  CallArguments(nb::handle q, nb::handle k, nb::handle v, nb::dict options);

  const Options& options() const { return options_; }
  const AttentionArgs& args() const { return args_; }
  AttentionArgs& args() { return args_; }
  HeadsLayout layout() const { return *layout_; }
  // Of k and v: pages have the batch in front, whatever q has.
  HeadsLayout key_layout() const;
  const TensorView& array(std::size_t n) const { return kept_[n].view(); }  // q, k, v: 0, 1, 2
  // Keys of a row, those of all its pages.
  Index keys() const;
  // Warns where a causal mask and positions that were given contradict each other.
  void warn_of_order() const;
  // Before the arrays are read again: throws where the memory of a tensor moved since.
  void require_in_place() const;

 private:
  ConstTensorView take(const char* name);
  // Also a whole number or lists of them. `lifted`: an array of one axis less serves all rows.
  ConstTensorView take_integers(const char* name, std::int32_t lifted = 0);
  ConstTensorView take_flags(const char* name);
  void read_mask();
  void read_offset();
  void read_positions();

  Options options_;
  std::deque<Borrowed> kept_;
  std::deque<std::vector<Index>> lists_;
  std::deque<PositionsArgument> positions_;
  OwnedPositions query_order_, key_order_;
  std::vector<Index> offsets_;
  std::optional<HeadsLayout> layout_;
  AttentionArgs args_;
};

}  // namespace posenc::python
