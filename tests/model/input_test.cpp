// SPDX-License-Identifier: Apache-2.0
// What stands at the input: configs as their authors publish them (their keys and values), with
// what transformers 5.23's classes make of them: rows, offsets, scales, and what the doctor says.

#include "input_configs.h"

namespace posenc {
namespace {

using namespace test;

const Json& roberta() {
  static const Json c = config(R"({"architectures": ["RobertaForMaskedLM"], "bos_token_id": 0,
    "eos_token_id": 2, "hidden_size": 768, "max_position_embeddings": 514, "model_type": "roberta",
    "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1, "vocab_size": 50265})");
  return c;
}
const Json& opus_mt() {
  static const Json c = config(R"({"model_type": "marian", "d_model": 512, "encoder_layers": 6,
    "decoder_layers": 6, "encoder_attention_heads": 8, "decoder_attention_heads": 8,
    "max_position_embeddings": 512, "pad_token_id": 58100, "scale_embedding": true,
    "static_position_embeddings": true, "vocab_size": 58101})");
  return c;
}

TEST(Input, ContextBeyondALearnedTableNamesTheWays) {
  EXPECT_FALSE(find(doctor(read(bert(), 512)), "context_beyond_table"));
  const auto far = doctor(read(bert(), 2048));
  const Finding* f = find(far, "context_beyond_table");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->severity, Severity::error);
  EXPECT_EQ(f->value, 512.0);
  for (const char* word : {"posenc extend", "--to 2048", "linear", "hierarchical", "262144"})
    EXPECT_NE(f->fix.find(word), std::string::npos) << word << " in " << f->fix;
  EXPECT_EQ(f->fix.find("ends at"), std::string::npos);
  const auto farther = doctor(read(bert(), 300'000));
  EXPECT_NE(find(farther, "context_beyond_table")->fix.find("ends at n^2 = 262144"),
            std::string::npos);
  // n^2 that is no 64-bit number is not spoken of.
  const Json endless = with(bert(), "max_position_embeddings", Index{1} << 31);
  const auto beyond = doctor(read(endless, Index{1} << 33));
  ASSERT_TRUE(find(beyond, "context_beyond_table"));
  EXPECT_EQ(find(beyond, "context_beyond_table")->fix.find("n^2"), std::string::npos);
  // 514 rows hold 512 tokens.
  EXPECT_FALSE(find(doctor(read(roberta(), 512)), "context_beyond_table"));
  const auto padded = doctor(read(roberta(), 513));
  ASSERT_TRUE(find(padded, "context_beyond_table"));
  EXPECT_NE(find(padded, "context_beyond_table")->fix.find("--prefix 2 --to 515"),
            std::string::npos);
}

TEST(Input, PaddingMovesTheFirstRow) {
  const ModelSpec spec = read(roberta());
  ASSERT_EQ(spec.input.size(), 1u);
  EXPECT_EQ(text_of(spec), "learned width=768 rows=514 offset=2");
  EXPECT_EQ(spec.input[0].positions, 512);
  EXPECT_EQ(spec.input[0].padding_row, 1);
  EXPECT_EQ(spec.input[0].counts, PositionRule::tokens);
  EXPECT_EQ(severity_of(doctor(spec), "padding_offset"), "note");
  // Another padding, none, one outside the table.
  EXPECT_EQ(severity_of(read(with(roberta(), "pad_token_id", 0)).findings, "padding_offset"),
            "warning");
  const ModelSpec none = read(with(roberta(), "pad_token_id", nullptr));
  EXPECT_EQ(severity_of(none.findings, "missing_key"), "error");
  EXPECT_TRUE(none.input.empty());
  EXPECT_EQ(severity_of(read(with(roberta(), "pad_token_id", 600)).findings, "missing_key"),
            "none");
  EXPECT_TRUE(read(with(roberta(), "pad_token_id", 600)).has_error());
  // ESM's class has no padding of its own, its checkpoints state 1.
  const Json esm = config(R"({"model_type": "esm", "hidden_size": 320, "num_attention_heads": 20,
    "num_hidden_layers": 6, "max_position_embeddings": 1026,
    "position_embedding_type": "absolute"})");
  EXPECT_TRUE(read(esm).has_error());
  EXPECT_EQ(text_of(read(with(esm, "pad_token_id", 1))), "learned width=320 rows=1026 offset=2");
  EXPECT_FALSE(read(with(esm, "position_embedding_type", "rotary")).has_error());
}

TEST(Input, OffsetsThatDoNotFollowPadding) {
  const Json opt = config(R"({"model_type": "opt", "hidden_size": 768, "ffn_dim": 3072,
    "num_attention_heads": 12, "num_hidden_layers": 12, "max_position_embeddings": 2048,
    "pad_token_id": 1, "word_embed_proj_dim": 768})");
  const ModelSpec spec = read(opt);
  EXPECT_EQ(text_of(spec), "learned width=768 rows=2050 offset=2");
  EXPECT_EQ(spec.input[0].counts, PositionRule::mask);
  EXPECT_EQ(text_of(read(with(opt, "pad_token_id", 0))), text_of(spec));
  EXPECT_EQ(severity_of(doctor(spec), "padding_offset"), "note");
  EXPECT_EQ(severity_of(doctor(spec), "left_padding"), "none");  // it counts by the mask
  // mBART's checkpoints scale although the class does not.
  const Json bart = config(R"({"model_type": "mbart", "d_model": 1024, "encoder_layers": 12,
    "decoder_layers": 12, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
    "max_position_embeddings": 1024, "scale_embedding": true, "pad_token_id": 1})");
  EXPECT_EQ(text_of(read(bart)), "learned width=1024 rows=1026 offset=2 input_gain=32");
  EXPECT_EQ(read(bart).input[0].tensors,
            std::vector<std::string>{"decoder.embed_positions.weight"});
  EXPECT_EQ(read(bart).towers.at(0).input.at(0).tensors,
            std::vector<std::string>{"encoder.embed_positions.weight"});
  const Json nystrom = config(R"({"model_type": "nystromformer", "hidden_size": 768,
    "num_attention_heads": 12, "num_hidden_layers": 12, "max_position_embeddings": 510})");
  EXPECT_EQ(text_of(read(nystrom)), "learned width=768 rows=512 offset=2");
  // XLM and similar models: a sinusoid where the file says so.
  for (const auto& [kind, key] : {std::pair("xlm", "sinusoidal_embeddings"),
                                  {"flaubert", "sinusoidal_embeddings"},
                                  {"distilbert", "sinusoidal_pos_embds"}}) {
    const Json base = config(R"({"emb_dim": 64, "dim": 64, "n_layers": 2, "n_heads": 4,
      "max_position_embeddings": 128})");
    const Json one = with(base, "model_type", kind);
    EXPECT_EQ(text_of(read(with(one, key, false))), "learned width=64 rows=128") << kind;
    const ModelSpec sines = read(with(one, key, true));
    EXPECT_EQ(text_of(sines), "sinusoidal width=64") << kind;
    EXPECT_EQ(sines.input.at(0).positions, 128);
    EXPECT_EQ(sines.input.at(0).tensors, std::vector<std::string>{"position_embeddings.weight"});
    EXPECT_EQ(
        severity_of(doctor(read(with(with(one, key, true), "max_position_embeddings", 16), 64)),
                    "context_beyond_table"),
        "warning");
  }
  // XGLM: offset 2 whatever padding is, and padding's row is zero: row 3 is position 1.
  const Json xglm = config(R"({"model_type": "xglm", "d_model": 1024, "attention_heads": 16,
    "num_layers": 24, "max_position_embeddings": 2048, "scale_embedding": true,
    "pad_token_id": 1})");
  EXPECT_NE(text_of(read(xglm)).find("offset=2 zero_position=-1 input_gain=32"), std::string::npos)
      << text_of(read(xglm));
  EXPECT_EQ(severity_of(doctor(read(xglm)), "peer_bug"), "note");
  EXPECT_EQ(severity_of(doctor(read(xglm)), "left_padding"), "note");
  const ModelSpec moved = read(with(xglm, "pad_token_id", 3));
  EXPECT_NE(text_of(moved).find("offset=2 zero_position=1"), std::string::npos) << text_of(moved);
  EXPECT_EQ(severity_of(moved.findings, "padding_offset"), "warning");
}

