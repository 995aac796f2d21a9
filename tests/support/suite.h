// SPDX-License-Identifier: Apache-2.0
// The arrays of a conformance suite, for tests that read them directly. Free of gtest.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "posenc/core/dtype.h"

namespace posenc::support {

struct SuiteArray {
  std::string dtype;  // "F64", "F32", "F16", "BF16", "I64", "I32", "BOOL", "U8"
  std::vector<Index> shape;
  std::vector<double> value;  // widened; integers up to 2^53
  std::vector<Index> integers() const;
  Index dim(std::size_t axis) const { return shape.at(axis); }
};

class Suite {
 public:
  explicit Suite(const std::string& name);  // a folder of conformance/
  // "case/array". Throws std::runtime_error when absent.
  SuiteArray array(const std::string& name) const;
  SuiteArray operator()(const std::string& test_case, const std::string& name) const {
    return array(test_case + "/" + name);
  }
  bool has(const std::string& name) const;

 private:
  std::string text_;  // the whole file
  std::size_t data_ = 0;
};

}  // namespace posenc::support
