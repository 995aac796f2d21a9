// SPDX-License-Identifier: Apache-2.0
// DLPack, old and versioned (1.x): the ABI structs, declared by us so that nothing else is needed.
// https://dmlc.github.io/dlpack/latest/c_api.html
#pragma once
#include <cstdint>

#include "posenc/core/tensor_view.h"
#include "posenc/dlpack_abi.h"

namespace posenc::inline v0 {

// Throws [dlpack]: unknown type or device, lanes != 1, rank above 5, byte offset not whole
// elements.
// A tensor that is marked read-only (PosencDLManagedTensorVersioned::flags) converts to a
// ConstTensorView only: from_dlpack rejects it.
POSENC_API TensorView from_dlpack(const PosencDLTensor&);
POSENC_API TensorView from_dlpack(const PosencDLManagedTensorVersioned&);
POSENC_API ConstTensorView const_from_dlpack(const PosencDLTensor&);
POSENC_API ConstTensorView const_from_dlpack(const PosencDLManagedTensorVersioned&);
// shape and stride storage is the view's own: the result is valid while `view` lives.
POSENC_API PosencDLTensor to_dlpack(TensorView& view);
// DLPack's data is void* also for read-only tensors: receivers must not write to this one.
POSENC_API PosencDLTensor to_dlpack(ConstTensorView& view);

}  // namespace posenc::v0