TEST(Input, LeftPaddingIsSaidOfDecodersOnly) {
  const Json gpt2 = config(R"({"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12,
    "n_positions": 1024, "n_ctx": 1024})");
  EXPECT_EQ(severity_of(doctor(read(gpt2)), "left_padding"), "note");
  EXPECT_EQ(severity_of(doctor(read(bert())), "left_padding"), "none");
  EXPECT_EQ(severity_of(doctor(read(opus_mt())), "left_padding"), "none");
}

TEST(Input, OddAndTinyWidthsOfSinusoids) {
  const ModelSpec odd = read(with(opus_mt(), "d_model", 511));
  EXPECT_FALSE(odd.has_error());
  EXPECT_NE(text_of(odd).find("odd=truncate"), std::string::npos) << text_of(odd);
  EXPECT_EQ(severity_of(odd.findings, "sinusoid_width"), "warning");
  const Json m2m = config(R"({"model_type": "m2m_100", "d_model": 1024, "encoder_layers": 12,
    "decoder_layers": 12, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
    "max_position_embeddings": 1024, "scale_embedding": true, "pad_token_id": 1})");
  EXPECT_EQ(text_of(read(m2m)),
            "sinusoidal width=1024 layout=halves spacing=t2t offset=2 zero_position=-1 "
            "input_gain=32");
  EXPECT_NE(text_of(read(with(m2m, "d_model", 1023))).find("odd=zero_pad"), std::string::npos);
  for (const int width : {2, 3})
    EXPECT_EQ(severity_of(read(with(m2m, "d_model", width)).findings, "sinusoid_width"), "error");
  EXPECT_FALSE(read(with(opus_mt(), "d_model", 2)).has_error());  // its spacing divides by nothing
  const Json whisper = config(R"({"model_type": "whisper", "d_model": 385, "encoder_layers": 4,
    "decoder_layers": 4, "encoder_attention_heads": 5, "decoder_attention_heads": 5,
    "max_source_positions": 1500, "max_target_positions": 448})");
  EXPECT_EQ(severity_of(read(whisper).findings, "sinusoid_width"), "warning");
  EXPECT_TRUE(read(whisper).towers.at(0).input.empty());
}

