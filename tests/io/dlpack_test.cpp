// SPDX-License-Identifier: Apache-2.0
#include "posenc/io/dlpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace posenc {
namespace {

struct Sample {
  std::vector<float> data = std::vector<float>(24);
  std::int64_t shape[6] = {2, 3, 4, 1, 1, 1};
  std::int64_t strides[6] = {12, 4, 1, 1, 1, 1};
  PosencDLTensor tensor() { return {data.data(), {1, 0}, 3, {2, 32, 1}, shape, strides, 0}; }
};

std::string refusal(const PosencDLTensor& t) {
  try {
    from_dlpack(t);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

TEST(DLPack, ViewsTheSameMemory) {
  Sample s;
  const TensorView v = from_dlpack(s.tensor());
  EXPECT_EQ(v.data, s.data.data());
  EXPECT_EQ(v.dtype, DType::f32);
  EXPECT_EQ(v.rank, 3);
  EXPECT_EQ(v.shape[1], 3);
  EXPECT_EQ(v.stride[0], 12);
  EXPECT_EQ(v.device, Device::cpu);
  EXPECT_TRUE(is_dense(v));
}

TEST(DLPack, NullStridesAreDense) {
  Sample s;
  PosencDLTensor t = s.tensor();
  t.strides = nullptr;
  EXPECT_EQ(from_dlpack(t).stride, from_dlpack(s.tensor()).stride);
  t.ndim = 0;
  t.shape = nullptr;
  EXPECT_EQ(from_dlpack(t).count(), 1);
}

TEST(DLPack, OffsetsAndStridesOfAnySign) {
  Sample s;
  PosencDLTensor t = s.tensor();
  t.byte_offset = 12 * sizeof(float);
  s.strides[0] = -12;
  const TensorView v = from_dlpack(t);
  EXPECT_EQ(v.data, s.data.data() + 12);
  EXPECT_EQ(v.stride[0], -12);
  t.byte_offset = 2;
  EXPECT_THAT(refusal(t), testing::HasSubstr("[dlpack] byte offset"));
}

TEST(DLPack, EveryType) {
  Sample s;
  const std::pair<PosencDLDataType, DType> types[] = {
      {{2, 64, 1}, DType::f64},  {{2, 32, 1}, DType::f32}, {{2, 16, 1}, DType::f16},
      {{4, 16, 1}, DType::bf16}, {{0, 64, 1}, DType::i64}, {{0, 32, 1}, DType::i32},
      {{1, 8, 1}, DType::u8},    {{6, 8, 1}, DType::u8}};
  for (const auto& [code, dtype] : types) {
    PosencDLTensor t = s.tensor();
    t.dtype = code;
    TensorView v = from_dlpack(t);
    EXPECT_EQ(v.dtype, dtype);
    const PosencDLTensor back = to_dlpack(v);
    if (code.code != 6) {
      EXPECT_EQ(back.dtype.code, code.code);
      EXPECT_EQ(back.dtype.bits, code.bits);
    }
    EXPECT_EQ(back.dtype.lanes, 1);
  }
  for (const PosencDLDataType bad : {PosencDLDataType{2, 32, 2},
                                     {2, 32, 0},
                                     {2, 8, 1},
                                     {5, 64, 1},
                                     {3, 64, 1},
                                     {1, 64, 1},
                                     {0, 8, 1},
                                     {4, 32, 1},
                                     {255, 255, 1}}) {
    PosencDLTensor t = s.tensor();
    t.dtype = bad;
    EXPECT_NE(refusal(t), "") << int{bad.code} << " " << int{bad.bits};
  }
}

TEST(DLPack, Devices) {
  Sample s;
  PosencDLTensor t = s.tensor();
  for (const auto& [code, device] : {std::pair(1, Device::cpu), std::pair(2, Device::cuda),
                                     std::pair(3, Device::cpu), std::pair(13, Device::cuda)}) {
    t.device = {code, 5};
    EXPECT_EQ(from_dlpack(t).device, device) << code;
    EXPECT_EQ(from_dlpack(t).device_id, 5);
  }
  for (const int bad : {0, 4, 7, 8, 10, -1, 99}) {
    t.device = {bad, 0};
    EXPECT_THAT(refusal(t), testing::HasSubstr("device")) << bad;
  }
  t.device = {2, 40000};
  EXPECT_THAT(refusal(t), testing::HasSubstr("device id"));
}

TEST(DLPack, HostileShapes) {
  Sample s;
  PosencDLTensor t = s.tensor();
  t.ndim = 6;
  EXPECT_THAT(refusal(t), testing::HasSubstr("rank"));
  t.ndim = -1;
  EXPECT_THAT(refusal(t), testing::HasSubstr("rank"));
  t = s.tensor();
  t.shape = nullptr;
  EXPECT_THAT(refusal(t), testing::HasSubstr("shape"));
  t = s.tensor();
  t.data = nullptr;
  EXPECT_THAT(refusal(t), testing::HasSubstr("null"));
  s.shape[0] = 0;
  EXPECT_EQ(refusal(t), "") << "nothing to point to";
  s.shape[0] = -2;
  EXPECT_NE(refusal(s.tensor()), "");
  s.shape[0] = s.shape[1] = std::int64_t{1} << 32;
  EXPECT_NE(refusal(s.tensor()), "");
  s = Sample();
  for (const std::int64_t stride :
       {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(),
        std::int64_t{1} << 61, -(std::int64_t{1} << 61)}) {
    s.strides[0] = stride;
    EXPECT_THAT(refusal(s.tensor()), testing::HasSubstr("strides")) << stride;
  }
  s = Sample();
  t = s.tensor();
  t.byte_offset = std::numeric_limits<std::uint64_t>::max() - 3;
  EXPECT_NE(refusal(t), "");
  t = s.tensor();
  t.data = reinterpret_cast<std::byte*>(s.data.data()) + 1;
  EXPECT_THAT(refusal(t), testing::HasSubstr("aligned"));
}

TEST(DLPack, Versioned) {
  Sample s;
  PosencDLManagedTensorVersioned t{};
  t.version = {1, 0};
  t.dl_tensor = s.tensor();
  EXPECT_EQ(from_dlpack(t).data, s.data.data());
  t.flags = 1;
  EXPECT_EQ(const_from_dlpack(t).data, s.data.data());
  try {
    from_dlpack(t);
    ADD_FAILURE() << "a read-only tensor was taken";
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(),
                 "[dlpack] a tensor to write must not be read-only, its flags are, got \"1\"");
  }
  t.flags = 2;
  t.version = {1, 3};
  EXPECT_EQ(from_dlpack(t).data, s.data.data());
  t.version = {2, 0};
  EXPECT_THROW(from_dlpack(t), std::invalid_argument);
  EXPECT_THROW(const_from_dlpack(t), std::invalid_argument);
}

TEST(DLPack, ThereAndBack) {
  Sample s;
  s.strides[1] = -4;
  ConstTensorView v = const_from_dlpack(s.tensor());
  const PosencDLTensor t = to_dlpack(v);
  const ConstTensorView again = const_from_dlpack(t);
  EXPECT_EQ(again.data, v.data);
  EXPECT_EQ(again.shape, v.shape);
  EXPECT_EQ(again.rank, v.rank);
  EXPECT_EQ(again.device, v.device);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(again.stride[i], v.stride[i]);
  EXPECT_EQ(t.shape, v.shape.data()) << "the view owns shape and strides";
}

}  // namespace
}  // namespace posenc
