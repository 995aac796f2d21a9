// SPDX-License-Identifier: Apache-2.0
// Fields of a layer, each with where it came from.
#pragma once
#include <string>
#include <utility>

#include "posenc/model/spec.h"

namespace posenc::gguf {

class Fields {
 public:
  explicit Fields(LayerSpec& layer) : layer_(layer) {}
  template <class T>
  void add(std::string name, const Sourced<T>& v) {
    add(std::move(name), Json(v.value), v.origin, v.where);
  }
  void add(std::string name, Json value, Origin origin, std::string where) {
    layer_.fields.push_back({std::move(name), std::move(value), origin, std::move(where)});
  }

 private:
  LayerSpec& layer_;
};

}  // namespace posenc::gguf
