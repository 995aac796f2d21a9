// SPDX-License-Identifier: Apache-2.0
#include "arrays.h"

#include <cstring>

#include "posenc/core/error.h"
#include "torch.h"

namespace posenc::python {
namespace {

std::string python_type(nb::handle h) {
  return nb::cast<std::string>(h.type().attr("__name__"));
}

[[noreturn]] void refuse_array(Name n, const std::string& rule, const std::string& got) {
  refuse_field(n.who, n.name, rule, got);
}

constexpr const char* kTypes =
    "must have elements of float64, float32, float16, bfloat16, int64, int32, uint8 or bool";

// struct's letters, native or little-endian, as all machines that posenc runs on are.
std::optional<DType> dtype_of_format(std::string_view f, Py_ssize_t size) {
  if (!f.empty() && (f[0] == '@' || f[0] == '=' || f[0] == '<')) f.remove_prefix(1);
  if (f.size() != 1) return std::nullopt;
  switch (f[0]) {
    case 'd':
      return DType::f64;
    case 'f':
      return DType::f32;
    case 'e':
      return DType::f16;
    case 'q':
    case 'l':
    case 'i':
      if (size == 8) return DType::i64;
      if (size == 4) return DType::i32;
      return std::nullopt;
    case 'B':
    case '?':
      return DType::u8;
    default:
      return std::nullopt;
  }
}

bool is_ml_bfloat16(nb::handle h) {
  const nb::object dtype = nb::getattr(h, "dtype", nb::none());
  const nb::object name = nb::getattr(dtype, "name", nb::none());
  return nb::isinstance<nb::str>(name) && nb::cast<std::string>(name) == "bfloat16" &&
         nb::hasattr(h, "view");
}

struct Numpy {
  nb::object empty, zeros, bfloat16;
};
// Imported by the first array that is made, kept as long as the process lives. No static that is made
// under a lock of C++: an import lets other threads have the interpreter.
Numpy& numpy() {
  static Numpy* kept = nullptr;
  if (kept == nullptr) {
    const nb::module_ m = nb::module_::import_("numpy");
    auto* const made = new Numpy{m.attr("empty"), m.attr("zeros"), nb::object()};
    if (kept == nullptr)
      kept = made;
    else
      delete made;
  }
  return *kept;
}

nb::object dtype_object(DType t) {
  if (t != DType::bf16) return nb::str(numpy_name(t));
  Numpy& n = numpy();
  if (!n.bfloat16.is_valid()) {
    try {
      n.bfloat16 = nb::module_::import_("ml_dtypes").attr("bfloat16");
    } catch (nb::python_error& e) {
      if (!e.matches(PyExc_ImportError)) throw;
      refuse("numpy", "has no bfloat16: pass out, or install ml_dtypes");
    }
  }
  return n.bfloat16;
}

template <class T>
nb::object filled(const std::vector<T>& values, std::span<const Index> shape) {
  nb::object a = new_array(posenc::dtype_of<T>, shape);
  const Borrowed b(a, {"array", "result"}, Use::write);
  if (!values.empty()) std::memcpy(b.view().data, values.data(), values.size() * sizeof(T));
  return a;
}

}  // namespace

std::optional<DType> dtype_of_dlpack(const nb::dlpack::dtype& t) {
  using C = nb::dlpack::dtype_code;
  if (t.lanes != 1) return std::nullopt;
  const auto code = static_cast<C>(t.code);
  if (code == C::Float && t.bits == 64) return DType::f64;
  if (code == C::Float && t.bits == 32) return DType::f32;
  if (code == C::Float && t.bits == 16) return DType::f16;
  if (code == C::Bfloat && t.bits == 16) return DType::bf16;
  if (code == C::Int && t.bits == 64) return DType::i64;
  if (code == C::Int && t.bits == 32) return DType::i32;
  if ((code == C::UInt || code == C::Bool) && t.bits == 8) return DType::u8;
  return std::nullopt;
}

std::string text_of(nb::handle h) {
  const nb::object text = nb::steal(PyObject_Str(h.ptr()));
  if (!text.is_valid()) nb::raise_python_error();
  Py_ssize_t size = 0;
  const char* const utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (utf8 == nullptr) nb::raise_python_error();
  return {utf8, static_cast<std::size_t>(size)};
}

Borrowed::Borrowed(nb::handle h, Name n, Use use) {
  source_ = nb::borrow(h);
  if (PyObject_CheckBuffer(h.ptr()) != 0) {
    if (PyObject_GetBuffer(h.ptr(), &buffer_, PyBUF_RECORDS_RO) == 0) {
      has_buffer_ = true;
      take_buffer(n, false);
    } else {
      PyErr_Clear();  // numpy gives no buffer of types that are not its own
      if (!is_ml_bfloat16(h)) refuse_array(n, kTypes, python_type(h) + " without a buffer");
      imported_ = h.attr("view")("uint16");
      if (PyObject_GetBuffer(imported_.ptr(), &buffer_, PyBUF_RECORDS_RO) != 0)
        nb::raise_python_error();
      has_buffer_ = true;
      take_buffer(n, true);
    }
  } else if (nb::hasattr(h, "__dlpack__")) {
    take_dlpack(h, n, use);
  } else {
    refuse_array(n, "must be an array (numpy, DLPack or the buffer protocol)", python_type(h));
  }
  if (use == Use::write && read_only_)
    refuse_array(n, "must be an array that may be written", "a read-only one");
  given_ = true;
}

void Borrowed::take_buffer(Name n, bool bfloat16) {
  const char* format = buffer_.format != nullptr ? buffer_.format : "B";
  const std::optional<DType> t =
      bfloat16 ? std::optional(DType::bf16) : dtype_of_format(format, buffer_.itemsize);
  if (!t) {
    const nb::object dtype = nb::getattr(source_, "dtype", nb::none());
    refuse_array(n, kTypes, dtype.is_none() ? std::string(format) : text_of(dtype));
  }
  if (buffer_.ndim > TensorView::kMaxRank)
    refuse_array(n, "must have at most 5 axes", std::to_string(buffer_.ndim));
  view_.data = buffer_.buf;
  view_.dtype = *t;
  view_.rank = buffer_.ndim;
  for (int i = 0; i < buffer_.ndim; ++i) {
    const auto a = static_cast<std::size_t>(i);
    if (buffer_.strides[i] % buffer_.itemsize != 0)
      refuse_array(n, "must have strides of whole elements",
                   std::to_string(buffer_.strides[i]) + " bytes");
    view_.shape[a] = buffer_.shape[i];
    view_.stride[a] = buffer_.strides[i] / buffer_.itemsize;
  }
  read_only_ = buffer_.readonly != 0;
}

// A tensor whose gradient would be lost without a word.
static void refuse_gradients(nb::handle h, Name n) {
  if (nb::getattr(h, "requires_grad", nb::none()).ptr() != Py_True) return;
  constexpr std::pair<std::string_view, const char*> kDifferentiable[] = {
      {"attention", ".attend"}, {"rotary", ".rotate"}, {"pope", ".polar"},
      {"bias", ".bias"},        {"embed", ".embed"},   {"input", ".compose"}};
  std::string where = "posenc.torch";
  for (const auto& [who, function] : kDifferentiable)
    if (who == n.who) where += function;
  refuse_array(n,
               ("must not require a gradient, which this function does not record; use " + where +
                " or " + n.name + ".detach()")
                   .c_str(),
               "requires_grad=True");
}

void Borrowed::take_storage(nb::handle h, Name n) {
  if (!nb::hasattr(h, "untyped_storage")) return;  // DLPack of other programs keeps the memory
  storage_ = h.attr("untyped_storage")();
  name_ = n.name;
}

void Borrowed::require_in_place(const char* who) const {
  if (!storage_.is_valid()) return;
  Index last = 0;  // element of the view; strides of PyTorch are not negative
  for (std::size_t a = 0; a < static_cast<std::size_t>(view_.rank); ++a) {
    if (view_.shape[a] == 0) return;
    last += (view_.shape[a] - 1) * view_.stride[a];
  }
  const auto first = reinterpret_cast<std::uintptr_t>(view_.data);
  const auto begin = nb::cast<std::uintptr_t>(storage_.attr("data_ptr")());
  const auto bytes = nb::cast<std::uintptr_t>(storage_.attr("nbytes")());
  const auto needed = static_cast<std::uintptr_t>((last + 1) * size_of(view_.dtype));
  if (first < begin || first + needed > begin + bytes)
    refuse_field(who, name_, "must keep its memory from the call to its gradients",
                 "a storage that was resized to " + std::to_string(bytes) + " bytes");
}

void Borrowed::take_dlpack(nb::handle h, Name n, Use use) {
  refuse_gradients(h, n);
  if (const std::optional<TensorView> v = dense_torch_view(h)) {
    view_ = *v;
    take_storage(h, n);
    return;
  }
  // A read-only array is an nb::ro one and no other.
  nb::ndarray<nb::ro> a;
  if (use == Use::write) {
    nb::ndarray<> w;
    if (nb::try_cast<nb::ndarray<>>(h, w, false)) a = nb::ndarray<nb::ro>(w);
  } else {
    nb::try_cast<nb::ndarray<nb::ro>>(h, a, false);
  }
  PyErr_Clear();
  if (!a.is_valid())
    refuse_array(n,
                 use == Use::write ? "must be an array in the CPU's memory that may be written"
                                   : "must be an array in the CPU's memory, outside any graph",
                 python_type(h));
  if (a.device_type() != nb::device::cpu::value)
    refuse_array(n, "must lie in the memory of the CPU",
                 "DLPack's device " + std::to_string(a.device_type()));
  const std::optional<DType> t = dtype_of_dlpack(a.dtype());
  if (!t) refuse_array(n, kTypes, text_of((nb::getattr(h, "dtype", nb::none()))));
  if (a.ndim() > TensorView::kMaxRank)
    refuse_array(n, "must have at most 5 axes", std::to_string(a.ndim()));
  view_.data = const_cast<void*>(static_cast<const void*>(a.data()));
  view_.dtype = *t;
  view_.rank = static_cast<std::int32_t>(a.ndim());
  for (std::size_t i = 0; i < a.ndim(); ++i) {
    view_.shape[i] = static_cast<Index>(a.shape(i));
    view_.stride[i] = a.stride(i);
  }
  dlpack_ = std::move(a);
  take_storage(h, n);
}

Borrowed::~Borrowed() {
  if (has_buffer_) PyBuffer_Release(&buffer_);
}
Borrowed::Borrowed(Borrowed&& b) noexcept {
  *this = std::move(b);
}
Borrowed& Borrowed::operator=(Borrowed&& b) noexcept {
  // Small arrays of sizes lie inside the object that gave the buffer: the struct may move.
  std::swap(buffer_, b.buffer_);
  std::swap(source_, b.source_);
  std::swap(imported_, b.imported_);
  std::swap(storage_, b.storage_);
  std::swap(dlpack_, b.dlpack_);
  std::swap(view_, b.view_);
  std::swap(name_, b.name_);
  std::swap(given_, b.given_);
  std::swap(has_buffer_, b.has_buffer_);
  std::swap(read_only_, b.read_only_);
  return *this;
}

Borrowed optional_array(nb::handle h, Name n, Use use) {
  return h.is_none() || !h.is_valid() ? Borrowed() : Borrowed(h, n, use);
}

const char* numpy_name(DType t) {
  switch (t) {
    case DType::f64:
      return "float64";
    case DType::f32:
      return "float32";
    case DType::f16:
      return "float16";
    case DType::bf16:
      return "bfloat16";
    case DType::i64:
      return "int64";
    case DType::i32:
      return "int32";
    case DType::u8:
      return "uint8";
  }
  return "?";
}

DType dtype_of(nb::handle h, const char* who) {
  nb::object name = nb::borrow(h);
  if (!nb::isinstance<nb::str>(h)) {
    name = nb::getattr(h, "name", nb::none());
    if (name.is_none()) name = nb::getattr(h, "__name__", nb::none());
  }
  const std::string word =
      nb::isinstance<nb::str>(name) ? nb::cast<std::string>(name) : python_type(h);
  for (const DType t : {DType::f64, DType::f32, DType::f16, DType::bf16})
    if (word == numpy_name(t) || word == dtype_name(t)) return t;
  refuse_field(who, "dtype", "must be float64, float32, float16 or bfloat16", word);
}

nb::object new_array(DType t, std::span<const Index> shape, bool zeros) {
  nb::object sizes = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (std::size_t i = 0; i < shape.size(); ++i)
    PyTuple_SetItem(sizes.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
  const nb::object dtype = dtype_object(t);
  return (zeros ? numpy().zeros : numpy().empty)(sizes, dtype);
}
nb::object new_array(const std::vector<double>& v, std::span<const Index> shape) {
  return filled(v, shape);
}
nb::object new_array(const std::vector<Index>& v, std::span<const Index> shape) {
  return filled(v, shape);
}

HeadsLayout layout_of(const TensorView& v, std::optional<std::string_view> order, Name n) {
  if (!order) {
    if (v.rank == 3) return HeadsLayout::thd;
    refuse_field(n.who, "order",
                 "must be given for arrays without exactly three axes: bthd, bhtd or tbhd",
                 std::string(n.name) + " with " + std::to_string(v.rank) + " axes");
  }
  return layout_from_name(*order);
}

PositionsArgument::PositionsArgument(nb::handle h, Name n) {
  if (PyList_Check(h.ptr()) || PyTuple_Check(h.ptr()) || PyRange_Check(h.ptr())) {
    take_list(h, n);
    return;
  }
  if (h.is_none()) refuse_field(n.who, n.name, "must be given");
  array_ = Borrowed(h, n, Use::read);
  positions_ = positions(array_.const_view());
}

void PositionsArgument::take_list(nb::handle h, Name n) {
  const nb::object list = nb::steal(PySequence_Tuple(h.ptr()));
  if (!list.is_valid()) nb::raise_python_error();
  const Py_ssize_t count = PyTuple_Size(list.ptr());
  bool real = false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const x = PyTuple_GetItem(list.ptr(), i);
    if (!PyFloat_Check(x) && !PyIndex_Check(x))
      refuse_array(n, "must be a list of numbers, or an array of several axes", python_type(x));
    real = real || PyFloat_Check(x);
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const x = PyTuple_GetItem(list.ptr(), i);
    if (real) {
      real_.push_back(PyFloat_AsDouble(x));
    } else {
      const nb::object whole = nb::steal(PyNumber_Index(x));
      whole_.push_back(whole.is_valid() ? PyLong_AsLongLong(whole.ptr()) : 0);
    }
    if (PyErr_Occurred() != nullptr) {
      if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) nb::raise_python_error();
      PyErr_Clear();
      refuse_array(n, "must fit 64 bits", text_of(nb::repr(x)));
    }
  }
  positions_ =
      real ? positions(std::span<const double>(real_)) : positions(std::span<const Index>(whole_));
}

NamedBorrowed::NamedBorrowed(nb::handle h, const char* who) {
  if (h.is_none()) return;
  if (!PyDict_Check(h.ptr()))
    refuse(who, "arrays by name (parameters, inputs) must be a dict", python_type(h));
  for (const auto [key, value] : nb::borrow<nb::dict>(h)) {
    arrays.emplace_back(text_of(key), Borrowed());
    auto& [name, array] = arrays.back();
    array = Borrowed(value, {who, name.c_str()}, Use::read);
  }
}
void NamedBorrowed::require_in_place(const char* who) const {
  for (const auto& [name, array] : arrays) array.require_in_place(who);
}
const Borrowed* NamedBorrowed::find(std::string_view name) const {
  for (const auto& [key, array] : arrays)
    if (key == name) return &array;
  return nullptr;
}

void refuse_word(Name n, std::span<const std::string_view> words, std::string_view got) {
  std::string rule = "must be one of ";
  for (std::size_t i = 0; i < words.size(); ++i) rule.append(i ? ", " : "").append(words[i]);
  refuse_field(n.who, n.name, rule, got);
}

}  // namespace posenc::python
