// SPDX-License-Identifier: Apache-2.0
// Numbers of the score: norms of q and k, scale, soft cap, sinks.
#pragma once
#include <vector>

#include "model/hugging_face/config_view.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0::hf {

// qk_norm of each layer, by the class.
void normalise_q_and_k(const ConfigView&, std::vector<LayerSpec>&);
// scale, softcap and sinks of each layer.
void scale_and_cap(const ConfigView&, std::vector<LayerSpec>&);

}  // namespace posenc::v0::hf
