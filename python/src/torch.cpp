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

struct Host {
  std::vector<std::pair<PyObject*, DType>> types;  // torch.float32 ...
  nb::object get_num_threads;
  GompParallel parallel = nullptr;
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
               std::string(n.name) +
                   " must have elements of float64, float32, float16, bfloat16, int64, int32, "
                   "uint8 or bool",
               text_of(dtype));
}

std::int32_t numbers(nb::handle tuple, std::array<Index, TensorView::kMaxRank>& to, Name n) {
  const Py_ssize_t size = PyTuple_Size(tuple.ptr());
  if (size < 0) nb::raise_python_error();
  if (size > TensorView::kMaxRank)
    refuse_field(n.who, n.name, std::string(n.name) + " must have at most 5 axes",
                 std::to_string(size));
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
void run_on_team(void* parallel, Index n, void (*task)(void*, Index), void* arg) {
  Share share{{}, n, task, arg};
  reinterpret_cast<GompParallel>(parallel)(
      [](void* p) {
        auto* const s = static_cast<Share*>(p);
        for (Index i = s->next++; i < s->n; i = s->next++) s->task(s->arg, i);
      },
      &share, static_cast<unsigned>(n), 0);
}

// types: {torch.float32: "float32", ...}; library: the file that PyTorch's kernels stand in.
void set_host(nb::dict types, nb::object get_num_threads, const std::string& library) {
  auto* const made = new Host;
  for (const auto [object, name] : types) {
    const std::string word = text_of(name);
    for (const DType t :
         {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8})
      if (word == numpy_name(t))
        made->types.emplace_back(nb::object(nb::borrow(object)).release().ptr(), t);
  }
  made->get_num_threads = std::move(get_num_threads);
  // Only what is loaded; a symbol is looked for in the library and in what it needs.
  if (void* const handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD))
    made->parallel = reinterpret_cast<GompParallel>(dlsym(handle, "GOMP_parallel"));
  if (host == nullptr) pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
  host = made;
}

}  // namespace

TensorView torch_view(nb::handle tensor, Name n) {
  static PyObject* const data_ptr = name_of("data_ptr");
  static PyObject* const shape = name_of("shape");
  static PyObject* const stride = name_of("stride");
  static PyObject* const dtype = name_of("dtype");
  if (PyObject_HasAttr(tensor.ptr(), data_ptr) == 0)
    refuse_field(n.who, n.name, std::string(n.name) + " must be a tensor",
                 nb::cast<std::string>(tensor.type().attr("__name__")));
  TensorView v;
  v.dtype = dtype_of_tensor(member(tensor, dtype), n);
  v.rank = numbers(member(tensor, shape), v.shape, n);
  numbers(call(tensor, stride), v.stride, n);
  v.data = PyLong_AsVoidPtr(call(tensor, data_ptr).ptr());
  if (v.data == nullptr && PyErr_Occurred() != nullptr) nb::raise_python_error();
  return v;
}

TensorView optional_torch_view(nb::handle tensor, Name n) {
  return tensor.is_none() ? TensorView{} : torch_view(tensor, n);
}

Executor torch_team() {
  const Index threads =
      host == nullptr ? 1 : PyLong_AsLongLong(nb::object(host->get_num_threads()).ptr());
  if (threads <= 1) return inline_executor();
  if (host->parallel != nullptr && !forked.load(std::memory_order_relaxed))
    return {reinterpret_cast<void*>(host->parallel), threads, run_on_team};
  Executor own = default_executor();
  own.concurrency = std::min(own.concurrency, threads);
  return own;
}

void add_torch(nb::module_& m) {
  m.def("torch_host", &set_host, nb::arg("types"), nb::arg("get_num_threads"), nb::arg("library"));
  m.def(
      "torch_team", [] { return host != nullptr && host->parallel != nullptr && !forked.load(); },
      "Whether work runs on PyTorch's own threads.");
  add_torch_rotation(m);
}

}  // namespace posenc::python
