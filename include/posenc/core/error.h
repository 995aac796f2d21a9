// SPDX-License-Identifier: Apache-2.0
// What goes wrong, said in one sentence: who, rule, value.
//   wrong argument   std::invalid_argument("[rope] head_dim must be positive and even, got 7")
//   bad file         FormatError("model/config.json: #/rope_scaling/factor: must be a number, got
//   \"four\"")
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

#include "posenc/core/dtype.h"
#include "posenc/core/export.h"

namespace posenc {

// A file that cannot be read as what it claims to be. `place` is a JSON path ("#/rope_scaling"),
// a GGUF key or "byte 1234".
class POSENC_API FormatError : public std::runtime_error {
 public:
  FormatError(std::string file, std::string place, std::string_view problem);
  const std::string& file() const noexcept { return file_; }
  const std::string& place() const noexcept { return place_; }

 private:
  std::string file_, place_;
};

// Throws std::invalid_argument("[who] rule, got value"). Kept out of line so that checks stay
// small.
[[noreturn]] POSENC_API void refuse(std::string_view who, std::string_view rule);
[[noreturn]] POSENC_API void refuse(std::string_view who, std::string_view rule, Index got);
[[noreturn]] POSENC_API void refuse(std::string_view who, std::string_view rule, double got);
[[noreturn]] POSENC_API void refuse(std::string_view who, std::string_view rule,
                                    std::string_view got);

// Shortest decimal text that reads back as the same double ("0.1", "1e+30", "nan", "inf"); whole
// numbers below 1e9 without an exponent ("500000").
POSENC_API std::string number_text(double);

}  // namespace posenc
