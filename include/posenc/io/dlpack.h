// SPDX-License-Identifier: Apache-2.0
// DLPack, old and versioned (1.x): the ABI structs, declared here so that nothing else is needed.
// https://dmlc.github.io/dlpack/latest/c_api.html
#pragma once
#include <cstdint>

#include "posenc/core/tensor_view.h"

extern "C" {
struct PosencDLDevice {
  std::int32_t device_type;
  std::int32_t device_id;
};
struct PosencDLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct PosencDLTensor {
  void* data;
  PosencDLDevice device;
  std::int32_t ndim;
  PosencDLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // elements; null = dense
  std::uint64_t byte_offset;
};
struct PosencDLManagedTensor {
  PosencDLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(PosencDLManagedTensor*);
};
struct PosencDLPackVersion {
  std::uint32_t major, minor;
};
struct PosencDLManagedTensorVersioned {
  PosencDLPackVersion version;
  void* manager_ctx;
  void (*deleter)(PosencDLManagedTensorVersioned*);
  std::uint64_t flags;  // bit 0 read-only, bit 1 is-copied
  PosencDLTensor dl_tensor;
};
}

namespace posenc {

// Throws [dlpack]: unknown type or device, lanes != 1, rank above 5, byte offset not whole
// elements.
POSENC_API TensorView from_dlpack(const PosencDLTensor&, bool read_only = false);
POSENC_API TensorView from_dlpack(const PosencDLManagedTensorVersioned&);
// shape and stride storage is the view's own: the result is valid while `view` lives.
POSENC_API PosencDLTensor to_dlpack(TensorView& view);

}  // namespace posenc
