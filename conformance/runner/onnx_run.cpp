// SPDX-License-Identifier: Apache-2.0
// Node tests of ONNX's Attention and RotaryEmbedding (opset 23), from model.onnx and
// test_data_set_*/*.pb.
#include <algorithm>
#include <regex>

#include "conformance/runner/onnx_node.h"
#include "conformance/runner/runner.h"
#include "conformance/runner/suite.h"
#include "posenc/core/error.h"
#include "posenc/core/printable.h"

namespace posenc::conformance {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargest = std::size_t{1} << 30;

struct DataSet {
  fs::path model, data;
};

std::vector<fs::path> sorted_entries(const fs::path& dir) {
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(dir)) entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

void collect(const fs::path& dir, std::vector<DataSet>& sets) {
  const fs::path model = dir / "model.onnx";
  if (!fs::exists(model)) return;
  for (const fs::path& entry : sorted_entries(dir))
    if (fs::is_directory(entry) && entry.filename().string().rfind("test_data_set_", 0) == 0)
      sets.push_back({model, entry});
}

std::vector<DataSet> data_sets(const fs::path& dir) {
  if (!fs::is_directory(dir)) throw FormatError(dir.string(), "", "is not a folder");
  std::vector<DataSet> sets;
  collect(dir, sets);
  if (sets.empty())
    for (const fs::path& entry : sorted_entries(dir))
      if (fs::is_directory(entry)) collect(entry, sets);
  if (sets.empty())
    throw FormatError(dir.string(), "", "holds no model.onnx with test_data_set_* beside it");
  return sets;
}

Array read_tensor(const fs::path& file) {
  return parse_onnx_tensor(read_file(file, kLargest), file.string());
}

// The tensors of a data set by the names of the graph.
Arrays inputs_of(const OnnxModel& model, const fs::path& data) {
  Arrays named = model.initializers;
  for (std::size_t i = 0; i < model.inputs.size(); ++i)
    named[model.inputs[i]] = read_tensor(data / ("input_" + std::to_string(i) + ".pb"));
  return named;
}

// Files of the outputs that the node makes, in its order.
void add_outputs(const OnnxNode& node, const fs::path& data, Arrays& named) {
  int i = 0;
  for (const std::string& name : node.outputs)
    if (!name.empty()) named[name] = read_tensor(data / ("output_" + std::to_string(i++) + ".pb"));
}

OnnxResult run_set(const DataSet& set) {
  try {
    const OnnxModel model = parse_onnx_model(read_file(set.model, kLargest), set.model.string());
    const OnnxNode& node = only_node(model);
    Arrays named = inputs_of(model, set.data);
    add_outputs(node, set.data, named);
    return run_onnx_node(node, named);
  } catch (const NotExpressible& e) {
    return {"not_expressible", e.what()};
  } catch (const std::exception& e) {
    return {"fail", e.what()};
  }
}

}  // namespace

Json run_onnx(const fs::path& dir, const Options& options) {
  const std::vector<DataSet> sets = data_sets(dir);
  const std::string suite =
      printable(fs::absolute(dir).lexically_normal().filename().string(), std::string::npos);
  const std::regex filter(options.filter);
  std::int64_t passed = 0, failed = 0, not_expressible = 0, done = 0;
  Json cases = Json::array();
  for (const DataSet& set : sets) {
    const std::string name =
        set.data.parent_path().filename().string() + "/" + set.data.filename().string();
    ++done;
    if (!options.filter.empty() && !std::regex_search(suite + "/" + name, filter)) continue;
    const OnnxResult r = run_set(set);
    passed += r.outcome == "pass" ? 1 : 0;
    failed += r.outcome == "fail" ? 1 : 0;
    not_expressible += r.outcome == "not_expressible" ? 1 : 0;
    cases.push(onnx_case(name, r));
    if (options.progress)
      options.progress(suite, name, done, static_cast<std::int64_t>(sets.size()));
  }
  return Json::object(
      {{"schema", Json("posenc.selftest/1")},
       {"suites", Json::array({Json::object({{"suite", Json(suite.empty() ? "onnx" : suite)},
                                             {"passed", Json(passed)},
                                             {"failed", Json(failed)},
                                             {"not_expressible", Json(not_expressible)},
                                             {"cases", cases}})})}});
}

}  // namespace posenc::conformance
