// SPDX-License-Identifier: Apache-2.0
// What a layer keeps in the cache of keys.
#pragma once
#include <vector>

#include "model/hugging_face/config_view.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0::hf {

// cached_key_channels of each layer; layer_types: the type of each.
void count_cached_keys(const ConfigView&, const std::vector<std::string>& layer_types,
                       std::vector<LayerSpec>&);
// Bytes of one number of the cache, by the dtype of the text part or of the whole file.
Sourced<Index> cache_element_bytes(const ConfigView& text, const ConfigView& whole);

}  // namespace posenc::v0::hf
