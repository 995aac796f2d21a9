// SPDX-License-Identifier: Apache-2.0
// Parts of a model beside its text: vision, audio, an encoder.
#pragma once
#include <string>
#include <vector>

#include "model/hugging_face/layers.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0::hf {

// A vision tower with an axial rotary.
PartLayers read_vision(const ConfigView&);
// Which of a type's parts holds the text: text_config before decoder before an omni model's
// thinker.
std::string text_key(const ClassRules&);
std::vector<Tower> read_towers(const ConfigView& whole, const std::string& text_part,
                               Index context);

}  // namespace posenc::v0::hf
