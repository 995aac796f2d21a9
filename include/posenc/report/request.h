// SPDX-License-Identifier: Apache-2.0
// What a report is asked for, and what it answers: data, text, JSON or a picture. Nothing is printed.
#pragma once
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "posenc/io/array.h"

namespace posenc::report {

struct Checks;

enum Exit : int { kSuccess = 0, kNegative = 1, kUsage = 2, kBadInput = 3, kResources = 4 };

// Wrong words: exit 2. Wrong files and values: exit 3.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How far a long run is, and what it does now.
using Progress =
    std::function<void(const char* what, Index done, Index total, std::string_view detail)>;

// What a verb is asked for beside its own words.
struct Request {
  std::string path, format;  // of -o; empty: nothing is written
  bool json = false;
  bool in_memory = false;  // a function: arrays are returned, nothing is printed
  bool color = false;
  std::function<void(std::string_view)> out{};   // lines of a long run, as they come
  std::function<void(std::string_view)> note{};  // remarks
  Progress progress{};
  const Checks* checks = nullptr;  // for selftest and bench

  // Neither written nor returned: printed.
  bool printed() const { return path.empty() && !in_memory; }
};

// What a verb answers. One of arrays, bytes and text; json where it was asked for.
struct Report {
  int code = 0;                        // 1: a negative answer
  std::string schema{};                // of what --json says of the arrays
  Arrays arrays{};                     // what -o holds
  std::optional<std::string> bytes{};  // or these: a picture, an ONNX model
  std::string text{};                  // for a person, or JSON
  std::string written{};               // for a person, once the bytes are written
};

// How a text is coloured for a terminal.
struct Style {
  bool color = false;
  std::string bold(std::string_view) const;
  std::string dim(std::string_view) const;
  std::string red(std::string_view) const;
  std::string yellow(std::string_view) const;
  std::string green(std::string_view) const;
  std::string cyan(std::string_view) const;
};

}  // namespace posenc::report
