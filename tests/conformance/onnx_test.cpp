// SPDX-License-Identifier: Apache-2.0
// ONNX's node tests from files of their own form: written here from the suite's arrays as the onnx
// package writes them, read back by the runner; and files that lie about their lengths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "conformance/runner/onnx_file.h"
#include "conformance/runner/runner.h"
#include "posenc/core/error.h"
#include "posenc/io/array.h"
#include "support/onnx_writer.h"
#include "support/temporary_directory.h"

namespace posenc::conformance {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using namespace posenc::test::onnx;

void write(const fs::path& file, const std::string& bytes) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
}

const fs::path kSuite = fs::path(POSENC_SOURCE_DIR) / "conformance" / "rotary_engines";

// Writes one case of the suite as a node test; typed: without raw_data.
void write_case(const fs::path& dir, const Json& c, const Arrays& arrays, bool typed) {
  const Json& names = c.at("inputs");
  const auto array = [&](const Json& stored) { return arrays.at(stored.as_string()); };
  std::vector<std::string> inputs;
  for (const char* name : {"input", "X"})
    if (names.find(name) != nullptr) inputs.emplace_back(name);
  for (const char* name : {"cos_cache", "sin_cache", "position_ids"})
    if (names.find(name) != nullptr) inputs.emplace_back(name);
  write(dir / "model.onnx", model_pb(inputs, c.at("params").at("attributes")));
  const fs::path data = dir / "test_data_set_0";
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Array a = array(names.at(inputs[i]));
    write(data / ("input_" + std::to_string(i) + ".pb"),
          typed ? typed_tensor_pb(a) : tensor_pb(a, inputs[i]));
  }
  const Array out = array(c.at("outputs").as_object().at(0).second);
  write(data / "output_0.pb", typed ? typed_tensor_pb(out) : tensor_pb(out, "output"));
}

std::vector<Json> node_cases() {
  std::vector<Json> cases;
  const Json suite = read_json(kSuite / "cases.json");
  for (const Json& c : suite.at("cases").as_array()) {
    const Json* opset = c.at("params").find("opset");
    if (opset != nullptr && opset->as_integer() == 23) cases.push_back(c);
  }
  return cases;
}

class Onnx : public ::testing::Test {
 protected:
  const Arrays arrays_ = read_safetensors(kSuite / "arrays.safetensors");
  test::TemporaryDirectory dir_;
};

TEST_F(Onnx, EveryNodeTestOfTheSuitePasses) {
  const std::vector<Json> cases = node_cases();
  ASSERT_EQ(cases.size(), 10u);
  for (const bool typed : {false, true}) {
    for (const Json& c : cases)
      write_case(dir_ / (c.at("name").as_string() + (typed ? "_typed" : "")), c, arrays_, typed);
  }
  const Json report = run_onnx(dir_.path());
  const Json& suite = report.at("suites").as_array().at(0);
  for (const Json& c : suite.at("cases").as_array())
    EXPECT_EQ(c.at("outcome").as_string(), "pass")
        << c.at("name").as_string() << ": " << c.at("reason").as_string();
  EXPECT_EQ(suite.at("passed").as_integer(), 20);
  EXPECT_TRUE(all_passed(report));
}

TEST_F(Onnx, AWrongOutputFails) {
  Arrays spoiled = arrays_;
  const Json c = node_cases().at(0);
  Array& out = spoiled.at(c.at("outputs").as_object().at(0).second.as_string());
  float v = 0;
  std::memcpy(&v, out.bytes.data(), 4);
  v += 1e-4f;
  std::memcpy(out.bytes.data(), &v, 4);
  write_case(dir_ / "case", c, spoiled, false);
  const Json report = run_onnx(dir_ / "case");
  EXPECT_FALSE(all_passed(report));
  EXPECT_EQ(report.at("suites").as_array().at(0).at("failed").as_integer(), 1);
}

std::string reason_of(const fs::path& dir) {
  const Json report = run_onnx(dir);
  const Json& c = report.at("suites").as_array().at(0).at("cases").as_array().at(0);
  return c.at("outcome").as_string() + ": " + c.at("reason").as_string();
}

TEST_F(Onnx, OtherOperatorsAreNotExpressible) {
  write_case(dir_ / "case", node_cases().at(0), arrays_, false);
  write(dir_ / "case" / "model.onnx", model_pb({"input"}, Json::object(), "Softmax"));
  EXPECT_THAT(reason_of(dir_ / "case"), HasSubstr("not_expressible: operator Softmax"));
}

