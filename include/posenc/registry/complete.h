// SPDX-License-Identifier: Apache-2.0
// SCHEME text whose missing fields follow from the sizes of a model.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/core/array_lookup.h"
#include "posenc/registry.h"

namespace posenc::inline v0 {

// Known sizes of a model; 0 or empty: not known.
struct ModelSizes {
  Index heads = 0, head_dim = 0;  // of attention
  Index width = 0;                // channels of the hidden state; 0: heads x head_dim
  Index rows = 0;                 // positions that have a learned row
  std::optional<bool> causal{};   // whether tokens see earlier tokens only
};

struct Completed {
  Encoding encoding;
  std::vector<std::string> filled;  // fields and sizes of presets that the text did not have
};

// Parses a SCHEME. A required field that the text lacks is filled in from the sizes: head_dim;
// width and d_model from width; rows of a learned table of positions from rows; bidirectional is
// the opposite of causal. So do the sizes of a named preset (heads, head_dim, width, d_model;
// positions and length from rows). Fields of the text, and fields with a default, do not change.
// Throws [scheme] as parse_encoding; the message names a required field that no size determines.
POSENC_API Completed complete(std::string_view scheme, const ModelSizes&);
POSENC_API Completed complete(std::string_view scheme, const ModelSizes&,
                              const ArrayLookup& arrays);

}  // namespace posenc::v0
