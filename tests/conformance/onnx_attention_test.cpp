// SPDX-License-Identifier: Apache-2.0
// ONNX's Attention from files of their own form: written here from the suite's arrays as the onnx
// package writes them, read back by the runner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "conformance/runner/onnx_node.h"
#include "conformance/runner/runner.h"
#include "posenc/io/array.h"
#include "support/onnx_writer.h"
#include "support/temporary_directory.h"

namespace posenc::conformance {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using namespace posenc::test::onnx;

void write_file(const fs::path& file, const std::string& bytes) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
}

std::vector<std::string> names_of(const Json& list) {
  std::vector<std::string> names;
  for (const Json& name : list.as_array()) names.push_back(name.as_string());
  return names;
}

class OnnxAttention : public ::testing::Test {
 protected:
  const fs::path suite_ = fs::path(POSENC_SOURCE_DIR) / "conformance" / "attention";
  Arrays arrays_ = read_safetensors(suite_ / "arrays.safetensors");
  test::TemporaryDirectory dir_;

  std::vector<Json> cases() const {
    std::vector<Json> cases;
    const Json suite = read_json(suite_ / "cases.json");
    for (const Json& c : suite.at("cases").as_array()) {
      const Json* op = c.at("params").find("operator");
      if (op != nullptr && op->as_string() == "Attention") cases.push_back(c);
    }
    return cases;
  }
  // As onnx writes it: names without a place between them are "", files go by number.
  void write_case(const fs::path& to, const Json& c, bool typed) const {
    const Json& p = c.at("params");
    const std::vector<std::string> inputs = names_of(p.at("input_names"));
    std::vector<std::string> outputs = names_of(p.at("output_names"));
    if (outputs.size() == 2 && outputs[1] == "qk_matmul_output")
      outputs = {outputs[0], "", "", outputs[1]};
    write_file(to / "model.onnx", node_model_pb("Attention", inputs, outputs, p.at("attributes"),
                                                {"scale", "softcap"}));
    const auto tensors = [&](const std::vector<std::string>& names, const char* group,
                             const char* file) {
      int i = 0;
      for (const std::string& name : names) {
        if (name.empty()) continue;
        const Array& a = arrays_.at(c.at(group).at(name).as_string());
        write_file(to / "test_data_set_0" / (file + std::to_string(i++) + ".pb"),
                   typed ? typed_tensor_pb(a) : tensor_pb(a, name));
      }
    };
    tensors(inputs, "inputs", "input_");
    tensors(outputs, "outputs", "output_");
  }
};

TEST_F(OnnxAttention, EveryNodeTestOfTheSuitePasses) {
  const std::vector<Json> all = cases();
  ASSERT_EQ(all.size(), 64u);
  for (const bool typed : {false, true})
    for (const Json& c : all)
      write_case(dir_ / (c.at("name").as_string() + (typed ? "_typed" : "")), c, typed);
  const Json report = run_onnx(dir_.path());
  const Json& suite = report.at("suites").as_array().at(0);
  for (const Json& c : suite.at("cases").as_array())
    EXPECT_EQ(c.at("outcome").as_string(), "pass")
        << c.at("name").as_string() << ": " << c.at("reason").as_string();
  EXPECT_EQ(suite.at("passed").as_integer(), 128);
}

TEST_F(OnnxAttention, EveryWrongOutputFails) {
  const std::vector<Json> all = cases();
  int wrong = 0;
  for (const Json& c : all)
    for (const auto& [name, stored] : c.at("outputs").as_object()) {
      Array& a = arrays_.at(stored.as_string());
      const Array kept = a;
      a.bytes.back() ^= std::byte{0x08};  // the exponent of the last element
      const fs::path to = dir_ / (c.at("name").as_string() + "_" + name);
      write_case(to, c, false);
      a = kept;
      const Json report = run_onnx(to);
      EXPECT_EQ(report.at("suites").as_array().at(0).at("failed").as_integer(), 1) << to;
      ++wrong;
    }
  EXPECT_GE(wrong, 64);
}

