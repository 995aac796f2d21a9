// SPDX-License-Identifier: Apache-2.0
// Arrays of Python as views, without a copy: the buffer protocol (numpy, memoryview, array), numpy
// with ml_dtypes' bfloat16, and DLPack (torch, jax, cupy on the CPU). What cannot be taken is
// refused by argument, rule and value.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
// Every file sees the same casters.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/core/error.h"
#include "posenc/core/heads.h"
#include "posenc/core/tensor_view.h"
#include "posenc/positions.h"

namespace posenc::python {

namespace nb = nanobind;

enum class Use : std::uint8_t { read, write };

// str(h)
std::string text_of(nb::handle);

// What an argument is called in messages: [who] name must ...
struct Name {
  const char* who;
  const char* name;
};

// A view of an array of the caller's. The memory stays alive meanwhile: of a tensor of PyTorch its
// storage is kept, because `x.data = other` gives the same tensor another one. Made and destroyed
// under the GIL.
class Borrowed {
 public:
  Borrowed() = default;
  Borrowed(nb::handle, Name, Use);
  ~Borrowed();
  Borrowed(Borrowed&&) noexcept;
  Borrowed& operator=(Borrowed&&) noexcept;

  bool given() const noexcept { return given_; }
  const TensorView& view() const noexcept { return view_; }
  ConstTensorView const_view() const noexcept { return view_; }
  // Whether a new array like it is one of ml_dtypes' or of another program: numpy itself has no
  // bfloat16.
  nb::handle source() const { return source_; }
  // Of a view that is kept for a later call: throws [who] where the storage was resized since and
  // its memory is another one.
  void require_in_place(const char* who) const;

 private:
  void take_buffer(Name, bool bfloat16);
  void take_dlpack(nb::handle, Name, Use);
  void take_storage(nb::handle, Name);

  Py_buffer buffer_{};
  nb::object source_, imported_, storage_;
  nb::ndarray<nb::ro> dlpack_;
  TensorView view_;
  std::string name_;  // of an argument with a storage
  bool given_ = false, has_buffer_ = false, read_only_ = false;
};

// None or missing: not given.
Borrowed optional_array(nb::handle, Name, Use);

// f64 ... of "float64", numpy.float64, numpy.dtype("float64"), ml_dtypes.bfloat16, "f64".
DType dtype_of(nb::handle, const char* who);
// "float64", "bfloat16" ...
const char* numpy_name(DType);

// Of DLPack's element types those that posenc has.
std::optional<DType> dtype_of_dlpack(const nb::dlpack::dtype&);

// numpy.empty: memory that the caller gets. bfloat16 needs ml_dtypes. zeros: filled.
nb::object new_array(DType, std::span<const Index> shape, bool zeros = false);
nb::object new_array(const std::vector<double>&, std::span<const Index> shape);
nb::object new_array(const std::vector<Index>&, std::span<const Index> shape);

// Heads with their order: of three axes thd, of four it must be given.
HeadsLayout layout_of(const TensorView&, std::optional<std::string_view> order, Name);

// Positions: an array of int64, int32 or float64 of [t], [b, t] or [axes, b, t], or a range or
// list of numbers.
class PositionsArgument {
 public:
  PositionsArgument(nb::handle, Name);
  const Positions& value() const noexcept { return positions_; }
  void require_in_place(const char* who) const { array_.require_in_place(who); }

 private:
  void take_list(nb::handle, Name);

  Borrowed array_;
  std::vector<Index> whole_;
  std::vector<double> real_;
  Positions positions_;
};

// What a list, tuple or other iterable holds; anything else is refused by the rule.
std::vector<nb::object> items_of(nb::handle, Name, std::string_view rule);

// {name: array}: None is empty.
struct NamedBorrowed {
  std::deque<std::pair<std::string, Borrowed>> arrays;
  NamedBorrowed(nb::handle, const char* who);
  const Borrowed* find(std::string_view) const;
  void require_in_place(const char* who) const;
};

// The axes of an array by the layout. Throws by its name what posenc::heads rejects.
template <class Data>
BasicHeads<Data> heads_of(const BasicTensorView<Data>& v, HeadsLayout layout, Name n) {
  try {
    return heads(v, layout);
  } catch (const ArgumentError& e) {
    throw ArgumentError(n.who, n.name, std::string(n.name) + ": " + e.rule(), e.value());
  }
}

// An enum by one of its words. Throws [who].
template <class E>
E word_of(std::string_view word, Name n);

[[noreturn]] void refuse_word(Name, std::span<const std::string_view> words, std::string_view got);

template <class E>
E word_of(std::string_view word, Name n) {
  const auto& names = EnumNames<E>::value;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == word) return static_cast<E>(i);
  refuse_word(n, names, word);
}

}  // namespace posenc::python
