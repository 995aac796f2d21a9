// SPDX-License-Identifier: Apache-2.0
// Every rope_type with the keys that it reads from a dictionary. Reading, misspelt keys, keys that are left unread and what
// another program would miss go by this table.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace posenc::inline v0::hf {

enum class KeyKind : std::uint8_t {
  number,
  whole,
  list,   // one number a pair
  other,  // read by a function of the type
};
struct ScalingKey {
  std::string_view key, field;  // in the file, in the definition
  KeyKind kind = KeyKind::number;
  bool required = true;
  double above = 0;  // exclusive
};

struct ScalingType {
  std::string_view type;  // rope_type, and the name in the registry; default is none
  std::vector<ScalingKey> keys;
  bool takes_head_dim = false;  // fails on a head_dim of null
  bool pair_by_pair = false;    // fits a table of an odd width, which has a pair more
  bool own_keys = false;        // not of transformers: classes of remote code alone
  const ScalingKey* find(std::string_view key) const;
};
const std::vector<ScalingType>& scaling_types();
const ScalingType* scaling_type(std::string_view rope_type);

// Members of rope_scaling and rope_parameters that mean nothing at the top level of a file; and those with what may stand in
// the dictionary or beside it.
const std::vector<std::string_view>& rope_members();
const std::vector<std::string_view>& dictionary_members();

}  // namespace posenc::v0::hf
