// SPDX-License-Identifier: Apache-2.0
// Errors, each one sentence: who, rule, value.
//   wrong argument   ArgumentError("[rope] head_dim must be positive and even, got 7")
//   bad file         FormatError("model/config.json: #/rope_scaling/factor: must be a number, got
//   \"four\"")
#pragma once
#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "posenc/core/dtype.h"
#include "posenc/core/export.h"

namespace posenc::inline v0 {

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

// An argument that breaks a rule: "[who] rule, got value".
class POSENC_API ArgumentError : public std::invalid_argument {
 public:
  // rule: the sentence with the name of its field. value: as the message shows it, may be empty.
  ArgumentError(std::string_view who, std::string_view field, std::string_view rule,
                std::string_view value);
  const std::string& who() const noexcept { return who_; }      // a scheme, or what was called
  const std::string& field() const noexcept { return field_; }  // empty: the rule has no one field
  const std::string& rule() const noexcept { return rule_; }    // the sentence, with the field
  const std::string& value() const noexcept { return value_; }

 private:
  std::string who_, field_, rule_, value_;
};

// Memory that the system does not have: "[who] what needs N bytes, the machine has M".
class POSENC_API OutOfMemory : public std::bad_alloc {
 public:
  // bytes: what the allocation needs; 2^64 - 1 if it is more than that.
  OutOfMemory(std::string_view who, std::string_view what, std::size_t bytes,
              std::string_view limit);
  const char* what() const noexcept override { return text_.what(); }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::runtime_error text_;  // copies without throwing
  std::size_t bytes_;
};

// A call that its executor ended early (Executor::cancelled).
class POSENC_API Cancelled : public std::runtime_error {
 public:
  explicit Cancelled(std::string_view who);
};

// These throw ArgumentError. They are out of line so that checks stay small. `got` is the value that
// the message shows; a text is quoted.
//
// For a rule about one argument, field or option, called by the name that the caller knows. The
// message is "[who] field rule, got value": refuse_field("rope", "head_dim", "must be even", 7).
[[noreturn]] POSENC_API void refuse_field(std::string_view who, std::string_view field,
                                          std::string_view rule);
[[noreturn]] POSENC_API void refuse_field(std::string_view who, std::string_view field,
                                          std::string_view rule, Index got);
[[noreturn]] POSENC_API void refuse_field(std::string_view who, std::string_view field,
                                          std::string_view rule, double got);
[[noreturn]] POSENC_API void refuse_field(std::string_view who, std::string_view field,
                                          std::string_view rule, std::string_view got);
// For a rule whose sentence does not begin with the field.
[[noreturn]] POSENC_API void refuse_sentence(std::string_view who, std::string_view field,
                                             std::string_view sentence);
[[noreturn]] POSENC_API void refuse_sentence(std::string_view who, std::string_view field,
                                             std::string_view sentence, std::string_view got);
// For a rule that belongs to no single field: field() is empty.
[[noreturn]] POSENC_API void refuse(std::string_view who, std::string_view rule);
[[noreturn]] POSENC_API void refuse(std::string_view who, std::string_view rule, Index got);
[[noreturn]] POSENC_API void refuse(std::string_view who, std::string_view rule, double got);
[[noreturn]] POSENC_API void refuse(std::string_view who, std::string_view rule,
                                    std::string_view got);

// Shortest decimal text that reads back as the same double ("0.1", "1e+30", "nan", "inf"); whole
// numbers below 1e9 without an exponent ("500000").
POSENC_API std::string number_text(double);

}  // namespace posenc::v0
