// SPDX-License-Identifier: Apache-2.0
#include "core/memory_limit.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

// The number in a file of the system; 0 where there is none ("max").
std::size_t number_in(const char* path) noexcept {
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return 0;
  unsigned long long n = 0;
  const bool read = std::fscanf(file, "%llu", &n) == 1;
  std::fclose(file);
  return read ? static_cast<std::size_t>(n) : 0;
}

std::size_t look_up() noexcept {
  std::size_t least = std::numeric_limits<std::size_t>::max();
  struct sysinfo info = {};
  if (sysinfo(&info) == 0)
    least = (std::size_t{info.totalram} + info.totalswap) * std::max(info.mem_unit, 1U);
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
    if (const std::size_t n = number_in(path); n > 0) least = std::min(least, n);
  return least == std::numeric_limits<std::size_t>::max() ? 0 : least;
}

}  // namespace

std::size_t memory_limit() noexcept {
  static const std::size_t limit = look_up();
  return limit;
}

void check_memory(std::string_view who, std::string_view what, std::size_t bytes) {
  const std::size_t limit = memory_limit();
  if (limit > 0 && bytes > limit)
    throw OutOfMemory(who, what, bytes, "this machine has " + std::to_string(limit));
}

void refuse_memory(std::string_view who, std::string_view what, std::size_t bytes) {
  throw OutOfMemory(who, what, bytes, "the system did not provide it");
}

}  // namespace posenc::v0::detail
