// SPDX-License-Identifier: Apache-2.0
#include "limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <new>

namespace posenc::bench {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class F>
double best_seconds(F&& f, int samples = 5) {
  double best = 1e30;
  for (int i = 0; i < samples; ++i) {
    const double t = now();
    f();
    best = std::min(best, now() - t);
  }
  return best;
}

void copy_libc_floats(float* to, const float* from, std::size_t n) {
  copy_libc(to, from, 4 * n);
}

}  // namespace

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  const std::size_t align = bytes >= kHuge ? kHuge : 64;
  data_ = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (!data_) throw std::bad_alloc();
  if (bytes >= kHuge) madvise(data_, bytes, MADV_HUGEPAGE);
  std::memset(data_, 0, bytes);
}
Buffer::~Buffer() {
  std::free(data_);
}
SharedBuffer buffer(std::size_t bytes) {
  return std::make_shared<Buffer>(bytes);
}

void copy_libc(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
double fused_multiply_adds_f64(std::size_t n) {
  return multiply_adds_in_use().f64(n, 1);
}

Copy best_copy(std::size_t bytes) {
  static std::mutex mutex;
  static std::map<std::size_t, Copy> known;
  const std::lock_guard lock(mutex);
  if (const auto it = known.find(bytes); it != known.end()) return it->second;
  const SharedBuffer a = buffer(bytes), b = buffer(bytes);
  Copy best = plain_loops().copy;
  double seconds = 1e30;
  for (const Copy c : {plain_loops().copy, plain_loops().copy_streaming, Copy{copy_libc_floats}}) {
    const double t = best_seconds([&] { c(b->as<float>(), a->as<float>(), bytes / 4); });
    if (t < seconds) seconds = t, best = c;
  }
  return known[bytes] = best;
}

Fill best_fill(std::size_t bytes) {
  const SharedBuffer a = buffer(bytes);
  const PlainLoops& loops = plain_loops();
  const double plain = best_seconds([&] { loops.fill(a->as<float>(), bytes / 4, 1); });
  const double streaming =
      best_seconds([&] { loops.fill_streaming(a->as<float>(), bytes / 4, 1); });
  return plain <= streaming ? loops.fill : loops.fill_streaming;
}

double multiply_adds_per_second(const MultiplyAdds& m, double seconds) {
  volatile double sink = 0;
  std::size_t n = 1 << 16;
  const auto once = [&] { sink = m.f32(n, 1); };
  while (best_seconds(once, 1) < seconds / 10) n *= 2;
  return 2 * static_cast<double>(n) / best_seconds(once, 10);
}

std::vector<Limit> machine_limits() {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  const SharedBuffer a = buffer(kBytes), b = buffer(kBytes);
  const std::size_t n = kBytes / 4;
  volatile float sink = 0;
  const PlainLoops& loops = plain_loops();
  const auto rate = [&](double bytes, auto&& f) { return bytes / best_seconds(f) / 1e9; };
  const double once = static_cast<double>(kBytes);
  std::vector<Limit> limits{
      {"in_place", rate(2 * once, [&] { loops.scale_in_place(a->as<float>(), n, 1.0000001f); })},
      {"copy_plain", rate(2 * once, [&] { loops.copy(b->as<float>(), a->as<float>(), n); })},
      {"copy_nt", rate(2 * once, [&] { loops.copy_streaming(b->as<float>(), a->as<float>(), n); })},
      {"copy_libc", rate(2 * once, [&] { copy_libc(b->data(), a->data(), kBytes); })},
      {"write", std::max(rate(once, [&] { loops.fill(b->as<float>(), n, 1); }),
                         rate(once, [&] { loops.fill_streaming(b->as<float>(), n, 1); }))},
      {"read", rate(once, [&] { sink = loops.read(a->as<float>(), n); })}};
  limits.push_back({"fma_f32", multiply_adds_per_second(multiply_adds_in_use(), 0.05) / 1e9});
  for (const MultiplyAdds& m : multiply_adds())
    limits.push_back({"fma_f32_" + m.isa, multiply_adds_per_second(m, 0.02) / 1e9});
  return limits;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

}  // namespace posenc::bench
