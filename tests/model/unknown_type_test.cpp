// SPDX-License-Identifier: Apache-2.0
// What the doctor says of a model type that is not known, and of words that are nearly known.
#include <gmock/gmock.h>

#include "hugging_face_suite.h"

namespace posenc {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::Not;

std::string advice_of(const std::string& config, std::map<std::string, std::string> assume = {}) {
  ReadOptions options;
  options.assume = std::move(assume);
  for (const Finding& f :
       read_hugging_face(parse_json(config, "config.json"), "config.json", options).findings)
    if (f.code != "assumed" && f.severity != Severity::note) return f.message + " | " + f.fix;
  return "";
}

// GPT-2's keys and ALiBi: gpt2, whose name is near, has none and is another model.
TEST(UnknownType, IsNamedByItsKeysAndItsScheme) {
  const std::string alibi = advice_of(
      R"({"model_type":"gpt22","n_embd":64,"n_head":4,"n_layer":2,"n_positions":512,
          "use_alibi":true})");
  EXPECT_THAT(alibi, Not(HasSubstr("did you mean")));
  EXPECT_THAT(alibi, HasSubstr("its keys are those of gpt2 (GPT2Config), which has no ALiBi"));
  EXPECT_THAT(alibi, HasSubstr("as bloom or mpt"));
  const std::string plain = advice_of(
      R"({"model_type":"brand_new","n_embd":64,"n_head":4,"n_layer":2,"n_positions":512})");
  EXPECT_THAT(plain, HasSubstr("its keys are those of gpt2 (GPT2Config); "));
}

// A class with code of its own may see both sides: a word near llama says nothing.
TEST(UnknownType, OfItsOwnCodeIsNoMisspelling) {
  const std::string own = advice_of(
      R"({"model_type":"lama","d_model":64,"n_heads":4,"n_layers":2,"rope_theta":500000.0,
          "auto_map":{"AutoModel":"modeling_lama.LamaModel"}})");
  EXPECT_THAT(own, Not(HasSubstr("did you mean")));
  EXPECT_THAT(own, HasSubstr("modeling_lama.LamaModel (auto_map)"));
  EXPECT_THAT(advice_of(R"({"model_type":"lama","hidden_size":64,"num_attention_heads":4,
                            "num_hidden_layers":2,"rope_theta":10000.0})"),
              HasSubstr("did you mean llama?"));
}

TEST(UnknownType, AnAssumedPairingSaysWhatItLeavesOut) {
  const std::string read = R"({"model_type":"brand_new","hidden_size":64,"num_attention_heads":4,
      "num_hidden_layers":2,"rope_theta":10000.0,"max_position_embeddings":512)";
  EXPECT_THAT(advice_of(read + R"(,"qk_norm":true})", {{"pairing", "half_split"}}),
              HasSubstr("are ignored (the file has qk_norm true)"));
  EXPECT_THAT(advice_of(read + "}", {{"pairing", "half_split"}}), HasSubstr("norm of q and k"));
}

TEST(UnknownType, MisspeltWordsOfScaling) {
  const std::string llama = R"({"model_type":"llama","num_hidden_layers":2,)";
  EXPECT_THAT(advice_of(llama + R"("rope_scaling":{"rope_type":"yran","factor":2.0}})"),
              HasSubstr("did you mean yarn?"));
  EXPECT_THAT(advice_of(llama + R"("rope_scaling":{"rope_type":"ntk","factor":2.0}})"),
              Not(HasSubstr("did you mean")));
  EXPECT_THAT(advice_of(llama + R"("rope_scaling":null,
                                   "rope_scalling":{"rope_type":"linear","factor":2.0}})"),
              HasSubstr("rope_scaling, which is null in the file: positions are not scaled"));
}

}  // namespace
}  // namespace posenc