TEST(Input, ScaleBesideASinusoid) {
  EXPECT_NE(text_of(read(opus_mt())).find("input_gain=22.6274"), std::string::npos);
  EXPECT_EQ(severity_of(read(opus_mt()).findings, "embedding_scale"), "note");
  const ModelSpec off = read(with(opus_mt(), "scale_embedding", false));
  EXPECT_EQ(text_of(off).find("input_gain"), std::string::npos);
  const Finding* f = find(off.findings, "embedding_scale");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->severity, Severity::warning);
  for (const char* word : {"22.627", "norm 16", "0.453"})  // reference section 2
    EXPECT_NE(f->message.find(word), std::string::npos) << f->message;
  // MusicGen's class has the key and multiplies nothing.
  const Json musicgen = config(R"({"model_type": "musicgen_decoder", "hidden_size": 1024,
    "num_attention_heads": 16, "num_hidden_layers": 24, "max_position_embeddings": 2048})");
  EXPECT_EQ(severity_of(read(musicgen).findings, "key_ignored"), "none");
  const ModelSpec said = read(with(musicgen, "scale_embedding", true));
  EXPECT_EQ(severity_of(said.findings, "key_ignored"), "warning");
  EXPECT_EQ(text_of(said).find("input_gain"), std::string::npos);
}

TEST(Input, SinusoidsThatAreKeptEnd) {
  const auto far = doctor(read(opus_mt(), 1000));
  ASSERT_TRUE(find(far, "context_beyond_table"));
  EXPECT_EQ(find(far, "context_beyond_table")->severity, Severity::warning);
  EXPECT_EQ(find(far, "context_beyond_table")->value, 512.0);
  EXPECT_TRUE(find(doctor(read(opus_mt())), "peer_bug"));  // Marian's own spacing is another
  EXPECT_LT(*find(doctor(read(opus_mt())), "float32_angle")->value, 1e-4);
}

