// SPDX-License-Identifier: Apache-2.0
// What every finding owes its reader: a code, a reason, a place and a fix.
#include <filesystem>
#include <set>

#include "hugging_face_suite.h"
#include "model/hugging_face/config_view.h"

namespace posenc {
namespace {

using namespace test;
namespace fs = std::filesystem;

std::vector<Finding> findings_of(const fs::path& file) {
  try {
    return doctor(read_model(file));
  } catch (const FormatError&) {  // no model at all: files made to be refused
    return {};
  }
}

void expect_whole(const std::vector<Finding>& findings, const std::string& who) {
  for (const Finding& f : findings) {
    EXPECT_FALSE(f.code.empty() || f.message.empty()) << who;
    EXPECT_FALSE(f.where.empty()) << who << " " << f.code << ": " << f.message;
    EXPECT_FALSE(f.fix.empty()) << who << " " << f.code << ": " << f.message;
  }
}

TEST(Findings, EveryFileGetsAFixForEachFinding) {
  int files = 0, findings = 0;
  for (const char* folder : {"conformance", "examples"})
    for (const auto& entry :
         fs::recursive_directory_iterator(fs::path(POSENC_SOURCE_DIR) / folder)) {
      const fs::path& file = entry.path();
      if (file.filename() != "config.json" && file.extension() != ".gguf") continue;
      const auto all = findings_of(file);
      expect_whole(all, file.string());
      ++files, findings += static_cast<int>(all.size());
    }
  EXPECT_GE(files, 190);
  EXPECT_GE(findings, 390);
}

TEST(Findings, TheSmallestFilesOfEveryTypeToo) {
  for (const auto& [type, rules] : hf::all_class_rules()) {
    const Json config =
        Json::object({{"model_type", type}, {"sliding_window", 7}, {"rope_theta", 77.0}});
    for (const char* reader : {"transformers", "llama_cpp"}) {
      ReadOptions options;
      options.reader = reader;
      expect_whole(doctor(read_hugging_face(config, "config.json", options)), type + reader);
    }
  }
  for (const Json* c : cases_with("doctor_")) expect_whole(doctor(read_case(*c)), name_of(*c));
}

}  // namespace
}  // namespace posenc
