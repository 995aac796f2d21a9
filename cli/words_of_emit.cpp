// SPDX-License-Identifier: Apache-2.0
// The words of emit.
#include "numbers.h"
#include "words.h"

namespace posenc::cli {

void add_emit_verb(CLI::App& app, EmitOptions& o, std::function<int()>& chosen) {
  auto* e =
      app.add_subcommand("emit", "what rotates or attends here, as a file of another program");
  e->add_option("KIND", o.kind,
                "onnx: a model of one node, RotaryEmbedding with exact cos and sin, or Attention "
                "with what\na scheme adds to the score; operator set 23")
      ->type_name("")
      ->required()
      ->check(CLI::IsMember({"onnx"}));
  add_subject(e, o.call.subject, Takes::model_or_scheme);
  add_places(e, o.call,
             "of a rotation: 0:N, the rows of its caches (default of a MODEL: its context);\nof "
             "the score: those of the queries, A:B[:STEP], a list or an .npy");
  e->add_option("--heads", o.heads, "of the score: heads of the attention")
      ->type_name("N")
      ->transform(whole_number(1, 65536));
  e->add_option("--head-dim", o.head_dim, "of the score: channels of a head of q and k")
      ->type_name("N")
      ->transform(whole_number(1, 65536));
  add_params(e, o.call.params);
  e->add_option("--dtype", o.dtype, "of the tensors: f32 (default), f16 or bf16")->type_name("T");
  e->add_option("-o,--output", o.output, "F.onnx, written whole or not at all; - is stdout")
      ->type_name("F")
      ->required();
  add_json(e, o.json);
  e->footer(
      "Examples:\n  posenc emit onnx models/llama --positions 0:8192 -o rotary.onnx\n"
      "  posenc emit onnx \"rope head_dim=128 pairing=half_split + yarn factor=4 "
      "original_context=4096\" \\\n    --context 16384 --positions 0:16384 --dtype f16 -o "
      "rotary.onnx\n"
      "  posenc emit onnx \"t5 bidirectional=false\" --params t5.safetensors --heads 8 --head-dim "
      "64 \\\n    --positions 0:512 --mask causal -o attention.onnx");
  e->callback([&o, &chosen] { chosen = [&o] { return emit_verb(o); }; });
}

}  // namespace posenc::cli
