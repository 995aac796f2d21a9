/* SPDX-License-Identifier: Apache-2.0 */
/* DLPack's structs, old and versioned (1.x), for C and C++. A DLTensor* of dlpack.h may be cast to
   PosencDLTensor*. https://dmlc.github.io/dlpack/latest/c_api.html */
#ifndef POSENC_DLPACK_ABI_H_
#define POSENC_DLPACK_ABI_H_
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct PosencDLDevice {
  int32_t device_type; /* 1 host, 2 CUDA, 3 page-locked host */
  int32_t device_id;
} PosencDLDevice;

typedef struct PosencDLDataType {
  uint8_t code; /* 0 signed, 1 unsigned, 2 float, 4 bfloat */
  uint8_t bits;
  uint16_t lanes;
} PosencDLDataType;

typedef struct PosencDLTensor {
  void* data;
  PosencDLDevice device;
  int32_t ndim;
  PosencDLDataType dtype;
  int64_t* shape;
  int64_t* strides; /* elements; null: dense */
  uint64_t byte_offset;
} PosencDLTensor;

typedef struct PosencDLManagedTensor {
  PosencDLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct PosencDLManagedTensor*);
} PosencDLManagedTensor;

typedef struct PosencDLPackVersion {
  uint32_t major, minor;
} PosencDLPackVersion;

typedef struct PosencDLManagedTensorVersioned {
  PosencDLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct PosencDLManagedTensorVersioned*);
  uint64_t flags; /* bit 0 read-only, bit 1 is-copied */
  PosencDLTensor dl_tensor;
} PosencDLManagedTensorVersioned;

#ifdef __cplusplus
}
#endif
#endif
