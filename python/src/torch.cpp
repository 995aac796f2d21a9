// SPDX-License-Identifier: Apache-2.0
#include "torch.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "bindings.h"
#include "posenc/core/error.h"

namespace posenc::python {
namespace {

// GOMP_parallel of the OpenMP that PyTorch itself uses: the entry of every parallel region.
using GompParallel = void (*)(void (*)(void*), void*, unsigned, unsigned);

// DLPack's exchange of C functions (version 1, dlpack.h), as far as it is used: a tensor's address,
// sizes and strides without an object of Python.
struct Exchange {
  std::uint32_t major, minor;
  const void* before;
  void *allocate, *from_object, *to_object;
  int (*view)(void* object, nb::dlpack::dltensor* out);
};

struct Host {
  nb::object tensor, parameter, strided;  // torch.Tensor, torch.nn.Parameter, torch.strided
  std::vector<std::pair<PyObject*, DType>> types;  // torch.float32 ...
  nb::object get_num_threads;
  GompParallel parallel = nullptr;
  int (*max_threads)() = nullptr;      // of the calling thread, as torch.set_num_threads left it
  Executor own;                        // the library's pool
  const Exchange* exchange = nullptr;  // where this PyTorch has it
};
Host* host = nullptr;  // for the life of the process
std::atomic<bool> forked{false};

// Names of members, made once.
PyObject* name_of(const char* text) {
  PyObject* const s = PyUnicode_InternFromString(text);
  if (s == nullptr) nb::raise_python_error();
  return s;
}

nb::object call(nb::handle object, PyObject* name) {
  PyObject* const r = PyObject_CallMethodObjArgs(object.ptr(), name, nullptr);
  if (r == nullptr) nb::raise_python_error();
  return nb::steal(r);
}
nb::object member(nb::handle object, PyObject* name) {
  PyObject* const r = PyObject_GetAttr(object.ptr(), name);
  if (r == nullptr) nb::raise_python_error();
  return nb::steal(r);
}

DType dtype_of_tensor(nb::handle dtype, Name n) {
  for (const auto& [object, t] : host->types)
    if (object == dtype.ptr()) return t;
  refuse_field(n.who, n.name,
               "must have elements of float64, float32, float16, bfloat16, int64, int32, "
               "uint8 or bool",
               text_of(dtype));
}

std::int32_t numbers(nb::handle tuple, std::array<Index, TensorView::kMaxRank>& to, Name n) {
  const Py_ssize_t size = PyTuple_Size(tuple.ptr());
  if (size < 0) nb::raise_python_error();
  if (size > TensorView::kMaxRank)
    refuse_field(n.who, n.name, "must have at most 5 axes", std::to_string(size));
  for (Py_ssize_t i = 0; i < size; ++i)
    to[static_cast<std::size_t>(i)] = PyLong_AsLongLong(PyTuple_GetItem(tuple.ptr(), i));
  if (PyErr_Occurred() != nullptr) nb::raise_python_error();
  return static_cast<std::int32_t>(size);
}

struct Share {
  std::atomic<Index> next{0};
  Index n;
  void (*task)(void*, Index);
  void* arg;
};
void run_on(Index threads, Index n, void (*task)(void*, Index), void* arg) {
  Share share{{}, n, task, arg};
  host->parallel(
      [](void* p) {
        auto* const s = static_cast<Share*>(p);
        for (Index i = s->next++; i < s->n; i = s->next++) s->task(s->arg, i);
      },
      &share, static_cast<unsigned>(std::min(threads, n)), 0);
}
// OpenMP's threads do not exist in the child of a fork, and waiting for them is for ever.
void run_on_team(void* threads, Index n, void (*task)(void*, Index), void* arg) {
  if (forked.load(std::memory_order_relaxed)) return host->own.run(host->own.context, n, task, arg);
  run_on(static_cast<Index>(reinterpret_cast<std::intptr_t>(threads)), n, task, arg);
}
// Calls that name no executor.
void run_by_default(void*, Index n, void (*task)(void*, Index), void* arg) {
  const Index threads = std::max(host->max_threads(), 1);
  if (threads == 1) {
    for (Index i = 0; i < n; ++i) task(arg, i);
    return;
  }
  run_on_team(reinterpret_cast<void*>(static_cast<std::intptr_t>(threads)), n, task, arg);
}

const Exchange* exchange_of(nb::handle tensor) {
  const nb::object capsule = nb::getattr(tensor, "__dlpack_c_exchange_api__", nb::none());
  if (capsule.is_none()) return nullptr;
  const auto* const e =
      static_cast<const Exchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (e == nullptr) nb::raise_python_error();
  return e->major == 1 && e->view != nullptr ? e : nullptr;
}

// types: {torch.float32: "float32", ...}; library: the file that PyTorch's kernels stand in.
void set_host(nb::object tensor, nb::object parameter, nb::object strided, nb::dict types,
              nb::object get_num_threads, const std::string& library) {
  auto* const made = new Host;
  made->exchange = exchange_of(tensor);
  made->tensor = std::move(tensor);
  made->parameter = std::move(parameter);
  made->strided = std::move(strided);
  for (const auto [object, name] : types) {
    const std::string word = text_of(name);
    for (const DType t :
         {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8})
      if (word == numpy_name(t))
        made->types.emplace_back(nb::object(nb::borrow(object)).release().ptr(), t);
  }
  made->get_num_threads = std::move(get_num_threads);
  // Only what is loaded; a symbol is looked for in the library and in what it needs.
  if (void* const handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
    made->parallel = reinterpret_cast<GompParallel>(dlsym(handle, "GOMP_parallel"));
    made->max_threads = reinterpret_cast<int (*)()>(dlsym(handle, "omp_get_max_threads"));
    dlclose(handle);  // PyTorch holds it
  }
  made->own = default_executor();
  if (host == nullptr) pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
  host = made;
  if (made->parallel != nullptr && made->max_threads != nullptr)
    set_default_executor({nullptr, made->own.concurrency, run_by_default});
}

TensorView view_of(const nb::dlpack::dltensor& d, DType t) {
  TensorView v;
  v.dtype = t;
  v.data = static_cast<char*>(d.data) + d.byte_offset;
  v.rank = d.ndim;
  for (std::size_t i = 0; i < static_cast<std::size_t>(d.ndim); ++i) {
    v.shape[i] = d.shape[i];
    v.stride[i] = d.strides[i];
  }
  return v;
}

TensorView exchanged_view(nb::handle tensor, Name n) {
  nb::dlpack::dltensor d{};
  if (host->exchange->view(tensor.ptr(), &d) != 0) {
    nb::python_error problem;  // takes it, so that others can be asked
    if (nb::getattr(tensor, "is_nested", nb::bool_(false)).is(nb::handle(Py_True)))
      refuse_field(n.who, n.name, "must be a dense tensor of numbers", "nested");
    throw problem;
  }
  if (d.ndim > TensorView::kMaxRank)
    refuse_field(n.who, n.name, "must have at most 5 axes", std::to_string(d.ndim));
  const std::optional<DType> t = dtype_of_dlpack(d.dtype);
  return view_of(d, t ? *t : dtype_of_tensor(tensor.attr("dtype"), n));
}

// Whether it is a tensor of PyTorch itself, no subclass, dense, in the CPU's memory and not read negated: what an
// address tells.
bool is_dense(nb::handle x) {
  static PyObject* const is_neg = name_of("is_neg");
  static PyObject* const is_cpu = name_of("is_cpu");
  static PyObject* const layout = name_of("layout");
  if (!x.type().is(host->tensor) && !x.type().is(host->parameter)) return false;
  return member(x, is_cpu).is(nb::handle(Py_True)) && member(x, layout).is(host->strided) &&
         !call(x, is_neg).is(nb::handle(Py_True));
}
// The same of all of them; None is none.
bool dense(nb::handle tensors) {
  for (Py_ssize_t i = 0, n = PyTuple_Size(tensors.ptr()); i < n; ++i) {
    const nb::handle x = PyTuple_GetItem(tensors.ptr(), i);
    if (!x.is_none() && !is_dense(x)) return false;
  }
  return true;
}

// Whether any of them (None is none) is recorded by autograd.
bool any_requires_grad(nb::handle tensors) {
  static PyObject* const requires_grad = name_of("requires_grad");
  for (Py_ssize_t i = 0, n = PyTuple_Size(tensors.ptr()); i < n; ++i) {
    const nb::handle x = PyTuple_GetItem(tensors.ptr(), i);
    if (!x.is_none() && member(x, requires_grad).is(nb::handle(Py_True))) return true;
  }
  return false;
}

}  // namespace

TensorView torch_view(nb::handle tensor, Name n) {
  static PyObject* const data_ptr = name_of("data_ptr");
  static PyObject* const shape = name_of("shape");
  static PyObject* const stride = name_of("stride");
  static PyObject* const dtype = name_of("dtype");
  if (PyObject_IsInstance(tensor.ptr(), host->tensor.ptr()) != 1)
    refuse_field(n.who, n.name, "must be a tensor",
                 nb::cast<std::string>(tensor.type().attr("__name__")));
  if (host->exchange != nullptr) return exchanged_view(tensor, n);
  TensorView v;
  v.dtype = dtype_of_tensor(member(tensor, dtype), n);
  v.rank = numbers(member(tensor, shape), v.shape, n);
  numbers(call(tensor, stride), v.stride, n);
  v.data = PyLong_AsVoidPtr(call(tensor, data_ptr).ptr());
  if (v.data == nullptr && PyErr_Occurred() != nullptr) nb::raise_python_error();
  return v;
}

std::optional<TensorView> dense_torch_view(nb::handle h) {
  if (host == nullptr || host->exchange == nullptr || !is_dense(h)) return std::nullopt;
  nb::dlpack::dltensor d{};
  if (host->exchange->view(h.ptr(), &d) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  const std::optional<DType> t = dtype_of_dlpack(d.dtype);
  if (!t || d.ndim > TensorView::kMaxRank || d.device.device_type != nb::device::cpu::value)
    return std::nullopt;
  return view_of(d, *t);
}

TensorView optional_torch_view(nb::handle tensor, Name n) {
  return tensor.is_none() ? TensorView{} : torch_view(tensor, n);
}

Executor torch_team() {
  const Index threads =
      host == nullptr ? 1 : PyLong_AsLongLong(nb::object(host->get_num_threads()).ptr());
  if (threads <= 1) return inline_executor();
  if (host->parallel != nullptr)
    return {reinterpret_cast<void*>(static_cast<std::intptr_t>(threads)), threads, run_on_team};
  Executor own = host->own;
  own.concurrency = std::min(own.concurrency, threads);
  return own;
}

void add_torch(nb::module_& m) {
  m.def("torch_host", &set_host, nb::arg("tensor"), nb::arg("parameter"), nb::arg("strided"),
        nb::arg("types"), nb::arg("get_num_threads"), nb::arg("library"),
        nb::sig("def torch_host(tensor: Any, parameter: Any, strided: Any, types: Mapping[Any, "
                "str], get_num_threads: Any, "
                "library: str) -> None"));
  m.def("torch_dense", &dense, nb::arg("tensors"));
  m.def("torch_any_requires_grad", &any_requires_grad, nb::arg("tensors"));
  m.def(
      "torch_team", [] { return host != nullptr && host->parallel != nullptr && !forked.load(); },
      "Whether work runs on PyTorch's own threads.");
  add_torch_rotation(m);
  add_ring(m);
}

}  // namespace posenc::python
