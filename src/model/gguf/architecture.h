// SPDX-License-Identifier: Apache-2.0
// What llama.cpp knows of an architecture by its name alone; data/gguf_architectures.json says what
// each field means and where it comes from.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "posenc/model/finding.h"

namespace posenc::gguf {

class Architecture {
 public:
  Architecture() = default;
  Architecture(std::string name, Json facts) : name_(std::move(name)), facts_(std::move(facts)) {}

  const std::string& name() const noexcept { return name_; }
  std::string program() const { return "llama.cpp (" + name_ + ")"; }
  // A value that llama.cpp takes by the architecture's name.
  template <class T>
  Sourced<T> constant(T value) const {
    return {std::move(value), Origin::class_default, program()};
  }
  bool has(std::string_view field) const { return facts_.find(field) != nullptr; }
  // Absent: false, empty text, the given number.
  bool flag(std::string_view field) const;
  std::string_view text(std::string_view field) const;
  std::int64_t number(std::string_view field, std::int64_t absent) const;
  bool lists(std::string_view field, std::string_view item) const;
  // A group of facts ("window", "sliding_rope"); nothing when absent.
  std::optional<Architecture> group(std::string_view field) const;

 private:
  const Json* fact(std::string_view field, bool (Json::*is)() const) const;
  std::string name_;
  Json facts_;
};

// Nothing for a name that llama.cpp does not know.
std::optional<Architecture> find_architecture(std::string_view name);

}  // namespace posenc::gguf
