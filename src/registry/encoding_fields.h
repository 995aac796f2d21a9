// SPDX-License-Identifier: Apache-2.0
// The fields of any scheme or scaling of the registry, by name.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "posenc/registry.h"
#include "registry/field_ref.h"

namespace posenc::inline v0 {

// With the defaults of its fields; none where the registry has no such name.
std::optional<Scheme> default_scheme(std::string_view name);
std::optional<Scaling> default_scaling(std::string_view name);
// In the order of describe. The references live as long as the value and its type.
std::vector<FieldRef> field_refs(Scheme&);
std::vector<FieldRef> field_refs(Scaling&);

}  // namespace posenc::v0
