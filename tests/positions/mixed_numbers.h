// SPDX-License-Identifier: Apache-2.0
// The cases of data/mixed_positions.json, which says where its numbers come from.
#pragma once
#include <string>
#include <vector>

#include "posenc/io/json.h"
#include "posenc/positions.h"

namespace posenc::peer {

struct MixedCase {
  std::string name;
  double positions_per_second = 0;
  Index axes, batch, tokens;
  std::vector<Index> kinds, mask;  // an empty mask: all real
  std::vector<VisionGrid> images, videos;
  std::vector<double> positions, delta;  // [axes][batch][tokens], [batch]
};

inline std::vector<VisionGrid> grids(const Json& list) {
  std::vector<VisionGrid> out;
  for (const Json& g : list.as_array()) {
    const auto& v = g.as_array();
    out.push_back({v[0].as_integer(), v[1].as_integer(), v[2].as_integer(),
                   v.size() > 3 ? v[3].as_number() : 1});
  }
  return out;
}

template <class T>
std::vector<T> numbers(const Json& list) {
  std::vector<T> out;
  for (const Json& x : list.as_array()) out.push_back(static_cast<T>(x.as_number()));
  return out;
}

inline std::vector<MixedCase> mixed_cases(const std::string& family) {
  std::vector<MixedCase> out;
  const Json file =
      read_json(std::string(POSENC_SOURCE_DIR) + "/tests/positions/data/mixed_positions.json");
  for (const Json& c : file.at("cases").as_array()) {
    if (c.at("family").as_string() != family) continue;
    out.push_back({c.at("name").as_string(), c.at("positions_per_second").as_number(),
                   c.at("axes").as_integer(), c.at("batch").as_integer(),
                   c.at("tokens").as_integer(), numbers<Index>(c.at("kinds")),
                   numbers<Index>(c.at("mask")), grids(c.at("images")), grids(c.at("videos")),
                   numbers<double>(c.at("positions")), numbers<double>(c.at("delta"))});
  }
  return out;
}

}  // namespace posenc::peer
