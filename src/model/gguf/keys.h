// SPDX-License-Identifier: Apache-2.0
// Typed access to GGUF metadata. llama.cpp takes a key only in its exact type (u32, f32, bool,
// string); another type is an error here as there. What a person assumes comes first.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/diagnostics.h"
#include "posenc/core/error.h"
#include "posenc/io/gguf.h"
#include "posenc/model/read_options.h"

namespace posenc::gguf {

class Keys {
 public:
  Keys(const GgufFile& file, const ReadOptions& options, std::vector<Finding>& findings)
      : file_(file), options_(options), findings_(findings) {}

  std::string architecture;  // "{architecture}." is put before every key but general.*
  std::string full(std::string_view key) const;

  bool has(std::string_view key) const;
  std::optional<Sourced<Index>> integer(std::string_view key);
  std::optional<Sourced<double>> number(std::string_view key);
  std::optional<Sourced<bool>> boolean(std::string_view key);
  std::optional<Sourced<std::string>> text(std::string_view key);
  // One u32 for all layers, or an array of u32, i32 or bool with at least `count` elements.
  std::optional<Sourced<std::vector<Index>>> each(std::string_view key, Index count);

  void error(std::string code, std::string_view key, std::string message, std::string fix);
  void add(Severity, std::string code, std::string_view key, std::string message, std::string fix,
           std::optional<double> value = {});
  // The mend of a value that a person may know better than the file.
  std::string anew(std::string_view key) const;
  bool failed() const noexcept { return failed_; }
  // A note for every --assume that counted, an error for every one that nothing asked for.
  void report_assumptions();
  const GgufFile& file() const noexcept { return file_; }

 private:
  const std::string* assumed(std::string_view key);
  std::string assumable(const std::string& key) const;
  void wrong_type(std::string_view key, std::string_view wanted, std::string_view got);

  const GgufFile& file_;
  const ReadOptions& options_;
  std::vector<Finding>& findings_;
  std::set<std::string> used_, asked_;  // of what a person assumes, and of what could be
  bool failed_ = false;
};

}  // namespace posenc::gguf
