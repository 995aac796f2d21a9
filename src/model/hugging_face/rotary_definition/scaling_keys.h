// SPDX-License-Identifier: Apache-2.0
// Every rope_type with the keys that it reads from a dictionary, once: reading, what is left unread
// and what another program would miss go by it.
#pragma once
#include <string_view>
#include <vector>

namespace posenc::hf {

class RotaryWriter;
class Dict;

enum class KeyKind {
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

// The rows alone read a type without `read`; `check` then says what is odd about the values, by
// field, and sets what is no key.
struct ScalingType {
  std::string_view type, scaling;  // rope_type, name in the registry
  std::vector<ScalingKey> keys;
  bool (RotaryWriter::*read)() = nullptr;
  void (RotaryWriter::*check)(const Dict& fields) = nullptr;
  bool takes_head_dim = false;  // fails on a head_dim of null
  bool pair_by_pair = false;    // fits a table of an odd width, which has a pair more
  bool own_keys = false;        // not of transformers: classes of remote code alone
  const ScalingKey* find(std::string_view key) const;
};
const std::vector<ScalingType>& scaling_types();
const ScalingType* scaling_type(std::string_view rope_type);

}  // namespace posenc::hf
