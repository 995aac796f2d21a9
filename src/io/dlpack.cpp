// SPDX-License-Identifier: Apache-2.0
// DLPack: https://dmlc.github.io/dlpack/latest/c_api.html
#include "posenc/io/dlpack.h"

#include <cstddef>
#include <limits>
#include <string>

#include "posenc/core/error.h"

// The ABI, byte for byte.
static_assert(sizeof(PosencDLTensor) == 48 && offsetof(PosencDLTensor, data) == 0 &&
              offsetof(PosencDLTensor, device) == 8 && offsetof(PosencDLTensor, ndim) == 16 &&
              offsetof(PosencDLTensor, dtype) == 20 && offsetof(PosencDLTensor, shape) == 24 &&
              offsetof(PosencDLTensor, strides) == 32 &&
              offsetof(PosencDLTensor, byte_offset) == 40);
static_assert(sizeof(PosencDLDevice) == 8 && sizeof(PosencDLDataType) == 4);
static_assert(sizeof(PosencDLManagedTensor) == 64 &&
              offsetof(PosencDLManagedTensor, manager_ctx) == 48 &&
              offsetof(PosencDLManagedTensor, deleter) == 56);
static_assert(sizeof(PosencDLManagedTensorVersioned) == 80 &&
              offsetof(PosencDLManagedTensorVersioned, version) == 0 &&
              offsetof(PosencDLManagedTensorVersioned, manager_ctx) == 8 &&
              offsetof(PosencDLManagedTensorVersioned, deleter) == 16 &&
              offsetof(PosencDLManagedTensorVersioned, flags) == 24 &&
              offsetof(PosencDLManagedTensorVersioned, dl_tensor) == 32);

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kDlpack = "dlpack";

enum DeviceType : std::int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };
enum TypeCode : std::uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6 };
constexpr std::uint32_t kMajor = 1;
constexpr std::uint64_t kReadOnly = 1;

struct Type {
  std::uint8_t code, bits;
};
constexpr Type kTypes[] = {{kFloat, 64}, {kFloat, 32}, {kFloat, 16}, {kBfloat, 16},
                           {kInt, 64},   {kInt, 32},   {kUInt, 8}};  // in the order of DType

DType dtype_of_dlpack(const PosencDLDataType& t) {
  if (t.lanes != 1) refuse_field(kDlpack, "lanes", "must be 1", Index{t.lanes});
  if (t.code == kBool && t.bits == 8) return DType::u8;
  for (std::size_t i = 0; i < std::size(kTypes); ++i)
    if (kTypes[i].code == t.code && kTypes[i].bits == t.bits) return static_cast<DType>(i);
  refuse_field(kDlpack, "type",
               "must be a float of 64, 32 or 16 bits, bfloat16, i64, i32, u8 or bool",
               "code " + std::to_string(t.code) + " bits " + std::to_string(t.bits));
}

Device device_of_dlpack(const PosencDLDevice& d) {
  switch (d.device_type) {
    case kCpu:
    case kCudaHost:  // pinned memory of the CPU
      return Device::cpu;
    case kCuda:
    case kCudaManaged:
      return Device::cuda;
    default:
      refuse_field(kDlpack, "device",
                   "must be CPU (1), CUDA (2), CUDA host (3) or CUDA managed (13)",
                   Index{d.device_type});
  }
}

// The farthest element on either side must be addressable.
void check_reach(const ConstTensorView& v) {
  Index reach = 0;
  for (std::int32_t i = 0; i < v.rank; ++i) {
    const auto a = static_cast<std::size_t>(i);
    if (v.shape[a] == 0) return;
    const Index step = v.stride[a];
    if (step == std::numeric_limits<Index>::min())
      refuse_field(kDlpack, "strides", "must fit 63 bits", step);
    const Index last = v.shape[a] - 1, magnitude = step < 0 ? -step : step;
    const Index room = kUnbounded / size_of(v.dtype) - reach;
    if (last > 0 && magnitude > room / last)
      refuse_field(kDlpack, "strides",
                   "must stay within 2^63 bytes of the first element, too large", step);
    reach += last * magnitude;
  }
}

template <class Data>
PosencDLTensor dlpack_of(BasicTensorView<Data>& view) {
  const Type type = kTypes[static_cast<std::size_t>(view.dtype)];
  PosencDLTensor t{};
  t.data = const_cast<void*>(view.data);
  t.device = {view.device == Device::cuda ? kCuda : kCpu, view.device_id};
  t.ndim = view.rank;
  t.dtype = {type.code, type.bits, 1};
  t.shape = view.shape.data();
  t.strides = view.stride.data();
  t.byte_offset = 0;
  return t;
}

void check_version(const PosencDLManagedTensorVersioned& t) {
  if (t.version.major != kMajor) refuse(kDlpack, "major version must be 1", Index{t.version.major});
}

}  // namespace

TensorView from_dlpack(const PosencDLTensor& t) {
  const DType dtype = dtype_of_dlpack(t.dtype);
  if (t.ndim < 0 || t.ndim > TensorView::kMaxRank)
    refuse_field(kDlpack, "rank", "must be 0 to 5", Index{t.ndim});
  if (t.ndim > 0 && t.shape == nullptr) refuse_field(kDlpack, "shape", "must not be null");
  if (t.device.device_id < 0 || t.device.device_id > std::numeric_limits<std::int16_t>::max())
    refuse(kDlpack, "device id must be 0 to 32767", Index{t.device.device_id});
  const auto size = static_cast<std::uint64_t>(size_of(dtype));
  if (t.byte_offset % size != 0 || t.byte_offset > static_cast<std::uint64_t>(kUnbounded))
    refuse(kDlpack, "byte offset must be whole elements", std::to_string(t.byte_offset));
  auto* data = t.data;
  if (data != nullptr && t.byte_offset > 0)
    data = static_cast<std::byte*>(data) + static_cast<std::ptrdiff_t>(t.byte_offset);
  if (reinterpret_cast<std::uintptr_t>(data) % size != 0)
    refuse_field(kDlpack, "data", "must be aligned to its elements");
  const std::span<const Index> shape(t.shape, static_cast<std::size_t>(t.ndim));
  TensorView v = t.strides == nullptr
                     ? tensor(data, dtype, shape)
                     : tensor(data, dtype, shape, std::span<const Index>(t.strides, shape.size()));
  v.device = device_of_dlpack(t.device);
  v.device_id = static_cast<std::int16_t>(t.device.device_id);
  check_reach(v);
  return v;
}

TensorView from_dlpack(const PosencDLManagedTensorVersioned& t) {
  check_version(t);
  if ((t.flags & kReadOnly) != 0)
    refuse(kDlpack, "a tensor to write must not be read-only, its flags are",
           std::to_string(t.flags));
  return from_dlpack(t.dl_tensor);
}

ConstTensorView const_from_dlpack(const PosencDLTensor& t) {
  return from_dlpack(t);
}

ConstTensorView const_from_dlpack(const PosencDLManagedTensorVersioned& t) {
  check_version(t);
  return from_dlpack(t.dl_tensor);
}

PosencDLTensor to_dlpack(TensorView& view) {
  return dlpack_of(view);
}
PosencDLTensor to_dlpack(ConstTensorView& view) {
  return dlpack_of(view);
}

}  // namespace posenc::v0
