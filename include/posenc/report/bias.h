// SPDX-License-Identifier: Apache-2.0
// posenc bias: the part of a scheme's or a layer's score that does not depend on queries and keys.
#pragma once
#include <string>
#include <vector>

#include "posenc/report/request.h"
#include "posenc/report/subject.h"

namespace posenc::report {

struct BiasOptions {
  SubjectOptions subject;
  std::string params, positions, key_positions;
  std::vector<std::string> inputs;
  Index heads = 0, head_dim = 64;
  bool by_distance = false;
};

// The array `bias`.
Report bias(const BiasOptions&);

}  // namespace posenc::report