// The output of the case is that of the default scale: with 0 weights are uniform, which it is not.
TEST_F(OnnxAttention, AScaleOfZeroIsNotTheDefault) {
  for (Json c : cases()) {
    if (c.at("name").as_string() != "onnx_attention_4d") continue;
    Json params = c.at("params");
    params.set("attributes", Json::object({{"scale", Json(0.0)}}));
    c.set("params", params);
    write_case(dir_ / "case", c, false);
  }
  const Json report = run_onnx(dir_ / "case");
  EXPECT_EQ(report.at("suites").as_array().at(0).at("failed").as_integer(), 1);
}

TEST_F(OnnxAttention, MergedHeadsNeedTheirNumbers) {
  for (Json c : cases()) {
    if (c.at("name").as_string() != "onnx_attention_3d") continue;
    Json params = c.at("params");
    params.set("attributes", Json::object());
    c.set("params", params);
    write_case(dir_ / "case", c, false);
  }
  const Json report = run_onnx(dir_ / "case");
  const Json& c = report.at("suites").as_array().at(0).at("cases").as_array().at(0);
  EXPECT_EQ(c.at("outcome").as_string(), "fail");
  EXPECT_THAT(c.at("reason").as_string(), HasSubstr("q_num_heads"));
}

// One node and its tensors, without files.
OnnxResult run_node(const std::vector<std::string>& inputs,
                    const std::map<std::string, std::vector<Index>>& shapes,
                    const std::vector<std::string>& outputs = {"Y"}) {
  OnnxNode node;
  node.op_type = "Attention";
  node.inputs = inputs;
  node.outputs = outputs;
  Arrays tensors;
  for (const auto& [name, shape] : shapes) tensors.emplace(name, make_array(DType::f32, shape));
  return run_onnx_node(node, tensors);
}

TEST(OnnxHostile, WhatIsCachedMustFitWhatIsNew) {
  const std::vector<std::string> inputs{"Q", "K", "V", "", "past_key", "past_value"};
  const std::vector<Index> one{1, 4, 1, 4};
  const auto run = [&](const std::vector<Index>& key, const std::vector<Index>& value) {
    return run_node(inputs, {{"Q", one},
                             {"K", {1, 4, 64, 4}},
                             {"V", {1, 4, 64, 4}},
                             {"Y", one},
                             {"past_key", key},
                             {"past_value", value}});
  };
  EXPECT_EQ(run({1, 4, 2, 4}, {1, 4, 2, 4}).outcome, "pass");
  EXPECT_EQ(run({1, 4, 0, 4}, {1, 4, 0, 4}).outcome, "pass");
  const std::pair<std::vector<Index>, const char*> wrong[] = {
      {{1, 1, 1, 4}, "heads and head size of K, 4 on axis 1, got 1"},
      {{1, 4, 1, 0}, "4 on axis 3, got 0"},
      {{2, 4, 1, 4}, "1 on axis 0, got 2"},
      {{4, 4}, "past_key must have 4 axes, got 2"}};
  for (const auto& [shape, says] : wrong) {
    const OnnxResult r = run(shape, {1, 4, 1, 4});
    EXPECT_EQ(r.outcome, "fail");
    EXPECT_EQ(r.op, "attend");
    EXPECT_THAT(r.reason, HasSubstr(says));
    EXPECT_EQ(run({1, 4, 1, 4}, shape).outcome, "fail");
  }
}

TEST(OnnxHostile, NamesAreBytes) {
  const std::vector<Index> shape{1, 1, 2, 4};
  // A name that is no part of an array, and one that is no UTF-8.
  const OnnxResult r =
      run_node({"K[0]", "-x", "v\xff"},
               {{"K[0]", shape}, {"-x", shape}, {"v\xff", shape}, {"\xfe", shape}}, {"\xfe"});
  EXPECT_EQ(r.outcome, "pass") << r.reason;
  const Json c = onnx_case("\xff", run_node({"\xff", "K", "V"}, {}));
  EXPECT_EQ(c.at("outcome").as_string(), "fail");
  EXPECT_EQ(parse_json(c.dump(), "report"), c);
  // The operator's name as the file has it.
  const Json other = onnx_case("x", {"not_expressible", "operator \xff"});
  EXPECT_EQ(other.at("reason").as_string(), "operator ?");
  EXPECT_EQ(parse_json(other.dump(), "report"), other);
}

}  // namespace
}  // namespace posenc::conformance
