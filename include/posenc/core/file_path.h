// SPDX-License-Identifier: Apache-2.0
// The name of a file as an argument: a text or a std::filesystem::path. This header does not include
// <filesystem>, which is slow to compile.
#pragma once
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace posenc::inline v0 {

class FilePath {
 public:
  FilePath(const char* text) : text_(text) {}             // NOLINT(google-explicit-constructor)
  FilePath(std::string text) : text_(std::move(text)) {}  // NOLINT(google-explicit-constructor)
  FilePath(std::string_view text) : text_(text) {}        // NOLINT(google-explicit-constructor)
  // std::filesystem::path, or what else has its string() and lexically_normal().
  template <class Path>
  requires requires(const Path& p) {
    { p.string() } -> std::same_as<std::string>;
    p.lexically_normal();
  }
  FilePath(const Path& path) : text_(path.string()) {}  // NOLINT(google-explicit-constructor)

  const std::string& string() const noexcept { return text_; }

 private:
  std::string text_;
};

}  // namespace posenc::v0
