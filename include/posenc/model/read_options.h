// SPDX-License-Identifier: Apache-2.0
// Decisions of a user for the reader of a model's files.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "posenc/core/dtype.h"

namespace posenc::inline v0 {

struct ReadOptions {
  std::optional<Index> context;               // length for length rules; default: the model's own
  std::map<std::string, std::string> assume;  // KEY=VALUE decided by a person; origin `user`
  std::string reader;                         // "", transformers, llama_cpp
};

}  // namespace posenc::v0
