// SPDX-License-Identifier: Apache-2.0
// Tensors of PyTorch as views, by address, sizes and strides: a capsule of DLPack costs ten times as
// much. The module knows PyTorch by what posenc.torch hands it (`torch_host`) and links none of it.
#pragma once
#include <nanobind/nanobind.h>

#include "arrays.h"
#include "posenc/core/executor.h"

namespace posenc::python {

// Of a dense CPU tensor that is no subclass: the callers in posenc.torch see to that. Throws [who]:
// not a tensor, element types that posenc has not, more than 5 axes.
TensorView torch_view(nb::handle tensor, Name);
// The same of any object; nothing: it is no such tensor, or this PyTorch gives no views without a capsule.
std::optional<TensorView> dense_torch_view(nb::handle);
// None: an empty view.
TensorView optional_torch_view(nb::handle tensor, Name);

// PyTorch's own team of threads, as many as torch.get_num_threads() says now: its threads spin for a
// while after every region, and a second pool beside them would fight for the same cores. The pool
// of the library where PyTorch's team cannot be found, and in the child of a fork. Under the GIL.
Executor torch_team();

}  // namespace posenc::python
