// SPDX-License-Identifier: Apache-2.0
// Rules of a class that depend on a key of the file, and what the reader refuses by name.
#pragma once
#include <optional>

#include "model/hugging_face/config_view.h"

namespace posenc::inline v0::hf {

// The rules as a key of the file makes them, where the table says `variants`; none after a finding.
std::optional<ClassRules> variant_rules(const ConfigView&);
// What the reader cannot describe, by name: an error. False where the table says nothing of it.
bool refused_by_name(const ConfigView&);
// The rules as the decoder of the same file sees them.
ClassRules decoder_rules(const ConfigView& encoder);

}  // namespace posenc::v0::hf
