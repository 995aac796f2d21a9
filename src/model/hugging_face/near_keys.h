// SPDX-License-Identifier: Apache-2.0
// Keys that nobody reads and that are nearly one that somebody reads.
#pragma once
#include <string_view>
#include <vector>

#include "model/hugging_face/config_view.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0::hf {

// Which of the names a misspelt one means: another case, camelCase, other underscores, or few letters
// wrong. Empty: none of them, or the name is one of them.
std::string_view nearly(std::string_view name, const std::vector<std::string_view>& known);
// The same by whole words: another order, an abbreviation, one of many left out.
std::string_view of_words(std::string_view name, const std::vector<std::string_view>& known);
// "; did you mean factor?", for a member of rope_scaling; empty where nothing is near.
std::string meant_rope_member(std::string_view name);

// What the class holds counts as looked for, whether a position depends on it or not.
void held_keys(const ConfigView&);
// Warnings of the whole file, after everything was read.
void near_keys(const Json& file, const ModelSpec&, Report&);

}  // namespace posenc::v0::hf
