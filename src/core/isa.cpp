// SPDX-License-Identifier: Apache-2.0
// Isa over Highway's targets.
#include "posenc/core/isa.h"

#include <hwy/targets.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/isa_table.h"
#include "core/known_enum.h"
#include "posenc/core/error.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif
#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace posenc::inline v0 {
namespace {

constexpr std::array<std::string_view, 8> kIsaNames{"scalar", "ssse3", "sse4", "avx2",
                                                    "avx512", "neon",  "sve",  "sve2"};
// Better targets have lower bits. The build takes HWY_SCALAR as its fall-back, others HWY_EMU128.
constexpr std::array<std::int64_t, 8> kTargets{HWY_SCALAR | HWY_EMU128,
                                               HWY_SSSE3,
                                               HWY_SSE4,
                                               HWY_AVX2,
                                               HWY_AVX3_DL | HWY_AVX3,
                                               HWY_NEON,
                                               HWY_SVE_256 | HWY_SVE,
                                               HWY_SVE2_128 | HWY_SVE2};

constexpr int kUndecided = -1;
// The instruction set in use, and whether native entries are.
std::atomic<int> active{kUndecided};
std::atomic<bool> native{true};

// The target that serves `isa` on this machine in this build, 0 when none does.
std::int64_t target_of(Isa isa) noexcept {
  // Highway asks the processor each time, which a virtual machine answers in microseconds.
  static const std::int64_t runs = hwy::SupportedTargets() | HWY_SCALAR | HWY_EMU128;
  if (static_cast<std::size_t>(isa) >= kTargets.size()) return 0;
  const std::int64_t both =
      kTargets[static_cast<std::size_t>(isa)] & static_cast<std::int64_t>(HWY_TARGETS) & runs;
  return both & -both;
}

std::string list_supported() {
  std::string s;
  for (const Isa isa : supported_isas()) s += (s.empty() ? "" : ", ") + std::string(isa_name(isa));
  return s;
}

[[noreturn]] void refuse_isa(std::string_view who, std::string_view got) {
  refuse(who, "this machine and build can run " + list_supported(), got);
}

Isa from_environment() {
  const char* text = std::getenv("POSENC_ISA");
  if (text == nullptr || *text == '\0') return supported_isas().back();
  for (const Isa isa : supported_isas())
    if (isa_name(isa) == text) return isa;
  refuse_isa("POSENC_ISA", text);
}

constexpr std::array<std::string_view, 2> kFeatureNames{"avx512_bf16", "amx_bf16"};

#if HWY_ARCH_X86
// Whether the system keeps the tiles of AMX, and the processor multiplies bfloat16 in them.
bool has_amx_bf16() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kSaved = 1u << 27, kBFloat16 = 1u << 22, kTiles = 1u << 24,
                     kTileState = 3u << 17;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSaved) == 0) return false;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kTileState) != kTileState || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0)
    return false;
  return (d & kBFloat16) != 0 && (d & kTiles) != 0;
}
#endif

// Of this machine. Asks the processor once, and whether the system keeps the wide registers.
CpuFeatures features_beside_avx512() noexcept {
  static const CpuFeatures all = [] {
    CpuFeatures f;
#if HWY_ARCH_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw"))
      f.add(CpuFeature::avx512_bf16);
    if (has_amx_bf16()) f.add(CpuFeature::amx_bf16);
#endif
    return f;
  }();
  return all;
}

}  // namespace

std::string_view isa_name(Isa isa) noexcept {
  return detail::name_of(kIsaNames, static_cast<std::size_t>(isa));
}

Isa isa_from_name(std::string_view text) {
  for (std::size_t i = 0; i < kIsaNames.size(); ++i)
    if (kIsaNames[i] == text) return static_cast<Isa>(i);
  refuse("isa", "must be one of scalar, ssse3, sse4, avx2, avx512, neon, sve, sve2", text);
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> list;
  for (std::size_t i = 0; i < kIsaNames.size(); ++i)
    if (target_of(static_cast<Isa>(i)) != 0) list.push_back(static_cast<Isa>(i));
  return list;
}

Isa active_isa() {
  const int now = active.load(std::memory_order_relaxed);
  if (now != kUndecided) return static_cast<Isa>(now);
  const Isa isa = from_environment();
  int expected = kUndecided;  // a force_isa meanwhile wins
  active.compare_exchange_strong(expected, static_cast<int>(isa), std::memory_order_relaxed);
  return expected == kUndecided ? isa : static_cast<Isa>(expected);
}

void force_isa(Isa isa) {
  if (target_of(isa) == 0) refuse_isa("isa", isa_name(isa));
  active.store(static_cast<int>(isa), std::memory_order_relaxed);
}

void reset_isa() {
  active.store(kUndecided, std::memory_order_relaxed);
}

std::vector<std::string_view> native_features() {
  std::vector<std::string_view> list;
  const CpuFeatures usable = usable_features(Isa::avx512);
  for (std::size_t i = 0; i < kFeatureNames.size(); ++i)
    if (usable.include({static_cast<CpuFeature>(i)})) list.push_back(kFeatureNames[i]);
  return list;
}

void enable_native_features(bool on) {
  native.store(on, std::memory_order_relaxed);
}

CpuFeatures usable_features(Isa isa) noexcept {
  if (isa != Isa::avx512 || !native.load(std::memory_order_relaxed) || target_of(isa) == 0)
    return {};
  return features_beside_avx512();
}

bool may_use_tiles() noexcept {
#if defined(__linux__) && defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  static const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return allowed;
#else
  return false;
#endif
}

std::size_t isa_dispatch_index(Isa isa) {
  const std::int64_t target = target_of(isa);
  if (target == 0) refuse_isa("isa", isa_name(isa));
  if (target == HWY_SCALAR || target == HWY_EMU128) return HWY_MAX_DYNAMIC_TARGETS + 1;
  return static_cast<std::size_t>(
      std::countr_zero(static_cast<std::uint64_t>(HWY_CHOSEN_TARGET_SHIFT(target))));
}

}  // namespace posenc::v0
