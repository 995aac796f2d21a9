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

namespace posenc::inline v0::gguf {

// A value that llama.cpp takes when the file has none.
template <class T>
Sourced<T> usual(T value) {
  return {std::move(value), Origin::class_default, "llama.cpp"};
}

class Keys {
 public:
  Keys(const GgufFile& file, const ReadOptions& options) : file_(file), options_(options) {}

  std::string architecture;  // "{architecture}." is put before every key but general.*
  std::string full(std::string_view key) const;

  bool has(std::string_view key) const;
  // T: Index (a u32), double (a finite f32), bool or std::string. Nothing where the key is absent
  // or after a finding.
  template <class T>
  std::optional<Sourced<T>> get(std::string_view key);
  // The key's value into `value`, which stays as it is where there is none (false then).
  template <class T>
  bool take(std::string_view key, Sourced<T>& value) {
    auto v = get<T>(key);
    if (v) value = *std::move(v);
    return v.has_value();
  }
  // One u32 for all layers, or an array of u32, i32 or bool with at least `count` elements.
  std::optional<Sourced<std::vector<Index>>> per_layer(std::string_view key, Index count);

  // Findings at a key, in the order code, key, text; without a fix: a better value of the key.
  void error(std::string code, std::string_view key, const Sentence& text,
             const Sentence& fix = "") {
    add(Severity::error, std::move(code), key, text, fix);
  }
  void warn(std::string code, std::string_view key, const Sentence& text, const Sentence& fix,
            std::optional<double> value = {}) {
    add(Severity::warning, std::move(code), key, text, fix, value);
  }
  void note(std::string code, std::string_view key, const Sentence& text, const Sentence& fix) {
    add(Severity::note, std::move(code), key, text, fix);
  }
  void missing(std::string_view key, const Sentence& fix = "") {
    error("missing_key", key, {"{} is required", full(key)}, fix);
  }
  std::string reconvert_hint(std::string_view key) const {
    return "convert the model again, or --assume " + full(key) + "=VALUE";
  }
  // Findings at another place: a tensor, an option.
  Diagnostics& report() noexcept { return report_; }
  bool failed() const noexcept { return report_.errors() > 0; }
  // A note for every --assume that counted, an error for every one that nothing asked for.
  void report_assumptions();
  const GgufFile& file() const noexcept { return file_; }

 private:
  // What a person assumes: the name it was given by, and the text.
  const std::pair<const std::string, std::string>* given(std::string_view key) const;
  const std::string* assumed(std::string_view key);
  std::string how_to_assume(const std::string& key) const;
  void add(Severity, std::string code, std::string_view key, const Sentence&, const Sentence& fix,
           std::optional<double> value = {});
  void wrong_type(std::string_view key, std::string_view wanted, std::string_view got);

  const GgufFile& file_;
  const ReadOptions& options_;
  Diagnostics report_;
  std::set<std::string> used_, assumable_;  // of what a person assumes, and of what could be
};

}  // namespace posenc::v0::gguf
