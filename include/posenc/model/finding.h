// SPDX-License-Identifier: Apache-2.0
// The result of every reader of a model's files: values with their origin, and findings. It does not
// depend on schemes.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/core/export.h"
#include "posenc/io/json.h"

namespace posenc::inline v0 {

enum class Origin : std::uint8_t { stated, class_default, derived, user };
template <>
struct EnumNames<Origin> {
  static constexpr std::array<std::string_view, 4> value{"stated", "class_default", "derived",
                                                         "user"};
};

template <class T>
struct Sourced {
  T value{};
  Origin origin = Origin::derived;
  std::string where;  // config.json#/rope_scaling/factor, llama.rope.freq_base, a class, a formula
};

enum class Severity : std::uint8_t { note, warning, error };
template <>
struct EnumNames<Severity> {
  static constexpr std::array<std::string_view, 3> value{"note", "warning", "error"};
};
// code: docs/doctor.md has a paragraph on each.
struct Finding {
  Severity severity = Severity::note;
  std::string code, message, where, fix;
  std::optional<double> value{};
};

// A model whose positions cannot be determined from its files: what() lists the errors, findings() all
// findings.
class POSENC_API ModelError : public std::runtime_error {
 public:
  ModelError(const std::string& what, std::vector<Finding> findings);
  const std::vector<Finding>& findings() const noexcept { return findings_; }

 private:
  std::vector<Finding> findings_;
};

struct FieldValue {
  std::string name;  // a SCHEME name: head_dim, base, pairing, yarn.factor, window ...
  Json value;
  Origin origin = Origin::derived;
  std::string where;
};

}  // namespace posenc::v0
