// SPDX-License-Identifier: Apache-2.0
// posenc_cuda_bench [--check] [--json]: the rotation of 32 heads of queries and 8 of keys, 128 channels, on a GPU, beside
// a copy and an in-place scale of the same bytes on the same device. Results are checked first, against double on the
// host. Less than three minutes. Exit code 1: a result is wrong; 4: no GPU.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/rotate.h"
#include "device_memory.h"
#include "posenc/io/json.h"
#include "posenc/posenc.h"
#include "posenc/registry.h"

namespace posenc::bench {
namespace {

constexpr Index kQueryHeads = 32, kKeyHeads = 8, kDim = 128, kPairs = kDim / 2;
constexpr Index kHeads = kQueryHeads + kKeyHeads;
constexpr Index kFirst = 1000;  // position of the first token

void must(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  std::fprintf(stderr, "posenc_cuda_bench: %s: %s\n", what, cudaGetErrorString(e));
  std::exit(4);
}

class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    must(cudaMalloc(&data_, bytes), "cudaMalloc");
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void write(const void* from) {
    must(cudaMemcpy(data_, from, bytes_, cudaMemcpyHostToDevice), "to the device");
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

std::uint16_t bf16_of(float x) {  // to nearest, ties to even
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, 4);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
float of_bf16(std::uint16_t h) {
  const std::uint32_t bits = std::uint32_t{h} << 16;
  float x = 0;
  std::memcpy(&x, &bits, 4);
  return x;
}

struct Setting {
  Index tokens;
  DType dtype;
  bool in_place, table;

  std::string name() const {
    return "rotate/" + std::string(dtype_name(dtype)) + (in_place ? "/in_place" : "/out_of_place") +
           (table ? "/table/" : "/phase/") + std::to_string(tokens);
  }
  std::size_t bytes() const {
    return static_cast<std::size_t>(tokens * kHeads * kDim * size_of(dtype));
  }
};

float number(std::size_t i) {  // of element i, exact in bf16
  return of_bf16(
      bf16_of(static_cast<float>(static_cast<int>(i * 2654435761u % 2001u) - 1000) / 500));
}

// One setting on the device: tensors, tables, positions, and the call.
class Run {
 public:
  Run(const Setting& s, const RotaryPlan& plan)
      : setting_(s),
        x_(s.bytes()),
        y_(s.bytes()),
        cos_(table_bytes(s)),
        sin_(table_bytes(s)),
        at_(static_cast<std::size_t>(8 * s.tokens)),
        tables_(plan.tables()) {
    fill();
    std::vector<float> cos, sin;
    for (Index t = 0; s.table && t < s.tokens; ++t)
      for (Index i = 0; i < kPairs; ++i) {
        cos.push_back(static_cast<float>(std::cos(phase(t, i))));
        sin.push_back(static_cast<float>(std::sin(phase(t, i))));
      }
    if (s.table) cos_.write(cos.data()), sin_.write(sin.data());
    std::vector<std::int64_t> positions;
    for (Index t = 0; t < s.tokens; ++t) positions.push_back(kFirst + t);
    at_.write(positions.data());
    p_.data = at_.data();
    p_.count = s.tokens;
    rows_.kind = detail::RowSource::Kind::caller;
    rows_.cos = {cos_.data(), DType::f32, 0, kPairs, 0, 1};
    rows_.sin = {sin_.data(), DType::f32, 0, kPairs, 0, 1};
    in_ = operand(x_.data());
    out_ = operand(s.in_place ? x_.data() : y_.data());
    call_.in = &in_, call_.out = &out_;
    call_.blocks = tables_.data(), call_.block_count = tables_.count();
    if (s.table)
      call_.rows = &rows_;
    else
      call_.positions = &p_;
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void rotate(cudaStream_t stream) { cuda::rotate(call_, setting_.dtype, stream); }
  void copy(cudaStream_t stream) { copy_on_device(y_.data(), x_.data(), setting_.bytes(), stream); }
  void copy_by_driver(cudaStream_t stream) {
    must(cudaMemcpyAsync(y_.data(), x_.data(), setting_.bytes(), cudaMemcpyDeviceToDevice, stream),
         "copy");
  }
  void scale(cudaStream_t stream) {
    scale_on_device(x_.data(), setting_.bytes(), setting_.dtype == DType::f32, stream);
  }

  // The largest error of up to 64 tokens, over what may be off: 1 is the limit.
  double error() {
    fill();
    rotate(nullptr);
    must(cudaDeviceSynchronize(), "rotate");
    std::vector<unsigned char> got(setting_.bytes());
    must(cudaMemcpy(got.data(), (setting_.in_place ? x_ : y_).data(), got.size(),
                    cudaMemcpyDeviceToHost),
         "to the host");
    const Index step = std::max<Index>(1, setting_.tokens / 64);
    double worst = 0;
    for (Index t = 0; t < setting_.tokens; t += step)
      for (Index h = 0; h < kHeads; ++h)
        for (Index i = 0; i < kPairs; ++i) worst = std::max(worst, pair_error(got, t, h, i));
    fill();
    return worst;
  }

 private:
  static std::size_t table_bytes(const Setting& s) {
    return static_cast<std::size_t>(4 * kPairs * (s.table ? s.tokens : 1));
  }
  static double phase(Index token, Index pair) {
    return static_cast<double>(kFirst + token) *
           std::pow(500000.0, -static_cast<double>(pair) / kPairs);
  }
  // Queries of all tokens, then keys of all tokens.
  Index element(Index token, Index head, Index channel) const {
    if (head < kQueryHeads) return (token * kQueryHeads + head) * kDim + channel;
    return (setting_.tokens * kQueryHeads + token * kKeyHeads + head - kQueryHeads) * kDim +
           channel;
  }
  double read(const std::vector<unsigned char>& from, Index i) const {
    if (setting_.dtype == DType::f32) {
      float x = 0;
      std::memcpy(&x, from.data() + 4 * i, 4);
      return static_cast<double>(x);
    }
    std::uint16_t h = 0;
    std::memcpy(&h, from.data() + 2 * i, 2);
    return static_cast<double>(of_bf16(h));
  }
  double pair_error(const std::vector<unsigned char>& got, Index t, Index h, Index i) const {
    const Index low = element(t, h, i), high = element(t, h, i + kPairs);
    const auto a = static_cast<double>(number(static_cast<std::size_t>(low)));
    const auto b = static_cast<double>(number(static_cast<std::size_t>(high)));
    const double c = std::cos(phase(t, i)), s = std::sin(phase(t, i));
    // Cosine and sine within 1.2e-7, products of numbers up to 2, one rounding.
    const auto allowed = [&](double want) {
      return 1e-6 + (setting_.dtype == DType::f32 ? 0x1p-23 : 0x1p-8) * std::abs(want);
    };
    const double low_want = a * c - b * s, high_want = a * s + b * c;
    const double worst = std::max(std::abs(read(got, low) - low_want) / allowed(low_want),
                                  std::abs(read(got, high) - high_want) / allowed(high_want));
    return std::isnan(worst) ? HUGE_VAL : worst;
  }
  void fill() {
    std::vector<unsigned char> host(setting_.bytes());
    const auto size = static_cast<std::size_t>(size_of(setting_.dtype));
    for (std::size_t i = 0; i * size < host.size(); ++i) {
      const float x = number(i);
      const std::uint16_t half = bf16_of(x);
      std::memcpy(host.data() + i * size, size == 4 ? static_cast<const void*>(&x) : &half, size);
    }
    x_.write(host.data());
    y_.write(host.data());
  }
  QK operand(void* data) const {
    auto* keys = static_cast<unsigned char*>(data) +
                 setting_.tokens * kQueryHeads * kDim * size_of(setting_.dtype);
    return {view(data, kQueryHeads), view(keys, kKeyHeads)};
  }
  Heads view(void* data, Index heads) const {
    Heads h;
    h.data = data;
    h.batch = 1, h.tokens = setting_.tokens, h.heads = heads, h.dim = kDim;
    h.dtype = setting_.dtype;
    h.dim_stride = 1, h.head_stride = kDim, h.token_stride = heads * kDim;
    h.batch_stride = setting_.tokens * h.token_stride;
    return h;
  }

  Setting setting_;
  Memory x_, y_, cos_, sin_, at_;
  cuda::DeviceTables tables_;
  Positions p_;
  detail::RowSource rows_;
  QK in_, out_;
  detail::RotateCall call_;
};

// Medians of samples taken in turns, microseconds a call. Each sample holds as many calls as fill a millisecond.
std::vector<double> in_turns(const std::vector<std::function<void(cudaStream_t)>>& calls,
                             double seconds) {
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  must(cudaStreamCreate(&stream), "stream");
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  const auto sample = [&](const std::function<void(cudaStream_t)>& call, int repeats) {
    must(cudaEventRecord(begin, stream), "event");
    for (int i = 0; i < repeats; ++i) call(stream);
    must(cudaEventRecord(end, stream), "event");
    must(cudaEventSynchronize(end), "run");
    float milliseconds = 0;
    must(cudaEventElapsedTime(&milliseconds, begin, end), "event");
    return 1e3 * static_cast<double>(milliseconds) / repeats;
  };
  std::vector<int> repeats;
  for (const auto& call : calls) {
    sample(call, 10);
    repeats.push_back(static_cast<int>(std::clamp(1000 / sample(call, 10), 1.0, 1000.0)) + 1);
  }
  std::vector<std::vector<double>> all(calls.size());
  const auto from = std::chrono::steady_clock::now();
  while (all[0].size() < 5 ||
         std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count() < seconds)
    for (std::size_t i = 0; i < calls.size(); ++i) all[i].push_back(sample(calls[i], repeats[i]));
  std::vector<double> medians;
  for (std::vector<double>& samples : all) {
    std::nth_element(samples.begin(),
                     samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2),
                     samples.end());
    medians.push_back(samples[samples.size() / 2]);
  }
  must(cudaEventDestroy(begin), "event");
  must(cudaEventDestroy(end), "event");
  must(cudaStreamDestroy(stream), "stream");
  return medians;
}

Json measured(const Setting& s, Run& run, double error, bool json) {
  const std::vector<double> us = in_turns({[&](cudaStream_t stream) { run.rotate(stream); },
                                           [&](cudaStream_t stream) { run.copy(stream); },
                                           [&](cudaStream_t stream) { run.copy_by_driver(stream); },
                                           [&](cudaStream_t stream) { run.scale(stream); }},
                                          3);
  const double copy = std::min(us[1], us[2]);
  if (!json)
    std::printf(
        "%-40s %9.2f us  %7.0f GB/s  copy %9.2f us  %5.1f %% of it  scale %9.2f us  error %.2f of "
        "the bound\n",
        s.name().c_str(), us[0], 2e-3 * static_cast<double>(s.bytes()) / us[0], copy,
        100 * copy / us[0], us[3], error);
  return Json::object({{"name", Json(s.name())},
                       {"seconds", Json(us[0] * 1e-6)},
                       {"bytes", Json(static_cast<double>(2 * s.bytes()))},
                       {"copy_seconds", Json(us[1] * 1e-6)},
                       {"driver_copy_seconds", Json(us[2] * 1e-6)},
                       {"scale_seconds", Json(us[3] * 1e-6)},
                       {"of_copy", Json(copy / us[0])},
                       {"error", Json(error)}});
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const Index tokens : {32768, 64, 1})
    for (const DType dtype : {DType::bf16, DType::f32})
      for (const bool in_place : {true, false})
        for (const bool table : {false, true}) all.push_back({tokens, dtype, in_place, table});
  return all;
}

int run(bool check, bool json) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "posenc_cuda_bench: no GPU found: not run\n");
    return 4;
  }
  cudaDeviceProp about{};
  must(cudaGetDeviceProperties(&about, 0), "device");
  if (!json) std::printf("%s, compute capability %d.%d\n", about.name, about.major, about.minor);
  Json lines = Json::array();
  int wrong = 0;
  for (const Setting& s : settings()) {
    const RotaryPlan plan(
        resolve(parse_encoding("rope head_dim=128 pairing=half_split base=500000")), s.dtype);
    Run one(s, plan);
    const double error = one.error();
    if (!(error <= 1)) {
      std::fprintf(stderr, "posenc_cuda_bench: %s is wrong: %g times what may be off\n",
                   s.name().c_str(), error);
      ++wrong;
    } else if (!check) {
      lines.push(measured(s, one, error, json));
    }
  }
  if (check && wrong == 0) std::printf("%zu settings are right\n", settings().size());
  if (json)
    std::printf("%s\n", Json::object({{"schema", Json("posenc.cuda_bench/1")},
                                      {"device", Json(about.name)},
                                      {"results", lines}})
                            .dump(2)
                            .c_str());
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace posenc::bench

int main(int argc, char** argv) {
  bool check = false, json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    check = check || word == "--check";
    json = json || word == "--json";
    if (word == "--check" || word == "--json") continue;
    std::fprintf(stderr, "usage: posenc_cuda_bench [--check] [--json]\n");
    return 2;
  }
  try {
    return posenc::bench::run(check, json);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "posenc_cuda_bench: %s\n", e.what());
    return 1;
  }
}
