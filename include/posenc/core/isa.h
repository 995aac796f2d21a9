// SPDX-License-Identifier: Apache-2.0
// Instruction sets of the kernels: list them, query the current one, force one.
#pragma once
#include <string_view>
#include <vector>

#include "posenc/core/export.h"

namespace posenc::inline v0 {

// Best last. `scalar` is one lane without vectors and runs everywhere.
enum class Isa : unsigned char { scalar, ssse3, sse4, avx2, avx512, neon, sve, sve2 };

POSENC_API std::string_view isa_name(Isa) noexcept;
POSENC_API Isa isa_from_name(std::string_view);  // throws std::invalid_argument
// Those compiled in that this machine can run, worst first. Never empty.
POSENC_API std::vector<Isa> supported_isas();
// The one in use: force_isa's, else POSENC_ISA from the environment, else the best supported.
POSENC_API Isa active_isa();
// Throws std::invalid_argument if the machine or this build cannot run it. Existing plans do not
// change. Besides the pool, this is the only global state of the library.
POSENC_API void force_isa(Isa);
POSENC_API void reset_isa();

// Extensions beyond avx512 that have kernels and that this machine supports ("avx512_bf16",
// "amx_bf16"); tests may disable them. Existing plans do not change.
POSENC_API std::vector<std::string_view> native_features();
POSENC_API void enable_native_features(bool);

}  // namespace posenc::v0