TEST_F(Onnx, PositionsOutsideTheCacheAreRefused) {
  Arrays spoiled = arrays_;
  const Json c = node_cases().at(0);
  Array& ids = spoiled.at(c.at("inputs").at("position_ids").as_string());
  const std::int64_t far = 1 << 20;
  std::memcpy(ids.bytes.data(), &far, 8);
  write_case(dir_ / "case", c, spoiled, false);
  EXPECT_THAT(reason_of(dir_ / "case"), HasSubstr("outside the cache"));
}

TEST_F(Onnx, NothingThereIsRefused) {
  EXPECT_THROW(run_onnx(dir_.path()), FormatError);
  EXPECT_THROW(run_onnx(dir_ / "missing"), FormatError);
}

std::vector<std::byte> as_bytes(const std::string& s) {
  std::vector<std::byte> out(s.size());
  if (!s.empty()) std::memcpy(out.data(), s.data(), s.size());
  return out;
}

TEST(OnnxFile, LengthsThatLieAreRefused) {
  Array a = make_array(DType::f32, {2, 3});
  const std::string good = tensor_pb(a, "x");
  EXPECT_EQ(parse_onnx_tensor(as_bytes(good), "t.pb").shape, (std::vector<Index>{2, 3}));
  const auto refused = [](const std::string& bytes, const char* says) {
    try {
      parse_onnx_tensor(as_bytes(bytes), "t.pb");
      ADD_FAILURE() << "read: " << says;
    } catch (const FormatError& e) {
      EXPECT_THAT(e.what(), HasSubstr(says));
      EXPECT_THAT(e.what(), HasSubstr("t.pb"));
    }
  };
  const std::string head = number(1, 2) + number(1, 3) + number(2, 1);
  refused(head + varint((9 << 3) | 2) + varint(std::uint64_t{1} << 63), "reaches past the end");
  refused(head + varint((9 << 3) | 2) + varint(~std::uint64_t{0}), "reaches past the end");
  refused(head + run(9, std::string(20, 'x')), "ask for more data");
  refused(head + run(9, std::string(28, 'x')), "more data than its dims");
  const std::string huge = number(1, std::uint64_t{1} << 62) + number(1, 8) + number(2, 1);
  refused(huge + run(9, "xxxx"), "fit 2^63 bytes");
  refused(number(1, 0) + huge + run(9, ""), "fit 2^63 bytes");
  refused(number(1, ~std::uint64_t{0}) + number(2, 1) + run(9, "xxxx"), "0 or more");
  refused(number(1, 1) + number(2, 8) + run(9, "xxxx"), "type 8");
  refused(number(1, 1) + run(9, "xxxx"), "type 0");
  refused(head + run(9, std::string(24, 'x')) + run(13, "elsewhere"), "another file");
  refused(std::string(11, '\xff'), "");
  refused(std::string("\x0b", 1), "wire type");
  refused(std::string(1, '\0') + "x", "number 0");
  refused(number(1, 1) + number(2, 10) + run(5, varint(70000)), "16");
}

// Cut anywhere, or with any one byte changed: an answer or a FormatError, nothing else.
TEST(OnnxFile, AnyCutAndAnyByteIsSurvived) {
  const std::string tensor = tensor_pb(make_array(DType::f32, {2, 3}), "x");
  Json attributes = Json::object({{"interleaved", Json(1)}, {"num_heads", Json(4)}});
  const std::string model = model_pb({"input", "cos_cache", "sin_cache"}, attributes);
  const auto survives = [](const std::string& bytes, bool is_model) {
    try {
      if (is_model)
        parse_onnx_model(as_bytes(bytes), "m.onnx");
      else
        parse_onnx_tensor(as_bytes(bytes), "t.pb");
    } catch (const FormatError&) {
    }
  };
  int tried = 0;
  for (const bool is_model : {false, true}) {
    const std::string& whole = is_model ? model : tensor;
    for (std::size_t cut = 0; cut < whole.size(); ++cut) survives(whole.substr(0, cut), is_model);
    for (std::size_t at = 0; at < whole.size(); ++at)
      for (int value = 0; value < 256; value += 5, ++tried) {
        std::string changed = whole;
        changed[at] = static_cast<char>(value);
        survives(changed, is_model);
      }
  }
  EXPECT_GT(tried, 1000);
}

}  // namespace
}  // namespace posenc::conformance