TEST(Input, ImagesBoxesAndTwoTables) {
  const Json vit = config(R"({"model_type": "vit", "hidden_size": 768, "num_attention_heads": 12,
    "num_hidden_layers": 12, "image_size": 224, "patch_size": 16})");
  EXPECT_EQ(text_of(read(vit)), "learned width=768 rows=197");
  EXPECT_EQ(read(vit).input[0].image_prefix, 1);
  EXPECT_EQ(text_of(read(with(vit, "image_size", Json::array({384, 224})))),
            "learned width=768 rows=337");
  EXPECT_TRUE(read(with(vit, "image_size", Json::array({384, "x"}))).has_error());
  EXPECT_NE(find(doctor(read(vit, 500)), "context_beyond_table")->fix.find("bicubic"),
            std::string::npos);
  const Json mae = with(with(vit, "model_type", "vit_mae"), "decoder_hidden_size", 512);
  EXPECT_EQ(severity_of(doctor(read(mae)), "peer_bug"), "note");
  const Json layoutlm = config(R"({"model_type": "layoutlm", "hidden_size": 768,
    "num_attention_heads": 12, "num_hidden_layers": 12, "max_position_embeddings": 512,
    "max_2d_position_embeddings": 1024})");
  ASSERT_EQ(read(layoutlm).input.size(), 2u);
  EXPECT_EQ(to_text(read(layoutlm).input[1].value), "boxes width=768");
  // LayoutLMv3: counted like RoBERTa, boxes side by side, two biases in the score.
  const Json v3 = config(R"({"model_type": "layoutlmv3", "hidden_size": 768, "pad_token_id": 1,
    "num_attention_heads": 12, "num_hidden_layers": 12, "max_position_embeddings": 514,
    "max_2d_position_embeddings": 1024, "coordinate_size": 128, "shape_size": 128})");
  EXPECT_EQ(text_of(read(v3)), "learned width=768 rows=514 offset=2");
  ASSERT_EQ(read(v3).input.size(), 2u);
  EXPECT_EQ(to_text(read(v3).input[1].value), "boxes width=768 coordinate=128 shape=128 clip=true");
  EXPECT_EQ(read(v3).layers.at(0).scheme, "layoutlm");
  EXPECT_EQ(read(with(with(v3, "has_relative_attention_bias", false), "has_spatial_attention_bias",
                      false))
                .layers.at(0)
                .scheme,
            "none");
  const ModelSpec v2 = read(with(v3, "model_type", "layoutlmv2"));
  EXPECT_EQ(text_of(v2), "learned width=768 rows=514");
  EXPECT_EQ(to_text(v2.input.at(1).value), "boxes width=768 coordinate=128 shape=128");
  const Json led = config(R"({"model_type": "led", "d_model": 768, "encoder_layers": 6,
    "decoder_layers": 6, "encoder_attention_heads": 12, "decoder_attention_heads": 12,
    "max_encoder_position_embeddings": 16384, "max_decoder_position_embeddings": 1024})");
  EXPECT_EQ(text_of(read(led)), "learned width=768 rows=1024");
  EXPECT_EQ(to_text(read(led).towers.at(0).input.at(0).value), "learned width=768 rows=16384");
  // BEiT: by its flags.
  const Json beit = config(R"({"model_type": "beit", "hidden_size": 768, "num_attention_heads": 12,
    "num_hidden_layers": 12, "image_size": 224, "patch_size": 16,
    "use_absolute_position_embeddings": false, "use_relative_position_bias": true})");
  EXPECT_TRUE(read(beit).input.empty());
  EXPECT_EQ(read(beit).layers.at(0).scheme, "beit");
  const ModelSpec rows = read(with(with(beit, "use_absolute_position_embeddings", true),
                                   "use_relative_position_bias", false));
  EXPECT_EQ(text_of(rows), "learned width=768 rows=197");
  EXPECT_EQ(rows.layers.at(0).scheme, "none");
  const Json mpt = config(R"({"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32,
    "max_seq_len": 2048, "attn_config": {"alibi": true, "alibi_bias_max": 16}})");
  EXPECT_EQ(severity_of(read(mpt).findings, "key_ignored"), "warning");
}

// Run in transformers 5.23: CLVP's decoder calls no rotary and has position_embeds_layer, 608 rows;
// its encoders turn q, k and v, or nothing.
TEST(Input, ClvpTurnsInItsEncodersAlone) {
  const ModelSpec decoder = read(config(R"({"model_type": "clvp_decoder"})"));
  ASSERT_FALSE(decoder.has_error()) << errors_of(decoder);
  EXPECT_EQ(text_of(decoder), "learned width=1024 rows=608");
  EXPECT_EQ(decoder.input.at(0).tensors, std::vector<std::string>{"position_embeds_layer.weight"});
  for (const LayerSpec& layer : decoder.layers) EXPECT_FALSE(layer.rotary);
  const Json encoder = config(R"({"model_type": "clvp_encoder", "projection_dim": 768})");
  const ModelSpec turns = read(encoder), plain = read(with(encoder, "use_rotary_embedding", false));
  ASSERT_EQ(turns.layers.size(), 20u) << errors_of(turns);
  ASSERT_EQ(plain.layers.size(), 20u) << errors_of(plain);
  EXPECT_TRUE(turns.layers[0].rotary && turns.layers[0].rotates_value);
  EXPECT_FALSE(plain.layers[0].rotary);
  EXPECT_EQ(plain.layers[0].scheme, "none");
  EXPECT_TRUE(plain.input.empty());
}

}  // namespace
}  // namespace posenc
