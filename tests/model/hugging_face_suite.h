// SPDX-License-Identifier: Apache-2.0
// The suite rotary_hugging_face as these tests need it.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "posenc/io/array.h"
#include "posenc/io/json.h"
#include "posenc/model/read.h"

namespace posenc::test {

inline std::filesystem::path suite_folder() {
  return std::filesystem::path(POSENC_SOURCE_DIR) / "conformance" / "rotary_hugging_face";
}

inline const Json& suite_cases() {
  static const Json cases = read_json(suite_folder() / "cases.json");
  return cases.at("cases");
}
inline const Arrays& suite_arrays() {
  static const Arrays arrays = read_safetensors(suite_folder() / "arrays.safetensors");
  return arrays;
}

struct Numbers {
  std::vector<Index> shape;
  std::vector<double> values;
};
// An array of the suite as doubles; empty shape when there is none.
inline Numbers numbers(const std::string& name) {
  Numbers out;
  const auto found = suite_arrays().find(name);
  if (found == suite_arrays().end()) return out;
  out.shape = found->second.shape;
  out.values = found->second.doubles();
  return out;
}

inline std::vector<const Json*> cases_with(const std::string& prefix) {
  std::vector<const Json*> out;
  for (const Json& c : suite_cases().as_array())
    if (c.at("name").as_string().rfind(prefix, 0) == 0) out.push_back(&c);
  return out;
}
inline std::string name_of(const Json& c) {
  return c.at("name").as_string();
}

// The case's model as a Json config; config_file where it has one.
inline Json config_of(const Json& c) {
  if (const Json* file = c.at("params").find("config_file"))
    return read_json(suite_folder() / file->as_string());
  Json config = c.at("params").at("config");
  if (const Json* type = c.at("params").find("model_type")) config.set("model_type", *type);
  return config;
}
inline ModelSpec read_case(const Json& c, std::optional<Index> context = {}) {
  ReadOptions options;
  options.context = context;
  return read_hugging_face(config_of(c), "config.json", options);
}

inline std::string errors_of(const ModelSpec& spec) {
  std::string text;
  for (const auto& f : spec.findings)
    if (f.severity == Severity::error) text += f.code + " " + f.where + ": " + f.message + "\n";
  return text;
}

// One frequency a pair (the stream that is not 0).
inline std::vector<double> frequencies(const LayerSpec& layer) {
  std::vector<double> out;
  if (!layer.rotary) return out;
  for (const auto& block : layer.rotary->blocks) {
    const Spectrum& s = block.spectrum;
    for (Index i = 0; i < s.pairs(); ++i) {
      double f = 0;
      for (Index a = 0; a < s.axes; ++a)
        f += s.frequency[static_cast<std::size_t>(a * s.pairs() + i)];
      out.push_back(f);
    }
  }
  return out;
}
inline double gain(const LayerSpec& layer) {
  return layer.rotary->blocks.front().spectrum.gain;
}

inline void expect_same_frequencies(const LayerSpec& layer, const Numbers& want,
                                    const std::string& who) {
  const auto got = frequencies(layer);
  ASSERT_EQ(got.size(), want.values.size()) << who;
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(std::abs(got[i] - want.values[i]), 1e-14 * std::abs(want.values[i]))
        << who << " pair " << i << " got " << got[i] << " want " << want.values[i];
}

}  // namespace posenc::test
