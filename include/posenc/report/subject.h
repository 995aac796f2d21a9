// SPDX-License-Identifier: Apache-2.0
// What a report is about: a model's file or a SCHEME.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "posenc/core/dtype.h"
#include "posenc/registry/complete.h"

namespace posenc::report {

// MODEL|SCHEME and the words that choose within it.
struct SubjectOptions {
  std::string text;                 // a path, `-` (a config.json on stdin) or a SCHEME
  std::optional<Index> context;     // length for length rules
  std::optional<Index> layer;       // default: the first layer that turns anything
  std::string tower;                // "": the decoder
  std::optional<Index> input;       // which of several encodings at the input
  std::vector<std::string> assume;  // KEY=VALUE
  std::string reader;               // "", transformers, llama_cpp
  std::string arrays;               // file for @name in a SCHEME, and for what it learns
  std::optional<Index> start;       // seed of what a SCHEME learns, instead of a file
  ModelSizes sizes{};               // give a SCHEME the fields that it lacks
};

}  // namespace posenc::report
