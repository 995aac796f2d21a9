// SPDX-License-Identifier: Apache-2.0
// A dictionary with several faults has them all named in one reading: nobody fixes a file one
// error at a time. And what a fix names is a place that --assume takes.
#include <algorithm>
#include <set>

#include "hugging_face_suite.h"

namespace posenc {
namespace {

ModelSpec read(const std::string& text, const ReadOptions& options = {}) {
  return read_hugging_face(parse_json(text, "config.json"), "config.json", options);
}

// "code at the path" of every error.
std::set<std::string> errors(const ModelSpec& spec) {
  std::set<std::string> out;
  for (const Finding& f : spec.findings)
    if (f.severity == Severity::error) out.insert(f.code + " " + f.where.substr(f.where.find('#')));
  return out;
}

using Errors = std::set<std::string>;

std::string llama(const std::string& more) {
  return R"({"model_type":"llama","num_hidden_layers":2,"hidden_size":128,)"
         R"("max_position_embeddings":4096,)" +
         more + "}";
}

TEST(AllFaults, OfOneDictionaryAreNamedTogether) {
  const std::string heads = R"("num_attention_heads":2,)";
  EXPECT_EQ(
      errors(read(llama(heads + R"("rope_theta":-1,"rope_scaling":{"rope_type":"foo"})"))),
      (Errors{"theta_not_positive #/rope_theta", "unknown_rope_type #/rope_scaling/rope_type"}));
  EXPECT_EQ(errors(read(llama(heads + R"("rope_theta":0,"rope_scaling":{"rope_type":"yarn",)"
                                      R"("factor":-4,"beta_fast":"x","beta_slow":-1,)"
                                      R"("original_max_position_embeddings":0.5,)"
                                      R"("attention_factor":"y"})"))),
            (Errors{"theta_not_positive #/rope_theta", "wrong_type #/rope_scaling/factor",
                    "wrong_type #/rope_scaling/beta_fast", "wrong_type #/rope_scaling/beta_slow",
                    "wrong_type #/rope_scaling/original_max_position_embeddings",
                    "wrong_type #/rope_scaling/attention_factor"}));
  EXPECT_EQ(
      errors(read(llama(heads + R"("rope_scaling":{"rope_type":"longrope","factor":-1,)"
                                R"("short_factor":[1],"attention_factor":"y",)"
                                R"("original_max_position_embeddings":-3})"))),
      (Errors{"list_length #/rope_scaling/short_factor", "missing_key #/rope_scaling/long_factor",
              "wrong_type #/rope_scaling/factor", "wrong_type #/rope_scaling/attention_factor",
              "wrong_type #/rope_scaling/original_max_position_embeddings"}));
  EXPECT_EQ(errors(read(R"({"model_type":"gemma4_text","num_hidden_layers":1,"layer_types":)"
                        R"(["full_attention"],"rope_parameters":{"full_attention":{"rope_type":)"
                        R"("proportional","rope_theta":1e6,"factor":null,)"
                        R"("partial_rotary_factor":2}}})")),
            (Errors{"partial_out_of_range #/rope_parameters/full_attention/partial_rotary_factor",
                    "wrong_type #/rope_parameters/full_attention/factor"}));
}

// Without sizes of the head neither lists nor the ramp can be held against the pairs; nothing is
// said of them, and of the rest everything.
TEST(AllFaults, ADictionaryIsReadBesideARefusedHead) {
  const std::string none = R"("num_attention_heads":0,)";
  const std::string head = "wrong_type #/num_attention_heads";
  EXPECT_EQ(errors(read(llama(none + R"("rope_theta":-1,"rope_scaling":{"rope_type":"llama3",)"
                                     R"("factor":"x"})"))),
            (Errors{head, "theta_not_positive #/rope_theta", "wrong_type #/rope_scaling/factor",
                    "missing_key #/rope_scaling/low_freq_factor",
                    "missing_key #/rope_scaling/high_freq_factor"}));
  EXPECT_EQ(errors(read(llama(none + R"("rope_scaling":{"rope_type":"longrope","factor":2,)"
                                     R"("short_factor":[1,2],"long_factor":[1,0],)"
                                     R"("original_max_position_embeddings":2048})"))),
            (Errors{head, "table_zero #/rope_scaling/long_factor"}));
  EXPECT_EQ(errors(read(llama(none + R"("rope_scaling":{"rope_type":"yarn","factor":2,)"
                                     R"("original_max_position_embeddings":2048})"))),
            (Errors{head}));
}

// The path that the fix of an unknown type names, given to --assume, takes the error away.
TEST(AllFaults, TheMendOfAnUnknownTypeIsAPlaceThatCanBeAssumed) {
  for (const char* text :
       {R"({"model_type":"llama","rope_scaling":{"type":"foo"}})",
        R"({"model_type":"llama","rope_parameters":{"rope_type":"foo","rope_theta":1e4}})",
        R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text","rope_parameters":{)"
        R"("full_attention":{"rope_type":"foo","rope_theta":1e6},)"
        R"("sliding_attention":{"rope_type":"default","rope_theta":1e4}}}})"}) {
    const ModelSpec before = read(text);
    const auto found = std::find_if(before.findings.begin(), before.findings.end(),
                                    [](const Finding& f) { return f.code == "unknown_rope_type"; });
    ASSERT_NE(found, before.findings.end()) << text;
    const std::size_t from = found->fix.find("--assume ") + 9;
    ASSERT_NE(from, std::string::npos + 9) << found->fix;
    const std::string path = found->fix.substr(from, found->fix.find('=') - from);
    EXPECT_EQ(found->where.substr(found->where.find('#') + 1), path);
    ReadOptions options;
    options.assume[path] = "default";
    EXPECT_EQ(errors(read(text, options)), Errors{}) << path;
  }
}

// Phi3Config of transformers 5.23 fails on loading type su with the length beside the dictionary,
// and loads the same file with rope_type longrope.
TEST(AllFaults, PhiThreesOldNameIsMendedByTheNewOne) {
  const auto phi = [](const std::string& type) {
    std::string lists;
    for (const char* key : {"short_factor", "long_factor"}) {
      lists += ",\"" + std::string(key) + "\":[1";
      for (int i = 1; i < 16; ++i) lists += ",1.5";
      lists += "]";
    }
    return R"({"model_type":"phi3","hidden_size":128,"num_attention_heads":4,)"
           R"("max_position_embeddings":131072,"original_max_position_embeddings":4096,)"
           R"("rope_scaling":{"type":")" +
           type + "\"" + lists + "}}";
  };
  const ModelSpec old = read(phi("su"));
  EXPECT_EQ(errors(old), Errors{"missing_key #/rope_scaling/original_max_position_embeddings"});
  const auto found = std::find_if(old.findings.begin(), old.findings.end(),
                                  [](const Finding& f) { return f.code == "missing_key"; });
  ASSERT_NE(found, old.findings.end());
  EXPECT_NE(found->message.find("su means longrope here"), std::string::npos) << found->message;
  EXPECT_NE(found->fix.find("write rope_type longrope"), std::string::npos) << found->fix;
  EXPECT_EQ(errors(read(phi("longrope"))), Errors{});
  ReadOptions options;
  options.assume["longrope.original_context"] = "4096";
  EXPECT_EQ(errors(read(phi("su"), options)), Errors{});
}

}  // namespace
}  // namespace posenc
