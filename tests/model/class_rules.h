// SPDX-License-Identifier: Apache-2.0
// Files of single classes, by their text.
#pragma once
#include <string>

#include "hugging_face_suite.h"

namespace posenc::test {

inline ModelSpec read(const std::string& text) {
  return read_hugging_face(parse_json(text, "config.json"), "config.json");
}
inline const Finding* finding(const ModelSpec& spec, const std::string& code) {
  for (const auto& f : spec.findings)
    if (f.code == code) return &f;
  return nullptr;
}

inline void expect_refused(const std::string& text, const std::string& code) {
  const ModelSpec spec = read(text);
  EXPECT_TRUE(spec.has_error()) << text;
  const Finding* f = finding(spec, code);
  EXPECT_TRUE(f && f->severity == Severity::error) << text << errors_of(spec);
}

}  // namespace posenc::test
