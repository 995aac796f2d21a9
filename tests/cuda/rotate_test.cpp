// SPDX-License-Identifier: Apache-2.0
// The rotation on the GPU against the rotation on the host: dtypes, pairings, senses, layouts,
// strides, positions of every type up to 2^37, several axes, decay, other output orders, in place
// and out of place with guards around the output.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/rotate.h"
#include "posenc/posenc.h"
#include "posenc/registry.h"

namespace posenc {
namespace {

void must(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
  std::exit(1);
}

// Bytes on the device, copied from the host and back.
class Buffer {
 public:
  explicit Buffer(const std::vector<unsigned char>& host) : size_(host.size()) {
    must(cudaMalloc(&data_, size_ + 1), "cudaMalloc");
    must(cudaMemcpy(data_, host.data(), size_, cudaMemcpyHostToDevice), "to the device");
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_; }
  std::vector<unsigned char> read() const {
    std::vector<unsigned char> host(size_);
    must(cudaMemcpy(host.data(), data_, size_, cudaMemcpyDeviceToHost), "to the host");
    return host;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_;
};

double value(const unsigned char* p, DType t) {
  if (t == DType::f64) {
    double d;
    std::memcpy(&d, p, 8);
    return d;
  }
  if (t == DType::f32) {
    float f;
    std::memcpy(&f, p, 4);
    return static_cast<double>(f);
  }
  std::uint16_t h;
  std::memcpy(&h, p, 2);
  if (t == DType::bf16) {
    const std::uint32_t bits = std::uint32_t{h} << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return static_cast<double>(f);
  }
  const int exponent = (h >> 10) & 31, fraction = h & 1023;
  const double m =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (h & 0x8000) != 0 ? -m : m;
}

void fill(std::vector<unsigned char>& bytes, DType t) {
  const auto size = static_cast<std::size_t>(size_of(t));
  for (std::size_t i = 0; i * size < bytes.size(); ++i) {
    const double x = std::sin(0.7 * static_cast<double>(i + 1));
    unsigned char* p = bytes.data() + i * size;
    const float f = static_cast<float>(x);
    std::uint32_t bits;
    std::memcpy(&bits, &f, 4);
    if (t == DType::f64) std::memcpy(p, &x, 8);
    if (t == DType::f32) std::memcpy(p, &f, 4);
    const auto upper = static_cast<std::uint16_t>(bits >> 16);
    if (t == DType::bf16) std::memcpy(p, &upper, 2);
    // A half of magnitude 0.5 to 2 with its bits from the counter.
    const auto half =
        static_cast<std::uint16_t>(0x3800 + (i * 37) % 0x0800 + (i % 3 == 0 ? 0x8000 : 0));
    if (t == DType::f16) std::memcpy(p, &half, 2);
  }
}

double unit(DType t) {
  return t == DType::f64 ? 4e-15 : t == DType::f32 ? 1e-6 : t == DType::f16 ? 2.1e-3 : 1.7e-2;
}

struct Case {
  std::string scheme;
  DType dtype = DType::f32;
  RotateMode sense = RotateMode::forward;
  bool in_place = false;
  Index pad = 0;     // channels between heads; an odd number forbids wide accesses
  Index stride = 1;  // of the channels
  DType positions = DType::i64;
  bool key = false;   // the tensor is k: decay runs the other way
  bool near = false;  // positions below 256: decay below 2
};

std::vector<unsigned char> position_bytes(DType t, Index axes, Index rows, bool near) {
  static constexpr double kWhere[] = {
      0, 1, -1, 4095, 131071, 1048575, 2147483647, -2147483648.0, 137438953472.0, 12.0};
  std::vector<unsigned char> out(static_cast<std::size_t>(axes * rows * size_of(t)));
  for (Index i = 0; i < axes * rows; ++i) {
    double p = kWhere[(i * 7 + i / rows) % 10];
    if (t == DType::i32 && std::abs(p) > 2147483647.0) p = 5;
    if (near) p = std::fmod(p, 256);
    if (t == DType::f64) p += 0.25;
    const auto whole = static_cast<std::int64_t>(p);
    const auto narrow = static_cast<std::int32_t>(whole);
    unsigned char* at = out.data() + i * size_of(t);
    if (t == DType::f64) std::memcpy(at, &p, 8);
    if (t == DType::i64) std::memcpy(at, &whole, 8);
    if (t == DType::i32) std::memcpy(at, &narrow, 4);
  }
  return out;
}

Heads view(void* data, const Case& c, Index heads, Index dim) {
  Heads h;
  h.data = data;
  h.batch = 2;
  h.tokens = 10;
  h.heads = heads;
  h.dim = dim;
  h.dtype = c.dtype;
  h.dim_stride = c.stride;
  h.head_stride = dim * c.stride + c.pad;
  h.token_stride = heads * h.head_stride;
  h.batch_stride = h.tokens * h.token_stride;
  return h;
}

// True when the device gives what the host gives.
bool agrees(const Case& c) {
  const RotarySpec spec = resolve(parse_encoding(c.scheme));
  const RotaryPlan plan(spec, c.dtype);
  const Index dim = spec.head_dim, axes = spec.axes();
  const Index elements = 20 * 3 * (dim * c.stride + c.pad);
  std::vector<unsigned char> x(static_cast<std::size_t>(elements * size_of(c.dtype)));
  fill(x, c.dtype);
  const auto where = position_bytes(c.positions, axes, 20, c.near);
  Positions p;
  p.data = where.data();
  p.type = c.positions;
  p.axes = static_cast<std::int32_t>(axes);
  p.count = 10;
  p.batch = 2;
  p.batch_stride = 10;
  p.axis_stride = 20;

  std::vector<unsigned char> want = x, in = x;
  const auto operand = [&](void* data) {
    QK qk;
    (c.key ? qk.k : qk.q) = view(data, c, 3, dim);
    return qk;
  };
  const QK host_in = operand(c.in_place ? want.data() : in.data()), host_out = operand(want.data());
  plan.apply(host_in, host_out, p, c.sense);

  const Buffer from(x), to(x), at(where);
  const cuda::DeviceTables tables(plan.tables());
  const QK device_in = operand(c.in_place ? to.data() : from.data());
  const QK device_out = operand(to.data());
  p.data = at.data();
  // Channels that no block turns, one by one.
  std::vector<detail::Gap> gaps;
  for (Index channel = 0; channel < dim; ++channel) {
    bool turned = false;
    for (const RotaryBlock& b : spec.blocks)
      turned = turned || (channel >= b.offset && channel < b.offset + b.width());
    if (!turned) gaps.push_back({channel, channel + 1});
  }
  detail::RotateCall call;
  call.in = &device_in;
  call.out = &device_out;
  call.blocks = tables.data();
  call.block_count = tables.count();
  call.gaps = gaps.data();
  call.gap_count = static_cast<std::int32_t>(gaps.size());
  call.positions = &p;
  call.mode = c.sense;
  cuda::rotate(call, c.dtype, nullptr);
  must(cudaDeviceSynchronize(), "rotate");
  const auto got = to.read();
  for (Index i = 0; i < elements; ++i) {
    const double a = value(got.data() + i * size_of(c.dtype), c.dtype);
    const double b = value(want.data() + i * size_of(c.dtype), c.dtype);
    if (std::abs(a - b) <= unit(c.dtype) * (1 + std::abs(b))) continue;
    std::fprintf(stderr,
                 "%s %s %s%s pad %d stride %d positions %s: element %d is %.9g, want %.9g\n",
                 c.scheme.c_str(), std::string(dtype_name(c.dtype)).c_str(),
                 std::string(enum_text(c.sense)).c_str(), c.in_place ? " in place" : "",
                 static_cast<int>(c.pad), static_cast<int>(c.stride),
                 std::string(dtype_name(c.positions)).c_str(), static_cast<int>(i), a, b);
    return false;
  }
  return true;
}

// The same from rows of cosine and sine, of each token or by number.
bool rows_agree(const Case& c, DType row_type, bool indexed) {
  const RotarySpec spec = resolve(parse_encoding(c.scheme));
  const RotaryPlan plan(spec, c.dtype);
  const Index dim = spec.head_dim, pairs = spec.blocks[0].pairs(), rows = indexed ? 300 : 10;
  const Index elements = 20 * 3 * (dim * c.stride + c.pad), size = size_of(row_type);
  std::vector<unsigned char> x(static_cast<std::size_t>(elements * size_of(c.dtype)));
  fill(x, c.dtype);
  std::vector<unsigned char> cos(static_cast<std::size_t>(rows * pairs * size)), sin = cos;
  fill(cos, row_type);
  // The same numbers from the end: no cosine belongs to its sine, as nothing says that it must.
  for (std::size_t i = 0; i < sin.size(); i += static_cast<std::size_t>(size))
    std::copy_n(cos.begin() + static_cast<std::ptrdiff_t>(sin.size() - i) - size, size,
                sin.begin() + static_cast<std::ptrdiff_t>(i));
  const auto where = position_bytes(DType::i64, 1, 20, true);
  std::vector<unsigned char> forward_where = where;
  for (std::size_t i = 0; i < 20; ++i) {  // rows are counted from 0
    std::int64_t p = 0;
    std::memcpy(&p, where.data() + 8 * i, 8);
    p = p < 0 ? -p : p;
    std::memcpy(forward_where.data() + 8 * i, &p, 8);
  }
  Positions p;
  p.data = forward_where.data();
  p.count = 10, p.batch = 2, p.batch_stride = 10;
  std::vector<unsigned char> want = x, in = x;
  const auto operand = [&](void* data) { return QK{view(data, c, 3, dim), {}}; };
  CallerRows host;
  host.cos = tensor(static_cast<const void*>(cos.data()), row_type, {rows, pairs});
  host.sin = tensor(static_cast<const void*>(sin.data()), row_type, {rows, pairs});
  if (indexed) host.index = p;
  plan.apply_rows(operand(c.in_place ? want.data() : in.data()), operand(want.data()), host,
                  c.sense);

  const Buffer from(x), to(x), at(forward_where), device_cos(cos), device_sin(sin);
  const cuda::DeviceTables tables(plan.tables());
  p.data = at.data();
  detail::RowSource source;
  source.kind = detail::RowSource::Kind::caller;
  source.cos = {device_cos.data(), row_type, 0, pairs, 0, 1};
  source.sin = {device_sin.data(), row_type, 0, pairs, 0, 1};
  if (indexed) source.index = &p;
  const QK device_in = operand(c.in_place ? to.data() : from.data());
  const QK device_out = operand(to.data());
  const detail::Gap gap{spec.blocks[0].width(), dim};
  detail::RotateCall call;
  call.in = &device_in;
  call.out = &device_out;
  call.blocks = tables.data();
  call.block_count = 1;
  call.gaps = &gap;
  call.gap_count = gap.begin < gap.end ? 1 : 0;
  call.rows = &source;
  call.mode = c.sense;
  cuda::rotate(call, c.dtype, nullptr);
  must(cudaDeviceSynchronize(), "rotate by rows");
  const auto got = to.read();
  for (Index i = 0; i < elements; ++i) {
    const double a = value(got.data() + i * size_of(c.dtype), c.dtype);
    const double b = value(want.data() + i * size_of(c.dtype), c.dtype);
    if (std::abs(a - b) <= unit(c.dtype) * (1 + std::abs(b))) continue;
    std::fprintf(stderr, "%s rows %s %s%s: element %d is %.9g, want %.9g\n", c.scheme.c_str(),
                 std::string(dtype_name(row_type)).c_str(),
                 std::string(dtype_name(c.dtype)).c_str(), c.in_place ? " in place" : "",
                 static_cast<int>(i), a, b);
    return false;
  }
  return true;
}

void try_rows(int& cases, int& wrong) {
  for (const char* scheme :
       {"rope head_dim=64 pairing=half_split", "rope head_dim=64 pairing=interleaved",
        "rope head_dim=80 rotary_dim=32 pairing=half_split"})
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
      for (const RotateMode sense : {RotateMode::forward, RotateMode::gradient})
        for (const bool in_place : {false, true})
          for (const bool indexed : {false, true})
            for (const Index pad : {0, 1}) {
              ++cases;
              const DType rows = dtype == DType::f64 ? DType::f64 : DType::f32;
              wrong += !rows_agree({scheme, dtype, sense, in_place, pad}, rows, indexed);
            }
}

int run() {
  const std::vector<std::string> schemes{
      "rope head_dim=64 pairing=half_split",
      "rope head_dim=64 pairing=interleaved",
      "rope head_dim=80 rotary_dim=32 pairing=half_split",
      "rope head_dim=192 rotary_dim=64 offset=128 pairing=interleaved",
      "rope head_dim=22 rotary_dim=14 offset=3 pairing=half_split direction=-1",
      "rope head_dim=64 pairing=interleaved output_order=even_then_odd",
      "rope head_dim=64 pairing=half_split + yarn factor=4 original_context=256",
      "mrope head_dim=64 pairing=half_split sections=[8,12,12] layout=chunked"};
  int cases = 0, wrong = 0;
  for (const std::string& scheme : schemes)
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
      for (const RotateMode sense :
           {RotateMode::forward, RotateMode::gradient, RotateMode::inverse, RotateMode::shift})
        for (const bool in_place : {false, true})
          for (const Index pad : {0, 1, 16})
            for (const Index stride : {1, 2})
              for (const DType positions : {DType::i64, DType::i32, DType::f64}) {
                ++cases;
                wrong += !agrees(
                    {scheme, dtype, sense, in_place, pad, stride, positions, pad == 1, false});
              }
  for (const char* scheme : {"xpos head_dim=64 pairing=interleaved center=100",
                             "xpos head_dim=64 rotary_dim=40 pairing=half_split center=0"})
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
      for (const RotateMode sense :
           {RotateMode::forward, RotateMode::gradient, RotateMode::inverse, RotateMode::shift})
        for (const bool key : {false, true})
          for (const DType positions : {DType::i64, DType::f64}) {
            ++cases;
            wrong += !agrees({scheme, dtype, sense, false, 0, 1, positions, key, true});
          }
  try_rows(cases, wrong);
  std::printf("%d of %d cases agree with the host\n", cases - wrong, cases);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace posenc

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no GPU found: not run\n");
    return 0;
  }
  return posenc::run();
}
