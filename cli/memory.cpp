// SPDX-License-Identifier: Apache-2.0
// The program's operator new: std::bad_alloc does not say how much was asked for.
#include "program.h"

#include <fmt/format.h>

#include <cstdlib>
#include <new>

#include "posenc/report/text.h"

namespace {

thread_local std::size_t refused_bytes = 0;

}  // namespace

void* operator new(std::size_t bytes) {
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  refused_bytes = bytes;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

namespace posenc::cli {

std::string not_enough_memory() {
  if (refused_bytes == 0) return "not enough memory";
  return fmt::format("not enough memory: {} were asked for",
                     report::bytes_text(static_cast<double>(refused_bytes)));
}

}  // namespace posenc::cli
